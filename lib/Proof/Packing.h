//===- Packing.h - How homes fit between each other --------------------------------------------===//
// Input: an op of a planned program. Result: a score of how well its homes are packed, used by Trace.cpp to choose
// between two candidates.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_PACKING_H
#define PC_LIB_PROOF_PACKING_H

#include "Bytes.h"

#include <map>
#include <set>

namespace pc::proof {

/// How well the homes of an op's results fit between other homes: planners put a buffer where the arena begins or
/// another buffer ends. If two values overlap, the one that does not lie so is more likely to be wrong.
class Packing {
public:
  /// 2 if the homes of all results begin so, and 1 more if another buffer, or the arena's end, follows each.
  int fit(mlir::Operation *op);

private:
  /// The homes of a function.
  struct Layout {
    std::set<std::pair<int64_t, int64_t>> ranges;
    int64_t bytes = -1; ///< of the arena
  };
  const Layout &layoutOf(mlir::Operation *op);

  std::map<mlir::Operation *, Layout> layouts; ///< by function; looked up only
};

} // namespace pc::proof

#endif
