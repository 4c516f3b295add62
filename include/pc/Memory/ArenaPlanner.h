//===- ArenaPlanner.h - Buffers with lifetimes -> offsets in one arena ----------------===//
// Dynamic storage allocation offline: problem, algorithm and check, free of IR. The algorithm is greedy with best fit
// (by size: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020), most crowded moments
// first; in order of time where that is as good.
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

/// Bytes that are needed from position `first` to position `last`, both included.
struct ArenaBuffer {
  int64_t bytes = 0;
  int64_t first = 0, last = 0;
};

struct ArenaPlan {
  llvm::SmallVector<int64_t> offsets; ///< per buffer
  int64_t bytes = 0;                  ///< of the arena
};

/// The largest sum of (aligned) bytes needed at one position: no plan is smaller.
int64_t maxLiveBytes(llvm::ArrayRef<ArenaBuffer> buffers);

/// Offsets at which no two buffers with a common position overlap. Deterministic.
ArenaPlan planArena(llvm::ArrayRef<ArenaBuffer> buffers);

/// What is wrong with `plan`, or an empty text.
std::string checkArena(llvm::ArrayRef<ArenaBuffer> buffers, const ArenaPlan &plan);

} // namespace pc

#endif
