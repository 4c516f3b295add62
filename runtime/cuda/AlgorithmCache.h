//===- AlgorithmCache.h - Choices of algorithms that outlive a run --------===//
// There is one text file for each version of a library and kind of device. A line is a key and bytes in hex. Failures
// only cost time: a file that cannot be read counts as empty, and if a file cannot be written, nothing is stored.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_ALGORITHMCACHE_H
#define PCRT_CUDA_ALGORITHMCACHE_H

#include <map>
#include <string>

namespace pcrt::cuda {

/// The entries of one file, read by the constructor. One thread uses it.
class AlgorithmCache {
public:
  /// Reads `name` in PCRT_CACHE_DIR, XDG_CACHE_HOME/pc or HOME/.cache/pc. If PCRT_CACHE_DIR is empty, there is no
  /// cache.
  explicit AlgorithmCache(const std::string &name);

  /// Copies the `bytes` bytes of `key` to `value`. Returns false if there is no entry of this size.
  bool find(const std::string &key, void *value, size_t bytes) const;
  void insert(const std::string &key, const void *value, size_t bytes);

  /// Writes the file if anything was inserted. Either the complete file replaces the old one, or nothing happens.
  void save() const;

private:
  std::string path;
  std::map<std::string, std::string> entries; ///< Values in hex.
  bool changed = false;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_ALGORITHMCACHE_H
