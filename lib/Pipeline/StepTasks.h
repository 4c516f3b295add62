//===- StepTasks.h - A training step as tasks of chunks ------------------------------------===//
// For the body of `pc.accumulate`, finds the task of each op, the values that pass from chunk to chunk, and the values
// that are added over microbatches. The step is not changed.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_STEPTASKS_H
#define PC_LIB_PIPELINE_STEPTASKS_H

#include "pc/Cost/Machine.h"
#include "pc/IR/PC.h"
#include "pc/Pipeline/Schedule.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace pc::pipeline {

/// The bytes of one rank's part of `value`.
double localBytes(mlir::Value value, MeshAttr mesh);
/// Seconds that one rank needs for its part of the work and for the bytes that it sends.
double secondsOnRank(mlir::Operation *op, MeshAttr mesh, const MachineModel &machine);
/// Whether an op is a move, a cast, a copy or a resize.
bool isUnaryLinear(mlir::Operation *op);
/// Whether the op gathers keys or values for attention over the ranks of a ring: their blocks will pass around the ring
/// (pc-window-moves), so the gathered value never exists as a whole.
bool comesRound(mlir::Operation *op);

/// The smallest parts into which a model is cut: the halves of layers (attention, feed-forward, each with its norm),
/// and the ops before and after the layers. They are found by source names. A layer of fewer than four parts is one
/// unit.
struct Units {
  std::vector<std::string> names;              ///< in model order: "embedding", "h.0.ln_1", "h.0.ln_2", .., "head"
  std::vector<int> layer;                      ///< the layer of every unit: 0 is the embedding, the last is the head
  std::vector<double> seconds;                 ///< forward and backward of one microbatch
  std::vector<double> held;                    ///< bytes on a rank that the forward pass keeps for the backward pass
  std::vector<double> fixed;                   ///< bytes on a rank: parameters, their gradients and states
  llvm::DenseMap<mlir::Operation *, int> unit; ///< the unit of every op of the body

  /// The units of a step that trains or evaluates. Fails after an error if layers do not follow each other.
  static mlir::FailureOr<Units> find(AccumulateOp accumulate, MeshAttr mesh, const MachineModel &machine);
  /// The units of the ops of a step that generates, which are in program order; `fixed` counts caches.
  static mlir::FailureOr<Units> find(llvm::ArrayRef<mlir::Operation *> ops, MeshAttr mesh, const MachineModel &machine);
  int layers() const { return layer.back() - 1; }
};

/// The ops of all tasks.
class StepTasks {
public:
  /// `chunkOf` is the chunk of every unit. With `split`, gradients of weights are separate tasks. Fails after an error
  /// if a task would need a value of a later task.
  static mlir::FailureOr<StepTasks> find(AccumulateOp accumulate, const Units &units, llvm::ArrayRef<int> chunkOf,
                                         bool split);

  int chunks() const { return numChunks; }
  /// Ops of a task, in program order. If none of them is expensive, there is no task R.
  llvm::ArrayRef<mlir::Operation *> ops(TaskKind kind, int chunk) const;
  /// Values that F of the chunk passes to the next chunk, or B to the previous one, in program order.
  llvm::ArrayRef<mlir::Value> handedOn(TaskKind kind, int chunk) const;
  /// Whether `op` depends only on parameters and is cheap, or gathers a value that passes around a ring. Every task
  /// that reads it repeats it.
  bool isMadeAgain(mlir::Operation *op) const { return madeAgain.contains(op); }

  /// A part of a yielded value. The value is the sum of all parts, with `through` (moves and casts) applied to each.
  struct Addend {
    mlir::Value value;
    llvm::SmallVector<mlir::Operation *, 2> through;
    TaskKind kind;
    int chunk;
  };
  llvm::ArrayRef<Addend> addends(unsigned yielded) const { return sums[yielded]; }

  /// The most bytes on a rank that live only within one task of a chunk.
  double workspace(int chunk, MeshAttr mesh) const;
  /// Seconds on `machine`, bytes and dependencies of the chunks, in stages over `axis`. The caller sets `stageOf` and
  /// the number of microbatches.
  Problem problem(MeshAttr mesh, mlir::StringAttr axis, const MachineModel &machine) const;

private:
  StepTasks(AccumulateOp accumulate, bool split) : accumulate(accumulate), split(split) {}
  mlir::Block &body() const { return accumulate->getRegion(0).front(); }

  void findMadeAgain();
  /// The ops of tasks that read `value`, a task's result, or values that are recomputed from it.
  llvm::SmallVector<mlir::Operation *> readersOf(mlir::Value value) const;
  void sinkGrowing();
  void splitSums();
  bool collectAddends(mlir::Value value, llvm::SmallVector<mlir::Operation *, 2> through,
                      llvm::SmallVectorImpl<Addend> &addends, llvm::SmallVectorImpl<mlir::Operation *> &inside);
  void findKinds();
  mlir::LogicalResult findHandedOn();
  bool isSummed(mlir::Operation *user) const { return mlir::isa<YieldOp>(user) || sumOps.contains(user); }

  mlir::Operation *accumulate;
  bool split;
  int numChunks = 0;
  llvm::DenseMap<mlir::Operation *, int> chunk;
  llvm::DenseMap<mlir::Operation *, TaskKind> kind;
  llvm::DenseSet<mlir::Operation *> madeAgain, sumOps, dependsOnSeed;
  std::map<std::pair<TaskKind, int>, llvm::SmallVector<mlir::Operation *>> tasks;
  std::map<std::pair<TaskKind, int>, llvm::SmallVector<mlir::Value>> handed;
  std::vector<llvm::SmallVector<Addend>> sums;
};

} // namespace pc::pipeline

#endif
