//===- Report.h - What a plan costs, before anything runs ------------------------------------===//
// Input: a planned program. Result: JSON with the bytes, elements and flops that a step computes, stores and sends, and
// a page of HTML that explains them. Nothing here is measured; seconds come from Simulate.h.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_REPORT_H
#define PC_COST_REPORT_H

#include "pc/Cost/Simulate.h"

namespace pc {

/// The report of a planned program, in the schema that `--report` and the runtime's `--summary` share. All figures are
/// per step.
/// * parameters: elements of all parameters without padding; a tied one counts once.
/// * flops_per_step: matrix products (`flopsOf`) of all ranks.
/// * model_flops: products that the model itself needs, by the type of their operands. These are the products of the
///   forward pass, counted three times if the program trains. Recomputation does not count.
/// * memory: the bytes of the arena at the moment of its peak, in categories that add up to the arena. There are six,
///   and a seventh if the program generates text:
///   - parameters: the parameters, and their rounded or gathered copies that the whole step reads.
///   - optimizer: the states.
///   - caches: the keys and values of all slots.
///   - gradients: the results of accumulations, except scalars, and the results of moves of these.
///   - communication: full buffers that exist only for a move: results of all_to_all and of all_gathers that are not
///     under parameters, operands of reduce_scatter, and rounded shards of parameters that are gathered once per step.
///   - activations: other values of the forward and backward pass.
///   - workspace: everything else (inputs, tables, other values of the optimizer, gaps).
/// * memory_at_most: the peak of each category, each at its own moment. For parameters, optimizer and gradients, these
///   figures are the ones that published formulas give.
/// * traffic: moves that send something, by axis (several are joined by "+"), move and phase. Moves in an accumulation
///   count once per microbatch.
/// Fails, with an error on the op, if the module is not planned.
llvm::FailureOr<llvm::json::Value> buildReport(mlir::ModuleOp planned, llvm::StringRef plan);

/// Compares three ways to divide the products of an optimizer that multiplies matrices, such as Muon:
/// * duplicated: every rank computes all products;
/// * gram_sums: each rank computes parts of products, and the ranks add them;
/// * owners: each rank computes the products of some matrices.
/// The phase of `placed` is placed or staged. Matrices may be divided over `axes`. A row describes equal matrices and
/// one axis: the bytes that a rank sends per step, predicted seconds of moves and products, and the chosen way. A way
/// is null if the axis cannot divide the work in this way.
llvm::json::Array updateForms(mlir::ModuleOp placed, llvm::ArrayRef<std::string> axes, const MachineModel &machine);

/// Returns the size in bytes, in one space, of the largest arena of a planned module's programs.
int64_t largestArena(mlir::ModuleOp planned, Space space = Space::Device);

/// Returns the peak bytes of activations, as in `memory_at_most`. Of several programs in the module, the one with the
/// most counts.
int64_t mostActivationBytes(mlir::ModuleOp planned);

/// The bytes that a planned program without stages needs before and after the first carry of an optimizer's leaf that
/// is larger than those of layers, and the gaps in its arena. Each is linear in the number of layers, but the arena is
/// not: few layers have too few gradients to make room for the states of a table. Without such a carry, `before` is the
/// arena.
struct ArenaParts {
  int64_t before = 0, after = 0, gaps = 0;
};
ArenaParts arenaAroundTables(mlir::ModuleOp planned);

/// Returns the memory that a rank of a CUDA program with NCCL holds on the device outside of the arena. The figures
/// above do not contain it.
/// * communicators: one for each of its groups of several ranks, and one for all ranks; communicators for a pipeline's
///   messages do not count.
/// * staging_bytes: buffers in which the runtime makes blocks contiguous for NCCL; exact.
/// * nccl_bytes_estimated: NCCL's own buffers, which depend on the machine. The estimate is 16 channels for each
///   communicator in use, with one receiving end that has a buffer for each protocol.
llvm::json::Object besideArena(mlir::ModuleOp planned);

/// Writes `report` as one self-contained HTML page: mesh, the pipeline in time, memory over the step with an
/// explanation of its peak, the contents of a rank's memory, traffic, work. `report` is the result of buildReport, with
/// the report of the Pipeline room if there are stages; `timeline` comes from predictStep. Fails, with an error, if the
/// module is not planned.
llvm::LogicalResult printReportPage(mlir::ModuleOp planned, llvm::json::Value report, const StepTimeline &timeline,
                                    llvm::raw_ostream &os);

} // namespace pc

#endif
