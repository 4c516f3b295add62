//===- Calls.h - Task functions and their calls --------------------------------------------===//
// A stage's step may call a private function for each of its tasks (`pc.call`), so that its text grows with the kinds
// of tasks, not with the microbatches.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_CALLS_H
#define PC_IR_CALLS_H

#include "pc/IR/PC.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace pc {

/// A function as its callers need it.
struct TaskFunction {
  mlir::func::FuncOp function;
  mlir::Block *body = nullptr;
  /// Planned: per result the argument in whose bytes it lies, -1: none.
  llvm::SmallVector<int> inPlace;
  /// Planned: what lives only in a call takes the addresses from 0 up to here.
  int64_t frameBytes = 0;

  mlir::ValueRange results() const { return body->getTerminator()->getOperands(); }
};

/// The functions that programs call, each looked up and read once.
class TaskFunctions {
public:
  const TaskFunction &of(CallOp call);

private:
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Attribute>, std::unique_ptr<TaskFunction>> functions;
};

/// The functions of a program that are no task's: one, in every program that is compiled.
llvm::SmallVector<mlir::func::FuncOp> stepsOf(mlir::ModuleOp program);
/// The offset of a value's home; -1: it has none.
int64_t homeOrNone(mlir::Value value);

/// Leaves leave the functions of `program` and become arguments; a result that is an argument or another result goes.
/// Function types become those of the blocks.
void tidyCalls(mlir::ModuleOp program);
/// The ops of functions take the place of the calls in `program`, in planned programs with their homes.
void inlineCalls(mlir::ModuleOp program);

} // namespace pc

#endif
