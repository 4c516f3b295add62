//===- Plan.h - The mesh and the ordered tactics ----------------------------------------===//
// A plan comes from flags or from a file (`pc.plan`). Flags are only a way to write one.
//===-----------------------------------------------------------------------------===//
#ifndef PC_DRIVER_PLAN_H
#define PC_DRIVER_PLAN_H

#include "mlir/IR/Builders.h"
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
};

struct Plan {
  llvm::SmallVector<std::pair<std::string, int64_t>> mesh; ///< axes, outermost first
  llvm::SmallVector<std::string> tactics;                  ///< passes with options, in order
  int64_t microbatches = 1;
  int64_t vocabularyRanks = 1; ///< ranks among which a tactic splits the vocabulary

  /// The value of an option of a tactic, "dp" of "pc-zero{axis=dp stage=3}", or `otherwise`.
  static llvm::StringRef option(llvm::StringRef tactic, llvm::StringRef name, llvm::StringRef otherwise = "");

  /// Whether a tactic changes the step before it is placed (pc-mixed-precision, pc-recompute).
  static bool isStepTactic(llvm::StringRef tactic) {
    return tactic.starts_with("pc-mixed-precision") || tactic.starts_with("pc-recompute") ||
           tactic.starts_with("pc-zigzag");
  }

  /// Whether a tactic cuts the placed program into stages.
  static bool isStageTactic(llvm::StringRef tactic) { return tactic.starts_with("pc-pipeline-parallel"); }

  /// Whether a tactic says how moves of the local program are made (pc-window-moves).
  static bool isWindowTactic(llvm::StringRef tactic) { return tactic.starts_with("pc-window-moves"); }

  /// Whether a tactic splits the dim that norms work on.
  bool splitsEmbed() const;
  /// The axes of ZeRO.
  llvm::SmallVector<std::string> shardAxes() const;
  /// The pass that pads parameters for what splits them over a data axis, or "" where no tactic does or the plan allows
  /// no padding: grids split every dim, and a pipeline's stages know no padded parameters.
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
