//===- Trace.h - Finds the op that makes a proof fail ----------------------------------------===//
// If a program is not proved, it is walked again with a record of all values, and so is the step program. The fault is
// at an op whose operands exist in the step or in the previous phase, but whose result does not exist there.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_TRACE_H
#define PC_LIB_PROOF_TRACE_H

#include "Bytes.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace pc::proof {

/// The kind of fault.
enum class FaultKind { Place, Scale, Norm, Update, Value, Data, Message, Memory, Precision };
llvm::StringRef nameOf(FaultKind fault);

/// The place at which a walk failed.
struct Failure {
  mlir::Operation *op = nullptr;
  std::string why;
  FaultKind fault = FaultKind::Place;
  llvm::SmallVector<int> from;      ///< the records of the op's operands, if there is a trace
  std::optional<Point> wanted;      ///< the value that a sink should have
  mlir::Operation *other = nullptr; ///< the op that contradicts `op`; either may be wrong
};

/// All values of a walk, in order.
struct Trace {
  /// A value and the op that computed it.
  struct Made {
    mlir::Operation *op;
    State state;
    llvm::SmallVector<int, 3> from;  ///< the records of its operands; -1: not computed by an op
    mlir::Operation *call = nullptr; ///< the call in which it was computed; null: the step itself
  };
  /// Bytes that an op reads as one value, although they hold another value.
  struct Clash {
    mlir::Operation *reader, *maker, *writer; ///< the reader, and the ops that computed the two values; null: not known
    mlir::Operation *makerCall, *writerCall;  ///< the calls in which they ran
  };
  std::vector<Made> made;
  llvm::DenseMap<mlir::Value, int> of; ///< the last record of a value
  std::vector<Clash> clashes;
  mlir::Operation *strayView = nullptr; ///< a view of another microbatch than its task has
};

/// The op to blame and the explanation.
struct Blame {
  mlir::Operation *op = nullptr;
  FaultKind fault = FaultKind::Place;
  std::string expected;               ///< or empty
  std::optional<mlir::Location> step; ///< the op of the step program that was expected
  mlir::Operation *other = nullptr;   ///< the other op, if two contradict each other
};

/// `before` has the hashes of all values of the previous phase; it is null if that phase is the step.
Blame blame(const Failure &failure, const Trace &trace, const Trace &step, const llvm::DenseSet<uint64_t> *before);

/// Returns the attributes in which `wrong` differs from `right`, such as "dim 1", without those that depend on a rank's
/// block.
std::string differenceOf(mlir::Operation *wrong, mlir::Operation *right);

/// A move to blame, and another op with the right attributes.
struct Repair {
  mlir::Operation *move, *like;
};

/// Finds a move near a failure, in a window's steps, such that a change of this move makes the program right
/// (Repair.cpp). The program is unchanged afterwards. `isProved` returns whether the changed program is proved.
std::optional<Repair> repair(mlir::ModuleOp module, const Failure &failure, const Trace &trace,
                             llvm::function_ref<bool()> isProved);

} // namespace pc::proof

#endif
