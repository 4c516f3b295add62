//===- broken-pass.cpp - Is the pass named that breaks a program? ----------------------------===//
// usage: pc-broken-pass FILE FLAGS [PASS]    compiles FILE to `planned`, as by the flags of pc-compile ("mesh=dp=2
// zero=1"); behind every run of PASS the last pc.scale or pc.constant of the program is changed, as if PASS were wrong.
//===-----------------------------------------------------------------------------===//
#include "pc/Driver/Flags.h"
#include "pc/Driver/Registration.h"
#include "pc/IR/Diagnostics.h"
#include "pc/IR/Source.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

static void damage(Operation *op) {
  Operation *last = nullptr;
  op->walk([&](Operation *other) { last = isa<pc::ScaleOp, pc::ConstantOp>(other) ? other : last; });
  Builder b(op->getContext());
  if (auto scale = dyn_cast_or_null<pc::ScaleOp>(last))
    scale.setFactorAttr(b.getF64FloatAttr(2 * scale.getFactor().convertToDouble()));
  else if (auto constant = dyn_cast_or_null<pc::ConstantOp>(last))
    constant.setNumberAttr(b.getF64FloatAttr(1 + constant.getNumber().convertToDouble()));
}

int main(int argc, char **argv) {
  if (argc < 3)
    return PCRT_USAGE;
  DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  MLIRContext context(registry);
  llvm::SourceMgr sources;
  pc::ToolDiagnostics diagnostics("pc-broken-pass", sources, &context);
  OwningOpRef<ModuleOp> module = pc::parseProgram(argv[1], sources, &context);
  pc::CompileFlags flags;
  pc::CompileOptions options;
  std::string error;
  if (!module || failed(flags.parseFromString(argv[2])))
    return PCRT_USAGE;
  FailureOr<pc::Origin> origin = pc::originOf(*module);
  if (failed(origin) || flags.resolve(&context, options, error, *origin)) {
    llvm::errs() << error << "\n";
    return PCRT_USAGE;
  }
  options.to = pc::Phase::Planned;
  options.output = "/dev/null";
  context.registerActionHandler([&](llvm::function_ref<void()> run, const tracing::Action &action) {
    run();
    if (auto *pass = dyn_cast<PassExecutionAction>(&action);
        pass && argc > 3 && pass->getPass().getArgument() == argv[3])
      damage(pass->getOp());
  });
  return pc::compile(*module, origin->phase, options);
}
