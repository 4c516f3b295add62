//===- PlanCheck.h - Does a plan compute what one device computes, or refuse? -===//
#ifndef PC_TOOLS_RANDOM_PLANCHECK_H
#define PC_TOOLS_RANDOM_PLANCHECK_H

#include "Program.h"

#include "mlir/IR/MLIRContext.h"

/// What came of a compile.
struct PlanResult {
  std::string wrong;     ///< what is wrong, or empty
  std::string refused;   ///< why the plan was refused, or empty
  double difference = 0; ///< the largest relative one of a result
};

/// Compiles the program up to its memory plan, proved, and runs it in the interpreter beside its step on one device and
/// in one microbatch. It is wrong if results differ by more than `tolerance`, or if the compile ends otherwise than
/// with 0 or, after an error, with 4.
PlanResult checkPlan(mlir::MLIRContext *context, const RandomProgram &program, double tolerance);

#endif
