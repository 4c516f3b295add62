//===- TableCheck.h - Compares a program of an executable with the planned one ----------------------===//
// VerifyTables.cpp goes through the step, VerifyCompute.cpp has the ops that compute, VerifyEvaluation.cpp the part of
// the step that is its evaluation.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_READBACK_TABLECHECK_H
#define PC_LIB_CODEGEN_READBACK_TABLECHECK_H

#include "StepReader.h"
#include "TableReader.h"
#include "pc/Codegen/CompiledKernels.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Stages.h"
#include "pcrt/pcrt.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

#include <set>

namespace pc {

/// The ops that each kernel was written for, by its name, in all programs.
struct KernelNames {
  WrittenKernels *written = nullptr;        ///< where each kernel is noted with its first op
  std::map<std::string, std::string> opsOf; ///< by function
  std::map<std::string, std::string> of;    ///< by ops and part
};

/// Checks one program of an executable against its planned program. Input: both. Result: run() is true if the step
/// calls what the program says, in its order, at its homes; if not, the op has an error. State: how far the calls have
/// been taken. One object checks once.
class TableCheck {
public:
  TableCheck(mlir::ModuleOp planned, mlir::ModuleOp kernels, KernelNames &names)
      : planned(planned), kernels(kernels), reader(kernels), names(names),
        suffix(stageAxisOf(planned) && stageOf(planned) ? "_stage" + std::to_string(stageOf(planned)) : "") {}

  bool run();
  /// After run, of a program without task functions.
  bool checkEvaluation();

  /// After those: that what ends a round is that of its rounds.
  bool checkRound();

  /// Messages of its evaluation: from a stage, to a stage, flow, number.
  std::set<std::array<uint64_t, 4>> sent, received;

private:
  using At = StepReader::At;
  using Call = StepReader::Call;

  bool readTables();
  /// Each of these takes the calls of an op from `calls`, and is false after an error.
  bool runBlock(mlir::Block &block);
  bool runOp(mlir::Operation *op);
  bool runCall(CallOp call);
  bool runAccumulate(AccumulateOp accumulate);
  bool addToSum(mlir::Operation *op, mlir::OpOperand &yielded);
  bool isAddedToSum(mlir::Operation *op, mlir::OpOperand &yielded);
  bool compute(mlir::Operation *op);
  bool launches(mlir::Operation *op, llvm::ArrayRef<At> buffers);
  bool isKernelOf(mlir::Operation *op, int64_t row, unsigned part);
  /// Whether the kernels from `row` on compute `op` after a product without this epilogue.
  bool isBeside(mlir::Operation *op, int64_t row, int32_t epilogue);
  bool product(mlir::Operation *op, const Call &call);
  bool grouped(EinsumOp op, const Call &call);
  bool attention(mlir::Operation *op, const Call &call, llvm::ArrayRef<At> buffers);
  bool together(mlir::Operation *op);
  bool move(mlir::Operation *op, MoveOpInterface move, int64_t index);
  bool isShown(mlir::Operation *op, mlir::Value value);
  bool flow(mlir::Operation *op, const Call &call, int64_t stage, int64_t id, int64_t slots, bool sends,
            mlir::Value message);
  /// Evaluations: whether the calls that a step makes for an op also come next in the evaluation.
  bool takes(std::pair<size_t, size_t> range);
  bool takesWithoutDropping(mlir::Operation *op);
  void takeMoves(StartOp start);
  void evaluateBlock(mlir::Block &block);
  bool isEvaluated(mlir::Value value);
  bool isGroup(int64_t index, llvm::ArrayRef<mlir::StringAttr> axes);

  bool refuse(mlir::Operation *op, const llvm::Twine &why) {
    op->emitOpError() << why << "; the executable does not match the planned program";
    return false;
  }
  /// Whether a call, or a table, has the values of the program; refuses if not.
  bool same(mlir::Operation *op, llvm::StringRef what, int64_t found, int64_t wanted) {
    return found == wanted ||
           refuse(op, "has " + what + " " + llvm::Twine(wanted) + ", but in the tables it is " + llvm::Twine(found));
  }
  bool same(mlir::Operation *op, llvm::StringRef what, At found, At wanted) {
    return found == wanted ||
           refuse(op, what + " lies at byte " + llvm::Twine(wanted.offset) + " (" + llvm::Twine(wanted.stride) +
                          " per microbatch), but the step's call takes " + llvm::Twine(found.offset) + " (" +
                          llvm::Twine(found.stride) + ")");
  }
  /// Rows are used once, in their order.
  bool isNext(mlir::Operation *op, int64_t row, int64_t &last) {
    return row > std::exchange(last, row) || refuse(op, "has row " + llvm::Twine(row) + " of a table out of order");
  }
  /// The next call, which has to be of `callee`; null after an error.
  const Call *expect(mlir::Operation *op, llvm::StringRef callee);
  At homeOf(mlir::Value value);
  llvm::SmallVector<At> piecesOf(mlir::Operation *op, llvm::ArrayRef<At> values);

  mlir::ModuleOp planned, kernels;
  TableReader reader;
  KernelNames &names;
  std::string suffix;
  pcrt_program program{};
  bool cuda = false;
  std::vector<pcrt_kernel> kernelRows;
  std::vector<pcrt_device_kernel> deviceRows;
  std::vector<pcrt_gemm_desc> gemmRows;
  std::vector<pcrt_move_desc> moveRows;
  std::vector<pcrt_group> groupRows;
  std::vector<pcrt_attention_desc> attentionRows;
  std::vector<pcrt_flow> flowRows;
  std::map<int64_t, int64_t> messages; ///< by row of the flows
  std::vector<Call> calls;
  size_t next = 0;
  std::set<int64_t> capacities; ///< of experts
  bool inRound = false;         ///< the calls are those of what ends a round
  int64_t lastKernel = -1, lastProduct = -1, lastMove = -1, lastAttention = -1;
  llvm::SmallVector<mlir::Operation *> outputs; ///< by their numbers
  llvm::DenseMap<mlir::Value, int64_t> tickets; ///< of starts that were read
  int64_t numTickets = 0;                       ///< in all runs of all functions
  llvm::DenseMap<int64_t, Call> shownEarly;     ///< outputs that were shown before their place, by index
  AccumulateOp current;
  int64_t microbatch = 0;
  const std::map<int64_t, int64_t> *places = nullptr; ///< of the ranges of a task's function: in the arena
  TaskFunctions functions;
  llvm::StringRef sharing; ///< the name of the ops that the last kernel of several ops is for
  llvm::StringMap<mlir::Value> leaves;
  /// The calls of an op, and of the sum over microbatches of what is yielded: from, to.
  llvm::DenseMap<mlir::Operation *, std::pair<size_t, size_t>> madeBy;
  llvm::DenseMap<mlir::OpOperand *, std::pair<size_t, size_t>> summedBy;
  std::vector<Call> evaluationCalls;
  size_t taken = 0; ///< of them
  llvm::DenseSet<mlir::Operation *> evaluated;
  llvm::DenseSet<mlir::OpOperand *> evaluatedSums, evaluatedMoves; ///< moves of a start that are made one by one
};

/// pcrt_dtype of a tensor's elements, a second time.
int32_t elementTypeOf(mlir::Value value);

} // namespace pc

#endif
