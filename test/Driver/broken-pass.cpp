//===- broken-pass.cpp - Is the pass named that breaks a program? ----------------------------===//
// usage: pc-broken-pass FILE FLAGS [PASS]    compiles FILE to `planned`, as by the flags of pc-compile ("mesh=dp=2
// zero=1"); behind every run of PASS the scale of the last pc.attention_grad of the program is doubled, as if PASS were
// wrong.
//===-----------------------------------------------------------------------------===//
#include "pc/Driver/Flags.h"
#include "pc/Driver/Registration.h"
#include "pc/IR/Diagnostics.h"
#include "pc/IR/Source.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

static void damage(Operation *op) {
  pc::AttentionGradOp last;
  op->walk([&](pc::AttentionGradOp other) { last = other; });
  if (last)
    last.setScaleAttr(Builder(op->getContext()).getF64FloatAttr(2 * last.getScale().convertToDouble()));
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
