//===- Rules.h - What ops are like, said a second time -------------------------------------===//
// On purpose: a proof that took the factor rules from the compiler (lib/IR/FactorRules.cpp) would believe its mistakes.
// test/Proof/rules.cpp compares the two.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_RULES_H
#define PC_LIB_PROOF_RULES_H

#include "Where.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"

namespace pc::proof {

/// The dims of operands and results as letters: dims with one letter are one index. Operands after `operands` are
/// scalars that say where this rank's block begins.
struct Rule {
  using Letters = llvm::SmallVector<int, 6>;
  llvm::SmallVector<std::string, 8> names; ///< of letters
  llvm::SmallVector<Letters, 4> operands, results;
  llvm::SmallVector<bool, 8> whole;      ///< by letter: no axis may split it
  llvm::SmallVector<unsigned, 2> linear; ///< linear in these operands: together, or (einsum) in each one separately
  Combine combine = Combine::None;       ///< how letters that a result lacks are combined; None: they may not be split
  int indexed = -1;                      ///< the letter whose global index matters; -1: none does

  /// Parses "b s e, e f -> b s f". `r*`: as many dims as operand or result has in addition to its other letters;
  /// `ranks`: of operands, then of results. False where that does not fit.
  bool parse(llvm::StringRef spec, llvm::ArrayRef<int64_t> ranks);
  int find(llvm::StringRef name) const { return static_cast<int>(llvm::find(names, name) - names.begin()); }
};

/// The rule of an op; none if this room does not know it.
std::optional<Rule> ruleOf(mlir::Operation *op);

} // namespace pc::proof

#endif
