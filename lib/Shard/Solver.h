//===- Solver.h - The cheapest assignment of variables under a sum of tables ------------===//
// Exact: dead-end elimination and variable elimination in turns. Knows nothing of programs or placements. Time is
// linear in the number of variables where the width that is left after dead ends is bounded, as it is for layers in a
// row.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_SOLVER_H
#define PC_LIB_SHARD_SOLVER_H

#include "Price.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <vector>

namespace pc {

/// A price per combination of the choices of a few variables.
struct PriceTable {
  llvm::SmallVector<unsigned, 3> variables; ///< distinct
  std::vector<Price> entries;               ///< row major over the choices of `variables`
};

struct Assignment {
  std::vector<unsigned> choice; ///< per variable
  Price price;
  size_t largestTable = 1; ///< entries of the largest table on the way
};

/// Minimizes the sum of `tables`, variable v having `choices[v]` (at least one) choices. Of equally cheap choices lower
/// numbers are preferred. Entries with an illegal price exclude each other's combination unless nothing else is left;
/// `countIllegal` makes the solver minimize their number instead, to explain why nothing is legal. No value if a table
/// would exceed `limit` entries.
std::optional<Assignment> minimize(llvm::ArrayRef<unsigned> choices, std::vector<PriceTable> tables,
                                   bool countIllegal = false, size_t limit = size_t(1) << 20);

} // namespace pc

#endif
