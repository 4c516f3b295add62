//===- Proof.h - Every phase computes what the one-device program computes ------------------===//
// Translation validation: the program of each phase is run once with fingerprints in place of tensors, at full size,
// and compared with the step program, for one device, from which it was made. What is proved and what is not:
// docs/what-is-proved.md.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PROOF_PROOF_H
#define PC_PROOF_PROOF_H

#include "pc/IR/PC.h"

#include <memory>

namespace pc {

/// One proof of one compilation: begin() or beginAt() first, then prove() for each phase in order. State: the facts of
/// the first program and of the phase before, which errors compare with. Modules are not changed.
class Proof {
public:
  /// Knows no program yet.
  Proof();
  ~Proof();

  /// Reads the one-device program, of the phase `step`. Errors: an op whose meaning the proof does not know.
  llvm::LogicalResult begin(mlir::ModuleOp step);

  /// Proves that `module` (phases placed to planned), which was made from that step and whose ops verify, computes the
  /// same. Emits an error at the op where it does not, with notes: the phase, what is compared, and where the first
  /// value is made that the program of the phase before, as it was proved last, does not have. `phase`: its name;
  /// `passThatBroke` finds the pass of it that is wrong, "" where it cannot say. Both are for messages.
  llvm::LogicalResult prove(mlir::ModuleOp module, llvm::StringRef phase,
                            llvm::function_ref<std::string()> passThatBroke = {});

  /// Whether `module` computes the same, without a message and without becoming the phase before another.
  bool isProved(mlir::ModuleOp module) const;

  /// A copy of what the proof began with: the step program, or the one in its place.
  mlir::ModuleOp firstProgram() const;

  /// Begins with `module` (phases placed to planned) instead of the step program, which is missing. Programs proved
  /// afterwards compute what `module` computes. It has to be the step of this fingerprint, "" for any. Emits an error
  /// if it is not, or if the module contradicts itself.
  llvm::LogicalResult beginAt(mlir::ModuleOp module, llvm::StringRef phase, llvm::StringRef fingerprint);

  /// What a step program shows, as text that goes with the programs made of it: equal for programs that compute the
  /// same. Its random numbers are drawn by the text of the program, so it finds errors, not forgeries. "" where the
  /// proof cannot read the program.
  static std::string fingerprint(mlir::ModuleOp step);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace pc

#endif
