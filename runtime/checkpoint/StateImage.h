//===- StateImage.h - A copy of parameters and states in host memory ------===//
// An image is a copy of the state in an arena. A checkpoint or a new process reads it while the arena changes.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_STATEIMAGE_H
#define PCRT_CHECKPOINT_STATEIMAGE_H

#include "base/Program.h"
#include "device/Device.h"

#include <map>

namespace pcrt {

/// The layout of a copy of one rank's parameters and states: the place of each rank's part, one after the other.
class StateImage {
public:
  StateImage(const Program &program, int rank);

  int64_t bytes() const { return total; }
  /// The copies that fill the image at `memory` from the arena.
  std::vector<Device::HostCopy> copiesTo(char *memory) const;
  /// The place of the part that begins at `offset` of the arena.
  int64_t placeOf(int64_t offset) const { return places.at(offset).at; }

  /// Calls f(offset in the arena, place in the image, bytes) for every part.
  template <typename F> void forEach(F f) const {
    for (auto &[offset, place] : places)
      f(offset, place.at, place.bytes);
  }

private:
  struct Place {
    int64_t at, bytes;
  };
  std::map<int64_t, Place> places; ///< By offset in the arena.
  int64_t total = 0;
};

} // namespace pcrt

#endif // PCRT_CHECKPOINT_STATEIMAGE_H
