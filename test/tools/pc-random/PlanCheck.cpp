//===- PlanCheck.cpp - Checks that a plan computes what one device computes, or is refused -===//
// Compares all results by name, without rounding to bf16, which depends on the order of operations.
//===----------------------------------------------------------------------===//
#include "PlanCheck.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "pc/Autodiff/Passes.h"
#include "pc/Driver/Compile.h"
#include "pc/Driver/Flags.h"
#include "pc/Reference/Interpreter.h"
#include "pc/Search/CompletePlan.h"
#include <cmath>

using namespace mlir;

/// The exit code of a compile with its first error, or "" if it was 0.
static std::string textOf(pcrt_status status, const std::string &error) {
  return "exit code " + std::to_string(status) + (error.empty() ? ", no error" : ": " + error);
}

PlanResult checkPlan(MLIRContext *context, const RandomProgram &program, double tolerance) {
  PlanResult result;
  std::string error;
  ScopedDiagnosticHandler listen(context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && error.empty())
      llvm::raw_string_ostream(error) << diagnostic << (isa<UnknownLoc>(diagnostic.getLocation()) ? " (nowhere)" : "");
  });
  auto ended = [&](pcrt_status status) {
    if (status == PCRT_INFEASIBLE && !error.empty())
      result.refused = error;
    else
      result.wrong = textOf(status, error);
    return result;
  };
  OwningOpRef<ModuleOp> one = parseSourceString<ModuleOp>(program.text, context);
  if (!one)
    return ended(PCRT_BAD_INPUT);
  OwningOpRef<ModuleOp> planned(one->clone());

  pc::CompileFlags flags;
  pc::CompileOptions options;
  llvm::raw_string_ostream usage(error);
  if (failed(flags.parseFromString(program.flags, usage)))
    return ended(PCRT_USAGE);
  if (pcrt_status status = flags.resolve(context, options, error))
    return ended(status);
  options.to = pc::Phase::Planned;
  options.output = "/dev/null";

  // This differentiates the program without pc-raise, with which a compile begins, so pc-raise is checked as well.
  pc::DifferentiateOptions step = options.step;
  if (!options.train)
    step.optimizer = "none";
  PassManager differentiate(context);
  differentiate.addPass(pc::createDifferentiate(step));
  if (failed(differentiate.run(*one))) {
    ended(PCRT_INFEASIBLE);
    result.wrong += result.refused.empty() ? " on one device" : "";
    return result;
  }
  if (pcrt_status status = pc::completePlan(*planned, pc::Phase::Model, options))
    return ended(status);
  if (pcrt_status status = pc::compile(*planned, pc::Phase::Model, options))
    return ended(status);
  pc::RunOptions run;
  run.exact = true; // bf16 rounds differently in every order of operations
  auto before = pc::interpret(*one, run), after = pc::interpret(*planned, run);
  if (failed(before) || failed(after)) {
    result.wrong = std::string(failed(before) ? "the step" : "the plan") + " cannot be interpreted: " + error;
    return result;
  }
  for (const pc::NamedTensor &value : *before) {
    pc::Tensor *other = pc::find(*after, value.name);
    double difference = other ? pc::largestDifference(value.value, *other) : INFINITY;
    result.difference = std::max(result.difference, difference);
    if (!(difference <= tolerance)) {
      result.wrong = value.name + (other ? " differs by " + std::to_string(difference) : " is lost");
      return result;
    }
  }
  return result;
}
