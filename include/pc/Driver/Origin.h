//===- Origin.h - Of which phase a program is, and what was meant to become of it ----------===//
// pc-compile continues from a program of any phase. What it must know about the compile that made the program is in
// attributes of the module (pc-sign-step); where they are missing, what its ops show is enough, and flags may say the
// rest.
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

/// The phase of a program, from its ops; none if it is no program.
std::optional<Phase> phaseOf(mlir::ModuleOp module);

/// What a module says of the compile that made it. Fields that the module does not say have their defaults, and
/// `has...` distinguishes them.
struct Origin {
  Phase phase = Phase::Model;
  Plan plan;            ///< without tactics of later phases where the module has no pc.plan
  bool hasPlan = false; ///< the module has one
  bool hasTarget = false;
  SignStepOptions target; ///< target, attention and archs
  int64_t zigzag = 0;     ///< as pc.program says
};

/// What a module says of itself. Emits an error where it is no program or contradicts itself.
llvm::FailureOr<Origin> originOf(mlir::ModuleOp module);

/// The options of pc-sign-step.
SignStepOptions signatureOf(const Plan &plan, const GenerateKernelsOptions &kernels);

/// Writes pc.plan and pc.target.
void writeOrigin(mlir::ModuleOp module, const SignStepOptions &options);

} // namespace pc

#endif
