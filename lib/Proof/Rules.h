//===- Rules.h - The proof's own rules of ops ----------------------------------------------===//
// The proof does not use the compiler's factor rules (lib/IR/FactorRules.cpp), because then it would not notice a
// mistake in them. test/Proof/rules.cpp compares the two.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_RULES_H
#define PC_LIB_PROOF_RULES_H

#include "Where.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"

namespace pc::proof {

/// Names the dims of operands and results by letters. Dims with the same letter have the same index. There are
/// `operands` such operands; any further operands are scalars, which are the start of this rank's block.
struct Rule {
  using Letters = llvm::SmallVector<int, 6>;
  llvm::SmallVector<std::string, 8> names; ///< names of letters
  llvm::SmallVector<Letters, 4> operands, results;
  llvm::SmallVector<bool, 8> whole; ///< for each letter, whether no axis may split it
  /// The operands in which the op is linear: together, or separately for an einsum.
  llvm::SmallVector<unsigned, 2> linear;
  Combine combine = Combine::None; ///< how missing letters of a result are combined; None: they stay whole
  int indexed = -1;                ///< the letter whose global index matters; -1: none

  /// Parses "b s e, e f -> b s f". `r*` stands for all other dims of an operand or result. `ranks` has the numbers of
  /// dims of the operands, then of the results. Returns false if the text does not fit them.
  bool parse(llvm::StringRef spec, llvm::ArrayRef<int64_t> ranks);
  int find(llvm::StringRef name) const { return static_cast<int>(llvm::find(names, name) - names.begin()); }
};

/// The rule of an op; std::nullopt for ops that the proof does not know.
std::optional<Rule> ruleOf(mlir::Operation *op);
/// Whether the fingerprint of the op's results depends on the sizes of dims that must be whole. For example, attention
/// to a part of the keys computes a part of its result.
bool countsWhole(mlir::Operation *op);

} // namespace pc::proof

#endif
