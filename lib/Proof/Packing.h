//===- Packing.h - How tightly homes are packed ------------------------------------------------===//
// Input: an op of a planned program. Result: a score of how well its homes are packed, used by Trace.cpp to choose
// between two candidates.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_PACKING_H
#define PC_LIB_PROOF_PACKING_H

#include "Bytes.h"

#include <map>
#include <set>

namespace pc::proof {

/// Scores how tightly the homes of an op's results are packed. Planners put a buffer at the start of the arena or at
/// the end of another buffer. If two values overlap, the one with a lower score is more likely to be wrong.
class Packing {
public:
  /// Returns the score: 2 if the homes of all results begin at such a place, plus 1 if each home is followed directly
  /// by another buffer or by the end of the arena.
  int fit(mlir::Operation *op);

private:
  /// The homes of a function.
  struct Layout {
    std::set<std::pair<int64_t, int64_t>> ranges;
    int64_t bytes = -1; ///< the size of the arena
  };
  const Layout &layoutOf(mlir::Operation *op);

  std::map<mlir::Operation *, Layout> layouts; ///< by function; never iterated
};

} // namespace pc::proof

#endif
