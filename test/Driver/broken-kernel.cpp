//===- broken-kernel.cpp - Is a wrong kernel refused? ----------------------------------------===//
// usage: pc-broken-kernel FILE FLAGS HOW OUT    compiles FILE to the executable OUT, as by the flags of pc-compile and
// --verify-kernels. The last kernel that adds numbers subtracts some (HOW: sum), stores to address 0 (crash), has no
// end (loop), or writes before its first buffer (beside); with "none" all are right.
//===-----------------------------------------------------------------------------===//
#include "pc/Driver/Flags.h"
#include "pc/Driver/Registration.h"
#include "pc/IR/Diagnostics.h"
#include "pc/IR/Source.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

static void damage(Operation *module, StringRef how) {
  arith::AddFOp last;
  module->walk([&](arith::AddFOp add) { last = add; });
  auto kernel = last ? last->getParentOfType<LLVM::LLVMFuncOp>() : LLVM::LLVMFuncOp();
  if (!kernel)
    return;
  Location loc = last.getLoc();
  OpBuilder b(last);
  Block &entry = kernel.getBody().front();
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto store = [&](Value to) { // which no optimization takes for undefined behaviour
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
  if (argc != 5)
    return PCRT_USAGE;
  DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  MLIRContext context(registry);
  llvm::SourceMgr sources;
  pc::ToolDiagnostics diagnostics("pc-broken-kernel", sources, &context);
  OwningOpRef<ModuleOp> module = pc::parseProgram(argv[1], sources, &context);
  pc::CompileFlags flags;
  pc::CompileOptions options;
  std::string error;
  if (!module || failed(flags.parseFromString(argv[2])) || flags.resolve(&context, options, error)) {
    llvm::errs() << error << "\n";
    return PCRT_USAGE;
  }
  options.verifyKernels = true;
  options.output = argv[4];
  context.registerActionHandler([&](llvm::function_ref<void()> run, const tracing::Action &action) {
    run();
    if (auto *pass = dyn_cast<PassExecutionAction>(&action);
        pass && pass->getPass().getArgument() == "pc-generate-kernels")
      damage(pass->getOp(), argv[3]);
  });
  return pc::compile(*module, pc::Phase::Model, options);
}
