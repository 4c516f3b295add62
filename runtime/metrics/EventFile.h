//===- EventFile.h - Curves for TensorBoard -------------------------------===//
// A file of TensorFlow's record format (tensorflow/core/lib/io/record_writer.h) with Event messages
// (tensorflow/core/util/event.proto) of scalars.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_EVENTFILE_H
#define PCRT_METRICS_EVENTFILE_H

#include "metrics/AuxiliaryFile.h"

#include <cstdint>
#include <span>

namespace pcrt {

/// A point of the curve with this tag.
struct Scalar {
  const char *tag;
  float value;
};

/// One new file of curves. Rank 0's thread uses it.
class EventFile {
public:
  /// Creates a new file in `directory`, which is created if it is missing. Throws PCRT_RESOURCE.
  explicit EventFile(const std::string &directory);
  /// Records that a run begins at `step`, so that TensorBoard hides points of this and later steps in earlier files.
  void begin(int64_t step);
  /// Adds at most 16 scalars, whose tags have at most 40 characters. Allocates nothing. A failed write is a warning
  /// (AuxiliaryFile).
  void add(int64_t step, std::span<const Scalar> scalars);

private:
  bool writeHead();
  bool write(const char *event, size_t length);

  AuxiliaryFile file;
  bool hasVersion = false, hasStart = false;
  int64_t firstStep = 0; ///< The argument of begin.
};

} // namespace pcrt

#endif // PCRT_METRICS_EVENTFILE_H
