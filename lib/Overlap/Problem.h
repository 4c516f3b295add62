//===- Problem.h - Moves that may be started ahead -----------------------------------===//
// Problem, algorithm, verifier: a block as a line of positions with moves that have some freedom on it; buckets with a
// start and a wait each (Buckets.cpp, free of IR); and VerifyScheduled.cpp, which knows of neither.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_PROBLEM_H
#define PC_LIB_OVERLAP_PROBLEM_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>

namespace pc {

/// A move. Positions number the ops of its block; -1 is before the first one.
struct MoveItem {
  int64_t group = 0;    ///< ranks it works over: equal numbers may share a bucket and do share a communicator
  int64_t kind = 0;     ///< equal numbers may share a bucket
  int64_t bytes = 0;    ///< payload
  int64_t ready = -1;   ///< the op after which it may start
  int64_t place = 0;    ///< the op that it is
  int64_t needed = 0;   ///< the op before which it must be done
  int64_t last = 0;     ///< the last op that uses what it gives
  bool patient = false; ///< may wait for others to fill a bucket
  bool inPlace = false; ///< its result may lie on its input, so that being under way costs no memory
  int64_t unit = -1;    ///< gathered ahead with the others of this unit, -1: not limited
};

struct ScheduleLimits {
  int64_t bucketBytes = 25 << 20; ///< payload of a bucket; a single larger move is a bucket of its own
  int64_t mostMoves = 64;         ///< in a bucket
  int64_t depth = 1;              ///< units that are gathered ahead of the one in use
  int64_t aheadBytes = 0;         ///< payload of a unit and those gathered ahead of it; 0: any
};

/// Moves that are started behind op `start`, all at once, and waited for in front of op `wait`.
struct MoveBucket {
  llvm::SmallVector<unsigned> items;
  int64_t start = -1, wait = 0;
};

/// Every item in one bucket, in the order of issue. Deterministic; independent of what the numbers stand for.
/// * Patient items of one group and kind gather in buckets, in the order in which they are ready, and start when the
/// last
///   one is. Where moves do not work in place, a bucket is waited for when the next but one starts, so that inputs do not
///   pile up.
/// * Items of a unit start when the unit `depth` + 1 before it (in order of use) has been used for the last time: at
/// most
///   `depth` + 1 units are there at any time, where uses of units do not interleave.
/// * All others start as soon as they are ready.
/// * Waits are as late as possible, but in the order of the starts within a group, as its communicator works.
llvm::SmallVector<MoveBucket> scheduleMoves(llvm::ArrayRef<MoveItem> items, const ScheduleLimits &limits);

} // namespace pc

#endif
