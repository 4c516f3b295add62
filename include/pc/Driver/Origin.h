//===- Origin.h - Of which phase a program is, and what was meant to become of it ----------===//
// pc-compile continues from a program of any phase. Facts about the compile that wrote the program are in attributes of
// the module (pc-sign-step). If these are missing, the ops show enough of the plan, and flags may give the rest.
//===-----------------------------------------------------------------------------===//
#ifndef PC_DRIVER_ORIGIN_H
#define PC_DRIVER_ORIGIN_H

#include "pc/Codegen/Passes.h"
#include "pc/Driver/Passes.h"
#include "pc/Plan/Plan.h"

namespace pc {

/// Attributes of a module.
inline constexpr llvm::StringLiteral planAttribute = "pc.plan", targetAttribute = "pc.target",
                                     stepAttribute = "pc.step", certificateAttribute = "pc.certificate";

/// The phase of a program, which follows from its ops; std::nullopt if it is not a program.
std::optional<Phase> phaseOf(mlir::ModuleOp module);

/// The facts that a module records about the compile that wrote it. Facts that are not recorded have their defaults;
/// `has...` shows which are recorded.
struct Origin {
  Phase phase = Phase::Model;
  Plan plan;            ///< if the module has no pc.plan, without tactics of later phases
  bool hasPlan = false; ///< the module has one
  bool hasTarget = false;
  SignStepOptions target; ///< target, attention and archs
  int64_t zigzag = 0;     ///< as pc.program says
};

/// Reads the facts that a module records. Emits an error if it is not a program or contradicts itself.
llvm::FailureOr<Origin> originOf(mlir::ModuleOp module);

/// The options of pc-sign-step.
SignStepOptions signatureOf(const Plan &plan, const GenerateKernelsOptions &kernels);

/// Writes pc.plan and pc.target.
void writeOrigin(mlir::ModuleOp module, const SignStepOptions &options);

} // namespace pc

#endif
