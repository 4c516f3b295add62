//===- AlgorithmCache.h - Choices that outlive a run ----------------------===//
// One text file for each version of a library and kind of device; a line is a key and bytes in hex. Whatever goes wrong
// with it only costs time: a file that cannot be read is empty, one that cannot be written is not written.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_ALGORITHMCACHE_H
#define PCRT_CUDA_ALGORITHMCACHE_H

#include <map>
#include <string>

namespace pcrt::cuda {

class AlgorithmCache {
public:
  /// Reads `name` in PCRT_CACHE_DIR, XDG_CACHE_HOME/pc or HOME/.cache/pc. PCRT_CACHE_DIR= (empty): no cache.
  explicit AlgorithmCache(const std::string &name);

  /// Copies the `bytes` bytes of `key`. False if there are none.
  bool find(const std::string &key, void *value, size_t bytes) const;
  void insert(const std::string &key, const void *value, size_t bytes);

  /// Writes the file, whole or not at all, if anything was inserted.
  void save() const;

private:
  std::string path;
  std::map<std::string, std::string> entries; ///< Values in hex.
  bool changed = false;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_ALGORITHMCACHE_H
