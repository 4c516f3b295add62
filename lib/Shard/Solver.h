//===- Solver.h - The cheapest assignment of variables under a sum of tables ------------===//
// The solver is exact. It alternates dead-end elimination and variable elimination, and does not depend on programs or
// placements. Its time is linear in the number of variables if the width (the number of entries of the tables that
// elimination creates) is bounded, as it is for a chain of layers.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_SOLVER_H
#define PC_LIB_SHARD_SOLVER_H

#include "Price.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <vector>

namespace pc {

/// A price for each combination of choices of a few variables.
struct PriceTable {
  llvm::SmallVector<unsigned, 3> variables; ///< distinct
  std::vector<Price> entries;               ///< row major over the choices of `variables`

  PriceTable() = default;
  PriceTable(llvm::SmallVector<unsigned, 3> variables, std::vector<Price> entries)
      : variables(std::move(variables)), entries(std::move(entries)) {}
  PriceTable(const PriceTable &) = default;
  PriceTable &operator=(const PriceTable &) = default;
  /// noexcept, because a growing vector copies elements whose move may throw.
  PriceTable(PriceTable &&) noexcept = default;
  PriceTable &operator=(PriceTable &&) noexcept = default;
  ~PriceTable() = default;
};

/// A choice for every variable, and its price.
struct Assignment {
  std::vector<unsigned> choice; ///< per variable
  Price price;
  size_t largestTable = 1; ///< entries of the largest table during the search
};

/// Minimizes the sum of `tables`, where variable v has `choices[v]` (at least one) choices. Among equally cheap
/// choices, lower numbers are preferred. The result has an illegal price only if every assignment does; `countIllegal`
/// then finds one with the fewest illegal entries, for an error message. Returns no value if a table would exceed
/// `limit` entries.
std::optional<Assignment> minimize(llvm::ArrayRef<unsigned> choices, std::vector<PriceTable> tables,
                                   bool countIllegal = false, size_t limit = size_t(1) << 20);

} // namespace pc

#endif
