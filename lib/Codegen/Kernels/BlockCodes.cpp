//===- BlockCodes.cpp - Kernels that encode and decode blocks -----------------------------===//
// A block is read twice when it is encoded: for its scale, and for its codes. A block of a state has 256 elements, so
// on a CPU the second read hits the first-level cache. On a GPU, a warp works on a block, and a thread on 8 elements;
// if blocks have one element in the last dim, a thread works on 8 neighbouring blocks.
//===-----------------------------------------------------------------------------===//
#include "BlockCodes.h"
#include "Kernels.h"
#include "Optimizer.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Shapes.h"

#include <numeric>

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// Chooses among one value for each power: the value of the largest power p whose limits[p] is not above x.
static Num choose(Emitter &e, Num x, ArrayRef<double> limits, ArrayRef<double> values) {
  Num chosen = x.width() ? e.splat(e.real(values[0]), x.width()) : e.real(values[0]);
  for (size_t power = 1; power < values.size(); ++power)
    chosen = e.select(x < e.real(limits[power]), chosen, e.real(values[power]));
  return chosen;
}

Num BlockCode::decode(Num bytes) const {
  if (isLinear || float8)
    return bytes;
  Num index = isUnsigned ? e.select(bytes < e.real(0), bytes + 256.0, bytes) + 1.0 : e.max(bytes, 0.0 - bytes);
  SmallVector<double> first(code.first, code.first + PCRT_POWERS);
  Num number = e.fma(index, choose(e, index, first, code.slope), choose(e, index, first, code.intercept));
  number = e.select(index < e.real(first[0]), e.real(0), number);
  if (!isUnsigned)
    number = e.select(bytes < e.real(0), 0.0 - number, number);
  return e.select(index < e.real(code.of_one), number, e.real(1));
}

/// A store rounds towards zero. Within a power of a dynamic code, the index is a linear function of the magnitude.
Num BlockCode::encode(Num x) const {
  if (float8)
    return x;
  if (isLinear)
    return e.select(x < e.real(0), x - 0.5, x + 0.5);
  Num size = e.max(x, isUnsigned ? e.real(0) : 0.0 - x);
  double inverse[PCRT_POWERS], offset[PCRT_POWERS], first[PCRT_POWERS];
  for (int power = 0; power < PCRT_POWERS; ++power) {
    inverse[power] = 1 / code.slope[power];
    offset[power] = 0.5 - code.intercept[power] / code.slope[power];
    first[power] = code.first[power];
  }
  Num least = choose(e, size, code.from, first);
  Num index = e.fma(size, choose(e, size, code.from, inverse), choose(e, size, code.from, offset));
  index = e.min(e.max(index, least), least + least - 1.0);
  Num byte = isUnsigned ? index - 1.0 : e.select(x < e.real(0), 0.0 - index, index);
  byte = e.select(size < e.real(code.from[0]), e.real(0), byte);
  return e.select(x < e.real(code.one), byte, e.real(isUnsigned ? 255 : -128));
}

/// Warps of a thread block, which work on different blocks, and the threads of a warp.
static constexpr int64_t warps = 4, lanes = 32;

Blocks::Blocks(Kernel &kernel, ArrayRef<int64_t> shape, ArrayRef<int64_t> scales, int64_t widest)
    : kernel(kernel), e(kernel.e), counts(scales), sides(*blockOf(shape, scales)), strides(shape.size(), 1) {
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * shape[d];
  for (int64_t count : ArrayRef(counts).drop_back())
    numRows *= count;
  for (int64_t side : sides)
    numElements *= side;
  isAcross = sides.back() == 1;
  vectorWidth = std::gcd(kernel.simt ? widest : e.lanes, isAcross ? counts.back() : sides.back());
  vectorWidth = vectorWidth == 1 ? 0 : vectorWidth;
}

Blocks Blocks::firstHalves(int64_t &other) const {
  Blocks halves = *this;
  const size_t dim = llvm::find_if(sides, [](int64_t side) { return side > 1; }) - sides.begin();
  halves.sides[dim] /= 2;
  halves.numElements /= 2;
  halves.vectorWidth = std::gcd(vectorWidth, halves.sides.back());
  other = halves.sides[dim] * strides[dim];
  return halves;
}

void Blocks::each(llvm::function_ref<void(Num, Num)> body) const {
  auto first = [&](Num block) {
    Num at = e.integer(0);
    for (size_t d = counts.size(); d-- > 0; block = block / counts[d])
      at = at + block % e.integer(counts[d]) * (sides[d] * strides[d]);
    return at;
  };
  const int64_t inRow = counts.back();
  const int64_t step = std::max<int64_t>(together(), 1);
  if (kernel.simt) {
    kernel.items = numRows * inRow / step;
    return kernel.simt->teams(kernel.items, isAcross ? 1 : lanes, isAcross ? warps * lanes : warps,
                              [&](Num item) { body(item * step, first(item * step)); });
  }
  kernel.forItems(numRows, 1, /*reduces=*/false, [&](Num row) {
    Num block = row * inRow, start = first(block);
    e.loop(e.integer(0), e.integer(inRow), step, [&](Num i) { body(block + i, start + i * sides.back()); });
  });
}

Ptr Blocks::memory(Num block, int64_t count) const {
  const int64_t floats = count * numElements;
  if (kernel.simt)
    return kernel.simt->shared(warps * floats) + block % e.integer(warps) * floats;
  kernel.scratchBytes = floats * 4;
  return kernel.scratch;
}

Blocks::Carried Blocks::elements(Num first, Carried init, Body body) const {
  if (!kernel.simt || isAcross)
    return along(0, first, e.integer(0), init, body);
  const int64_t step = std::max<int64_t>(vectorWidth, 1), vectors = numElements / step;
  auto next = [&](Num vector, const Carried &carried) {
    Num inBlock = vector * step, rest = inBlock, at = first;
    for (size_t d = sides.size(); d-- > 0; rest = rest / sides[d])
      at = at + rest % e.integer(sides[d]) * strides[d];
    return body(at, inBlock, carried);
  };
  Num thread = kernel.simt->rank;
  return vectors == lanes ? next(thread, init) : e.loop(thread, e.integer(vectors), lanes, init, next);
}

Blocks::Carried Blocks::along(size_t dim, Num at, Num inBlock, const Carried &init, Body body) const {
  if (dim == sides.size())
    return body(at, inBlock, init);
  const bool isLast = dim + 1 == sides.size();
  const int64_t step = isLast && !isAcross ? std::max<int64_t>(vectorWidth, 1) : 1;
  inBlock = inBlock * sides[dim];
  if (sides[dim] == step)
    return along(dim + 1, at, inBlock, init, body);
  auto next = [&](Num i, const Carried &carried) {
    return along(dim + 1, at + i * strides[dim], inBlock + i, carried, body);
  };
  if (!init.empty())
    return e.loop(e.integer(0), e.integer(sides[dim]), step, init, next);
  e.loop(e.integer(0), e.integer(sides[dim]), step, [&](Num i) { next(i, {}); });
  return {};
}

namespace {
/// The scale of a block. Dynamic codes need its largest element and the negative of its smallest one. Other codes
/// need the largest magnitude, and 1 if an element is not finite.
class Scale {
public:
  Scale(Kernel &kernel, const Blocks &blocks, const BlockCode &code, int64_t largestCode = PCRT_LARGEST_LINEAR)
      : kernel(kernel), e(kernel.e), width(blocks.width()), together(blocks.together()), float8(code.float8),
        isDynamic(!code.isLinear && !code.float8), isOfWarp(kernel.simt && !blocks.isOfThread()),
        largestCode(largestCode) {}

  Blocks::Carried none() const {
    Num least = e.real(isDynamic ? -infinity : 0);
    least = width ? e.splat(least, width) : least;
    return {least, least};
  }
  /// `ends` of some elements and of x.
  Blocks::Carried with(Num x, ArrayRef<Num> ends) const {
    if (isDynamic)
      return {e.max(x, ends[0]), e.max(0.0 - x, ends[1])};
    Num magnitude = e.max(x, 0.0 - x);
    return {e.max(magnitude, ends[0]), e.select(magnitude < e.real(infinity), ends[1], none()[1] + 1.0)};
  }

  /// Stores the scale, and returns the number by which elements are divided. If the elements of a block are too small,
  /// the scale is 0 and the divisor is 1; the quotients are then encoded as 0.
  Num store(ArrayRef<Num> ends, Ptr scales, Num block) const {
    const bool isOne = width && !together; // the elements of a vector have one scale
    Num high = isOne ? e.maximum(ends[0]) : ends[0], low = isOne ? e.maximum(ends[1]) : ends[1];
    if (isOfWarp) {
      Blocks::Carried all = kernel.simt->across({true, true}, {high, low});
      high = all[0], low = all[1];
    }
    Num isSmall = (isDynamic ? e.max(high, low) : high) < e.real(PCRT_LEAST_SCALE);
    Num scale = isDynamic ? e.select(high < low, 0.0 - low, high)
                : float8  ? float8Scale(high, float8)
                          : high / e.real(static_cast<double>(largestCode));
    Num stored = e.select(isSmall, e.real(0), scale);
    if (!isDynamic)
      stored = e.select(low < e.real(1), stored, e.real(std::numeric_limits<float>::quiet_NaN()));
    e.once([&] { scales.store(stored, block); });
    return e.select(isSmall, e.real(1), scale);
  }

private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  Kernel &kernel;
  Emitter &e;
  const int64_t width, together;
  const Type float8;
  const bool isDynamic, isOfWarp;
  const int64_t largestCode;
};

/// The bytes of a block of an addend: its codes, and then its scale.
struct AddendBlock {
  static constexpr int64_t alignment = sizeof(float); ///< of a block: codes are not read or written in wider vectors
  Ptr codes, scale;

  AddendBlock(Ptr addends, Num block, WireAttr wire)
      : codes(addends + block * wire.blockBytes()),
        scale((codes + addends.e->integer(wire.blockBytes() - static_cast<int64_t>(sizeof(float))))
                  .as(addends.e->b.getF32Type())) {}
};
} // namespace

/// Rounds towards zero.
static Num truncate(Num x) {
  Emitter &e = *x.e;
  Type i32 = e.b.getI32Type(), type = x.width() ? Type(VectorType::get(x.width(), i32)) : i32;
  return e.toReal(e.wrap(arith::FPToSIOp::create(e.b, e.loc, type, x.v)));
}
/// The two codes of 4 bits, from -7 to 7, in each byte.
static std::pair<Num, Num> codesOf(Num bytes) {
  Num high = truncate(bytes.e->select(bytes < bytes.e->real(0), bytes / 16.0 - 0.5, bytes / 16.0 + 0.5));
  return {bytes - high * 16.0, high};
}
/// `sum` + `code` * `scale`, rounded after each operation, so that all kernels give the same bits.
static Num addExactly(Num sum, Num code, Num scale) {
  Emitter &e = *code.e;
  scale = code.width() ? e.splat(scale, code.width()) : scale;
  Value product = arith::MulFOp::create(e.b, e.loc, code.v, scale.v);
  return e.wrap(sum.v ? arith::AddFOp::create(e.b, e.loc, sum.v, product).getResult() : product);
}

template <typename Op> static BlockCode codeOf(Op op, Kernel &kernel) {
  Type float8 = op.getIsFloat8() ? getElementTypeOrSelf(op.getCodes()) : Type();
  kernel.kind = op.getIsLinear() ? "elementwise" : float8 ? "cast" : "optimizer";
  return BlockCode(kernel.e, op.getIsUnsigned(), op.getIsLinear(), float8);
}

/// Calls body(index, width, scale) for all elements of a value with one scale, which is operand 1. An item is a piece
/// of adjacent elements.
static void withOneScale(Kernel &kernel, Value value, llvm::function_ref<void(Num, int64_t, Num)> body) {
  constexpr int64_t most = 2048;
  const int64_t elements = ShapedType::getNumElements(shapeOf(value)), piece = std::gcd(elements, most);
  Blocks pieces(kernel, {elements / piece, piece}, {elements / piece, 1});
  kernel.kind = "cast";
  pieces.each([&](Num, Num first) {
    Num scale = kernel.operands[1].load(kernel.e.integer(0));
    pieces.elements(first, {}, [&](Num i, Num, const Blocks::Carried &) {
      body(i, pieces.width(), scale);
      return Blocks::Carried();
    });
  });
}

LogicalResult pc::kernels::emit(EncodeScaledOp op, Kernel &kernel) {
  withOneScale(kernel, op.getX(), [&](Num i, int64_t width, Num scale) {
    kernel.results[0].store(kernel.operands[0].load(i, width) * inverseOfScale(scale), i);
  });
  return success();
}

LogicalResult pc::kernels::emit(DecodeOp op, Kernel &kernel) {
  if (shapeOf(op.getScales()).empty()) {
    withOneScale(kernel, op.getResult(), [&](Num i, int64_t width, Num scale) {
      kernel.results[0].store(kernel.operands[0].load(i, width) * scale, i);
    });
    return success();
  }
  Blocks blocks(kernel, shapeOf(op.getResult()), shapeOf(op.getScales()));
  BlockCode code = codeOf(op, kernel);
  blocks.each([&](Num block, Num first) {
    Num scale = kernel.operands[1].load(block, blocks.together());
    blocks.elements(first, {}, [&](Num i, Num, const Blocks::Carried &) {
      kernel.results[0].store(code.decode(kernel.operands[0].load(i, blocks.width())) * scale, i);
      return Blocks::Carried();
    });
  });
  return success();
}

LogicalResult pc::kernels::emit(EncodeOp op, Kernel &kernel) {
  Blocks blocks(kernel, shapeOf(op.getX()), shapeOf(op.getScales()));
  BlockCode code = codeOf(op, kernel);
  Scale scale(kernel, blocks, code);
  Ptr x = kernel.operands[0];
  blocks.each([&](Num block, Num first) {
    auto ends = blocks.elements(first, scale.none(), [&](Num i, Num, const Blocks::Carried &ends) {
      return scale.with(x.load(i, blocks.width()), ends);
    });
    Num divisor = scale.store(ends, kernel.results[1], block);
    if (code.float8)
      divisor = kernel.e.real(1) / divisor; // exact: a power of two
    blocks.elements(first, {}, [&](Num i, Num, const Blocks::Carried &) {
      Num element = x.load(i, blocks.width());
      kernel.results[0].store(code.encode(code.float8 ? element * divisor : element / divisor), i);
      return Blocks::Carried();
    });
  });
  return success();
}

LogicalResult pc::kernels::emit(EncodeAddendOp op, Kernel &kernel) {
  WireAttr wire = op.getWire();
  Emitter &e = kernel.e;
  Blocks blocks(kernel, shapeOf(op.getX()), shapeOf(op.getCodes()).drop_front().drop_back(), AddendBlock::alignment);
  BlockCode code(e, /*isUnsigned=*/false, /*isLinear=*/true);
  kernel.kind = "elementwise";
  Scale scale(kernel, blocks, code, wire.largestCode());
  Ptr x = kernel.operands[0];
  int64_t other = 0;
  Blocks halves = blocks.firstHalves(other);
  blocks.each([&](Num block, Num first) {
    auto ends = blocks.elements(first, scale.none(), [&](Num i, Num, const Blocks::Carried &ends) {
      return scale.with(x.load(i, blocks.width()), ends);
    });
    AddendBlock own(kernel.results[0], block, wire);
    Num divisor = scale.store(ends, own.scale, e.integer(0));
    auto encode = [&](Num i, const Blocks &of) { return code.encode(x.load(i, of.width()) / divisor); };
    if (wire.getBits() == 8)
      blocks.elements(first, {}, [&](Num i, Num inBlock, const Blocks::Carried &) {
        own.codes.store(encode(i, blocks), inBlock);
        return Blocks::Carried();
      });
    else
      halves.elements(first, {}, [&](Num i, Num inBlock, const Blocks::Carried &) {
        own.codes.store(truncate(encode(i + other, halves)) * 16.0 + truncate(encode(i, halves)), inBlock);
        return Blocks::Carried();
      });
  });
  return success();
}

LogicalResult pc::kernels::emit(DecodeSumOp op, Kernel &kernel) {
  WireAttr wire = op.getWire();
  Emitter &e = kernel.e;
  ArrayRef<int64_t> codes = shapeOf(op.getCodes());
  Blocks blocks(kernel, shapeOf(op.getSum()), codes.drop_front().drop_back(), AddendBlock::alignment);
  kernel.kind = "elementwise";
  const int64_t numBlocks = ShapedType::getNumElements(codes.drop_front().drop_back());
  Ptr sum = kernel.results[0];
  int64_t other = 0;
  Blocks halves = blocks.firstHalves(other);
  const bool isPair = wire.getBits() == 4;
  const Blocks &parts = isPair ? halves : blocks;
  blocks.each([&](Num block, Num first) {
    parts.elements(first, {}, [&](Num i, Num inBlock, const Blocks::Carried &) {
      auto add = [&](Num addend, const Blocks::Carried &before) {
        AddendBlock own(kernel.operands[0], addend * numBlocks + block, wire);
        Num bytes = own.codes.load(inBlock, parts.width()), scale = own.scale.load(e.integer(0));
        auto [low, high] = isPair ? codesOf(bytes) : std::pair(bytes, Num());
        Blocks::Carried sums{addExactly(before.empty() ? Num() : before[0], low, scale)};
        if (isPair)
          sums.push_back(addExactly(before.empty() ? Num() : before[1], high, scale));
        return sums;
      };
      Blocks::Carried sums = e.loop(e.integer(1), e.integer(codes[0]), 1, add(e.integer(0), {}), add);
      for (auto [half, value] : llvm::enumerate(sums))
        sum.store(value, i + static_cast<int64_t>(half) * other);
      return Blocks::Carried();
    });
  });
  return success();
}

/// New states of a block are kept in memory of a CPU's thread, or of a GPU's thread block, until their scales are
/// known. A skipped step selects the decoded states, whose codes and scales are the old ones.
LogicalResult pc::kernels::emitCodedAdamW(FusionOp fusion, CodedAdamW coded, Kernel &kernel) {
  Emitter &e = kernel.e;
  Operation *yield = fusion.getBody().front().getTerminator();
  auto in = [&](Value value) { return kernel.operands[cast<BlockArgument>(value).getArgNumber()]; };
  auto out = [&](Value value) {
    return kernel.results[llvm::find(yield->getOperands(), value) - yield->operand_begin()];
  };
  AdamWOp op = coded.adamw;
  Ptr p = in(op.getParameter()), g = in(op.getGradient()), newP = out(op.getNewParameter());
  Ptr codes[] = {in(coded.first.getCodes()), in(coded.second.getCodes())},
      scales[] = {in(coded.first.getScales()), in(coded.second.getScales())},
      newCodes[] = {out(coded.newFirst.getCodes()), out(coded.newSecond.getCodes())},
      newScales[] = {out(coded.newFirst.getScales()), out(coded.newSecond.getScales())};
  BlockCode first(e, coded.first.getIsUnsigned()), second(e, coded.second.getIsUnsigned()),
      newFirst(e, coded.newFirst.getIsUnsigned()), newSecond(e, coded.newSecond.getIsUnsigned());
  Blocks blocks(kernel, shapeOf(op.getParameter()), shapeOf(coded.first.getScales()));
  Scale scale(kernel, blocks, newFirst);
  AdamW adam(e, in(op.getCoefficient()), in(op.getHyper()));
  kernel.kind = "optimizer";
  const int64_t width = blocks.width();
  blocks.each([&](Num block, Num start) {
    Ptr states[] = {blocks.memory(block, 2), {}};
    states[1] = states[0] + e.integer(blocks.size());
    Num ofFirst = scales[0].load(block), ofSecond = scales[1].load(block);
    Blocks::Carried none = scale.none(), both = none;
    both.append(none);
    auto ends = blocks.elements(start, both, [&](Num i, Num inBlock, const Blocks::Carried &ends) {
      AdamW::State next = adam.step({p.load(i, width), first.decode(codes[0].load(i, width)) * ofFirst,
                                     second.decode(codes[1].load(i, width)) * ofSecond},
                                    g.load(i, width));
      newP.store(next.parameter, i);
      states[0].store(next.first, inBlock);
      states[1].store(next.second, inBlock);
      Blocks::Carried result = scale.with(next.first, ArrayRef(ends).take_front(2));
      result.append(scale.with(next.second, ArrayRef(ends).drop_front(2)));
      return result;
    });
    Num divisors[] = {scale.store(ArrayRef(ends).take_front(2), newScales[0], block),
                      scale.store(ArrayRef(ends).drop_front(2), newScales[1], block)};
    blocks.elements(start, {}, [&](Num i, Num inBlock, const Blocks::Carried &) {
      newCodes[0].store(newFirst.encode(states[0].load(inBlock, width) / divisors[0]), i);
      newCodes[1].store(newSecond.encode(states[1].load(inBlock, width) / divisors[1]), i);
      return Blocks::Carried();
    });
  });
  return success();
}
