//===- VerifyProducts.cpp - Compares matrix products with their ops ---------------------------===//
// Compares each call of a product with the op of the planned program: the table row, and the buffers in order. Expected
// rows are computed from the specs of the ops. The functions asGemm, asGrouped and asCodeProduct, with which the rows
// were written, are not used.
//===-----------------------------------------------------------------------------===//
#include "../Emit/Kernel.h"
#include "../Fuse/Grouped.h"
#include "TableCheck.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/MoveRows.h"

#include "llvm/ADT/MapVector.h"
#include <cstring>

using namespace mlir;
using namespace pc;
using At = StepReader::At;
using Call = StepReader::Call;

namespace {
/// The strides of a, b and c along a letter or a loop, and its size.
struct Loop {
  int64_t size, a, b, c;
};
} // namespace

/// The letters of an einsum of row-major operands; std::nullopt if an operand has a letter twice.
static std::optional<SmallVector<Loop>> lettersOf(EinsumOp einsum, bool swapped) {
  auto [inputs, output] = einsum.getSpec().split("->");
  auto [first, second] = inputs.split(',');
  llvm::MapVector<StringRef, Loop> letters;
  bool isPlain = true;
  auto read = [&](StringRef text, Value value, int64_t Loop::*field) {
    SmallVector<StringRef> words;
    text.split(words, ' ', -1, /*KeepEmpty=*/false);
    int64_t stride = 1;
    for (auto [word, size] :
         llvm::zip(llvm::reverse(words), llvm::reverse(cast<RankedTensorType>(value.getType()).getShape()))) {
      Loop &loop = letters.insert({word, Loop{size, 0, 0, 0}}).first->second;
      isPlain &= loop.*field == 0;
      loop.*field = stride;
      stride *= size;
    }
  };
  read(first, einsum.getInputs()[0], swapped ? &Loop::b : &Loop::a);
  read(second, einsum.getInputs()[1], swapped ? &Loop::a : &Loop::b);
  read(output, einsum.getResult(), &Loop::c);
  SmallVector<Loop> loops;
  for (auto &[letter, loop] : letters)
    if (loop.size > 1)
      loops.push_back(loop);
  return isPlain ? std::optional(loops) : std::nullopt;
}

/// Returns true if a product's loops correspond to the letters. A loop is one letter or several, inner ones before
/// outer ones.
static bool areLetters(const pcrt_gemm_desc &row, SmallVector<Loop> letters) {
  for (Loop loop : {Loop{row.batch, row.a_batch_stride, row.b_batch_stride, row.c_batch_stride},
                    Loop{row.m, row.a_m_stride, 0, row.c_m_stride}, Loop{row.n, 0, row.b_n_stride, row.c_n_stride},
                    Loop{row.k, row.a_k_stride, row.b_k_stride, 0}})
    while (loop.size > 1) {
      auto *inner = llvm::find_if(letters, [&](const Loop &one) {
        return loop.size % one.size == 0 && one.a == loop.a && one.b == loop.b && one.c == loop.c;
      });
      if (inner == letters.end())
        return false;
      loop = {loop.size / inner->size, loop.a * inner->size, loop.b * inner->size, loop.c * inner->size};
      letters.erase(inner);
    }
  return letters.empty();
}

namespace {
/// An einsum of two operands, alone or in a fusion, with the epilogue of a library product.
struct Products {
  explicit Products(Operation *op) : op(op) {
    auto fusion = dyn_cast<FusionOp>(op);
    if (!fusion) {
      product = dyn_cast<EinsumOp>(op);
      return;
    }
    for (Operation &inner : fusion.getBody().front().without_terminator()) {
      if (isa<EinsumOp, ReshapeOp>(inner) && decodingOf(inner.getResult(0))) {
        decoding = decodingOf(inner.getResult(0));
        continue;
      }
      if (isa<DecodeOp>(inner) || llvm::any_of(inner.getUsers(), llvm::IsaPred<DecodeOp>))
        continue; // codes and the order of scales: see FactorOfCodes
      if (auto einsum = dyn_cast<EinsumOp>(inner))
        (einsum.getInputs().size() == 1 ? line : product) = einsum;
      sum = isa<AddOp>(inner) ? cast<AddOp>(inner) : sum;
      hasGelu |= isa<ActivationOp>(inner);
      hasGeluGrad |= isa<ActivationGradOp>(inner);
      last = &inner;
    }
  }
  /// Maps a value in the fusion to the value outside of it; null for a value that exists only inside.
  Value outside(Value value) {
    auto fusion = dyn_cast<FusionOp>(op);
    if (!fusion)
      return value;
    if (auto argument = dyn_cast<BlockArgument>(value))
      return fusion.getInputs()[argument.getArgNumber()];
    for (auto [yielded, result] :
         llvm::zip_equal(fusion.getBody().front().getTerminator()->getOperands(), fusion.getResults()))
      if (yielded == value)
        return result;
    return {};
  }
  /// The value outside of the fusion that an operand of the product is computed from; if the operand has codes, these.
  Value operand(unsigned number) {
    Value value = product.getInputs()[number];
    if (DecodeOp codes = codesOf(number))
      return outside(codes.getCodes());
    return outside(decoding && decodingOf(value) ? decoding.getInputs()[0] : value);
  }
  /// The op that decodes an operand in a product of codes, or null.
  DecodeOp codesOf(unsigned number) {
    return isa<FusionOp>(op) ? product.getInputs()[number].getDefiningOp<DecodeOp>() : DecodeOp();
  }
  /// The number of elements of k that share a scale: the product of the sizes of the dims that codes have and scales do
  /// not.
  int64_t group() {
    if (!decoding)
      return 0;
    int64_t elements = 1;
    FactorRule rule = decoding.getFactorRule();
    for (int factor : rule.operands[0])
      elements *= llvm::is_contained(rule.operands[1], factor) ? 1 : rule.factors[factor].size;
    return elements;
  }
  /// The value that the library writes to c.
  Value c() {
    bool isLast = last && (sum || !line);
    return outside(isLast ? Value(last->getResult(0)) : Value(product.getResult()));
  }
  /// The epilogue of pcrt_gemm for the ops that follow the product.
  int64_t epilogue() {
    return hasGelu       ? PCRT_EPILOGUE_GELU_BIAS
           : hasGeluGrad ? PCRT_EPILOGUE_GELU_GRAD
           : !line       ? PCRT_EPILOGUE_NONE
           : sum         ? PCRT_EPILOGUE_BIAS
                         : PCRT_EPILOGUE_BIAS_GRAD;
  }
  Value bias() { return !line ? Value() : outside(sum ? line.getInputs()[0] : line.getResult()); }
  Value aux() {
    if (decoding)
      return outside(decoding.getInputs()[1]);
    return hasGelu ? outside(sum.getResult()) : hasGeluGrad ? outside(cast<ActivationGradOp>(last).getX()) : Value();
  }
  /// The value to which the product is added.
  Value base() { return sum && !line ? outside(sum.getA() == product.getResult() ? sum.getB() : sum.getA()) : Value(); }

  Operation *op, *last = nullptr;
  EinsumOp product, line, decoding;
  AddOp sum;
  bool hasGelu = false, hasGeluGrad = false;
};
} // namespace

namespace {
/// The scales of an operand of a product of codes, as the library reads them.
struct FactorOfCodes {
  Value scales;     ///< outside of the fusion; null if the operand has no codes, or is not as the library reads it
  int32_t kind = 0; ///< pcrt_scales

  /// The library reads contracted dims last. It reads scales of vectors with contracted dims first, and scales of
  /// squares with contracted dims last.
  FactorOfCodes(Products &of, unsigned number) {
    DecodeOp decode = of.codesOf(number);
    if (!decode || !decode.getIsFloat8())
      return;
    auto [inputs, output] = of.product.getSpec().split("->");
    auto [first, second] = inputs.split(',');
    SmallVector<StringRef> words, kept;
    (number ? second : first).split(words, ' ', -1, /*KeepEmpty=*/false);
    output.split(kept, ' ', -1, /*KeepEmpty=*/false);
    auto isKept = [&](StringRef word) { return llvm::is_contained(kept, word); };
    const auto outer = static_cast<size_t>(llvm::find_if_not(words, isKept) - words.begin());
    ArrayRef<int64_t> codes = cast<RankedTensorType>(decode.getCodes().getType()).getShape(),
                      ofScales = cast<RankedTensorType>(decode.getScales().getType()).getShape();
    if (words.size() != codes.size() || llvm::any_of(ArrayRef(words).drop_front(outer), isKept))
      return;
    if (ofScales.empty()) {
      kind = PCRT_SCALES_ONE, scales = of.outside(decode.getScales());
      return;
    }
    int64_t rows = 1, along = 1; // of a block
    for (size_t dim = 0; dim < codes.size(); ++dim)
      (dim < outer ? rows : along) *= codes[dim] / ofScales[dim];
    kind = along != 128 ? 0 : rows == 1 ? PCRT_SCALES_VECTORS : rows == 128 ? PCRT_SCALES_SQUARES : 0;
    auto turn = decode.getScales().getDefiningOp<EinsumOp>();
    if (kind == PCRT_SCALES_SQUARES && !turn)
      scales = of.outside(decode.getScales());
    if (kind != PCRT_SCALES_VECTORS || !turn || turn.getInputs().size() != 1)
      return;
    SmallVector<StringRef> from, to;
    auto [left, right] = turn.getSpec().split("->");
    left.split(from, ' ', -1, /*KeepEmpty=*/false);
    right.split(to, ' ', -1, /*KeepEmpty=*/false);
    if (to.size() != codes.size())
      return;
    std::rotate(to.begin(), to.begin() + static_cast<int64_t>(outer), to.end());
    scales = from == to ? of.outside(turn.getInputs()[0]) : Value();
  }
};
} // namespace

/// The type of an operand of a product.
static int32_t typeOfOperand(Value value) {
  Type element = getElementTypeOrSelf(value.getType());
  return isa<Float8E4M3FNType>(element) ? PCRT_E4M3 : isa<Float8E5M2Type>(element) ? PCRT_E5M2 : elementTypeOf(value);
}

/// Returns true if the library can multiply codes as a row says: k is the last dim of both operands, sizes are
/// multiples of a block (of 16, with one scale per operand), and one operand at most has scales of squares, and one at
/// most E5M2.
static bool canMultiplyCodes(const pcrt_gemm_desc &row) {
  auto both = [](int32_t a, int32_t b, int32_t what) { return a == what && b == what; };
  const bool hasOne = both(row.a_scales, row.b_scales, PCRT_SCALES_ONE);
  const int64_t unit = hasOne ? 16 : 128;
  return row.a_k_stride == 1 && row.b_k_stride == 1 && row.batch == 1 && row.m % unit == 0 && row.n % unit == 0 &&
         row.k % unit == 0 && (hasOne || (row.a_scales != PCRT_SCALES_ONE && row.b_scales != PCRT_SCALES_ONE)) &&
         !both(row.a_scales, row.b_scales, PCRT_SCALES_SQUARES) && !both(row.a_dtype, row.b_dtype, PCRT_E5M2);
}

/// Returns the pcrt layout (PCRT_LIES_...) of a value with these letters, and those of its letters that `mask` does not
/// have.
static std::pair<int32_t, SmallVector<StringRef>> lieOf(ArrayRef<StringRef> letters, ArrayRef<StringRef> mask,
                                                        bool byRows) {
  bool hasExpert = llvm::is_contained(letters, mask.back()), hasToken = llvm::is_contained(letters, mask.front());
  SmallVector<StringRef> rest;
  llvm::copy_if(letters, std::back_inserter(rest), [&](StringRef letter) { return !llvm::is_contained(mask, letter); });
  int32_t how = byRows                  ? PCRT_LIES_ROWS
                : hasExpert && hasToken ? PCRT_LIES_ENTRIES
                : hasExpert             ? PCRT_LIES_EXPERTS
                                        : PCRT_LIES_TOKENS;
  return {how, rest};
}

namespace {
/// The letters of a routed einsum: the letters of its operands, the last of which is the mask, and the letters of its
/// result. Its values are the ones outside of a fusion, before decoding.
struct RoutedSpec {
  explicit RoutedSpec(Products &of) : op(of.product) {
    for (unsigned i = 0; i < op.getInputs().size(); ++i)
      values.push_back(of.operand(i));
    auto [inputs, output] = op.getSpec().split("->");
    SmallVector<StringRef> texts;
    inputs.split(texts, ',');
    texts.push_back(output);
    values.push_back(of.outside(op.getResult()));
    letters.resize(texts.size());
    auto types = llvm::to_vector(llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()));
    for (auto [text, words, type] : llvm::zip_equal(texts, letters, types)) {
      text.split(words, ' ', -1, /*KeepEmpty=*/false);
      for (auto [word, size] : llvm::zip_equal(words, cast<RankedTensorType>(type).getShape()))
        sizes[word] = size;
    }
    for (StringRef letter : mask().drop_back())
      tokens *= sizeOf(letter);
  }

  ArrayRef<StringRef> mask() const { return letters[letters.size() - 2]; }
  StringRef expert() const { return mask().back(); }
  int64_t sizeOf(StringRef letter) const { return sizes.lookup(letter); }

  /// The stride along a letter of a value that is stored by expert; 0 if it does not have the letter.
  int64_t strideOf(ArrayRef<StringRef> of, StringRef letter) const {
    int64_t stride = 1;
    for (StringRef inner : llvm::reverse(of)) {
      if (inner == letter)
        return stride;
      stride *= sizeOf(inner);
    }
    return 0;
  }

  /// How many of the `rows` routed tokens this op computes. A round has at most the limit of rows, and the last round
  /// has the rest.
  int64_t ofRound(int64_t rows) {
    auto round = values[letters.size() - 2].getDefiningOp<RoundOfRowsOp>();
    if (!round)
      return rows;
    auto limit = static_cast<int64_t>(round.getLimit());
    const int64_t left = std::max<int64_t>(rows - static_cast<int64_t>(round.getRound()) * limit, 1);
    return round.getRound() + 1 == round.getRounds() ? left : std::min(left, limit);
  }

  /// The number of rows of a value that is stored by routed token. This is one row for each choice of a token, or the
  /// capacity of experts for each sequence or for each part of one.
  int64_t numRows(const std::set<int64_t> &capacities) {
    const int64_t experts = sizeOf(expert());
    const int64_t all = tokens * std::min<int64_t>(static_cast<int64_t>(*op.getRouted()), experts);
    int64_t rows = ofRound(all);
    for (int64_t capacity : capacities) {
      const int64_t sequence = sizeOf(mask().end()[-2]);
      const int64_t taken = tokens / sequence * std::min(capacity, sequence) * experts;
      if (taken < all &&
          llvm::any_of(values, [&](Value v) { return rowsOf(v) && rowsOf(v).getCount() == ofRound(taken); }))
        rows = ofRound(taken);
    }
    return rows;
  }

  EinsumOp op;
  SmallVector<Value> values;
  SmallVector<SmallVector<StringRef>> letters;
  llvm::StringMap<int64_t> sizes;
  int64_t tokens = 1;
};
} // namespace

/// Checks the table entry of a product of experts by the letters of its spec, and not with asGrouped, which wrote it.
bool TableCheck::grouped(Operation *op, const Call &call) {
  Products routed(op);
  int64_t index = call.number(1);
  if (index < 0 || index >= static_cast<int64_t>(gemmRows.size()) || call.later() != index || cuda)
    return refuse(op, "has a product that is not in the table");
  if (!isNext(op, index, lastProduct))
    return false;
  const pcrt_gemm_desc &row = gemmRows[index];
  RoutedSpec spec(routed);
  ArrayRef<SmallVector<StringRef>> letters = spec.letters;
  ArrayRef<Value> values = spec.values;
  ArrayRef<StringRef> mask = spec.mask(), c = letters.back();
  bool isProduct = letters.size() == 4; // otherwise a number for each row
  // The operands may be in either order; the addresses show which.
  bool swapped = isProduct && call.address(2) != homeOf(values[0]);
  unsigned a = swapped ? 1 : 0, b = isProduct ? 1 - a : a;
  auto [aLies, aRest] = lieOf(letters[a], mask, rowsOf(values[a]) != nullptr);
  auto [bLies, bRest] = lieOf(letters[b], mask, rowsOf(values[b]) != nullptr);
  auto [cLies, cRest] = lieOf(c, mask, rowsOf(values.back()) != nullptr);
  const int64_t rows = spec.numRows(capacities);
  for (Value value : values)
    if (RowsAttr of = rowsOf(value); of && !same(op, "rows", of.getCount(), rows))
      return false;
  pcrt_gemm_desc wanted{};
  wanted.name = row.name;
  wanted.batch = wanted.experts = spec.sizeOf(spec.expert()), wanted.tokens = spec.tokens, wanted.rows = rows;
  wanted.a_lies = aLies, wanted.b_lies = bLies, wanted.c_lies = cLies;
  wanted.rest = -1;
  wanted.group = routed.group();
  auto setRows = [&](int64_t m, int64_t n, int64_t k) {
    wanted.m = m, wanted.n = n, wanted.k = k;
    wanted.a_m_stride = k, wanted.a_k_stride = 1, wanted.c_m_stride = n, wanted.c_n_stride = 1;
  };
  wanted.a_dtype = elementTypeOf(values[a]), wanted.b_dtype = elementTypeOf(values[b]);
  wanted.c_dtype = elementTypeOf(values.back());
  size_t others = isProduct ? 1 : 0; // the number of further letters that operands with tokens have
  // The layouts of the operands and the result say which operation the op is. First, ops on rows: packing or unpacking
  // numbers, then vectors, and spreading or summing values of experts. Then, the products: the gradient of the weights,
  // and the product of rows with the weights.
  if (!isProduct && aRest.empty() && cRest.empty() && (aLies == PCRT_LIES_ROWS) != (cLies == PCRT_LIES_ROWS)) {
    wanted.grouped = cLies == PCRT_LIES_ROWS ? PCRT_GROUPED_PACK : PCRT_GROUPED_UNPACK;
    setRows(rows, 1, 1);
    wanted.b_k_stride = wanted.b_n_stride = 1;
  } else if (!isProduct && aRest.size() == 1 && aRest == cRest &&
             ((aLies == PCRT_LIES_TOKENS && cLies == PCRT_LIES_ROWS) ||
              (aLies == PCRT_LIES_ROWS && cLies == PCRT_LIES_TOKENS))) {
    wanted.grouped = cLies == PCRT_LIES_ROWS ? PCRT_GROUPED_PACK : PCRT_GROUPED_UNPACK;
    setRows(rows, spec.sizeOf(aRest[0]), 1);
    wanted.b_k_stride = wanted.b_n_stride = 1;
  } else if (!isProduct && aRest.size() == 1 && aRest == cRest) {
    bool spreads = cLies == PCRT_LIES_ROWS;
    ArrayRef<StringRef> line = spreads ? ArrayRef<StringRef>(letters[a]) : c;
    wanted.grouped = spreads ? PCRT_GROUPED_SPREAD : PCRT_GROUPED_SUM;
    setRows(rows, spec.sizeOf(aRest[0]), 1);
    wanted.a_m_stride = wanted.n, wanted.b_k_stride = wanted.b_n_stride = 1;
    if (aLies != (spreads ? PCRT_LIES_EXPERTS : PCRT_LIES_ROWS) || line.size() != 2 || line.front() != spec.expert() ||
        (!spreads && cLies != PCRT_LIES_EXPERTS))
      return refuse(op, "has expert rows with a different layout than in the tables");
  } else if (isProduct && cLies == PCRT_LIES_EXPERTS && aRest.size() == others && bRest.size() == others) {
    wanted.grouped = PCRT_GROUPED_GRADIENT;
    setRows(spec.sizeOf(aRest[0]), spec.sizeOf(bRest[0]), rows);
    wanted.a_m_stride = 1, wanted.a_k_stride = wanted.m, wanted.b_n_stride = 1, wanted.b_k_stride = wanted.n;
    wanted.c_batch_stride = spec.strideOf(c, spec.expert());
    wanted.c_m_stride = spec.strideOf(c, aRest[0]), wanted.c_n_stride = spec.strideOf(c, bRest[0]);
  } else if (isProduct && bLies == PCRT_LIES_EXPERTS && aRest.size() == others && cRest.size() == others) {
    wanted.grouped = PCRT_GROUPED_PRODUCT;
    setRows(rows, spec.sizeOf(cRest[0]), spec.sizeOf(aRest[0]));
    wanted.b_batch_stride = spec.strideOf(letters[b], spec.expert());
    wanted.b_k_stride = spec.strideOf(letters[b], aRest[0]), wanted.b_n_stride = spec.strideOf(letters[b], cRest[0]);
  }
  // `wanted` starts from zeros, and so do the rows of the generator, so all bytes can be compared at once.
  bool fits = wanted.grouped && memcmp(&row, &wanted, sizeof row) == 0;
  return (fits || refuse(op, "is a different matrix product in the tables")) &&
         same(op, "a", call.address(2), homeOf(values[a])) && same(op, "b", call.address(3), homeOf(values[b])) &&
         same(op, "c", call.address(4), homeOf(values.back())) &&
         same(op, "the scales", call.address(5), routed.aux() ? homeOf(routed.aux()) : At()) &&
         same(op, "the mask", call.address(6), homeOf(values[letters.size() - 2]));
}

/// The descriptor in the table must describe exactly this product: sizes, strides, types, epilogue and operands.
bool TableCheck::product(Operation *op, const Call &call) {
  Products fused(op);
  if (fused.product && fused.product.getMask())
    return grouped(op, call);
  Value c = fused.product ? fused.c() : Value();
  if (!c)
    return refuse(op, "runs as a matrix product, but is not one");
  auto isRow = [&](int64_t index) { return index >= 0 && index < static_cast<int64_t>(gemmRows.size()); };
  if (!isRow(call.number(1)) || !isRow(call.later()))
    return refuse(op, "has a product that is not in the table");
  if (!isNext(op, call.number(1), lastProduct) ||
      (call.later() != call.number(1) && !isNext(op, call.later(), lastProduct)))
    return false;
  OpOperand *sum = nullptr; // the sum over microbatches to which the product adds
  for (OpOperand &use : c.getUses())
    if (current && current.getMicrobatches() > 1 && use.getOwner() == current.getBody().front().getTerminator() &&
        call.later() != call.number(1))
      sum = &use;
  At to = sum ? At{homeOf(current.getResult(sum->getOperandNumber()))} : homeOf(c);
  Value base = fused.base(), bias = fused.bias(), aux = fused.aux();
  bool inPlace = base && homeOf(base) == to;
  // The first microbatch sets the sum over microbatches, and later ones add to it: two rows that differ in
  // `accumulate`.
  for (auto [index, accumulate] : {std::pair(call.number(1), inPlace), std::pair(call.later(), inPlace || sum)}) {
    const pcrt_gemm_desc &row = gemmRows[index];
    bool swapped = call.address(2) != homeOf(fused.operand(0));
    auto letters = lettersOf(fused.product, swapped);
    Value a = fused.operand(swapped ? 1 : 0), b = fused.operand(swapped ? 0 : 1);
    // If both operands are the same value, addresses cannot distinguish a from b.
    if ((!letters || !areLetters(row, *letters)) && fused.product.getInputs()[0] == fused.product.getInputs()[1])
      letters = lettersOf(fused.product, !swapped);
    if (!letters || !areLetters(row, *letters))
      return refuse(op, "is a different matrix product in the tables");
    if (!same(op, "a", call.address(2), homeOf(a)) || !same(op, "b", call.address(3), homeOf(b)) ||
        !same(op, "c", call.address(4), to) || !same(op, "type of a", row.a_dtype, typeOfOperand(a)) ||
        !same(op, "type of b", row.b_dtype, typeOfOperand(b)) ||
        !same(op, "type of c", row.c_dtype, elementTypeOf(c)) || !same(op, "group", row.group, fused.group()) ||
        !same(op, "rows", row.grouped | row.experts | row.tokens | row.rows | row.a_lies | row.b_lies | row.c_lies,
              0) ||
        !same(op, "accumulation", row.accumulate, accumulate) || !same(op, "epilogue", row.epilogue, fused.epilogue()))
      return false;
    FactorOfCodes ofA(fused, swapped ? 1 : 0), ofB(fused, swapped ? 0 : 1);
    if (!same(op, "scales of a", row.a_scales, ofA.kind) || !same(op, "scales of b", row.b_scales, ofB.kind))
      return false;
    if (fused.codesOf(0) || fused.codesOf(1)) {
      if (!ofA.scales || !ofB.scales || !canMultiplyCodes(row))
        return refuse(op, "multiplies codes in an order that the library does not have");
      bias = ofA.scales, aux = ofB.scales;
    }
    if (row.rest >= 0 && !isBeside(fused.line && !fused.sum ? fused.line : fused.last, row.rest, fused.epilogue()))
      return false;
  }
  auto orNull = [&](Value value) { return value ? homeOf(value) : At(); };
  if (!same(op, "the bias", call.address(5), orNull(bias)) || !same(op, "aux", call.address(6), orNull(aux)))
    return false;
  // The base is elsewhere: the product is written alone, and a kernel adds the base.
  if (!base || inPlace)
    return true;
  const Call *add = expect(op, "pcrt_launch");
  return add && isKernelOf(fused.sum, add->number(1), 0) && isNext(op, add->number(1), lastKernel) &&
         (add->list == ArrayRef<At>{homeOf(base), to, to} || refuse(op, "adds different buffers in the step's calls"));
}
