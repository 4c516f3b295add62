//===- CheckCases.cpp - Compares kernels of a CUDA program with those of a CPU ----------------===//
// Writes the cases of `--check-kernels`. For each distinct device kernel, a case has CPU kernels of the same op, and
// says how to draw operands that both accept (ids below a limit, positive numbers, masks with a given number of ones).
//===-----------------------------------------------------------------------------===//
#include "CheckCases.h"
#include "../Emit/Kernel.h"
#include "../Fuse/Grouped.h"
#include "Description.h"
#include "pc/Codegen/CompiledKernels.h"
#include "pc/Cost/Cost.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/AnyOp.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Generation.h"

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Returns the limit (limitOf) of an operand of an op on a cache: `number` is 0 for slots and 1 for positions. A cache
/// has one additional slot, for rows of the step without a token. The offset of parts is 0, so that a test sees the
/// whole cache.
static int64_t limitOfCache(Value cache, unsigned number) {
  const CacheSizes sizes(typeOf(cache).getShape());
  return number == 0 ? sizes.slots + 1 : number == 1 ? sizes.parts * sizes.context : 1;
}

/// An upper bound of the elements of an i32 operand: the number of rows of the table, or of classes, that it indexes.
static int64_t limitOf(Value operand) {
  int64_t limit = 1;
  for (OpOperand &use : operand.getUses()) {
    Operation *user = use.getOwner();
    unsigned i = use.getOperandNumber();
    if (auto fusion = dyn_cast<FusionOp>(user))
      limit = std::max(limit, limitOf(fusion.getBody().front().getArgument(i)));
    else if (isa<ColumnsOp, ReshapeOp>(user))
      limit = std::max(limit, limitOf(user->getResult(0)));
    else if (auto embedding = dyn_cast<EmbeddingOp>(user); embedding && i == 1)
      limit = std::max(limit, embedding.getRows());
    else if (auto gradient = dyn_cast<EmbeddingGradOp>(user); gradient && i == 1)
      limit = std::max(limit, gradient.getRows());
    else if (auto write = dyn_cast<CacheWriteOp>(user))
      limit = std::max(limit, limitOfCache(write.getCache(), i - 2));
    else if (auto cached = dyn_cast<CachedAttentionOp>(user))
      limit = std::max(limit, limitOfCache(cached.getKeys(), i - 3));
    else if (isa<GumbelOp>(user) && i == 2)
      limit = std::numeric_limits<int32_t>::max();
    else if (isa<PickOp, CrossEntropyGradOp>(user) && typeOf(user->getOperand(0)).getRank())
      limit = std::max(limit, typeOf(user->getOperand(0)).getShape().back());
  }
  return limit;
}

/// Returns true for roots, logarithms and reciprocals, which are tested with positive numbers. A number near zero would
/// make a quotient so large that errors in other elements are small compared with it.
static bool wantsPositive(Operation *op) {
  return anyOp(op, [](Operation *inner) {
    return isa<LogOp, SqrtOp, RecipOp, AdamWOp, SamplingThresholdOp, CrossEntropyGradOp>(inner);
  });
}

/// Returns true if an i32 operand is the number of keys that each query of attention sees.
static bool isKeyCounts(Operation *op, Value operand) {
  auto indexed = dyn_cast<IndexedOpInterface>(op);
  return indexed && !indexed.getOffsetMutable().empty() && indexed.getOffsetMutable()[0].get() == operand &&
         typeOf(operand).getRank() > 0;
}

/// Returns true if an operand is the given scale of floats of 8 bits. A scale that is not positive makes all codes 0.
static bool isGivenScale(Operation *op, unsigned operand) {
  auto isScale = [](OpOperand &use) { return isa<EncodeScaledOp>(use.getOwner()) && use.getOperandNumber() == 1; };
  auto fusion = dyn_cast<FusionOp>(op);
  return fusion ? llvm::any_of(fusion.getBody().getArgument(operand).getUses(), isScale)
                : isScale(op->getOpOperand(operand));
}

/// The kind of numbers to draw for an operand, so that a kernel does not index beyond a table or divide by zero.
KernelSample pc::sampleOf(Operation *op, unsigned operand) {
  Value value = op->getOperand(operand);
  KernelSample sample{.positive = wantsPositive(op) || isGivenScale(op, operand)};
  auto isMask = [&](EinsumOp einsum) {
    auto argument = dyn_cast<BlockArgument>(einsum.getMask());
    return (argument && isa<FusionOp>(op) ? op->getOperand(argument.getArgNumber()) : einsum.getMask()) == value;
  };
  if (EinsumOp einsum = routedOnRows(op); einsum && isMask(einsum)) {
    sample.of = typeOf(value).getShape().back();
    sample.chosen = std::min<int64_t>(static_cast<int64_t>(*einsum.getRouted()), sample.of);
    // If experts have a capacity, draws that many rows, of any tokens.
    const int64_t entries = typeOf(value).getNumElements(), rows = mostRows(einsum);
    if (rows < entries / sample.of * sample.chosen)
      sample.of = entries, sample.chosen = rows;
  }
  if (!typeOf(value).getElementType().isInteger(32))
    return sample;
  sample.ascending = isKeyCounts(op, value);
  if (auto write = dyn_cast<CacheWriteOp>(op)) { // tokens write different entries; the last slot writes none
    sample.counts = operand == 3;
    sample.run = operand == 2 ? limitOfCache(write.getCache(), 1) : 0;
  }
  sample.below = sample.ascending ? typeOf(op->getOperand(1)).getDimSize(1) + 1 : limitOf(value);
  return sample;
}

/// Returns the flops of an op that generated kernels compute as a product: attention (half if causal), and products
/// that work on routed rows or quantized weights. Returns 0 for other ops.
static double flopsOfProducts(Operation *op) {
  auto isCodes = [](Type type) { return isCode(getElementTypeOrSelf(type)); };
  if (isOnRows(op) || llvm::any_of(op->getOperandTypes(), isCodes))
    return flopsOf(op);
  std::optional<bool> causal = isCausalAttention(op);
  return causal ? flopsOf(op) / (*causal ? 2 : 1) : 0;
}

/// Two codes of 4 bits are drawn as one code of 8 bits, because every byte is valid. Some bytes are no floats of 8
/// bits.
static json::Object buffer(Value value, int64_t offset) {
  Type element = typeOf(value).getElementType();
  return json::Object{{"offset", offset},
                      {"elements", storedType(value.getType()).getNumElements() / (element.isInteger(4) ? 2 : 1)},
                      {"dtype", element.isF32()                  ? "f32"
                                : element.isBF16()               ? "bf16"
                                : isa<Float8E4M3FNType>(element) ? "e4m3"
                                : isa<Float8E5M2Type>(element)   ? "e5m2"
                                : isCode(element)                ? "i8"
                                                                 : "i32"}};
}

/// An input is a buffer and how to draw its elements.
static json::Object input(Value value, int64_t offset, KernelSample sample) {
  json::Object entry = buffer(value, offset);
  if (typeOf(value).getElementType().isInteger(32))
    entry["below"] = sample.ascending ? 1 : sample.below; // the device's test cannot draw sorted numbers
  if (sample.counts || sample.run)
    entry["run"] = sample.counts ? 0 : sample.run;
  entry["positive"] = sample.positive;
  if (sample.chosen) {
    entry["chosen"] = sample.chosen;
    entry["of"] = sample.of;
  }
  return entry;
}

static json::Object launch(int64_t kernel, ArrayRef<int64_t> offsets) {
  return json::Object{{"kernel", kernel}, {"offsets", json::Array(offsets)}};
}

/// Inputs are the values that the ops read and do not compute. Values between the ops are only memory.
LogicalResult CheckCases::add(StringRef name, StringRef kind, ArrayRef<Operation *> ops, ArrayRef<Launch> launches,
                              OffsetOf offsetOf, ArrayRef<int64_t> results, AddToTable addToTable) {
  json::Array device, host, inputs, outputs;
  llvm::DenseSet<Value> made, read;
  for (const Launch &one : launches)
    device.push_back(launch(one.kernel, one.offsets));
  double flops = 0;
  for (Operation *op : ops) {
    flops += flopsOfProducts(op);
    SmallVector<int64_t> offsets;
    for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
      offsets.push_back(offsetOf(operand));
      // Results of earlier ops of the case are not drawn.
      if (!made.contains(operand) && read.insert(operand).second)
        inputs.push_back(input(operand, offsets.back(), sampleOf(op, i)));
    }
    SmallVector<int64_t> to(results);
    for (Value result : op->getResults())
      if (results.empty())
        to.push_back(offsetOf(result));
    offsets.append(to);
    SmallVector<int64_t> arguments;
    for (auto [i, offset] : llvm::enumerate(offsets))
      for (int64_t bytes : pieceBytes(op, i))
        arguments.push_back(offset + bytes);
    for (unsigned part = 0, parts = reference.numParts(op); part < parts; ++part) {
      FailureOr<const KernelSet::Info *> info = reference.get(op, part);
      if (failed(info))
        return failure();
      host.push_back(launch(addToTable(name, **info), arguments));
    }
    for (auto [result, offset] :
         llvm::zip(op->getNumResults() ? ValueRange(op->getResults()) : op->getOperands(), to)) {
      made.insert(result);
      // The device does not store a value that only another op of the same case reads.
      bool inside = ops.size() > 1 && result.hasOneUse() && llvm::is_contained(ops, *result.user_begin());
      if (!inside)
        outputs.push_back(buffer(result, offset));
    }
  }
  cases.push_back(json::Object{{"name", name.str()},
                               {"kind", kind.str()},
                               {"flops", flops},
                               {"device", std::move(device)},
                               {"host", std::move(host)},
                               {"inputs", std::move(inputs)},
                               {"outputs", std::move(outputs)}});
  return success();
}

/// A product is checked by its table entry, so the case has no launches.
void CheckCases::addProduct(StringRef name, int64_t index, ArrayRef<Value> inputs, ArrayRef<int64_t> offsets,
                            OffsetOf offsetOf) {
  json::Array buffers;
  for (Value value : inputs)
    buffers.push_back(input(value, offsetOf(value), {}));
  cases.push_back(json::Object{
      {"name", name.str()}, {"product", index}, {"offsets", json::Array(offsets)}, {"inputs", std::move(buffers)}});
}
