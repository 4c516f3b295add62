//===- Proof.h - Every phase computes what the one-device program computes ------------------===//
// Translation validation: the program of each phase is run once, at full size, with fingerprints instead of tensors,
// and compared with the one-device step program from which it was made. What is proved and what is not:
// docs/what-is-proved.md.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PROOF_PROOF_H
#define PC_PROOF_PROOF_H

#include "pc/IR/PC.h"

#include <memory>

namespace pc {

/// The proof of one compilation: call begin() or beginAt() first, then prove() for each phase in order. State: the
/// facts of the first program, and those of the previous phase, which error messages use. Modules are not changed.
class Proof {
public:
  /// Creates a proof without a program.
  Proof();
  ~Proof();

  /// Reads the one-device program, of the phase `step`. Emits an error if the proof does not know the meaning of an op.
  llvm::LogicalResult begin(mlir::ModuleOp step);

  /// Proves that `module` (phases placed to planned), which was made from that step and whose ops verify, computes the
  /// same. Otherwise emits an error at the op that differs. Notes name the phase, what is compared, and the op that
  /// computes the first value that the program of the previous phase does not have. `phase`: the name of the phase.
  /// `passThatBroke` finds the pass that made the error, or returns "". Both are for messages.
  llvm::LogicalResult prove(mlir::ModuleOp module, llvm::StringRef phase,
                            llvm::function_ref<std::string()> passThatBroke = {});

  /// Whether `module` computes the same. Emits no message, and does not make `module` the previous phase.
  bool isProved(mlir::ModuleOp module) const;

  /// A copy of the program with which the proof began: the step program, or the one used instead.
  mlir::ModuleOp firstProgram() const;

  /// Begins with `module` (phases placed to planned) instead of the step program, which is missing. Programs proved
  /// afterwards compute what `module` computes. Unless `fingerprint` is "", the module must have that fingerprint.
  /// Emits an error if it does not, or if the module contradicts itself.
  llvm::LogicalResult beginAt(mlir::ModuleOp module, llvm::StringRef phase, llvm::StringRef fingerprint);

  /// The fingerprint of a step program, as text that is stored in all programs made from it. Programs that compute the
  /// same have equal fingerprints. Its random numbers depend on the text of the program, so it detects errors, not
  /// forgeries. Returns "" if the proof cannot read the program.
  static std::string fingerprint(mlir::ModuleOp step);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace pc

#endif
