//===- Kept.h - The record of training state that outlives a rank's process -===//
// pc-run holds the memory for the arenas of a machine's ranks. If a rank is lost between two updates, that memory still
// holds the state of training, and new processes can continue from it. A Kept records whether the memory holds such a
// state, and after which step.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_KEPT_H
#define PCRT_COMM_KEPT_H

#include <atomic>
#include <cstdint>

namespace pcrt {

/// A state of training; zeros: there is none.
struct KeptState {
  std::atomic<int64_t> steps; ///< 1 + the number of steps that led to it.
  /// The history of norms, on which later steps depend (NormLimit::History).
  int32_t skipped, numNorms;
  float norms[128];
};

/// The kept states of one rank.
struct Kept {
  std::atomic<int32_t> updating; ///< 1: an update is in progress, or was interrupted.
  char program[24];              ///< The sum of the program that made it.
  KeptState arena, copy;         ///< The states in the arena (unless `updating`) and in the copy after it.
};

} // namespace pcrt

#endif // PCRT_COMM_KEPT_H
