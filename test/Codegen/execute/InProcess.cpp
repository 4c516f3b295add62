//===- InProcess.cpp - Compiles a local program and runs it in this process -===//
// Implements the functions of pcrt.h that programs of one rank call, and links the object file with them by LLJIT.
//===----------------------------------------------------------------------===//
#include "InProcess.h"

#include "base/Types.h"
#include "pc/Codegen/Codegen.h"
#include "pc/IR/PC.h"
#include "pc/Reference/Interpreter.h"
#include "pcrt/pcrt.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include <cmath>
#include <cstring>
#include <map>

using namespace mlir;
using namespace pc;

/// The state of one run, which the functions that the step calls share.
struct pcrt_context {
  const pcrt_program *program;
  bool itemByItem;
  std::vector<char> scratch;
  std::vector<std::vector<std::vector<float>>> observed; ///< [output][call]
  std::vector<std::pair<int64_t, bool>> outputs;         ///< elements; whether they are bf16
};

namespace {

/// Reads element `i` of an array of f32 or bf16.
float load(const void *data, int64_t i, bool isBf16) {
  return isBf16 ? pcrt::bf16ToFloat(static_cast<const uint16_t *>(data)[i]) : static_cast<const float *>(data)[i];
}

pcrt_status launch(pcrt_context *context, int32_t index, void *const *args) {
  const pcrt_kernel &kernel = context->program->kernels[index];
  if (context->scratch.size() < size_t(kernel.scratch_bytes) + 64)
    context->scratch.resize(kernel.scratch_bytes + 64);
  char *scratch = context->scratch.data();
  scratch += (64 - reinterpret_cast<uintptr_t>(scratch) % 64) % 64;
  memset(scratch, 0xff, kernel.scratch_bytes);
  if (!context->itemByItem)
    return kernel.fn(args, 0, kernel.items, scratch) ? PCRT_BAD_DATA : PCRT_OK;
  for (int64_t item = kernel.items; item-- > 0;)
    if (kernel.fn(args, item, item + 1, scratch))
      return PCRT_BAD_DATA;
  return PCRT_OK;
}

pcrt_status gemm(pcrt_context *context, int32_t index, const void *a, const void *b, void *c, const void *bias,
                 void *) {
  const pcrt_gemm_desc &g = context->program->gemms[index];
  auto *added = static_cast<const float *>(bias);
  if (g.grouped || (g.a_m_stride != 1 && g.a_k_stride != 1) || (g.b_k_stride != 1 && g.b_n_stride != 1) ||
      g.c_n_stride != 1)
    return PCRT_INTERNAL;
  for (int64_t batch = 0; batch < g.batch; ++batch)
    for (int64_t m = 0; m < g.m; ++m)
      for (int64_t n = 0; n < g.n; ++n) {
        double sum = g.epilogue == PCRT_EPILOGUE_BIAS ? added[n] : 0;
        for (int64_t k = 0; k < g.k; ++k)
          sum += double(load(a, batch * g.a_batch_stride + m * g.a_m_stride + k * g.a_k_stride, g.a_dtype)) *
                 load(b, batch * g.b_batch_stride + k * g.b_k_stride + n * g.b_n_stride, g.b_dtype);
        int64_t to = batch * g.c_batch_stride + m * g.c_m_stride + n * g.c_n_stride;
        if (g.accumulate)
          sum += load(c, to, g.c_dtype);
        if (g.c_dtype == PCRT_BF16)
          static_cast<uint16_t *>(c)[to] = pcrt::floatToBf16(sum);
        else
          static_cast<float *>(c)[to] = sum;
      }
  return PCRT_OK;
}

pcrt_status move(pcrt_context *, int32_t, const void *, void *) { return PCRT_INTERNAL; }
pcrt_status blockOffset(pcrt_context *, int32_t, int64_t, int32_t *to) {
  *to = 0;
  return PCRT_OK;
}

pcrt_status observe(pcrt_context *context, int32_t index, int64_t, void *data) {
  auto [elements, isBf16] = context->outputs[index];
  std::vector<float> &values = context->observed[index].emplace_back();
  for (int64_t i = 0; i < elements; ++i)
    values.push_back(load(data, i, isBf16));
  return PCRT_OK;
}

int64_t offsetOf(Value value) {
  return cast<HomeAttr>(cast<RankedTensorType>(value.getType()).getEncoding()).getOffset();
}
bool isFloat(Value value) { return isa<FloatType>(cast<RankedTensorType>(value.getType()).getElementType()); }
bool isBf16(Value value) { return cast<RankedTensorType>(value.getType()).getElementType().isBF16(); }

/// The offsets of the values that the program reads and writes.
struct Layout {
  struct Leaf {
    int64_t offset;
    bool isFloat, isBf16;
    Tensor value;
  };
  std::vector<Leaf> leaves;
  std::vector<std::pair<std::string, int64_t>> updates; ///< interpreter's name, offset of the leaf
  std::vector<std::pair<std::string, bool>> outputs;    ///< interpreter's name; whether it is the loss
  std::vector<std::pair<int64_t, bool>> outputElements; ///< elements; whether they are bf16
};

/// Numbers the leaves of a module in program order.
std::vector<Operation *> leavesOf(ModuleOp module) {
  std::vector<Operation *> leaves;
  module.walk([&](Operation *op) {
    if (isa<ParameterOp, StateOp, InputOp, RopeTableOp>(op))
      leaves.push_back(op);
  });
  return leaves;
}

Layout layoutOf(ModuleOp planned, const std::vector<Tensor> &feeds) {
  Layout layout;
  std::map<std::string, int64_t> offsets;
  for (auto [op, feed] : llvm::zip_equal(leavesOf(planned), feeds)) {
    Value value = op->getResult(0);
    layout.leaves.push_back({offsetOf(value), isFloat(value), isBf16(value), feed});
    if (auto parameter = dyn_cast<ParameterOp>(op))
      offsets["update " + parameter.getName().str()] = offsetOf(value);
    if (auto state = dyn_cast<StateOp>(op))
      offsets["update " + state.getName().str() + " of " + state.getParameter().str()] = offsetOf(value);
  }
  planned.walk([&](Operation *op) {
    if (auto update = dyn_cast<UpdateOp>(op)) {
      std::string name = "update " + update.getName().str();
      if (update.getParameter())
        name += " of " + update.getParameter()->str();
      layout.updates.push_back({name, offsets[name]});
    }
    if (auto output = dyn_cast<OutputOp>(op)) {
      layout.outputs.push_back({(stringifyOutputKind(output.getKind()) + " " + output.getName()).str(),
                                output.getKind() == OutputKind::Loss});
      auto type = cast<RankedTensorType>(output.getValue().getType());
      layout.outputElements.push_back({type.getNumElements(), type.getElementType().isBF16()});
    }
  });
  return layout;
}

/// The results of one run, named as the interpreter names them.
using Floats = std::map<std::string, std::vector<float>>;

pcrt_status run(const pcrt_program &program, const Layout &layout, const Results &expected, bool itemByItem,
                Floats &out) {
  std::vector<char> memory(program.arena_bytes + 64, char(0x7f)); // 0x7f7f7f7f: a large number
  char *arena = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  for (const Layout::Leaf &leaf : layout.leaves)
    for (int64_t i = 0; i < leaf.value.size(); ++i) {
      if (leaf.isBf16)
        reinterpret_cast<uint16_t *>(arena + leaf.offset)[i] = pcrt::floatToBf16(leaf.value[i]);
      else if (leaf.isFloat)
        reinterpret_cast<float *>(arena + leaf.offset)[i] = leaf.value[i];
      else
        reinterpret_cast<int32_t *>(arena + leaf.offset)[i] = leaf.value[i];
    }
  pcrt_context context{&program, itemByItem, {}, {}, layout.outputElements};
  context.observed.resize(layout.outputs.size());
  pcrt_status status = program.step(&context, arena);
  for (auto [output, calls] : llvm::zip(layout.outputs, context.observed)) {
    std::vector<float> &values = out[output.first];
    for (const std::vector<float> &call : calls) {
      if (output.second && !values.empty())
        values[0] += call[0];
      else
        values.insert(values.end(), call.begin(), call.end());
    }
  }
  for (const auto &[name, offset] : layout.updates)
    for (const NamedTensor &tensor : expected)
      if (tensor.name == name) {
        auto *values = reinterpret_cast<float *>(arena + offset);
        out[name].assign(values, values + tensor.value.size());
      }
  return status;
}

std::string passes(ModuleOp module, const char *pipeline) {
  PassManager manager(module.getContext());
  std::string error;
  llvm::raw_string_ostream os(error);
  if (failed(parsePassPipeline(pipeline, manager, os)) || failed(manager.run(module)))
    return std::string(pipeline) + " failed " + error;
  return "";
}

template <typename Fn> auto symbol(Fn *fn) {
  return llvm::orc::ExecutorSymbolDef(llvm::orc::ExecutorAddr::fromPtr(fn), llvm::JITSymbolFlags::Exported);
}

} // namespace

Comparison compareWithInterpreter(ModuleOp local, bool fuse) {
  Comparison result;
  auto fail = [&](std::string message) {
    result.error = std::move(message);
    return result;
  };
  // The interpreter rounds to bf16 only values that the kernels also round, which depends on fusion.
  OwningOpRef<ModuleOp> reference = local.clone();
  if (fuse && hasBf16(local))
    if (std::string error = passes(*reference, "pc-fuse"); !error.empty())
      return fail(error);
  // Both sides read the same f32 numbers.
  std::vector<Operation *> leaves = leavesOf(*reference);
  std::vector<Tensor> feeds(leaves.size());
  RunOptions options;
  options.feed = [&](Operation *leaf, Tensor &tensor) {
    for (double &x : tensor.data)
      x = float(x);
    if (auto it = llvm::find(leaves, leaf); it != leaves.end())
      feeds[it - leaves.begin()] = tensor;
  };
  FailureOr<Results> expected = interpret(*reference, options);
  if (failed(expected))
    return fail("the interpreter failed");

  OwningOpRef<ModuleOp> module = local.clone();
  std::string error =
      passes(*module, fuse ? "pc-fuse,pc-plan-memory,pc-verify-memory" : "pc-plan-memory,pc-verify-memory");
  if (!error.empty())
    return fail(error);
  Layout layout = layoutOf(*module, feeds);
  error = passes(*module, fuse && nativeRoundsToBf16() ? "pc-generate-kernels{rounds-to-bf16}" : "pc-generate-kernels");
  if (!error.empty())
    return fail(error);
  SmallString<128> object;
  if (llvm::sys::fs::createTemporaryFile("pc-execute", "o", object) ||
      failed(emitObject(*module, nativeLanes(), /*portable=*/false, object)))
    return fail("no object file");

  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  auto jit = llvm::cantFail(llvm::orc::LLJITBuilder().create());
  llvm::orc::SymbolMap symbols;
  symbols[jit->mangleAndIntern("pcrt_launch")] = symbol(launch);
  symbols[jit->mangleAndIntern("pcrt_gemm")] = symbol(gemm);
  symbols[jit->mangleAndIntern("pcrt_move")] = symbol(move);
  symbols[jit->mangleAndIntern("pcrt_block_offset")] = symbol(blockOffset);
  symbols[jit->mangleAndIntern("pcrt_observe")] = symbol(observe);
  llvm::cantFail(jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(symbols)));
  auto file = llvm::MemoryBuffer::getFile(object);
  llvm::sys::fs::remove(object);
  llvm::cantFail(jit->addObjectFile(std::move(*file)));
  auto address = jit->lookup("pc_program");
  if (!address)
    return fail(llvm::toString(address.takeError()));
  const auto &program = *address->toPtr<const pcrt_program *>();

  Floats first, second;
  if (pcrt_status status = run(program, layout, *expected, false, first))
    return fail("the step returned " + std::to_string(status));
  if (pcrt_status status = run(program, layout, *expected, true, second))
    return fail("the step, item by item, returned " + std::to_string(status));
  // If values are rounded to bf16, a result that is small compared with the others may be nothing but rounding.
  double leastScale = 1e-6;
  if (hasBf16(local))
    for (const NamedTensor &tensor : *expected)
      leastScale = std::max(leastScale, largestElement(tensor.value) / 8);
  for (const NamedTensor &tensor : *expected) {
    const std::vector<float> &a = first[tensor.name], &b = second[tensor.name];
    if (a.size() != b.size() || memcmp(a.data(), b.data(), a.size() * sizeof(float)))
      return fail(tensor.name + " depends on how items are cut into ranges");
    Tensor actual = tensor.value;
    if (a.size() != actual.data.size())
      return fail(tensor.name + " has " + std::to_string(a.size()) + " elements, not " +
                  std::to_string(actual.data.size()));
    for (auto [i, x] : llvm::enumerate(a))
      actual.data[i] = x;
    // Gradients that are zero in exact arithmetic (keys' biases) are rounding noise on both sides.
    if (llvm::all_of(tensor.value.data, [](double x) { return std::abs(x) < 1e-12; }) &&
        llvm::all_of(actual.data, [](double x) { return std::abs(x) < 1e-6; }))
      continue;
    double difference = largestDifference(actual, tensor.value, leastScale);
    if (!(difference <= result.difference)) {
      result.difference = difference;
      result.where = tensor.name;
    }
  }
  return result;
}
