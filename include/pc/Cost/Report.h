//===- Report.h - What a plan costs, before anything runs ------------------------------------===//
// Input: a planned program. Result: JSON of what it computes, stores and sends, in bytes, elements and flops per step,
// and a page of HTML that explains it. Nothing here is measured; seconds come from Simulate.h.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_REPORT_H
#define PC_COST_REPORT_H

#include "pc/Cost/Simulate.h"

namespace pc {

/// The report of a planned program, in the schema that `--report` and the runtime's `--summary` share. All figures are
/// per step.
/// * parameters: elements of all parameters without padding; a tied one counts once.
/// * flops_per_step: matrix products (`flopsOf`) of all ranks.
/// * model_flops: of these, by the type of their operands, what the model needs: the forward pass's, three times where
/// it
///   trains. Recomputation for the backward pass does not count.
/// * arena_bytes.device: the arena of `pc.arena`.
/// * memory: that arena by what lies in it at the moment of the largest demand, so that the six figures add up to it.
///   parameters: the leaves, and what the whole step reads in their place (rounded, gathered). optimizer: the states.
///   gradients: what accumulations yield (scalars aside), and what moves make of it. communication: full buffers that
///   exist for a move only (results of other all_gather and of all_to_all, operands of reduce_scatter, rounded shards
///   of what is gathered once per step). activations: other values of the forward and backward pass. workspace: the
///   rest (inputs, tables, other values of the optimizer, gaps).
/// * memory_at_most: the most of each of these at any moment of the step; what the step holds in the end (parameters,
///   optimizer, gradients) is what published formulas count.
/// * traffic: moves that send something, by axis (several joined by "+"), move and phase; moves in an accumulation
///   count once per microbatch.
/// Fails, with an error on the op, if the module is not planned.
llvm::FailureOr<llvm::json::Value> buildReport(mlir::ModuleOp planned, llvm::StringRef plan);

/// Bytes of the largest arena of a planned module's programs.
int64_t largestArena(mlir::ModuleOp planned);

/// Bytes of activations at most, as `memory_at_most` has them, of the fullest of a planned module's programs.
int64_t mostActivationBytes(mlir::ModuleOp planned);

/// What a rank of a CUDA program that moves data by NCCL holds on the device besides its arena, and no part of any
/// figure above:
/// * communicators: of its groups of several ranks, and one of all ranks; those of a pipeline's messages are not
///   counted.
/// * staging_bytes: where the runtime makes blocks contiguous for NCCL; exact.
/// * nccl_bytes_estimated: NCCL's own buffers; what it takes depends on the machine. Here: for each communicator in use
///   16 channels of one receiving end with a buffer for each of its protocols.
llvm::json::Object besideArena(mlir::ModuleOp planned);

/// Writes `report` (of buildReport, where there are stages with what the Pipeline room reports, and predictStep's
/// timeline) as one self-contained HTML page: mesh, the pipeline in time, memory over the step with its peak explained,
/// what a rank holds, traffic, work. Fails, with an error, if the module is not planned.
llvm::LogicalResult printReportPage(mlir::ModuleOp planned, llvm::json::Value report, const StepTimeline &timeline,
                                    llvm::raw_ostream &os);

} // namespace pc

#endif
