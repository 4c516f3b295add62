//===- KernelReport.cpp - The report about the kernels of a CUDA step ---------------------===//
// The step is generated as for an executable. Then its calls, its tables and the code of its kernels are read.
//===-----------------------------------------------------------------------------===//
#include "pc/Codegen/KernelReport.h"
#include "../Fuse/Gemm.h"
#include "../Fuse/Grouped.h"
#include "Generator.h"
#include "pc/Cost/Cost.h"
#include "pc/Cost/CudaWorkspace.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

namespace {

/// The use of one kernel in a step. Bytes and flops are for one launch.
struct Use {
  std::string kind, op;
  int64_t launches = 0, read = 0, written = 0, distinct = 0;
  int64_t blocks = 0, threads = 0, access = 0; ///< only for own kernels
  int64_t operandBytes = 0;                    ///< for own products on tensor cores: bytes read from shared memory
  double tensorShare = 0;                      ///< and the share of the peak that shared memory allows
  double flops = 0;
  double computing = 0; ///< seconds

  /// Seconds of a launch. To use its full bandwidth, a GPU needs about 2 MB in flight (3.35 TB/s x 0.6 us), or 16 KB
  /// per multiprocessor. 1024 threads with four loads of 4 bytes have 16 KB in flight. With loads of 2 bytes they have
  /// half of it.
  double seconds(const MachineModel &machine) const {
    double busy = access ? std::min(1.0, static_cast<double>(access) / 4) : 1;
    return std::max(computing,
                    static_cast<double>(read + written) / (machine.memoryBandwidth * machine.streamShare * busy));
  }
};

} // namespace

/// The uses of kernels, by stage and name.
struct pc::StepCounts {
  const MachineModel &machine;
  llvm::MapVector<std::pair<int64_t, std::string>, Use, std::map<std::pair<int64_t, std::string>, unsigned>> uses = {};
  int64_t activationBytes = 0, activations = 0;
  OpSeconds seconds = OpSeconds(); ///< seconds of the ops in the generators' programs
};

/// Adds the products of an attention kernel, at attention's rate, or at a lower rate if shared memory cannot supply the
/// tensor cores. Exponentials take additional time, unless the kernel computes them while products are in flight. Each
/// kernel of the gradient computes its part of the scores again, so 5 products become 3 and 4.
static void addProducts(Use &use, const TensorWork &products, Operation *op, const MachineModel &machine) {
  use.flops = static_cast<double>(products.flops);
  use.operandBytes = products.sharedBytes;
  use.tensorShare = products.share(machine.sharedBandwidth, machine.bf16Flops);
  AttentionWork work = attentionWork(op);
  if (products.dependOnData)
    work.flops *= isAttentionGrad(op) ? 0.7 : 1;
  else // the count has no masked tiles
    work = {use.flops, work.causal ? std::max<int64_t>(work.keys / 2, 1) : work.keys, work.headDim, false, work.bf16};
  use.computing = products.seconds(attentionSeconds(work, machine) / use.tensorShare, machine.sharedBandwidth);
}

/// The sizes m, n and k of a product that is a kernel: one on rows, or one with codes.
static std::array<double, 3> sizesOf(Operation *op) {
  auto sizes = [](const auto &product) {
    return std::array{static_cast<double>(product.m), static_cast<double>(product.n), static_cast<double>(product.k)};
  };
  if (EinsumOp routed = routedOnRows(op))
    return sizes(asGrouped(routed)->desc);
  return sizes(*asGemm(asFusedProduct(cast<FusionOp>(op), /*cuda=*/true)->product));
}

/// Adds the operations of a product that is a kernel. All experts are chosen equally often.
static void addProduct(Use &use, const TensorWork &products, Operation *op, const MachineModel &machine) {
  auto [m, n, k] = sizesOf(op);
  use.flops = flopsOf(op);
  if (products.flops) { // counted for all blocks, including those that exit early
    use.operandBytes = products.sharedBytes;
    use.tensorShare = products.share(machine.sharedBandwidth, machine.bf16Flops);
  }
  use.computing = use.flops / (2 * m * n * k) * productSeconds({1, m, n, k, products.flops > 0, false}, machine) /
                  (products.flops ? use.tensorShare : 1);
}

/// Counts a kernel of `op` that the step launches.
static FailureOr<Use> useOf(const KernelSet::Info &info, gpu::GPUFuncOp kernel, Operation *op,
                            const MachineModel &machine) {
  SmallVector<CountedBuffer> buffers = info.buffers;
  for (int64_t i = buffers.size(); i < info.numBuffers; ++i)
    buffers.push_back({INT64_MAX, i});
  TensorWork products;
  FailureOr<SmallVector<Accesses>> accesses = countAccesses(kernel, buffers, &products);
  if (failed(accesses))
    return failure();
  Use use;
  if (products.flops && isCausalAttention(op))
    addProducts(use, products, op, machine);
  if (info.kind == "product")
    addProduct(use, products, op, machine);
  std::map<int64_t, int64_t> byWidth;
  for (auto [buffer, of] : llvm::zip_equal(buffers, *accesses)) {
    use.read += bytesOf(of.loads);
    use.written += bytesOf(of.stores);
    use.distinct += std::min(bytesOf(of.loads), buffer.bytes) + std::min(bytesOf(of.stores), buffer.bytes);
    for (const Access &access : {of.loads, of.stores})
      for (auto [width, bytes] : access)
        byWidth[width] += bytes;
  }
  for (auto [width, bytes] : llvm::reverse(byWidth))
    if (bytes * 10 >= use.read + use.written)
      use.access = width;
  use.kind = info.kind;
  use.blocks = info.grid;
  use.threads = info.block;
  return use;
}

static bool isFloat8(int32_t dtype) { return dtype == PCRT_E4M3 || dtype == PCRT_E5M2; }
static int64_t bytesOf(int32_t dtype) { return isFloat8(dtype) ? 1 : dtype == PCRT_BF16 ? 2 : 4; }

/// Bytes, operations and seconds of a library's product; each matrix counts as read or written once.
static Use useOf(const pcrt_gemm_desc &g, const MachineModel &machine) {
  auto matrix = [&](int64_t stride, int64_t rows, int64_t columns, int32_t dtype) {
    return (stride ? g.batch : 1) * rows * columns * bytesOf(dtype);
  };
  int64_t c = matrix(g.c_batch_stride, g.m, g.n, g.c_dtype);
  Use use;
  use.kind = "product";
  use.read = matrix(g.a_batch_stride, g.m, g.k, g.a_dtype) + matrix(g.b_batch_stride, g.k, g.n, g.b_dtype) +
             (g.accumulate ? c : 0) + (g.epilogue == PCRT_EPILOGUE_GELU_GRAD ? c : 0);
  use.written = c + (g.epilogue == PCRT_EPILOGUE_GELU_BIAS ? c : 0);
  use.distinct = use.read + use.written;
  use.flops = 2.0 * static_cast<double>(g.batch * g.m * g.n) * static_cast<double>(g.k);
  auto isOdd = [](int64_t stride, int64_t otherStride, int32_t dtype) { // whether rows are not aligned
    return std::max(stride, otherStride) * bytesOf(dtype) % 16 != 0;
  };
  bool unaligned = isOdd(g.a_m_stride, g.a_k_stride, g.a_dtype) || isOdd(g.b_k_stride, g.b_n_stride, g.b_dtype) ||
                   isOdd(g.c_m_stride, g.c_n_stride, g.c_dtype);
  auto size = [](int64_t n) { return static_cast<double>(n); };
  const bool fp8 = isFloat8(g.a_dtype);
  use.computing = productSeconds(
      {size(g.batch), size(g.m), size(g.n), size(g.k), fp8 || g.a_dtype == PCRT_BF16, unaligned, fp8}, machine);
  return use;
}

/// The use of memory and products by a library's attention, which has two products in the forward pass and five in the
/// backward pass.
static Use useOf(const pcrt_attention_desc &a, const MachineModel &machine) {
  int64_t queries = a.batch * a.q_heads * a.q_length, keys = a.batch * a.kv_heads * a.kv_length;
  int64_t q = queries * a.head_dim * bytesOf(a.dtype), k = keys * a.head_dim * bytesOf(a.dtype), lse = queries * 4;
  Use use;
  use.kind = "attention";
  use.read = q + 2 * k + (a.backward ? 2 * q + lse : 0); // q, k, v; o, its gradient, lse
  use.written = a.backward ? q + 2 * k : q + lse;
  use.distinct = use.read + use.written;
  int64_t products = a.backward ? 5 : 2;
  use.flops = 2.0 * static_cast<double>(products * queries * a.kv_length) * static_cast<double>(a.head_dim);
  use.computing = attentionSeconds({use.flops, a.kv_length, a.head_dim, a.causal != 0, a.dtype == PCRT_BF16}, machine);
  return use;
}

/// "product 1024x768x3072 gelu": rows, columns and the summed dim; " fp8" multiplies codes, " +=" adds to its result.
static std::string nameOf(const pcrt_gemm_desc &g) {
  static constexpr const char *epilogues[] = {"", " bias", " bias, gelu", " gelu gradient", " bias gradient"};
  return "product " + (g.batch > 1 ? std::to_string(g.batch) + " of " : "") + std::to_string(g.m) + "x" +
         std::to_string(g.n) + "x" + std::to_string(g.k) + (isFloat8(g.a_dtype) ? " fp8" : "") + epilogues[g.epilogue] +
         (g.accumulate ? " +=" : "");
}

/// Follows the step as a run does, and counts launches.
LogicalResult Generator::count(StepCounts &counts) {
  int64_t stage = all.numStages ? stageOf(planned) : -1;
  /// Adds launches of a kernel, and describes it if it is new. Returns the seconds of one launch.
  auto add = [&](const std::string &kernel, const char *op, int64_t launches,
                 llvm::function_ref<FailureOr<Use>()> newUse) -> FailureOr<double> {
    auto [it, inserted] = counts.uses.try_emplace({stage, kernel});
    if (inserted) {
      FailureOr<Use> use = newUse();
      if (failed(use))
        return failure();
      it->second = std::move(*use);
      it->second.op = op;
    }
    it->second.launches += launches;
    return counts.machine.opSeconds + it->second.seconds(counts.machine);
  };
  // Each of these adds one kernel, product or attention of the program's tables, by its number there.
  Operation *op = nullptr; // the op whose kernels are added
  auto addKernel = [&](size_t i, int64_t launches) {
    return add(kernelInfos[i].function, kernelTable[i].name, launches, [&] {
      auto device = *all.module.getOps<gpu::GPUModuleOp>().begin();
      return useOf(kernelInfos[i], device.lookupSymbol<gpu::GPUFuncOp>(kernelInfos[i].function), op, counts.machine);
    });
  };
  auto addProduct = [&](size_t i, int64_t times) {
    return add(nameOf(gemmTable[i]), gemmTable[i].name, times, [&] { return useOf(gemmTable[i], counts.machine); });
  };
  auto addAttention = [&](size_t i, int64_t times) {
    return add(attentionTable[i].backward ? "attention gradient" : "attention", attentionTable[i].name, times,
               [&] { return useOf(attentionTable[i], counts.machine); });
  };
  // The calls of each op are recorded. A body runs once per microbatch, or once per call of its function.
  for (const Written &one : written) {
    // Launches are those of one call of the block. `counts.seconds` is per execution of the op.
    auto loop = one.op->getParentOfType<AccumulateOp>();
    int64_t executions = loop ? loop.getMicrobatches() : 1,
            called = std::max<int64_t>(calls.lookup(one.op->getBlock()), 1);
    op = one.op;
    double seconds = 0; // seconds of all executions in one call, or in the step
    auto addRange = [&](ArrayRef<int64_t> launches, size_t begin, size_t end, auto &&addOne) -> LogicalResult {
      for (size_t i = begin; i < std::min(end, launches.size()); ++i) { // later launches do not occur in any call
        if (!launches[i])
          continue;
        FailureOr<double> each = addOne(i, launches[i] * called);
        if (failed(each))
          return failure();
        seconds += static_cast<double>(launches[i]) * *each;
      }
      return success();
    };
    const HostProgram::Calls &launches = host.calls();
    if (failed(addRange(launches.kernels, one.begin.kernels, one.end.kernels, addKernel)) ||
        failed(addRange(launches.products, one.begin.products, one.end.products, addProduct)) ||
        failed(addRange(launches.attentions, one.begin.attentions, one.end.attentions, addAttention)))
      return failure();
    counts.seconds[one.op] = seconds / static_cast<double>(executions);
    if (isa<AttentionOp, PackedAttentionOp>(one.op)) { // one per layer; its first result is an activation
      counts.activationBytes = bytesOf(one.op->getResult(0).getType());
      counts.activations += executions * called;
    }
  }
  return success();
}

/// Generates the kernels of a copy of the program, because counting needs their code.
FailureOr<KernelReport> pc::reportKernels(ModuleOp planned, const GenerateKernelsOptions &options,
                                          const MachineModel &machine) {
  MLIRContext *context = planned.getContext();
  DialectRegistry kernels;
  createGenerateKernels()->getDependentDialects(kernels);
  context->appendDialectRegistry(kernels);
  for (StringRef dialect : kernels.getDialectNames())
    context->getOrLoadDialect(dialect);
  IRMapping mapping;
  OwningOpRef<ModuleOp> copy = cast<ModuleOp>(planned->clone(mapping)), output = ModuleOp::create(planned.getLoc());
  KernelTarget target{.cuda = true, .warpgroups = haveWarpgroups(options.archs)};
  Executable executable(*output, target, CudaLibraries(options.attention, options.archs));
  auto generators = generateSteps(*copy, executable);
  if (failed(generators))
    return failure();
  StepCounts counts{machine};
  for (auto &generator : *generators)
    if (failed(generator->count(counts)))
      return failure();
  std::vector<std::pair<double, json::Object>> rows;
  std::map<std::string, double> parts;
  for (auto &[name, use] : counts.uses) {
    auto times = static_cast<double>(use.launches);
    double seconds = times * use.seconds(machine);
    parts[use.kind] += seconds;
    parts["launches"] += times * machine.opSeconds;
    json::Object row{{"kernel", name.second},
                     {"kind", use.kind},
                     {"op", use.op},
                     {"launches", use.launches},
                     {"read_bytes", use.launches * use.read},
                     {"written_bytes", use.launches * use.written},
                     {"distinct_bytes", use.launches * use.distinct},
                     {"seconds", seconds}};
    if (name.first >= 0)
      row["stage"] = name.first;
    if (use.flops)
      row["flops"] = times * use.flops;
    if (use.blocks) {
      row["blocks"] = use.blocks;
      row["threads"] = use.threads;
      row["access_bytes"] = use.access;
      if (use.operandBytes) {
        row["operand_bytes"] = use.launches * use.operandBytes;
        row["tensor_share"] = use.tensorShare;
      }
    }
    rows.push_back({seconds, std::move(row)});
  }
  llvm::stable_sort(rows, [](const auto &a, const auto &b) { return a.first > b.first; });
  KernelReport report;
  for (auto &row : rows)
    report.kernels.push_back(std::move(row.second));
  for (auto &[kind, seconds] : parts)
    report.parts[kind] = seconds;
  report.activation = json::Object{{"bytes", counts.activationBytes}, {"count", counts.activations}};
  for (auto [original, copied] : mapping.getOperationMap())
    if (auto it = counts.seconds.find(copied); it != counts.seconds.end())
      report.seconds[original] = it->second;
  return std::move(report);
}
