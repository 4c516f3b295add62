//===- Problem.h - The problem of scheduling moves -----------------------------------===//
// The problem is a block as a sequence of positions, and moves that may start and end within ranges of these positions.
// The solution is a list of buckets of moves with one start and one wait each (Buckets.cpp, which does not depend on
// IR). VerifyScheduled.cpp checks the resulting program without including Problem.h or Buckets.cpp.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_PROBLEM_H
#define PC_LIB_OVERLAP_PROBLEM_H

#include "pcrt/pcrt.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>

namespace pc {

/// A move. Positions number the ops of its block; -1 is before the first one.
struct MoveItem {
  int64_t group = 0;    ///< number of its axes; moves with equal numbers share a communicator
  int64_t kind = 0;     ///< only moves of equal group and kind share a bucket
  int64_t bytes = 0;    ///< payload
  int64_t ready = -1;   ///< the op after which it may start
  int64_t place = 0;    ///< its position in the block
  int64_t needed = 0;   ///< the op before which it must be done
  int64_t last = 0;     ///< the last op that reads its result
  bool mayWait = false; ///< it may wait for other moves to fill a bucket
  bool inPlace = false; ///< its result may overwrite its input, so that it needs no memory while it is in flight
  int64_t unit = -1;    ///< the unit with which it is prefetched; -1: none
  int64_t line = 0;     ///< units of equal lines are prefetched one after the other: 1 for carries, 0 for gathers
};

/// Limits for the memory that a schedule may use to hide moves.
struct ScheduleLimits {
  int64_t bucketBytes;                   ///< payload of a bucket; a larger move is a separate bucket
  int64_t depth;                         ///< the number of units that are gathered ahead of the one in use
  int64_t aheadBytes;                    ///< maximum payload of a unit and the units gathered ahead of it; 0: no limit
  int64_t mostMoves = PCRT_MOST_STARTED; ///< the most moves in a bucket
};

/// Moves that are started after op `start`, all at once, and waited for before op `wait`.
struct MoveBucket {
  llvm::SmallVector<unsigned> items;
  int64_t start = -1, wait = 0;
};

/// Puts every item into one bucket; buckets are in the order of issue. The result is deterministic and does not depend
/// on IR.
/// * Items that may wait are put into buckets by group and kind, in the order in which they are ready. A bucket starts
///   when its last item is ready. Unless its moves work in place, it is waited for when the second one after it starts,
///   to limit the inputs that are held.
/// * Items of a unit start when the unit `depth` + 1 before it in its line (in order of use) has been read for the last
///   time. So at most `depth` + 1 units of a line are in memory. A unit that is still read after later units are needed
///   is not counted, because it is in memory anyway.
/// * All others start as soon as they are ready.
/// * Waits are as late as possible. In a group they have the order of the starts, because communicators work in this
///   order.
llvm::SmallVector<MoveBucket> scheduleMoves(llvm::ArrayRef<MoveItem> items, const ScheduleLimits &limits);

} // namespace pc

#endif
