//===- AuxiliaryFile.h - A log whose failures do not end a run ------------===//
// Files for metrics and curves. A record cannot be written if the disk is full or broken, or if the reader of a pipe
// has ended. The run then warns once, continues without the record, and tries again with a later record.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_AUXILIARYFILE_H
#define PCRT_METRICS_AUXILIARYFILE_H

#include <cstdint>
#include <string>
#include <sys/uio.h>

namespace pcrt {

/// A file of records, whose descriptor it owns. Rank 0's thread uses it.
class AuxiliaryFile {
public:
  AuxiliaryFile() = default;
  /// Warns if the last records are missing, with their number.
  ~AuxiliaryFile();
  AuxiliaryFile(const AuxiliaryFile &) = delete;
  AuxiliaryFile &operator=(const AuxiliaryFile &) = delete;

  /// Opens `path` with these flags of open(2) for writing. Throws PCRT_RESOURCE.
  void open(const std::string &path, int flags);
  bool isOpen() const { return fd >= 0; }
  bool isRegular() const { return regular; }
  /// Truncates the file to its first `bytes` bytes. Throws PCRT_RESOURCE.
  void cut(int64_t bytes);
  /// Adds a complete record or nothing, and returns whether it did. It never waits for a reader and allocates nothing.
  bool add(const iovec *parts, int count);

private:
  bool write(const iovec *parts, int count);

  std::string path;
  int fd = -1;
  bool regular = false, warned = false;
  int64_t missing = 0, lastTry = 0; ///< Records since the last one that was written.
};

} // namespace pcrt

#endif // PCRT_METRICS_AUXILIARYFILE_H
