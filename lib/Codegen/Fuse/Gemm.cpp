//===- Gemm.cpp - Einsums that are matrix products ------------------------------------------===//
// Input: an einsum, or a fusion around one. Result: the sizes and strides of this matrix product, or std::nullopt if
// the einsum is not a matrix product. Each group of factors must collapse to one stride in every operand. Fusions are
// recognized from their ops, so no annotation by the fusing pass is needed.
//===-----------------------------------------------------------------------------===//
#include "Gemm.h"
#include "CodeProduct.h"
#include "Grouped.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Contraction.h"
#include "pcrt/pcrt.h"

using namespace mlir;
using namespace pc;

namespace {
/// One collapsed group of factors: its size, and its stride in a, b and c (0 if absent).
struct Group {
  int64_t size = 1;
  int64_t stride[3] = {0, 0, 0};
};

/// Collapses `factors`, in the order of the first tensor that has all of them. Returns false if that is impossible.
bool collapse(ArrayRef<int> factors, const FactorRule &rule, ArrayRef<SmallVector<int64_t>> strides, Group &group) {
  for (int f : factors)
    group.size *= rule.factors[f].size;
  for (int t = 0; t < 3; ++t) {
    int64_t expected = 0; // stride of the previous (major) factor
    bool absent = true;
    for (int f : factors) {
      int64_t s = strides[t][f];
      if (s < 0)
        continue;
      absent = false;
      if (expected && expected != s * rule.factors[f].size)
        return false;
      expected = s;
      group.stride[t] = s;
    }
    for (int f : factors)
      if (!absent && strides[t][f] < 0)
        return false;
  }
  return true;
}
} // namespace

/// Every group of factors must collapse to one stride. If rows of c would not be contiguous, the transposed product is
/// used (`swapped`).
std::optional<Gemm> pc::asGemm(EinsumOp op) {
  if (op.getInputs().size() != 2 || op.getMask())
    return std::nullopt;
  FactorRule rule = op.getFactorRule();
  auto element = [](Value v) { return cast<RankedTensorType>(v.getType()).getElementType(); };
  Type in = element(op.getInputs()[0]), other = element(op.getInputs()[1]), out = element(op.getResult());
  if (decodingOf(op.getInputs()[0]))
    in = other; // a product reads codes as f32, for any type of the other operand
  else if (decodingOf(op.getInputs()[1]))
    other = in;
  if (in != other || !(in.isF32() || in.isBF16()) || !(out.isF32() || out == in))
    return std::nullopt;
  // Strides of every factor in a, b, c; -1 if absent.
  SmallVector<SmallVector<int64_t>> strides(3, SmallVector<int64_t>(rule.factors.size(), -1));
  ArrayRef<int> dims[3] = {rule.operands[0], rule.operands[1], rule.results[0]};
  for (int t = 0; t < 3; ++t) {
    int64_t stride = 1;
    for (int f : llvm::reverse(dims[t])) {
      if (strides[t][f] >= 0)
        return std::nullopt; // a diagonal
      strides[t][f] = stride;
      stride *= rule.factors[f].size;
    }
  }
  Contraction factors(rule);
  for (SmallVector<int> *group : {&factors.batch, &factors.m, &factors.n, &factors.k, &factors.alone})
    llvm::erase_if(*group, [&](int f) { return rule.factors[f].size == 1; }); // their strides do not matter
  Group gb, gm, gn, gk;
  if (!factors.alone.empty() || !collapse(factors.batch, rule, strides, gb) ||
      !collapse(factors.m, rule, strides, gm) || !collapse(factors.n, rule, strides, gn) ||
      !collapse(factors.k, rule, strides, gk))
    return std::nullopt;
  if (gm.size * gn.size == 1)
    return std::nullopt; // an elementwise product, or dot products, which are row ops
  Gemm g;
  // The library writes rows of c contiguously; otherwise the transposed product is used.
  bool swap = gn.stride[2] != 1 && gn.size > 1;
  if (swap) {
    if (gm.stride[2] != 1)
      return std::nullopt;
    std::swap(gm, gn);
    for (Group *group : {&gb, &gm, &gn, &gk})
      std::swap(group->stride[0], group->stride[1]);
  }
  g.swapped = swap;
  g.batch = gb.size, g.m = gm.size, g.n = gn.size, g.k = gk.size;
  // A group of one element has stride 0 here. Replace it by a stride with which the operand is still dense.
  auto strideOr = [](int64_t stride, int64_t fallback) { return stride ? stride : fallback; };
  g.aK = strideOr(gk.stride[0], gm.stride[0] == 1 ? gm.size : 1);
  g.aM = strideOr(gm.stride[0], g.aK == 1 ? g.k : 1);
  g.bN = strideOr(gn.stride[1], gk.stride[1] == 1 ? gk.size : 1);
  g.bK = strideOr(gk.stride[1], g.bN == 1 ? g.n : 1);
  g.cN = strideOr(gn.stride[2], 1);
  g.cM = strideOr(gm.stride[2], g.n);
  g.aBatch = gb.stride[0], g.bBatch = gb.stride[1], g.cBatch = gb.stride[2];
  if ((g.aK != 1 && g.aM != 1) || (g.bN != 1 && g.bK != 1) || g.cN != 1)
    return std::nullopt;
  return g;
}

static Type elementOf(Value value) { return getElementTypeOrSelf(value.getType()); }

bool pc::takesBias(BiasedGemm biased, bool cuda) {
  Type bias = elementOf(biased.broadcast.getInputs()[0]);
  return cuda ? bias == elementOf(biased.product.getResult()) : bias.isF32();
}

/// Recognizes the sum of a product and a broadcast bias, with one number per column.
std::optional<BiasedGemm> pc::asBiasedGemm(AddOp sum) {
  auto product = sum.getA().getDefiningOp<EinsumOp>(), broadcast = sum.getB().getDefiningOp<EinsumOp>();
  if (!product || !broadcast || product == broadcast || broadcast.getInputs().size() != 1)
    return std::nullopt;
  std::optional<Gemm> gemm = asGemm(product);
  if (!gemm || gemm->swapped || gemm->batch != 1)
    return std::nullopt;
  // The bias must have exactly the dims of the columns: the trailing dims of the result, with n elements.
  FactorRule rule = broadcast.getFactorRule();
  ArrayRef<int> dims = rule.operands[0], result = rule.results[0];
  auto bias = cast<RankedTensorType>(broadcast.getInputs()[0].getType());
  if (dims.empty() || dims.size() >= result.size() || result.take_back(dims.size()) != dims ||
      bias.getNumElements() != gemm->n)
    return std::nullopt;
  return BiasedGemm{product, broadcast};
}

/// Finds a product that a library can add to its result, if nothing else reads the product.
std::optional<SummedGemm> pc::asSummedGemm(AddOp sum) {
  Value base = sum.getA(), last = sum.getB();
  auto productOf = [](Value value) {
    auto product = value.getDefiningOp<EinsumOp>();
    std::optional<Gemm> gemm = product && value.hasOneUse() ? asGemm(product) : std::nullopt;
    return gemm && gemm->m > 1 && gemm->n > 1 ? product : EinsumOp();
  };
  // The later product accumulates, because the result of the earlier one exists by then.
  EinsumOp product = productOf(last), other = productOf(base);
  if (!product || (other && other->getBlock() == product->getBlock() && product->isBeforeInBlock(other))) {
    std::swap(base, last);
    std::swap(product, other);
  }
  if (!product || base == last || !elementOf(base).isF32() || !elementOf(last).isF32() || !elementOf(sum).isF32())
    return std::nullopt;
  return SummedGemm{product, base};
}

/// Returns true if cuBLASLt can read and write the auxiliary matrix, whose rows must be whole vectors.
static bool takesAux(const Gemm &gemm) { return gemm.batch == 1 && gemm.n % 8 == 0 && gemm.cM == gemm.n; }

/// The library has an epilogue for gelu after a bias, which also stores the sum that the gradient reads.
AddOp pc::biasedGeluOf(ActivationOp op) {
  auto sum = op.getX().getDefiningOp<AddOp>();
  if (op.getKind() != ActivationKind::GeluTanh || !sum || elementOf(sum) != elementOf(op.getResult()))
    return nullptr;
  std::optional<BiasedGemm> biased = asBiasedGemm(sum);
  return biased && elementOf(biased->product) == elementOf(sum) && takesAux(*asGemm(biased->product)) ? sum : nullptr;
}

/// The library multiplies the product by the slope of gelu at the stored sum.
EinsumOp pc::geluGradOf(ActivationGradOp op) {
  auto product = op.getDy().getDefiningOp<EinsumOp>();
  if (op.getKind() != ActivationKind::GeluTanh || !product || elementOf(product) != elementOf(op.getResult()) ||
      elementOf(op.getX()) != elementOf(op.getResult()))
    return nullptr;
  std::optional<Gemm> gemm = asGemm(product);
  return gemm && takesAux(*gemm) ? product : nullptr;
}

/// Returns true if `sum` is the sum over k of matrix b of `product`.
static bool sumsOverK(EinsumOp sum, EinsumOp product) {
  std::optional<Gemm> gemm = asGemm(product);
  unsigned b = gemm && gemm->swapped ? 0 : 1;
  Value x = sum.getInputs()[0];
  if (!gemm || gemm->batch != 1 || product.getInputs()[b] != x || product.getInputs()[1 - b] == x ||
      elementOf(sum) != elementOf(product))
    return false;
  // The product and the sum must keep the same dims of x, in the same order. Dims of one element do not matter.
  FactorRule of = sum.getFactorRule(), in = product.getFactorRule();
  SmallVector<int> kept;
  for (auto [summand, factor] : llvm::zip_equal(of.operands[0], in.operands[b])) {
    if (of.factors[summand].size == 1)
      continue;
    if (llvm::is_contained(in.results[0], factor))
      kept.push_back(summand);
    if (llvm::count(of.operands[0], summand) > 1)
      return false;
  }
  SmallVector<int> result = llvm::filter_to_vector(of.results[0], [&](int f) { return of.factors[f].size != 1; });
  return kept == result;
}

/// The sum must be over the same dims that the product contracts.
EinsumOp pc::biasGradOf(EinsumOp sum) {
  if (sum.getInputs().size() != 1)
    return nullptr;
  for (Operation *user : sum.getInputs()[0].getUsers())
    if (auto product = dyn_cast<EinsumOp>(user);
        product && product->getBlock() == sum->getBlock() && sumsOverK(sum, product))
      return product;
  return nullptr;
}

/// A view of the matrix may follow the einsum.
SmallVector<Operation *> pc::decodingOps(EinsumOp product) {
  Value b;
  if (std::optional<Gemm> gemm = asGemm(product); gemm && gemm->batch == 1 && gemm->aK == 1)
    b = product.getInputs()[gemm->swapped ? 0 : 1];
  else if (std::optional<Grouped> grouped = asGrouped(product);
           grouped && grouped->desc.grouped == PCRT_GROUPED_PRODUCT)
    b = product.getInputs()[grouped->b];
  EinsumOp decoding = b ? decodingOf(b) : EinsumOp();
  SmallVector<Operation *> ops;
  for (Operation *op = decoding ? b.getDefiningOp() : nullptr; op;
       op = op == decoding ? nullptr : op->getOperand(0).getDefiningOp())
    ops.insert(ops.begin(), op);
  return ops;
}

/// A product of codes as a call of the library, which has a place for the scales of each operand.
static FusedProduct callOf(const CodeProduct &codes, Value c) {
  const bool swapped = asGemm(codes.product)->swapped;
  const CodeProduct::Operand &a = codes.operands[swapped ? 1 : 0], &b = codes.operands[swapped ? 0 : 1];
  FusedProduct fused{codes.product, PCRT_EPILOGUE_NONE, a.codes, b.codes, c, a.scales, b.scales};
  fused.aScales = a.kind, fused.bScales = b.kind;
  return fused;
}

/// The single library call that computes a whole fusion: a product with an epilogue, or one that adds to a base.
std::optional<FusedProduct> pc::asFusedProduct(FusionOp fusion, bool cuda) {
  if (std::optional<CodeProduct> codes = cuda ? asCodeProduct(fusion) : std::nullopt)
    return callOf(*codes, fusion.getResult(0));
  Block &body = fusion.getBody().front();
  Operation *yield = body.getTerminator();
  // A fusion's body refers to its arguments and inner values. Callers need the values outside of the fusion.
  auto outside = [&](Value v) -> Value {
    if (auto argument = dyn_cast<BlockArgument>(v))
      return fusion.getInputs()[argument.getArgNumber()];
    for (auto [yielded, result] : llvm::zip_equal(yield->getOperands(), fusion.getResults()))
      if (yielded == v)
        return result;
    return {};
  };
  auto make = [&](EinsumOp product, int32_t epilogue, Value c, Value bias, Value aux, Operation *rest) {
    bool swapped = asGemm(product)->swapped;
    FusedProduct fused{product,
                       epilogue,
                       outside(product.getInputs()[swapped ? 1 : 0]),
                       outside(product.getInputs()[swapped ? 0 : 1]),
                       outside(c),
                       bias ? outside(bias) : Value(),
                       aux ? outside(aux) : Value(),
                       rest};
    if (auto decoding = decodingOps(product); !decoding.empty()) {
      Value codes = decoding[0]->getOperand(0), scales = decoding[0]->getOperand(1);
      fused.b = outside(codes), fused.aux = outside(scales);
      fused.group = cast<RankedTensorType>(codes.getType()).getNumElements() /
                    cast<RankedTensorType>(scales.getType()).getNumElements();
    }
    return fused;
  };
  auto decodes = [](Operation &op) { return isa<EinsumOp, ReshapeOp>(op) && decodingOf(op.getResult(0)); };
  // Ops that decode weights are part of the product, so they do not count.
  size_t decoding = llvm::count_if(body, decodes), ops = body.getOperations().size() - 1 - decoding;
  size_t results = fusion->getNumResults();
  Operation *last = ops ? yield->getPrevNode() : nullptr;
  if (auto product = dyn_cast_or_null<EinsumOp>(last);
      product && !product.getMask() && decoding && ops == 1 && results == 1)
    if (!decodingOps(product).empty())
      return make(product, PCRT_EPILOGUE_NONE, product, {}, {}, nullptr);
  auto biasOf = [](AddOp sum) { return asBiasedGemm(sum)->broadcast.getInputs()[0]; };
  if (auto sum = dyn_cast_or_null<AddOp>(last); sum && ops == 3 && results == 1)
    if (std::optional<BiasedGemm> biased = asBiasedGemm(sum); biased && takesBias(*biased, cuda))
      return make(biased->product, PCRT_EPILOGUE_BIAS, sum, biasOf(sum), {}, nullptr);
  if (auto sum = dyn_cast_or_null<AddOp>(last); sum && ops == 2 && results == 1)
    if (std::optional<SummedGemm> summed = asSummedGemm(sum)) {
      FusedProduct fused = make(summed->product, PCRT_EPILOGUE_NONE, sum, {}, {}, nullptr);
      fused.sum = sum;
      fused.base = outside(summed->base);
      return fused;
    }
  // Only cuBLASLt has the epilogues below.
  if (!cuda)
    return std::nullopt;
  if (auto gelu = dyn_cast_or_null<ActivationOp>(last); gelu && ops == 4 && results == 2)
    if (AddOp sum = biasedGeluOf(gelu))
      return make(asBiasedGemm(sum)->product, PCRT_EPILOGUE_GELU_BIAS, gelu, biasOf(sum), sum, gelu);
  if (auto gradient = dyn_cast_or_null<ActivationGradOp>(last); gradient && ops == 2 && results == 1)
    if (EinsumOp product = geluGradOf(gradient))
      return make(product, PCRT_EPILOGUE_GELU_GRAD, gradient, {}, gradient.getX(), gradient);
  if (auto sum = dyn_cast_or_null<EinsumOp>(last); sum && ops == 2 && results == 2)
    if (EinsumOp product = biasGradOf(sum))
      return make(product, PCRT_EPILOGUE_BIAS_GRAD, product, sum, {}, sum);
  return std::nullopt;
}
