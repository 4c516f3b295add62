//===- Kept.h - what outlives the process of a rank -------------------------===//
//
// pc-run holds the memory in which the arenas of a machine's ranks lie. Where a
// rank is lost between two updates, that memory is the state of training, and
// new processes can go on with it. This says whether it is, and of what step.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_KEPT_H
#define PCRT_COMM_KEPT_H

#include <atomic>
#include <cstdint>

namespace pcrt {

/// Of one rank; zeros: its arena holds nothing yet.
struct Kept {
  std::atomic<int64_t> steps;    ///< 1 + how many steps the state in the arena is behind.
  std::atomic<int32_t> updating; ///< 1: an update is under way, or has not been done to its end.
  char program[24];              ///< Which one made it.
  /// What else decides about the next steps (NormLimit::History).
  int32_t skipped, numNorms;
  float norms[128];
};

} // namespace pcrt

#endif // PCRT_COMM_KEPT_H
