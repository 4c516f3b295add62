//===- Plan.h - The mesh and the ordered tactics ----------------------------------------===//
// A plan comes from flags or from a file (`pc.plan`). Flags are only a way to write one.
//===-----------------------------------------------------------------------------===//
#ifndef PC_DRIVER_PLAN_H
#define PC_DRIVER_PLAN_H

#include "mlir/IR/Builders.h"
#include "pc/Driver/Tactic.h"
#include "pc/IR/PC.h"
#include "pcrt/pcrt.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/LogicalResult.h"
#include <optional>
#include <string>

namespace pc {

/// The strategy flags of pc-compile as the user wrote them; a flag given without a value holds "".
struct StrategyFlags {
  std::string mesh; ///< "dp=2,tp=2"
  std::optional<std::string> dataParallel, tensorParallel, contextParallel, pipeline;
  std::string zero = "0"; ///< "3" or "3:axis"
  bool sequenceParallel = false;
  int64_t microbatches = 1;
  std::string recompute = "none", precision = "f32", gradientPrecision = "f32";
  std::string pipelineAxis = "pp", stages = "cost";
  int64_t interleave = 1; ///< chunks per stage; 1: as the schedule says
  std::string window;     ///< axes: "tp,row"
  std::string zeroKeep;   ///< parameters that stage 3 gathers once: "wte.*|h.11.*"
};

struct Plan {
  llvm::SmallVector<std::pair<std::string, int64_t>> mesh; ///< axes, outermost first
  llvm::SmallVector<Tactic> tactics;                       ///< in order
  int64_t microbatches = 1;

  /// The size of an axis, 0 where there is none of this name.
  int64_t sizeOf(llvm::StringRef axis) const;
  /// Ranks among which a tactic splits the vocabulary.
  int64_t vocabularyRanks() const;
  /// What a padded vocabulary is a multiple of: these ranks; for CUDA devices also what their tensor cores need.
  int64_t vocabularyMultiple(bool cuda) const;
  /// The tactic that cuts the program into stages, or null.
  const Tactic *pipeline() const;
  /// Whether a tactic splits the dim that norms work on.
  bool splitsEmbed() const;
  /// The axes of ZeRO.
  llvm::SmallVector<std::string> shardAxes() const;
  /// The pass that pads parameters for what splits them over a data axis, or "" where no tactic does.
  std::string padding() const;
  /// "dp=2,tp=2"
  std::string meshText() const;
  /// The plan as an op.
  PlanOp build(mlir::OpBuilder &builder) const;
  /// The text of a plan file.
  std::string text(mlir::MLIRContext *context) const;
};

/// The plan that the flags mean, or null after writing a message to `error`; `status` says whether the flags are wrong
/// (PCRT_USAGE) or ask for something that does not exist (PCRT_INFEASIBLE).
std::optional<Plan> planFromFlags(const StrategyFlags &flags, std::string &error, pcrt_status &status);

/// The plan in `file`, or null after an error was emitted; `status` says whether the file holds no plan
/// (PCRT_BAD_INPUT) or one whose tactics do not go together (PCRT_INFEASIBLE).
std::optional<Plan> planFromFile(mlir::MLIRContext *context, llvm::StringRef file, pcrt_status &status);

} // namespace pc

#endif
