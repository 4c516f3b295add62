//===- PlanCheck.h - Checks that a plan computes what one device computes, or is refused -===//
// Used by pc-random for programs that no importer writes.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_RANDOM_PLANCHECK_H
#define PC_TOOLS_RANDOM_PLANCHECK_H

#include "Program.h"

#include "mlir/IR/MLIRContext.h"

/// The result of a compile.
struct PlanResult {
  std::string wrong;     ///< what is wrong, or empty
  std::string refused;   ///< why the plan was refused, or empty
  double difference = 0; ///< the largest relative one of a result
};

/// Compiles the program up to its memory plan, with the proof, and runs it in the interpreter. Also runs its step on
/// one device and in one microbatch. The plan is wrong if results differ by more than `tolerance`, or if the exit code
/// of the compile is neither 0 nor, after an error, 4.
PlanResult checkPlan(mlir::MLIRContext *context, const RandomProgram &program, double tolerance);

#endif
