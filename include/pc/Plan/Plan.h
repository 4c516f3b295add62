//===- Plan.h - The mesh and the ordered tactics ----------------------------------------===//
// A plan comes from flags or from a file (`pc.plan`). Flags are only a way to write one.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_PLAN_H
#define PC_PLAN_PLAN_H

#include "mlir/IR/Builders.h"
#include "pc/Autodiff/Passes.h"
#include "pc/Plan/Phases.h"
#include "pc/Plan/TypedTactics.h"
#include "pc/Tactics/Passes.h"
#include "pcrt/pcrt.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/LogicalResult.h"
#include <optional>
#include <string>

namespace pc {

class StrategyFlags;

struct Plan {
  llvm::SmallVector<std::pair<std::string, int64_t>> mesh; ///< axes, outermost first
  llvm::SmallVector<Tactic> tactics;                       ///< in order
  int64_t microbatches = DifferentiateOptions().microbatches;

  /// The size of an axis, 0 where there is none of this name.
  int64_t sizeOf(llvm::StringRef axis) const;
  /// Ranks among which a tactic splits the vocabulary, and heads.
  int64_t vocabularyRanks() const;
  /// Whether one product may make q, k and v: no tactic places them separately.
  bool packsProducts() const;
  /// What a padded vocabulary is a multiple of: these ranks, and `wanted`; 0: for CUDA devices what their tensor cores
  /// need.
  int64_t vocabularyMultiple(bool cuda, int64_t wanted) const;
  /// The first tactic of a type of TypedTactics.h, if there is one.
  template <typename Typed> std::optional<Typed> find() const {
    for (const Tactic &tactic : tactics)
      if (auto typed = tactic.as<Typed>())
        return typed;
    return std::nullopt;
  }
  /// The tactics that the pipeline of a phase runs, in order.
  llvm::SmallVector<Tactic> tacticsOf(Phase phase) const;
  /// The tactic that cuts the program into stages; none if one stage has all.
  std::optional<PipelineTactic> pipeline() const;
  /// Whether a tactic splits the dim that norms work on.
  bool splitsEmbed() const;
  /// How parameters are padded for what splits them over a data axis, or null where no tactic does.
  std::optional<PadShardsOptions> padding() const;
  /// "dp=2,tp=2"
  std::string meshText() const;
  /// "dp=2,tp=2 pc-tensor-parallel{axis=tp form=1d} 4": the same of the same plans, and of no others.
  std::string key() const;
  /// The plan as an op.
  PlanOp build(mlir::OpBuilder &builder) const;
  /// The text of a plan file.
  std::string text(mlir::MLIRContext *context) const;
  /// The mesh and tactics of {mesh = "dp=2", tactics = ["pc-data-parallel{axis=dp}"]} as a plan of one microbatch, or
  /// none after writing a message to `error`.
  static std::optional<Plan> fromAttribute(mlir::Attribute attribute, std::string &error);
};

/// The plan that the flags mean by the rows of the tactics, or null after writing a message to `error`; `status` says
/// whether the flags are wrong (PCRT_USAGE) or ask for something that does not exist (PCRT_INFEASIBLE).
std::optional<Plan> planFromFlags(const StrategyFlags &flags, std::string &error, pcrt_status &status);

/// Like planFromFlags, for a program of phase `done`, on which `known` has been carried out up to there. Flags replace
/// the later phases that they are about; the others are as in `known` if it is `whole`, else what the axes of the mesh
/// imply.
std::optional<Plan> planAfter(Phase done, const Plan &known, bool whole, const StrategyFlags &flags, std::string &error,
                              pcrt_status &status);

/// The plan in `file`, or null after an error was emitted; `status` says whether the file holds no plan
/// (PCRT_BAD_INPUT) or one whose tactics do not go together (PCRT_INFEASIBLE).
std::optional<Plan> planFromFile(mlir::MLIRContext *context, llvm::StringRef file, pcrt_status &status);

} // namespace pc

#endif
