//===- KernelSet.cpp - The kernels of a program ---------------------------------------------===//
// Two ops share a kernel if they are equal except for homes, names and locations (kernelKey). A CPU kernel that
// multiplies pairs of bf16 gets a second form that multiplies in f32 (pcrt_kernel::fn_f32).
//===-----------------------------------------------------------------------------===//
#include "KernelSet.h"
#include "../Emit/Kernel.h"
#include "pc/Codegen/Codegen.h"
#include "pc/IR/Liveness.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pc;

/// A text that is equal for two ops if they can share a kernel: the text of the op without homes, names and locations.
static std::string kernelKey(Operation *op, unsigned part) {
  std::string key;
  llvm::raw_string_ostream os(key);
  llvm::DenseMap<Value, unsigned> numbers;
  // If two operands of one op are the same value, they must also be the same value in the other op, since a kernel may
  // rely on it.
  auto number = [&](Value v) { return numbers.try_emplace(v, numbers.size()).first->second; };
  auto type = [&](Type t) { os << withEncoding(t, rowsOf(t)) << ' '; };
  std::function<void(Operation *)> print = [&](Operation *o) {
    os << o->getName().getStringRef() << part << '(';
    for (Value v : o->getOperands()) {
      os << number(v) << ':';
      type(v.getType());
    }
    os << ')';
    if (auto choice = dyn_cast<TopKOp>(o)) // regardless of the layer
      os << choice.getK();
    else if (!isa<UpdateOp>(o))
      os << o->getPropertiesAsAttribute();
    os << "->";
    for (Value v : o->getResults()) {
      os << number(v) << ':';
      type(v.getType());
    }
    for (Region &region : o->getRegions())
      for (Block &block : region) {
        for (Value argument : block.getArguments())
          os << number(argument) << ',';
        for (Operation &inner : block)
          print(&inner);
      }
  };
  print(op);
  return key;
}

bool pc::haveWarpgroups(ArrayRef<std::string> archs) {
  return !archs.empty() && llvm::all_of(archs, [](StringRef arch) { return arch == "sm_90a"; });
}

bool pc::multipliesFloat8(ArrayRef<std::string> archs) { return haveWarpgroups(archs); }

unsigned KernelSet::numParts(Operation *op) const { return numKernels(op, target.cuda); }

/// The key is the op's text without names, so that equal ops of different layers share a kernel.
FailureOr<const KernelSet::Info *> KernelSet::get(Operation *op, unsigned part) {
  std::string key = kernelKey(op, part);
  auto it = kernels.find(key);
  if (it != kernels.end())
    return &it->second;
  Info info;
  info.function = "pc_" + op->getName().stripDialect().str() + "_" + std::to_string(written++);
  if (failed(target.cuda ? writeForCuda(op, part, info) : writeForCpu(op, part, info)))
    return failure();
  return &(kernels[key] = std::move(info));
}

namespace {
/// Element types of the buffers of an op's kernels, operands first.
struct Elements {
  /// A packed value has several buffers; each has the element type of the value.
  explicit Elements(Operation *op) {
    for (auto [i, type] : llvm::enumerate(llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))) {
      types.append(pieceBytes(op, i).size(), cast<RankedTensorType>(type).getElementType());
      if (i < op->getNumOperands())
        numOperands = types.size();
    }
    if (isa<UpdateOp>(op)) // a copy, whose result is the leaf
      types.push_back(types[0]);
  }
  SmallVector<Type> types;
  size_t numOperands = 0;
};
} // namespace

/// Writes one function and, if it multiplies pairs of bf16, a second one that does not.
LogicalResult KernelSet::writeForCpu(Operation *op, unsigned part, Info &info) {
  FailureOr<bool> pairs = writeForm(op, part, info.function, target.roundsToBf16, info);
  if (failed(pairs) || !*pairs)
    return success(succeeded(pairs));
  info.functionInF32 = info.function + "_f32";
  return writeForm(op, part, info.functionInF32, /*mayPair=*/false, info);
}

/// Writes one form of a CPU kernel. Returns whether it multiplies pairs of bf16, so that a second form is needed.
FailureOr<bool> KernelSet::writeForm(Operation *op, unsigned part, StringRef name, bool mayPair, Info &info) {
  MLIRContext *context = output.getContext();
  OpBuilder b = OpBuilder::atBlockEnd(output.getBody());
  Location loc = op->getLoc();
  Type pointer = LLVM::LLVMPointerType::get(context), i64 = b.getI64Type();
  // The function of a kernel: int64 kernel(pointers to buffers, first item, end of items, scratch). It returns 0, or a
  // status that the kernel sets.
  auto function = LLVM::LLVMFuncOp::create(b, loc, name, LLVM::LLVMFunctionType::get(i64, {pointer, i64, i64, pointer}),
                                           LLVM::Linkage::Internal);
  Block *entry = function.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  kernels::Emitter e(b, loc, target.lanes, target.roundsToBf16, mayPair);
  Kernel kernel{e,
                {},
                {},
                e.wrap(entry->getArgument(1)),
                e.wrap(entry->getArgument(2)),
                {&e, entry->getArgument(3), b.getF32Type()}};
  kernel.part = part;
  Elements elements(op);
  for (auto [i, element] : llvm::enumerate(elements.types)) {
    Value slot = LLVM::GEPOp::create(b, loc, pointer, pointer, entry->getArgument(0),
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    kernels::Ptr buffer{&e, LLVM::LoadOp::create(b, loc, pointer, slot), element};
    (i < elements.numOperands ? kernel.operands : kernel.results).push_back(buffer);
  }
  if (failed(emitKernel(op, kernel)))
    return failure();
  LLVM::ReturnOp::create(b, loc, kernel.status.v ? kernel.status.v : e.integer(0).v);
  info.kind = kernel.kind;
  info.items = kernel.items;
  info.scratchBytes = std::max(info.scratchBytes, kernel.scratchBytes);
  return kernel.multipliesPairs;
}

/// A kernel takes the address of each buffer.
gpu::GPUFuncOp KernelSet::newCudaKernel(Location loc, StringRef name, int64_t numBuffers) {
  OpBuilder b = OpBuilder::atBlockEnd(output.getBody());
  if (!device)
    device = gpu::GPUModuleOp::create(b, output.getLoc(), "pc_kernels");
  SmallVector<Type> pointers(numBuffers, LLVM::LLVMPointerType::get(b.getContext()));
  b.setInsertionPointToEnd(&device.getBodyRegion().front());
  auto function = gpu::GPUFuncOp::create(b, loc, name, b.getFunctionType(pointers, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  return function;
}

/// Adds a kernel that serves several ops at once, so that no single op determines it.
KernelSet::Info KernelSet::add(StringRef name, StringRef kind, int64_t numBuffers,
                               llvm::function_ref<void(kernels::SimtEmitter &, ValueRange)> write) {
  Info info;
  info.function = ("pc_" + name + "_" + std::to_string(written++)).str();
  info.kind = kind.str();
  info.numBuffers = numBuffers;
  gpu::GPUFuncOp function = newCudaKernel(output.getLoc(), info.function, numBuffers);
  Block *entry = &function.getBody().front();
  OpBuilder b = OpBuilder::atBlockBegin(entry);
  kernels::SimtEmitter e(b, output.getLoc(), function, /*lanes=*/4);
  write(e, entry->getArguments());
  gpu::ReturnOp::create(b, output.getLoc());
  info.grid = e.grid;
  info.block = e.block;
  return info;
}

/// The buffers of `op`'s kernels. A buffer without a home is separate memory.
static SmallVector<CountedBuffer> buffersOf(Operation *op) {
  SmallVector<CountedBuffer> buffers;
  auto add = [&](Type type) {
    auto home = dyn_cast_or_null<HomeAttr>(cast<RankedTensorType>(type).getEncoding());
    buffers.push_back({byteSize(type), home ? home.getOffset() : -1 - static_cast<int64_t>(buffers.size())});
  };
  llvm::for_each(op->getOperandTypes(), add);
  llvm::for_each(op->getResultTypes(), add);
  if (isa<UpdateOp>(op)) // a copy
    buffers.push_back({buffers[0].bytes, -1});
  if (int64_t bytes = kernelWorkspaceBytes(op))
    buffers.push_back({bytes, -1 - static_cast<int64_t>(buffers.size())});
  return buffers;
}

/// Writes one device function. Its arguments are the buffers of the op and, if parts of the op pass data to each other,
/// a workspace.
LogicalResult KernelSet::writeForCuda(Operation *op, unsigned part, Info &info) {
  Location loc = op->getLoc();
  Elements elements(op);
  const bool handsOn = kernelWorkspaceBytes(op);
  info.numBuffers = elements.types.size() + handsOn;
  gpu::GPUFuncOp function = newCudaKernel(loc, info.function, info.numBuffers);
  Block *entry = &function.getBody().front();
  OpBuilder b = OpBuilder::atBlockBegin(entry);
  bool half = llvm::any_of(elements.types, [](Type type) { return type.isBF16(); });
  kernels::SimtEmitter e(b, loc, function, half ? 8 : 4);
  Kernel kernel{e, {}, {}, {}, {}, {}};
  kernel.part = part;
  kernel.simt = &e;
  kernel.warpgroups = target.warpgroups;
  for (auto [i, element] : llvm::enumerate(elements.types)) {
    kernels::Ptr buffer{&e, entry->getArgument(i), element};
    (i < elements.numOperands ? kernel.operands : kernel.results).push_back(buffer);
  }
  if (handsOn)
    kernel.workspace = {&e, entry->getArguments().back(), b.getF32Type()};
  if (failed(emitKernel(op, kernel)))
    return failure();
  gpu::ReturnOp::create(b, loc);
  info.kind = kernel.kind;
  info.grid = e.grid;
  info.block = e.block;
  info.sharedBytes = e.dynamicShared;
  info.buffers = buffersOf(op);
  return success();
}
