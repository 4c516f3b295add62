//===- InProcess.cpp - A local program compiled and run in this process -----------------===//
#include "InProcess.h"

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

/// What the step calls. One per run.
struct pcrt_context {
  const pcrt_program *program;
  bool itemByItem;
  std::vector<char> scratch;
  std::vector<std::vector<std::vector<float>>> observed; ///< [output][call]
  std::vector<int64_t> outputElements;
};

namespace {

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
  auto *x = static_cast<const float *>(a), *y = static_cast<const float *>(b),
       *added = static_cast<const float *>(bias);
  auto *z = static_cast<float *>(c);
  if ((g.a_m_stride != 1 && g.a_k_stride != 1) || (g.b_k_stride != 1 && g.b_n_stride != 1) || g.c_n_stride != 1)
    return PCRT_INTERNAL;
  for (int64_t batch = 0; batch < g.batch; ++batch)
    for (int64_t m = 0; m < g.m; ++m)
      for (int64_t n = 0; n < g.n; ++n) {
        double sum = g.epilogue == PCRT_EPILOGUE_BIAS ? added[n] : 0;
        for (int64_t k = 0; k < g.k; ++k)
          sum += double(x[batch * g.a_batch_stride + m * g.a_m_stride + k * g.a_k_stride]) *
                 y[batch * g.b_batch_stride + k * g.b_k_stride + n * g.b_n_stride];
        float &to = z[batch * g.c_batch_stride + m * g.c_m_stride + n * g.c_n_stride];
        to = g.accumulate ? to + sum : sum;
      }
  return PCRT_OK;
}

pcrt_status move(pcrt_context *, int32_t, const void *, void *) { return PCRT_INTERNAL; }
pcrt_status blockOffset(pcrt_context *, int32_t, int64_t, int32_t *to) {
  *to = 0;
  return PCRT_OK;
}

pcrt_status observe(pcrt_context *context, int32_t index, int64_t, const void *data) {
  auto *values = static_cast<const float *>(data);
  context->observed[index].push_back({values, values + context->outputElements[index]});
  return PCRT_OK;
}

int64_t offsetOf(Value value) {
  return cast<HomeAttr>(cast<RankedTensorType>(value.getType()).getEncoding()).getOffset();
}
bool isFloat(Value value) { return isa<FloatType>(cast<RankedTensorType>(value.getType()).getElementType()); }

/// What is read and written where.
struct Layout {
  struct Leaf {
    int64_t offset;
    bool isFloat;
    Tensor value;
  };
  std::vector<Leaf> leaves;
  std::vector<std::pair<std::string, int64_t>> updates; ///< interpreter's name, offset of the leaf
  std::vector<std::pair<std::string, bool>> outputs;    ///< interpreter's name; whether it is the loss
  std::vector<int64_t> outputElements;
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
    layout.leaves.push_back({offsetOf(value), isFloat(value), feed});
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
      layout.outputElements.push_back(cast<RankedTensorType>(output.getValue().getType()).getNumElements());
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
      if (leaf.isFloat)
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
  // Both sides read the same f32 numbers.
  std::vector<Operation *> leaves = leavesOf(local);
  std::vector<Tensor> feeds(leaves.size());
  RunOptions options;
  options.feed = [&](Operation *leaf, Tensor &tensor) {
    for (double &x : tensor.data)
      x = float(x);
    if (auto it = llvm::find(leaves, leaf); it != leaves.end())
      feeds[it - leaves.begin()] = tensor;
  };
  FailureOr<Results> expected = interpret(local, options);
  if (failed(expected))
    return fail("the interpreter failed");

  OwningOpRef<ModuleOp> module = local.clone();
  std::string error =
      passes(*module, fuse ? "pc-fuse,pc-plan-memory,pc-verify-memory" : "pc-plan-memory,pc-verify-memory");
  if (!error.empty())
    return fail(error);
  Layout layout = layoutOf(*module, feeds);
  error = passes(*module, "pc-generate-kernels");
  if (!error.empty())
    return fail(error);
  SmallString<128> object;
  if (llvm::sys::fs::createTemporaryFile("pc-execute", "o", object) ||
      failed(emitObject(*module, nativeLanes(), object)))
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
    double difference = largestDifference(actual, tensor.value);
    if (!(difference <= result.difference)) {
      result.difference = difference;
      result.where = tensor.name;
    }
  }
  return result;
}
