//===- Machine.h - Runs one function on all ranks in lock step --------------------------------===//
// Input: a function of any phase, values of its leaves, a mesh. Result: outputs and updates as global tensors, without
// padding. One Machine runs one function once, or one stage of a pipeline, driven by the StageRunner.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_REFERENCE_MACHINE_H
#define PC_LIB_REFERENCE_MACHINE_H

#include "StageLink.h"
#include "Store.h"
#include "pc/IR/LeavesByName.h"
#include "pc/Reference/Feeds.h"
#include "pc/Reference/Interpreter.h"
#include "pc/Reference/Ranks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pc {
using namespace mlir;

/// A function, the values of all ranks, and the next op.
class Machine {
public:
  /// With `erased`, moves and placements are ignored, as on one device. For `arena`, see Store.
  Machine(func::FuncOp function, const RunOptions &options, const Feeds &feeds, Ranks ranks, bool erased, ArenaOp arena)
      : function(function), options(options), rounds(!options.exact && hasBf16(function->getParentOfType<ModuleOp>())),
        feeds(feeds), ranks(ranks), erased(erased), store(ranks.count(), arena) {
    this->ranks.exact = options.exact;
    function.walk([&](Operation *op) { leaves.add(op); });
  }

  std::vector<Tensor> *record = nullptr;         ///< receives the trace
  const std::vector<Tensor> *expected = nullptr; ///< the trace to compare with
  StageLink *link = nullptr;                     ///< for programs of stages
  int stage = 0;

  LogicalResult run();
  /// Before the first op: with an arena, writes the leaves to their places in it.
  LogicalResult begin();
  /// Runs the next op of the function, which must be able to run.
  LogicalResult step(Operation *op);
  /// For a move over the stage axis: gives this stage's operand to the link between the stages.
  void contribute(MoveOpInterface move, Value input, int meeting) {
    link->contribute(stage, move, meeting, store.get(input));
  }
  /// Runs one op of the function on one rank, on these operands.
  FailureOr<std::vector<Tensor>> runAlone(Operation *op, ArrayRef<Tensor> operands);
  /// After the last op: reads the updated leaves from their homes.
  LogicalResult finish();
  /// Returns the results. Those of a packed parameter are divided into its parts.
  Results takeResults();

private:
  // How ops run, by kind.
  LogicalResult runBlock(Block &block);
  LogicalResult runOp(Operation *op);
  LogicalResult runLeaf(Operation *leaf);
  LogicalResult runAccumulate(AccumulateOp accumulate);
  /// Adds the yielded value to the sum over microbatches; with one microbatch, the sum is the yielded value.
  LogicalResult addToSum(OpOperand &yielded);
  LogicalResult runFusion(FusionOp fusion);
  LogicalResult runStageOp(Operation *op);
  LogicalResult runUpdate(UpdateOp update);
  LogicalResult runOutput(OutputOp output);
  /// A move in flight may read its input and write its result at any moment: with an arena, the buffer of the result
  /// holds NaNs until the wait.
  LogicalResult runStart(StartOp start);
  /// Runs the moves. The result must not depend on when, between start and wait, they run.
  LogicalResult runWait(WaitOp wait);
  /// Runs an op that every rank computes from its own tensors.
  LogicalResult compute(Operation *op);
  /// The first global index of the block that `op` indexes. Local programs have it as an operand; in placed programs it
  /// follows from the placement.
  int64_t offsetOf(Operation *op, int64_t rank);
  /// For each dim, the first global index of the rank's block of the value whose elements `op` drops.
  Shape drawnStart(DrawnOpInterface op, int64_t rank);

  FailureOr<RankTensors> apply(MoveOpInterface move, Value input);

  // Values: they are rounded and stored, compared, and assembled from the ranks.
  LogicalResult set(Value value, RankTensors tensors);
  LogicalResult setAll(ValueRange values, MutableArrayRef<RankTensors> tensors);
  /// Compares `value`, assembled from the ranks, with the trace of one device.
  LogicalResult check(Operation *op, Value value);
  /// Whether `value` depends on a sum whose addends were rounded to codes. Then it is not compared with the trace.
  bool isLossy(Operation *op, Value value);
  /// Compares a sum of codes, assembled from the ranks, with the sum on one device: the difference of each element is
  /// at most the sum of the bounds of its addends.
  LogicalResult checkSumOfCodes(MoveOpInterface move, const Tensor &whole, const Tensor &found);
  /// Adds a value, assembled and without padding, to the results.
  LogicalResult collect(Operation *op, Value value, const LeafLayout &layout, const std::string &name,
                        const Shape *valid);
  /// Adds the new value of the leaf of `update` to the results.
  LogicalResult collectUpdate(UpdateOp update, Value value);
  LeafLayout layoutOf(Operation *op, Value value) const;
  Shape localShape(Type type) const;

  func::FuncOp function;
  const RunOptions &options;
  bool rounds; ///< round values of type bf16
  const Feeds &feeds;
  LeavesByName leaves;
  Ranks ranks;
  bool erased;
  bool inFusion = false; ///< in a fusion, values are neither rounded nor stored
  Store store;
  std::vector<std::vector<double>> unrounded; ///< in exact arithmetic, blocks of addends that codes stand for
  llvm::DenseSet<Value> lossy;                ///< values that depend on sums of codes
  llvm::DenseMap<Operation *, std::vector<RankTensors>> inFlight; ///< for each start, the results of its moves
  SmallVector<UpdateOp> updates;                                  ///< finish() reads their leaves
  Results results;
  size_t next = 0; ///< position in `expected`
};

} // namespace pc

#endif
