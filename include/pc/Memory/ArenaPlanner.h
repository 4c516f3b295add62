//===- ArenaPlanner.h - Buffers with lifetimes -> offsets in one arena ----------------===//
// Offline dynamic storage allocation: problem, algorithm and check. This file does not depend on IR. The algorithm is
// greedy best fit, larger buffers first (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
// Inference", 2020), but it begins with the buffers of the memory peak. If the arena is smaller when buffers are placed
// in the order of time, that plan is used instead.
//===-----------------------------------------------------------------------------===//
#ifndef PC_MEMORY_ARENAPLANNER_H
#define PC_MEMORY_ARENAPLANNER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <string>

namespace pc {

/// Offsets and sizes of buffers are multiples of this.
constexpr int64_t arenaAlignment = 64;

/// Bytes whose live range is from position `first` to position `last`, both included.
struct ArenaBuffer {
  int64_t bytes = 0;
  int64_t first = 0, last = 0;
};

/// The place of each buffer in an arena.
struct ArenaPlan {
  llvm::SmallVector<int64_t> offsets; ///< per buffer
  int64_t bytes = 0;                  ///< size of the arena
};

/// The largest sum of (aligned) bytes that are live at one position, a lower bound of every plan.
int64_t maxLiveBytes(llvm::ArrayRef<ArenaBuffer> buffers);

/// Finds offsets at which no two buffers that share a position overlap. Deterministic.
ArenaPlan planArena(llvm::ArrayRef<ArenaBuffer> buffers);

/// Returns the error in `plan`, or an empty text if there is none.
std::string checkArena(llvm::ArrayRef<ArenaBuffer> buffers, const ArenaPlan &plan);

} // namespace pc

#endif
