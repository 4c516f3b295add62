//===- AutoParallel.cpp - The searched plan as a pass ----------------------------------------===//
// In pc-opt, this pass does the same as pc-compile --auto, up to a phase without tables. Both use the same code to read
// flags, search plans and build phases.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_AUTOPARALLEL
#include "pc/Search/Passes.h"

#include "pc/Driver/Flags.h"
#include "pc/Search/CompletePlan.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace pc;

namespace {
/// The pass pc-auto-parallel. Its option `flags` holds flags of pc-compile; the result is the module after the
/// requested phase.
struct AutoParallel : pc::impl::AutoParallelBase<AutoParallel> {
  using AutoParallelBase::AutoParallelBase;

  void runOnOperation() override {
    if (failed(run(getOperation())))
      signalPassFailure();
  }

private:
  /// Completes the plan from the flags, and then runs the passes of the phases up to `to`.
  LogicalResult run(ModuleOp module) {
    auto refuse = [&](const Twine &why) { return module.emitError() << getArgument() << ": " << why; };
    const auto *last = llvm::find_if(phases(), [&](const PhaseInfo &info) { return info.name == to; });
    if (last == phases().end() || last->phase < Phase::Step || last->phase > Phase::Planned)
      return refuse("'" + to + "' is not one of the phases from step to planned");
    if (phaseOf(module) != Phase::Model)
      return refuse("--auto needs a program of phase 'model'");
    CompileOptions options;
    std::string error;
    if (!readFlags(options, error))
      return refuse(StringRef(error).rtrim());
    if (completePlan(module, Phase::Model, options))
      return failure();
    for (const PhaseInfo &info : phases()) {
      if (info.phase < Phase::Step || info.phase > last->phase)
        continue;
      OpPassManager passes(ModuleOp::getOperationName());
      PhaseFailures failures;
      if (error = buildPhase(passes, info.phase, options, failures); !error.empty())
        return refuse(error);
      if (failed(runPipeline(passes, module)))
        return failure();
    }
    return success();
  }

  /// Reads the option `flags` as pc-compile would read its command line, and switches the search on if the flags do
  /// not.
  bool readFlags(CompileOptions &options, std::string &error) {
    SmallVector<StringRef> given;
    StringRef(flags).split(given, ' ');
    bool isOn = llvm::any_of(given, [](StringRef flag) { return flag == "auto" || flag.starts_with("auto="); });
    CompileFlags all;
    llvm::raw_string_ostream errors(error);
    return succeeded(all.parseFromString((isOn ? "" : "auto= ") + flags, errors)) &&
           !all.resolve(&getContext(), options, error);
  }
};
} // namespace
