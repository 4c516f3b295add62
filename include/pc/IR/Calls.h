//===- Calls.h - Task functions and their calls --------------------------------------------===//
// A stage's step may call a private function for each of its tasks (`pc.call`). The program then grows with the kinds
// of tasks and not with the number of microbatches.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_CALLS_H
#define PC_IR_CALLS_H

#include "pc/IR/PC.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace pc {

/// A function for one kind of task, which the programs of stages call, and the results of memory planning that its
/// callers need.
struct TaskFunction {
  mlir::func::FuncOp function;
  mlir::Block *body = nullptr;
  /// In planned programs: for each result, the argument that it overwrites, or -1 if there is none.
  llvm::SmallVector<int> inPlace;
  /// In planned programs: the size of the frame, which holds values that are live during a call only.
  int64_t frameBytes = 0;

  /// The values that a call returns, as values of the body.
  mlir::ValueRange results() const { return body->getTerminator()->getOperands(); }
};

/// Looks up the functions that programs call. Each is read once.
class TaskFunctions {
public:
  /// The function that `call` names. The program must not change between two calls of this.
  const TaskFunction &of(CallOp call);

private:
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Attribute>, std::unique_ptr<TaskFunction>> functions;
};

/// The functions of a program that are not called: the step. Programs that are compiled have exactly one.
llvm::SmallVector<mlir::func::FuncOp> stepsOf(mlir::ModuleOp program);
/// The arena offset (home) of a value; -1: it has none.
int64_t homeOrNone(mlir::Value value);

/// Moves leaves out of the functions of `program`; the functions then get them as arguments. Removes results that are
/// arguments or repeat other results. Updates function types.
void tidyCalls(mlir::ModuleOp program);
/// Inlines all calls in `program`. In planned programs the inlined ops get the homes that they have in the caller's
/// arena.
void inlineCalls(mlir::ModuleOp program);

} // namespace pc

#endif
