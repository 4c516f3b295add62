//===- broken-pass.cpp - Whether a program that a pass damages is refused -===//
// usage: pc-broken-pass FILE FLAGS OUT [PASS HOW]
// Compiles FILE with flags of pc-compile ("mesh=dp=2 zero=1") to the executable OUT with --verify-kernels or, if OUT is
// /dev/null, to `planned`. After every run of PASS the program is damaged: the scale of its last pc.attention_grad is
// doubled (HOW: scale), or its last kernel that adds numbers subtracts some (sum), stores to address 0 (crash), does
// not end (loop), or writes in front of its first buffer (beside).
//===----------------------------------------------------------------------===//
#include "pc/Driver/Flags.h"
#include "pc/Driver/Registration.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Source.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

template <typename Op> static Op lastOf(Operation *module) {
  Op last;
  module->walk([&](Op op) { last = op; });
  return last;
}

static void doubleScale(Operation *module) {
  if (auto last = lastOf<pc::AttentionGradOp>(module))
    last.setScaleAttr(Builder(module->getContext()).getF64FloatAttr(2 * last.getScale().convertToDouble()));
}

static void damageKernel(Operation *module, StringRef how) {
  auto last = lastOf<arith::AddFOp>(module);
  auto kernel = last ? last->getParentOfType<LLVM::LLVMFuncOp>() : LLVM::LLVMFuncOp();
  if (!kernel)
    return;
  Location loc = last.getLoc();
  OpBuilder b(last);
  Block &entry = kernel.getBody().front();
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto store = [&](Value to) { // no optimization treats this as undefined behaviour
    Value one = LLVM::ConstantOp::create(b, loc, b.getI32Type(), 1);
    LLVM::StoreOp::create(b, loc, one, to, /*alignment=*/4, /*isVolatile=*/true);
  };
  if (how == "sum") {
    last.replaceAllUsesWith(arith::SubFOp::create(b, loc, last.getLhs(), last.getRhs()).getResult());
  } else if (how == "crash") {
    b.setInsertionPointToStart(&entry);
    store(LLVM::ZeroOp::create(b, loc, pointer));
  } else if (how == "beside") {
    b.setInsertionPointToStart(&entry);
    Value first = LLVM::LoadOp::create(b, loc, pointer, entry.getArgument(0));
    store(LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), first, ArrayRef<LLVM::GEPArg>{-4}));
  } else if (how == "loop") {
    Block *rest = entry.splitBlock(entry.begin()), *loop = b.createBlock(rest);
    LLVM::BrOp::create(b, loc, loop);
    b.setInsertionPointToEnd(&entry);
    LLVM::BrOp::create(b, loc, loop);
  }
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 6)
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
  options.output = argv[3];
  options.verifyKernels = options.output != "/dev/null";
  if (!options.verifyKernels)
    options.to = pc::Phase::Planned;
  context.registerActionHandler([&](llvm::function_ref<void()> run, const tracing::Action &action) {
    run();
    auto *pass = dyn_cast<PassExecutionAction>(&action);
    if (!pass || argc < 6 || pass->getPass().getArgument() != argv[4])
      return;
    StringRef how = argv[5];
    how == "scale" ? doubleScale(pass->getOp()) : damageKernel(pass->getOp(), how);
  });
  return pc::compile(*module, origin->phase, options);
}
