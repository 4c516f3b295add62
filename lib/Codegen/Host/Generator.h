//===- Generator.h - Writes the step and the tables of one program ------------------------===//
// GenerateKernels.cpp writes the step op by op, and the tables. LibraryCalls.cpp writes matrix products, attention, and
// kernels that several ops share.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_GENERATOR_H
#define PC_LIB_CODEGEN_HOST_GENERATOR_H

#include "../Fuse/Gemm.h"
#include "../Fuse/Grouped.h"
#include "CheckCases.h"
#include "Description.h"
#include "Evaluation.h"
#include "HostProgram.h"
#include "KernelSet.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/Calls.h"
#include "pc/IR/LeavesByName.h"
#include "pc/IR/Stages.h"

namespace pc {

/// pcrt_dtype of a tensor's elements.
int32_t dtypeOf(mlir::Value value);

struct StepCounts;

/// The key of a flow of messages: its source stage, its destination stage and its number.
using FlowKey = std::tuple<int64_t, int64_t, int64_t>;

/// State that the programs of all stages share.
struct Executable {
  Executable(mlir::ModuleOp output, KernelTarget target, CudaLibraries libraries)
      : module(output), target(target), libraries(libraries), kernels(output, target), tables(output) {}

  mlir::ModuleOp module;
  KernelTarget target;
  CudaLibraries libraries;
  KernelSet kernels;
  Tables tables;
  /// Numbers of groups of ranks, the same in the programs of all stages.
  std::map<std::vector<int64_t>, int64_t> groups;
  std::vector<pcrt_group> groupTable;
  std::map<FlowKey, std::string> flowNames;
  std::optional<CheckCases> cases;      ///< CUDA: test cases of the kernels
  std::optional<Evaluation> evaluation; ///< for programs that train
  int64_t numStages = 0;                ///< 0: a single program
  int64_t stageAxis = 0, microbatches = 1;
};

/// Writes the step and the tables of one program.
class Generator {
public:
  Generator(mlir::ModuleOp planned, Executable &all)
      : planned(planned), cuda(all.target.cuda), all(all), kernels(all.kernels),
        suffix(all.numStages && stageOf(planned) ? "_stage" + std::to_string(stageOf(planned)) : ""),
        host(all.module, "pc_step" + suffix), tables(all.tables) {}

  /// Writes the step.
  llvm::LogicalResult run();
  /// Writes the tables. Must be called after all steps are written.
  void emitTables(llvm::json::Value report);
  /// CUDA: adds the step's kernels and library calls to the report.
  llvm::LogicalResult count(StepCounts &counts);

private:
  using Address = HostProgram::Address;

  Address addressOf(mlir::Value value);
  /// The sizes of the tables, which show the rows that an op has added.
  struct TableEnds {
    size_t kernels, products, attentions;
  };
  /// An op, and the table entries that were written for it.
  struct Written {
    mlir::Operation *op;
    TableEnds begin, end;
  };
  TableEnds ends() const { return {kernelTable.size(), gemmTable.size(), attentionTable.size()}; }

  llvm::LogicalResult emitBlock(mlir::Block &block);
  llvm::LogicalResult emitOp(mlir::Operation *op);
  llvm::LogicalResult emitRound();
  llvm::LogicalResult emitWithoutDropping(mlir::Operation *op);
  /// Lets `f` write its calls into the step, and also into the evaluation if that contains the current op.
  template <typename F> void write(F f) {
    if (toStep)
      f(*main);
    if (toEvaluation)
      f(*evaluation);
  }
  llvm::LogicalResult emitKernels(mlir::Operation *op, mlir::ValueRange operands, llvm::ArrayRef<Address> results);
  /// Returns the buffers of the kernels of `op`. `values` has the addresses of its operands and results.
  llvm::SmallVector<Address> piecesOf(mlir::Operation *op, llvm::ArrayRef<Address> values);
  int64_t addKernel(llvm::StringRef name, const KernelSet::Info &info, bool ofHost = false);
  llvm::LogicalResult addCase(llvm::StringRef name, const KernelSet::Info &info, llvm::ArrayRef<mlir::Operation *> ops,
                              llvm::ArrayRef<CheckCases::Launch> launches, llvm::ArrayRef<Address> results);
  llvm::FailureOr<int32_t> addKernelsBeside(mlir::Operation *op, llvm::ArrayRef<mlir::Value> buffers);
  llvm::LogicalResult emitGrouped(EinsumOp op);
  llvm::LogicalResult emitGrouped(const CodedExperts &experts);
  llvm::LogicalResult emitGemm(EinsumOp op);
  llvm::LogicalResult emitGemm(const FusedProduct &product);
  mlir::OpOperand *summedByProduct(mlir::Value product);
  llvm::FailureOr<int64_t> addMove(MoveOpInterface op);
  llvm::LogicalResult emitMove(MoveOpInterface op);
  llvm::LogicalResult emitAttention(mlir::Operation *op);
  llvm::LogicalResult addOwnKernels(mlir::Operation *attention, pcrt_attention_desc &desc);
  mlir::Block::iterator emitTogether(mlir::Block::iterator first);
  bool isIdle(mlir::Operation *op);
  bool isInEvaluation(mlir::Operation *op) const { return evaluation && all.evaluation->needs(op); }
  llvm::LogicalResult emitStart(StartOp op);
  llvm::LogicalResult emitAccumulate(AccumulateOp op);
  llvm::LogicalResult emitCalled(CallOp op);
  void addToSum(mlir::OpOperand &yielded);
  int32_t groupOf(llvm::ArrayRef<mlir::StringAttr> axes);
  int64_t flowOf(int64_t peer, int64_t id, bool sends, int64_t slots, mlir::Value message);
  int64_t outputOf(mlir::Operation *op);
  /// Adds a table with a unique name to this program.
  template <typename T> const T *table(llvm::StringRef name, llvm::ArrayRef<T> rows) {
    return tables.array((name + suffix).str(), rows);
  }

  mlir::ModuleOp planned;
  bool cuda;
  int64_t arena = 0, workspace = 0; ///< bytes of the arena, and of the libraries' workspace at its end
  int64_t inHost = 0, onDisk = 0;   ///< bytes of the arenas in other spaces
  Executable &all;
  KernelSet &kernels;
  std::string suffix; ///< the end of the names of this program's symbols
  HostProgram host;
  std::optional<HostProgram> evaluation;
  HostProgram *main = &host;                ///< the function being written: the step, or the end of a round
  bool toStep = true, toEvaluation = false; ///< where calls are written
  Tables &tables;
  std::vector<pcrt_kernel> kernelTable;
  std::vector<pcrt_device_kernel> deviceKernelTable;
  std::vector<KernelSet::Info> kernelInfos; ///< for the entries of kernelTable
  std::vector<pcrt_gemm_desc> gemmTable;
  std::vector<pcrt_move_desc> moveTable;
  std::vector<pcrt_attention_desc> attentionTable;
  std::vector<pcrt_flow> flowTable;
  std::map<std::pair<int64_t, int64_t>, int64_t> flows; ///< (stage of the other end, number) -> entry
  llvm::SmallVector<mlir::Operation *> outputs;         ///< the outputs that the runtime observes
  int64_t microbatch = 0;                               ///< the microbatch of the current task
  llvm::DenseMap<mlir::Value, int64_t> tickets;
  LeavesByName leaves;
  AccumulateOp current;
  std::vector<Written> written;                 ///< computing ops, in order
  TaskFunctions functions;                      ///< used only to count; when code is written, calls are inlined
  llvm::DenseMap<mlir::Block *, int64_t> calls; ///< the number of calls of functions, by body
};

/// Returns generators of all programs of `planned`, with their steps written. If calls of task functions were not
/// inlined, a function is written at its first call. Then its launches can be counted, but the step cannot run.
llvm::FailureOr<llvm::SmallVector<std::unique_ptr<Generator>>> generateSteps(mlir::ModuleOp planned, Executable &all);

} // namespace pc

#endif
