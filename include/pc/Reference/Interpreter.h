//===- Interpreter.h - Runs programs of every phase ------------------------------------===//
// The oracle: one interpreter for model, step, placed, local and planned programs. Placed, local and planned programs
// run on N simulated ranks in lock step.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_INTERPRETER_H
#define PC_REFERENCE_INTERPRETER_H

#include "pc/IR/PC.h"
#include "pc/Reference/Tensor.h"
#include <functional>
#include <string>

namespace pc {

/// How a program is interpreted, and hooks for code that sets or observes values. Differences are relative.
struct RunOptions {
  uint64_t seed = 1;
  /// If true, values of type bf16 are not rounded. Programs that are equal in exact arithmetic then agree to 1e-9,
  /// whatever their order of operations. If false, every result of type bf16 is rounded to nearest even; in a fusion,
  /// only the yielded values are rounded.
  bool exact = false;
  /// In placed programs, every value is assembled from the ranks and compared with the value of the same program on one
  /// device. This is the largest allowed difference (see `largestDifference`). It is not checked if values are rounded,
  /// because rounding depends on the order of operations. Ranks that should hold equal values are always compared.
  double tolerance = 1e-9;
  /// If set, called with each leaf and its global tensor, which the function may change.
  std::function<void(mlir::Operation *leaf, Tensor &)> feed;
  /// If set, called with every result of every op, as computed on one device. Not called for local programs of several
  /// ranks.
  std::function<void(mlir::Value, const Tensor &)> observe;
};

/// Whether a program has values of type bf16.
bool hasBf16(mlir::ModuleOp module);

/// Outputs and updates in program order, global and without padding. Names are "loss loss", "gradient w", "update w",
/// "update exp_avg of w". Outputs per microbatch are summed (loss) or concatenated along the batch (logits).
struct NamedTensor {
  std::string name;
  Tensor value;
};
using Results = std::vector<NamedTensor>;
/// The result called `name`, or null.
Tensor *find(Results &results, llvm::StringRef name);

/// Whether the interpreter knows all ops and types of `module` and can hold its sizes. Emits an error if not; a program
/// with such an error need not be wrong.
llvm::LogicalResult canInterpret(mlir::ModuleOp module);

/// Runs `@step`, else `@model`, else the only function of `module`, on as many ranks as its mesh has (on one if it has
/// no mesh). Leaves depend only on their names and the seed (Feeds.h). Every rank holds its own tensors, and moves
/// exchange them. In a placed program, every value is also assembled from the ranks and compared with the value on one
/// device. Fails after an error at the first op that the interpreter does not know, whose values differ, or whose
/// values should be equal on some ranks and are not.
llvm::FailureOr<Results> interpret(mlir::ModuleOp module, const RunOptions &options);

/// Returns the results of `op` for the given operands. Kernels of `op` must compute the same. `program` is local or
/// planned. `op` computes (it is not a leaf, move or message) or is a fusion of such ops. Results of type bf16 are
/// rounded. Fails after an error at an op that the interpreter does not know.
llvm::FailureOr<std::vector<Tensor>> interpretOp(mlir::ModuleOp program, mlir::Operation *op,
                                                 llvm::ArrayRef<Tensor> operands);

/// Whether a program updates parameters or states, so that the next step begins with new values.
bool hasUpdates(mlir::ModuleOp module);

/// Runs this number of steps on different tokens. Each begins with the parameters and states that the previous step has
/// written. The names of results of later steps end with "in step 2" and so on (Steps.cpp).
llvm::FailureOr<Results> interpretSteps(mlir::ModuleOp module, const RunOptions &options, int64_t steps);

} // namespace pc

#endif
