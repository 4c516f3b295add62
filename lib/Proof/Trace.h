//===- Trace.h - Why a program is not proved -------------------------------------------------===//
// A walk of a program that is not proved is made again with a record of all values, and so is one of the step program.
// What is wrong begins where a value of known ones is none that the step, or the phase before, has.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_TRACE_H
#define PC_LIB_PROOF_TRACE_H

#include "Bytes.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace pc::proof {

/// What kind of thing is wrong.
enum class FaultKind { Place, Scale, Norm, Update, Value, Data, Message, Memory, Precision };
llvm::StringRef nameOf(FaultKind fault);

/// Where a program shows that it is wrong.
struct Failure {
  mlir::Operation *op = nullptr;
  std::string why;
  FaultKind fault = FaultKind::Place;
  llvm::SmallVector<int> from;      ///< traced: the records of what the op reads
  std::optional<Point> wanted;      ///< of a sink: the value that it should have
  mlir::Operation *other = nullptr; ///< the op that contradicts `op`; either may be wrong
};

/// All values of a walk, in order.
struct Trace {
  /// A value and what made it.
  struct Made {
    mlir::Operation *op;
    State state;
    llvm::SmallVector<int, 3> from;  ///< the records of its operands; -1: a value that no op has made
    mlir::Operation *call = nullptr; ///< in which it was made; null: in the step itself
  };
  /// Bytes that are read as one value and hold another one.
  struct Clash {
    mlir::Operation *reader, *maker, *writer; ///< of the one, of the other; null: not known
    mlir::Operation *makerCall, *writerCall;  ///< in which they ran
  };
  std::vector<Made> made;
  llvm::DenseMap<mlir::Value, int> of; ///< the last record of a value
  std::vector<Clash> clashes;
  mlir::Operation *strayView = nullptr; ///< a view of another microbatch than its task is for
};

/// What is wrong.
struct Blame {
  mlir::Operation *op = nullptr;
  FaultKind fault = FaultKind::Place;
  std::string expected;               ///< or empty
  std::optional<mlir::Location> step; ///< the op of the step program that it should be
  mlir::Operation *other = nullptr;   ///< where two do not fit each other: the other one
};

/// `before`: hashes of all values of the phase before; null: there is none but step.
Blame blame(const Failure &failure, const Trace &trace, const Trace &step, const llvm::DenseSet<uint64_t> *before);

/// The attributes that `right` has and `wrong` has otherwise, where the block of a rank does not decide them; "dim 1".
std::string differenceOf(mlir::Operation *wrong, mlir::Operation *right);

/// A move to blame, and another op that goes about it as it should.
struct Repair {
  mlir::Operation *move, *like;
};

/// Finds the move near a failure in a window's steps whose change makes the program right (Repair.cpp). The program is
/// unchanged afterwards. `isProved` says whether the program, as it is then, is proved.
std::optional<Repair> repair(mlir::ModuleOp module, const Failure &failure, const Trace &trace,
                             llvm::function_ref<bool()> isProved);

} // namespace pc::proof

#endif
