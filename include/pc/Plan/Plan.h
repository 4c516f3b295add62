//===- Plan.h - The mesh and the ordered tactics ----------------------------------------===//
// A plan comes from flags or from a file (`pc.plan`). Flags are only a short way to write one.
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

  /// The size of the axis with this name, or 0 if there is none.
  int64_t sizeOf(llvm::StringRef axis) const;
  /// The number of ranks over which a tactic splits the vocabulary and the heads.
  int64_t vocabularyRanks() const;
  /// The number of ranks over which tactics split the batch.
  int64_t dataRanks() const;
  /// The number of contiguous chunks into which ranks split a sequence. Ring attention does not count, because it
  /// reorders the sequence.
  int64_t sequenceChunks() const;
  /// Whether one product may compute q, k and v. It may if no tactic places them separately.
  bool packsProducts() const;
  /// The number that must divide the size of a padded vocabulary, so that these ranks can split the vocabulary and
  /// `wanted` divides it. If `wanted` is 0, tensor cores determine the number on CUDA devices.
  int64_t vocabularyMultiple(bool cuda, int64_t wanted) const;
  /// Returns the first tactic that is of the type `Typed` (TypedTactics.h), if there is one.
  template <typename Typed> std::optional<Typed> find() const {
    for (const Tactic &tactic : tactics)
      if (auto typed = tactic.as<Typed>())
        return typed;
    return std::nullopt;
  }
  /// The tactics that run in the pipeline of a phase, in order.
  llvm::SmallVector<Tactic> tacticsOf(Phase phase) const;
  /// The tactic that cuts the program into stages; nullopt if there is one stage.
  std::optional<PipelineTactic> pipeline() const;
  /// Whether a tactic splits the dim that norms normalize over.
  bool splitsEmbed() const;
  /// How parameters are padded so that a data axis can split them; null if no tactic does that.
  std::optional<PadShardsOptions> padding() const;
  /// The axes among whose ranks the matrices that an optimizer multiplies may be divided.
  llvm::SmallVector<std::string> ownerAxes() const;
  /// The mesh as text, such as "dp=2,tp=2".
  std::string meshText() const;
  /// Mesh, tactics and microbatches as text, such as "dp=2,tp=2 pc-tensor-parallel{axis=tp form=1d} 4". Two plans have
  /// the same key only if they are the same.
  std::string key() const;
  /// Writes the plan as an op.
  PlanOp build(mlir::OpBuilder &builder) const;
  /// The text of a plan file.
  std::string text(mlir::MLIRContext *context) const;
  /// Reads {mesh = "dp=2", tactics = ["pc-data-parallel{axis=dp}"]} as a plan of one microbatch. Returns nullopt after
  /// writing a message to `error`.
  static std::optional<Plan> fromAttribute(mlir::Attribute attribute, std::string &error);
};

/// The plan that the flags mean, according to the table of tactics. Returns nullopt after writing a message to `error`.
/// `status` says whether the flags are wrong (PCRT_USAGE) or ask for something that does not exist (PCRT_INFEASIBLE).
std::optional<Plan> planFromFlags(const StrategyFlags &flags, std::string &error, pcrt_status &status);

/// Like planFromFlags, but for a program of phase `done`, which was compiled up to there with the plan `known`. A flag
/// replaces the tactics of later phases that it would add. The other tactics come from `known` if it is `whole`, else
/// from the axes of the mesh.
std::optional<Plan> planAfter(Phase done, const Plan &known, bool whole, const StrategyFlags &flags, std::string &error,
                              pcrt_status &status);

/// Reads the plan in `file`. Returns nullopt after emitting an error. `status` says whether the file holds no plan
/// (PCRT_BAD_INPUT) or a plan whose tactics exclude each other (PCRT_INFEASIBLE).
std::optional<Plan> planFromFile(mlir::MLIRContext *context, llvm::StringRef file, pcrt_status &status);

} // namespace pc

#endif
