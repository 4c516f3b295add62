//===- Kept.h - What outlives the process of a rank -----------------------===//
// pc-run holds the memory in which the arenas of a machine's ranks lie. Where a rank is lost between two updates, that
// memory is the state of training, and new processes can go on with it. This says whether it is, and of what step.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_KEPT_H
#define PCRT_COMM_KEPT_H

#include <atomic>
#include <cstdint>

namespace pcrt {

/// A state of training; zeros: there is none.
struct KeptState {
  std::atomic<int64_t> steps; ///< 1 + how many steps it is behind.
  /// What else decides about the next steps (NormLimit::History).
  int32_t skipped, numNorms;
  float norms[128];
};

/// The kept states of one rank.
struct Kept {
  std::atomic<int32_t> updating; ///< 1: an update is under way, or has not been done to its end.
  char program[24];              ///< Which one made it.
  KeptState arena, copy;         ///< What is in the arena, unless it is updated; and in the copy after it.
};

} // namespace pcrt

#endif // PCRT_COMM_KEPT_H
