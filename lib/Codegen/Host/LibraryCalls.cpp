//===- LibraryCalls.cpp - Matrix products, attention, and kernels of several ops ----------===//
// The part of Generator that calls libraries: matrix products with their epilogues, grouped products, attention, and
// kernels that several ops share. A product whose only reader is a sum over microbatches accumulates into it directly.
//===-----------------------------------------------------------------------------===//
#include "../Emit/Kernel.h"
#include "../Fuse/Grouped.h"
#include "../Fuse/LibraryAttention.h"
#include "Generator.h"
#include "Together.h"
#include "pc/IR/Liveness.h"

using namespace mlir;
using namespace pc;

/// Adds a test case for the kernels of `ops`, if `info`, the first of them, has none yet. Without `results`, the ops'
/// results are at their homes.
LogicalResult Generator::addCase(StringRef name, const KernelSet::Info &info, ArrayRef<Operation *> ops,
                                 ArrayRef<CheckCases::Launch> launches, ArrayRef<Address> results) {
  if (!all.cases || !all.cases->isNew(info.function))
    return success();
  return all.cases->add(
      name, info.kind, ops, launches, [&](Value v) { return addressOf(v).offset; },
      llvm::map_to_vector(results, [](Address at) { return at.offset; }),
      [&](StringRef name, const KernelSet::Info &host) { return addKernel(name, host, /*ofHost=*/true); });
}

/// Adds kernels of an op inside a fusion, with operands and result `buffers`, for libraries that cannot compute the op.
/// They follow each other in the table, and the step does not call them. Returns the index of the first one.
FailureOr<int32_t> Generator::addKernelsBeside(Operation *op, ArrayRef<Value> buffers) {
  std::string name = op->getName().stripDialect().str() + " " + sourceName(op);
  auto offsets = llvm::map_to_vector(buffers, [&](Value v) { return addressOf(v).offset; });
  auto arguments = offsets;
  if (kernelWorkspaceBytes(op))
    arguments.push_back(arena - workspace);
  SmallVector<CheckCases::Launch> launches;
  const KernelSet::Info *first = nullptr;
  for (unsigned part = 0; part < kernels.numParts(op); ++part) {
    FailureOr<const KernelSet::Info *> info = kernels.get(op, part);
    if (failed(info))
      return failure();
    first = part ? first : *info;
    launches.push_back({addKernel(name, **info), arguments});
  }
  auto index = static_cast<int32_t>(launches[0].kernel);
  if (!all.cases || !all.cases->isNew(first->function))
    return index;
  auto offsetOf = [&](Value v) {
    return offsets[std::distance(op->operand_begin(), llvm::find(op->getOperands(), v))];
  };
  if (failed(all.cases->add(
          name, first->kind, op, launches, offsetOf, offsets.back(),
          [&](StringRef name, const KernelSet::Info &host) { return addKernel(name, host, /*ofHost=*/true); })))
    return failure();
  return index;
}

/// The yield of `product`, if there are several microbatches and nothing else reads the product; otherwise null. The
/// product then accumulates directly into the sum over microbatches, which saves three passes over a gradient.
OpOperand *Generator::summedByProduct(Value product) {
  auto isProduct = [&] {
    if (auto einsum = product.getDefiningOp<EinsumOp>())
      return asGemm(einsum).has_value();
    auto fusion = product.getDefiningOp<FusionOp>();
    std::optional<FusedProduct> fused = fusion ? asFusedProduct(fusion, cuda) : std::nullopt;
    return fused && (fused->epilogue == PCRT_EPILOGUE_BIAS_GRAD || fused->aScales) && fused->c == product;
  };
  if (!current || current.getMicrobatches() == 1 || !isProduct() || !product.hasOneUse() ||
      product.use_begin()->getOwner() != current.getBody().front().getTerminator())
    return nullptr;
  return &*product.use_begin();
}

/// A product whose operands are swapped computes the transposed result.
LogicalResult Generator::emitGemm(EinsumOp op) {
  bool swapped = asGemm(op)->swapped;
  return emitGemm({op,
                   PCRT_EPILOGUE_NONE,
                   op.getInputs()[swapped ? 1 : 0],
                   op.getInputs()[swapped ? 0 : 1],
                   op.getResult(),
                   {},
                   {}});
}

/// Floats of 8 bits have their own types in products only.
static int32_t dtypeOfOperand(Value value) {
  Type element = getElementTypeOrSelf(value.getType());
  return isa<Float8E4M3FNType>(element) ? PCRT_E4M3 : isa<Float8E5M2Type>(element) ? PCRT_E5M2 : dtypeOf(value);
}

/// Writes a table entry for the product, a second one if it adds to a sum, and the kernel for an epilogue that the
/// library may lack.
LogicalResult Generator::emitGemm(const FusedProduct &p) {
  Gemm g = *asGemm(p.product);
  int32_t rest = -1;
  // If the library lacks the epilogue, these kernels compute it from the product's buffers.
  if (p.rest) {
    SmallVector<Value> buffers = p.epilogue == PCRT_EPILOGUE_GELU_BIAS   ? SmallVector<Value>{p.aux, p.c}
                                 : p.epilogue == PCRT_EPILOGUE_GELU_GRAD ? SmallVector<Value>{p.c, p.aux, p.c}
                                                                         : SmallVector<Value>{p.b, p.bias};
    FailureOr<int32_t> index = addKernelsBeside(p.rest, buffers);
    if (failed(index))
      return failure();
    rest = *index;
  }
  auto entry = [&](bool accumulate) {
    gemmTable.push_back({.name = tables.text("einsum " + sourceName(p.product)),
                         .batch = g.batch,
                         .m = g.m,
                         .n = g.n,
                         .k = g.k,
                         .a_batch_stride = g.aBatch,
                         .a_m_stride = g.aM,
                         .a_k_stride = g.aK,
                         .b_batch_stride = g.bBatch,
                         .b_k_stride = g.bK,
                         .b_n_stride = g.bN,
                         .c_batch_stride = g.cBatch,
                         .c_m_stride = g.cM,
                         .c_n_stride = g.cN,
                         .group = p.group,
                         .experts = 0,
                         .tokens = 0,
                         .rows = 0,
                         .grouped = PCRT_GROUPED_NONE,
                         .a_lies = 0,
                         .b_lies = 0,
                         .c_lies = 0,
                         .a_dtype = dtypeOfOperand(p.a),
                         .b_dtype = dtypeOfOperand(p.b),
                         .c_dtype = dtypeOf(p.c),
                         .accumulate = accumulate,
                         .epilogue = p.epilogue,
                         .rest = rest,
                         .a_scales = p.aScales,
                         .b_scales = p.bScales});
    return gemmTable.size() - 1;
  };
  // There are three ways to add: into the base in place, into the sum over microbatches (from the second one on), or
  // with a separate kernel after the product.
  bool inPlace = p.sum && homeOf(p.base) == homeOf(p.c);
  int64_t first = entry(inPlace), later = -1;
  Address to = addressOf(p.c);
  if (OpOperand *sum = summedByProduct(p.c)) {
    to = {homeOf(current.getResult(sum->getOperandNumber())), 0};
    later = entry(true);
  }
  auto ifThere = [&](Value v) { return v ? std::optional(addressOf(v)) : std::nullopt; };
  auto offsetOf = [&](Value v) { return v ? addressOf(v).offset : int64_t(-1); };
  pcrt_gemm_desc unnamed = gemmTable[first];
  unnamed.name = nullptr, unnamed.rest = -1;
  static_assert(std::has_unique_object_representations_v<pcrt_gemm_desc>);
  // Products of equal shape share one case; names and neighbouring kernels do not matter.
  if (all.cases && all.cases->isNew({reinterpret_cast<const char *>(&unnamed), sizeof unnamed})) {
    SmallVector<Value> inputs = {p.a, p.b};
    if (p.bias && p.epilogue != PCRT_EPILOGUE_BIAS_GRAD)
      inputs.push_back(p.bias);
    if (p.epilogue == PCRT_EPILOGUE_GELU_GRAD || p.bScales)
      inputs.push_back(p.aux);
    all.cases->addProduct("einsum " + sourceName(p.product), inPlace ? entry(false) : first, inputs,
                          {offsetOf(p.a), offsetOf(p.b), offsetOf(p.c), offsetOf(p.bias), offsetOf(p.aux)}, offsetOf);
  }
  write([&](HostProgram &host) {
    host.gemm(first, addressOf(p.a), addressOf(p.b), to, ifThere(p.bias), ifThere(p.aux), later);
  });
  if (!p.sum || inPlace)
    return success();
  FailureOr<const KernelSet::Info *> info = kernels.get(p.sum, 0);
  if (failed(info))
    return failure();
  int64_t adds = addKernel("add " + sourceName(p.sum), **info);
  write([&](HostProgram &host) { host.launch(adds, {addressOf(p.base), to, to}); });
  return success();
}

/// On a GPU our own kernels compute these products; on a CPU the runtime does.
LogicalResult Generator::emitGrouped(EinsumOp op) {
  if (cuda)
    return emitKernels(op, op->getOperands(), {addressOf(op.getResult())});
  std::optional<Grouped> grouped = asGrouped(op);
  if (!grouped)
    return op.emitOpError() << "works on routed tokens, and no library call does that";
  return emitGrouped(
      {op, grouped->desc, op.getInputs()[grouped->a], op.getInputs()[grouped->b], {}, op.getMask(), op.getResult()});
}

LogicalResult Generator::emitGrouped(const CodedExperts &experts) {
  pcrt_gemm_desc desc = experts.desc;
  desc.name = tables.text("einsum " + sourceName(experts.product));
  desc.a_dtype = dtypeOf(experts.a), desc.b_dtype = dtypeOf(experts.codes), desc.c_dtype = dtypeOf(experts.c);
  desc.rest = -1;
  gemmTable.push_back(desc);
  int64_t index = gemmTable.size() - 1;
  write([&](HostProgram &host) {
    host.gemm(index, addressOf(experts.a), addressOf(experts.codes), addressOf(experts.c),
              experts.scales ? std::optional(addressOf(experts.scales)) : std::nullopt, addressOf(experts.mask));
  });
  return success();
}

/// Adds our own kernels of an attention for machines without cuDNN; they exist for most head sizes.
LogicalResult Generator::addOwnKernels(Operation *attention, pcrt_attention_desc &desc) {
  if (desc.head_dim > 64 && !isForTensorCores(attention->getOperand(0)))
    return success();
  for (unsigned part = 0; part < kernels.numParts(attention); ++part) {
    FailureOr<const KernelSet::Info *> info = kernels.get(attention, part);
    if (failed(info))
      return failure();
    std::string name = attention->getName().stripDialect().str() + " " + sourceName(attention);
    desc.own[part] = 1 + static_cast<int32_t>(addKernel(name, **info));
  }
  return success();
}

/// The call also gets kernels of our own, for devices that the library does not support.
LogicalResult Generator::emitAttention(Operation *op) {
  std::optional<AttentionWorkspace> at;
  if (isAttentionGrad(op))
    at.emplace(op, all.libraries);
  pcrt_attention_desc desc = describeAttention(op, workspace - (at ? at->scratch : 0));
  if (failed(addOwnKernels(op, desc)))
    return failure();
  desc.name = tables.text("attention " + sourceName(op));
  attentionTable.push_back(desc);
  SmallVector<Address> values;
  for (Value operand : op->getOperands())
    values.push_back(addressOf(operand));
  for (Value result : op->getResults())
    values.push_back(addressOf(result));
  SmallVector<Address> arguments = piecesOf(op, values);
  SmallVector<int64_t> scratch = {0};
  if (at)
    scratch = {at->dqAccumulator, at->doDotO, at->scratch}; // our own kernels pass values in the first buffer
  for (int64_t offset : scratch)
    arguments.push_back({arena - workspace + offset, 0});
  write([&](HostProgram &to) { to.attention(attentionTable.size() - 1, arguments); });
  return success();
}

/// Emits the ops from `first` on that share one kernel; returns the op after them, or `first` if there are none.
Block::iterator Generator::emitTogether(Block::iterator first) {
  std::optional<Together> together =
      current ? std::nullopt
              : findTogether(
                    first, kernels, arena - workspace, workspace, [&](Operation *op) { return isIdle(op); },
                    [&](Operation *op) { return isInEvaluation(op); });
  if (!together)
    return first;
  for (Operation *output : together->shown) {
    toEvaluation = isInEvaluation(output);
    (void)emitOp(output);
  }
  toEvaluation = isInEvaluation(&*first);
  SmallVector<CheckCases::Launch> launches;
  for (const auto &[name, info] : together->launches) {
    launches.push_back({addKernel(name, info), {0}});
    write([&](HostProgram &to) { to.launch(launches.back().kernel, {{0, 0}}); });
  }
  SmallVector<Operation *> ops;
  for (auto op = first; op != together->after; ++op)
    if (!isIdle(&*op) && !isa<OutputOp>(*op))
      ops.push_back(&*op);
  (void)addCase(together->launches[0].first, together->launches[0].second, ops, launches, {});
  return together->after;
}
