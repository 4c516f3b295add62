//===- Jit.cpp - Compiles one op to its special kernels, in this process --===//
// Parses the op inside a function, creates its kernels, lowers them to LLVM IR and compiles that with ORC.
//===----------------------------------------------------------------------===//
#include "Jit.h"
#include "../../../lib/Codegen/Emit/Kernel.h"
#include "../../../lib/Codegen/Native/LlvmPasses.h"
#include "../../../lib/Codegen/Native/Lower.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "pc/Codegen/Codegen.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/TargetSelect.h"
#include <cstdlib>
#include <cstring>

using namespace mlir;

[[noreturn]] static void fail(const llvm::Twine &message) {
  llvm::errs() << "kernels: " << message << "\n";
  exit(1);
}

int64_t hostLanes() { return pc::nativeLanes(); }
bool hostRoundsToBf16() { return pc::nativeRoundsToBf16(); }

// UBSan's check of called functions reads in front of the function, where compiled code need not have a page.
__attribute__((no_sanitize("function"))) int64_t JitKernel::run(const std::vector<void *> &args, int64_t range) const {
  const int64_t guard = 64, bytes = (scratchBytes + 63) / 64 * 64;
  char *scratch = static_cast<char *>(aligned_alloc(64, bytes + guard));
  memset(scratch, 0xff, bytes + guard);
  int64_t status = 0, step = range ? range : items;
  for (int64_t lo = (items - 1) / step * step; lo >= 0; lo -= step)
    if (int64_t s = fn(args.data(), lo, std::min(lo + step, items), scratch))
      status = s;
  for (int64_t i = 0; i < guard; ++i)
    if (scratch[bytes + i] != char(0xff))
      fail("a kernel wrote past its scratch");
  free(scratch);
  return status;
}

/// Emits kernel `part` of `op` as @kernel<part> at the builder's insertion point.
static JitKernel emitPart(Operation *op, unsigned part, OpBuilder &b, int64_t lanes, bool roundsToBf16,
                          bool multipliesPairs) {
  Location loc = op->getLoc();
  Type pointer = LLVM::LLVMPointerType::get(b.getContext()), i64 = b.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(i64, {pointer, i64, i64, pointer});
  auto function = LLVM::LLVMFuncOp::create(b, loc, ("kernel" + llvm::Twine(part)).str(), type);
  OpBuilder::InsertionGuard guard(b);
  Block *entry = function.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  pc::kernels::Emitter e(b, loc, lanes, roundsToBf16, multipliesPairs);
  pc::Kernel kernel{e, {}, {}, e.wrap(entry->getArgument(1)), e.wrap(entry->getArgument(2)), {}, part};
  kernel.scratch = {&e, entry->getArgument(3), b.getF32Type()};
  int32_t index = 0;
  auto argument = [&](Type tensor) {
    Value at = LLVM::GEPOp::create(b, loc, pointer, pointer, entry->getArgument(0), LLVM::GEPArg(index++));
    return pc::kernels::Ptr{&e, LLVM::LoadOp::create(b, loc, pointer, at), getElementTypeOrSelf(tensor)};
  };
  for (Type t : op->getOperandTypes())
    kernel.operands.push_back(argument(t));
  for (Type t : op->getResultTypes())
    kernel.results.push_back(argument(t));
  auto emitted = pc::emitSpecialKernel(op, kernel);
  if (!emitted || failed(*emitted))
    fail("no kernel for " + op->getName().getStringRef());
  LLVM::ReturnOp::create(b, loc, kernel.status.v ? kernel.status.v : e.integer(0).v);
  return {nullptr, kernel.items, kernel.scratchBytes, kernel.kind, nullptr};
}

static void optimize(llvm::Module &module, llvm::TargetMachine &target, int64_t lanes) {
  module.setTargetTriple(target.getTargetTriple());
  module.setDataLayout(target.createDataLayout());
  for (llvm::Function &f : module) {
    f.addFnAttr("target-cpu", target.getTargetCPU());
    f.addFnAttr("target-features", target.getTargetFeatureString());
    f.addFnAttr("prefer-vector-width", std::to_string(lanes * 32));
  }
  pc::optimizeKernels(module, target);
}

std::vector<JitKernel> jitOp(const std::string &text, int64_t lanes, bool roundsToBf16, bool multipliesPairs) {
  static bool initialized = !llvm::InitializeNativeTarget() && !llvm::InitializeNativeTargetAsmPrinter();
  if (!initialized)
    fail("no native target");
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  MLIRContext context(registry);
  context.loadDialect<pc::PCDialect, func::FuncDialect, scf::SCFDialect, arith::ArithDialect, vector::VectorDialect,
                      LLVM::LLVMDialect, math::MathDialect>();
  OwningOpRef<ModuleOp> source = parseSourceString<ModuleOp>(text, &context);
  if (!source)
    fail("cannot parse\n" + text);
  Operation *op = &cast<func::FuncOp>(source->getBody()->front()).getBody().front().front();

  OwningOpRef<ModuleOp> module = ModuleOp::create(op->getLoc());
  OpBuilder b = OpBuilder::atBlockEnd(module->getBody());
  std::vector<JitKernel> parts;
  for (unsigned part = 0; part < pc::numSpecialKernels(op, /*simt=*/false); ++part)
    parts.push_back(emitPart(op, part, b, lanes, roundsToBf16, multipliesPairs));
  if (failed(module->verify()))
    fail("the kernel does not verify");
  if (failed(pc::lowerToLLVM(*module)))
    fail("lowering failed");

  auto llvmContext = std::make_unique<llvm::LLVMContext>();
  auto llvmModule = translateModuleToLLVMIR(*module, *llvmContext);
  auto machine = cantFail(llvm::orc::JITTargetMachineBuilder::detectHost());
  machine.setCodeGenOptLevel(llvm::CodeGenOptLevel::Aggressive);
  auto target = cantFail(machine.createTargetMachine());
  optimize(*llvmModule, *target, lanes);
  std::shared_ptr<llvm::orc::LLJIT> jit =
      cantFail(llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(machine).create());
  cantFail(jit->addIRModule(llvm::orc::ThreadSafeModule(std::move(llvmModule), std::move(llvmContext))));
  for (size_t part = 0; part < parts.size(); ++part) {
    parts[part].fn = cantFail(jit->lookup("kernel" + std::to_string(part))).toPtr<pcrt_kernel_fn>();
    parts[part].code = jit;
  }
  return parts;
}
