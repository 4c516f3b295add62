//===- Factors.h - Factor rules and the legal placements they generate ---------===//
// A rule gives the factor (iteration dim) of each dim of an op's operands and results, as in an einsum, and the
// operands in which the op is linear. From it, `legalRows` derives all legal placements of the op on one mesh axis. The
// type verifier, propagation, localization and costs read these.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_FACTORS_H
#define PC_IR_FACTORS_H

#include "pc/IR/Enums.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace pc {

/// The placement of a value on one mesh axis: split along a dim, whole (replicated), partial (unreduced), or rooted
/// (only on coordinate 0).
struct AxisState {
  int8_t code = -1;
  static constexpr AxisState whole() { return {-1}; }
  static constexpr AxisState sum() { return {-2}; }
  static constexpr AxisState max() { return {-3}; }
  static constexpr AxisState root() { return {-4}; }
  static constexpr AxisState split(int64_t dim) { return {static_cast<int8_t>(dim)}; }
  constexpr bool isSplit() const { return code >= 0; }
  constexpr bool isWhole() const { return code == -1; }
  constexpr bool isSum() const { return code == -2; }
  constexpr bool isMax() const { return code == -3; }
  constexpr bool isPartial() const { return isSum() || isMax(); }
  constexpr bool isRoot() const { return code == -4; }
  constexpr int64_t dim() const { return code; }
  constexpr bool operator==(AxisState o) const { return code == o.code; }
  constexpr bool operator!=(AxisState o) const { return code != o.code; }
  constexpr bool operator<(AxisState o) const { return code < o.code; }
};

/// One factor: an index that iterates over dims of operands and results.
struct Factor {
  std::string name;
  int64_t size = 0;   ///< global or local, like the types of the op
  bool whole = false; ///< its dims must not be split
};

/// The rule of one op instance. `operands[i][d]` is the factor of dim d of operand i.
struct FactorRule {
  llvm::SmallVector<Factor, 8> factors;
  llvm::SmallVector<llvm::SmallVector<int, 6>, 4> operands, results;
  PartialKind reduction = PartialKind::Sum; ///< how results are reduced over factors that they do not have
  /// Groups of operand numbers: if all operands of a group are partial and all others whole, all results are partial.
  llvm::SmallVector<llvm::SmallVector<unsigned, 2>, 2> linear;
  bool maxTransparent = false; ///< if all operands are partial maxima, so are all results

  /// Parses "b s e, e f -> b s f". Commas separate several results; "-> s d" has no operand. Returns false if the spec
  /// is malformed. Callers fill in the sizes.
  static bool parse(llvm::StringRef spec, FactorRule &rule);
  /// The number of the factor called `name`, or -1.
  int find(llvm::StringRef name) const;
  /// Marks the named factors as whole.
  FactorRule &keepWhole(std::initializer_list<llvm::StringRef> names);
};

/// One legal choice on one axis: the state of every operand and result.
struct Row {
  llvm::SmallVector<AxisState, 4> operands, results;
  int factor = -1; ///< the factor that is split, or -1 (all whole, or a linear group)
};

/// All legal rows of `rule` on one axis, for any sizes: all values whole; one factor split; one linear group partial;
/// all partial maxima; all rooted (then the other ranks compute values that are never read).
llvm::SmallVector<Row, 8> legalRows(const FactorRule &rule);

} // namespace pc

#endif
