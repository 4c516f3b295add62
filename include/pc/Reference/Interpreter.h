//===- Interpreter.h - Runs programs of every phase ------------------------------------===//
// The oracle: one interpreter for model, step, placed, local and planned programs, the last three on N simulated ranks
// in lock step.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_INTERPRETER_H
#define PC_REFERENCE_INTERPRETER_H

#include "pc/IR/PC.h"
#include "pc/Reference/Tensor.h"
#include <functional>
#include <string>

namespace pc {

struct RunOptions {
  uint64_t seed = 1;
  /// bf16 values are not rounded: programs that compute the same in exact arithmetic then agree to 1e-9, whatever their
  /// order of operations. Otherwise every result of type bf16 is rounded to nearest even, inside of fusions only what
  /// they yield.
  bool exact = false;
  /// Placed programs only: how far a value, put together from the ranks, may lie from the value of the same program on
  /// one device (see `largestDifference`). Not compared where values are rounded: two orders of operations round at
  /// different places. That ranks agree about what they share is always checked.
  double tolerance = 1e-9;
  /// Changes what any leaf (parameter, state, input; its global tensor) reads.
  std::function<void(mlir::Operation *leaf, Tensor &)> feed;
  /// Sees every result of every op as one device computes it. Not called for local programs of several ranks.
  std::function<void(mlir::Value, const Tensor &)> observe;
};

/// Whether a program has values of type bf16.
bool hasBf16(mlir::ModuleOp module);

/// Outputs and updates by name ("loss loss", "gradient w", "update w", "update exp_avg of w"), in program order, global
/// and without padding. What is observed once per microbatch is summed (loss) or put together along the batch (logits).
struct NamedTensor {
  std::string name;
  Tensor value;
};
using Results = std::vector<NamedTensor>;
/// The result called `name`, or null.
Tensor *find(Results &results, llvm::StringRef name);

/// Runs `@step`, else `@model`, else the only function of `module` on as many ranks as its mesh has (no mesh: one), on
/// feeds that depend on names and the seed alone (Feeds.h).
///
/// Every rank holds its own tensors and moves are real exchanges. In a placed program every value is also put together
/// from the ranks and compared with what one device computes. Fails after an error at the first op where the two
/// differ, where ranks disagree about a value that all should hold, or that the interpreter does not know.
llvm::FailureOr<Results> interpret(mlir::ModuleOp module, const RunOptions &options);

} // namespace pc

#endif
