//===- TableCheck.h - Compares a program of an executable with the planned one ----------------------===//
// VerifyTables.cpp goes through the step, VerifyCompute.cpp checks ops that compute, and VerifyEvaluation.cpp checks
// the evaluation.
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

/// For each kernel (by name), the ops that it implements, in all programs.
struct KernelNames {
  WrittenKernels *written = nullptr;        ///< records each kernel with its first op
  std::map<std::string, std::string> opsOf; ///< by function
  std::map<std::string, std::string> of;    ///< by ops and part
};

/// Checks one program of an executable against its planned program. Result: run() returns true if the step makes
/// exactly the calls of the program's ops, in the order of the ops and at their homes. Otherwise it emits an error at
/// the op. State: the number of calls that were already matched. One object checks once.
class TableCheck {
public:
  TableCheck(mlir::ModuleOp planned, mlir::ModuleOp kernels, KernelNames &names)
      : planned(planned), kernels(kernels), reader(kernels), names(names),
        suffix(stageAxisOf(planned) && stageOf(planned) ? "_stage" + std::to_string(stageOf(planned)) : "") {}

  bool run();
  /// Checks the evaluation. Call this after run(), for a program without task functions.
  bool checkEvaluation();

  /// Checks the function for the end of a round. Call this after the other checks.
  bool checkRound();

  /// The messages of the evaluation. Each is {from stage, to stage, flow, number}.
  std::set<std::array<uint64_t, 4>> sent, received;

private:
  using At = StepReader::At;
  using Call = StepReader::Call;

  bool readTables();
  /// Each of these functions matches the calls of an op with the next of `calls`, and returns false after an error.
  bool runBlock(mlir::Block &block);
  bool runOp(mlir::Operation *op);
  bool runCall(CallOp call);
  bool runAccumulate(AccumulateOp accumulate);
  bool addToSum(mlir::Operation *op, mlir::OpOperand &yielded);
  bool isAddedToSum(mlir::Operation *op, mlir::OpOperand &yielded);
  bool compute(mlir::Operation *op);
  bool launches(mlir::Operation *op, llvm::ArrayRef<At> buffers);
  bool isKernelOf(mlir::Operation *op, int64_t row, unsigned part);
  /// Whether the table, from `row` on, has separate kernels for `op`. This is the case if the product before them does
  /// not contain `epilogue`.
  bool isBeside(mlir::Operation *op, int64_t row, int32_t epilogue);
  bool product(mlir::Operation *op, const Call &call);
  bool grouped(mlir::Operation *op, const Call &call);
  bool attention(mlir::Operation *op, const Call &call, llvm::ArrayRef<At> buffers);
  bool together(mlir::Operation *op);
  bool move(mlir::Operation *op, MoveOpInterface move, int64_t index);
  bool isShown(mlir::Operation *op, mlir::Value value);
  bool flow(mlir::Operation *op, const Call &call, int64_t stage, int64_t id, int64_t slots, bool sends,
            mlir::Value message);
  /// Whether the calls that a step makes for an op are also the next ones of the evaluation.
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
  /// Whether a value of a call or a table equals the value in the program. Emits an error if not.
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
  /// Whether a row is the next one. Rows are used once, in their order.
  bool isNext(mlir::Operation *op, int64_t row, int64_t &last) {
    return row > std::exchange(last, row) || refuse(op, "has row " + llvm::Twine(row) + " of a table out of order");
  }
  /// Returns the next call, which has to be of `callee`; null after an error.
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
  std::map<int64_t, int64_t> messages; ///< the number of messages, by row of the flows
  std::vector<Call> calls;
  size_t next = 0;
  std::set<int64_t> capacities; ///< the capacities of experts
  bool inRound = false;         ///< the calls are those of the end of a round
  int64_t lastKernel = -1, lastProduct = -1, lastMove = -1, lastAttention = -1;
  llvm::SmallVector<mlir::Operation *> outputs; ///< by their numbers
  llvm::DenseMap<mlir::Value, int64_t> tickets; ///< tickets of starts that were read
  int64_t numTickets = 0;                       ///< the number of tickets in all runs of all functions
  llvm::DenseMap<int64_t, size_t> shownEarly;   ///< by index: calls that observe outputs before their position
  AccumulateOp current;
  int64_t microbatch = 0;
  const std::map<int64_t, int64_t> *places = nullptr; ///< maps the ranges of a task's function to the arena
  TaskFunctions functions;
  mlir::Operation *sharing = nullptr; ///< the first op of the last kernel that several ops share
  /// Maps each other op of such a kernel to its first op. The calls belong to the first op.
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> sharesKernelOf;
  llvm::StringMap<mlir::Value> leaves;
  /// For each op, the range of its calls. Sums over microbatches belong to the op that yields the value.
  llvm::DenseMap<mlir::Operation *, std::pair<size_t, size_t>> madeBy;
  llvm::DenseMap<mlir::OpOperand *, std::pair<size_t, size_t>> summedBy;
  std::vector<Call> evaluationCalls;
  size_t taken = 0; ///< the number of matched calls
  llvm::DenseSet<mlir::Operation *> evaluated;
  llvm::DenseSet<mlir::OpOperand *> evaluatedSums, evaluatedMoves; ///< moves of a start that are made one by one
};

/// pcrt_dtype of a tensor's elements, written independently of dtypeOf.
int32_t elementTypeOf(mlir::Value value);

} // namespace pc

#endif
