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

struct Scalar {
  const char *tag;
  float value;
};

class EventFile {
public:
  /// Makes a new file in `directory`, which is made where it is missing. Throws PCRT_RESOURCE.
  explicit EventFile(const std::string &directory);

  /// A run begins at `step`: what other files in the directory say of it and later steps is not shown any more.
  void begin(int64_t step);
  /// At most 16 scalars, whose tags have at most 40 characters. Allocates nothing.
  /// What cannot be written is a warning (AuxiliaryFile).
  void add(int64_t step, std::span<const Scalar> scalars);

private:
  bool writeHead();
  bool write(const char *event, size_t length);

  AuxiliaryFile file;
  bool hasVersion = false, hasStart = false;
  int64_t firstStep = 0; ///< begin's.
};

} // namespace pcrt

#endif // PCRT_METRICS_EVENTFILE_H
