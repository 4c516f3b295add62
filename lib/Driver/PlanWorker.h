//===- PlanWorker.h - A thread's own copy of a model ------------------------------------------===//
#ifndef PC_LIB_DRIVER_PLANWORKER_H
#define PC_LIB_DRIVER_PLANWORKER_H

#include "ComposePlan.h"

#include "mlir/Parser/Parser.h"
#include "pc/Driver/Registration.h"

namespace pc {

/// A context of its own with the model in it, so that compiles in several threads do not meet.
class Worker {
public:
  Worker(llvm::StringRef text, const CompileOptions &options, const MachineModel &machine)
      : context(dialects(), mlir::MLIRContext::Threading::DISABLED), options(options), machine(machine) {
    mlir::ScopedDiagnosticHandler quiet(&context, [](mlir::Diagnostic &) { return mlir::success(); });
    model = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    few = FewLayers::of(*model);
    if (few)
      composer.emplace(*few, batchOf(*model), options, machine);
  }

  /// By a compile of the whole model.
  std::optional<ProgramPrice> priceWhole(const Plan &plan, std::string &refusal) {
    CompileOptions one = options;
    one.plan = plan;
    mlir::OwningOpRef<mlir::ModuleOp> module(model->clone());
    return priceProgram(*module, one, machine, refusal);
  }

  std::optional<Composer> composer;

private:
  static mlir::DialectRegistry dialects() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> model;
  std::optional<FewLayers> few;
  const CompileOptions &options;
  const MachineModel &machine;
};

} // namespace pc

#endif
