//===- Dropping.cpp - Selects the elements that a kernel drops -----------------------===//
// Random bits are computed by Philox (J. Salmon et al., 2011). They are a function of seed, step, op and the element's
// global index, so all placements, microbatches and recomputations drop the same elements. A block of the generator has
// the bits of 8 neighbouring elements, which are drawn together for speed.
//===-----------------------------------------------------------------------------===//
#include "Dropping.h"

#include "../Emit/RowMath.h"
#include "Philox.h"
#include "pcrt/description.h"
#include "pcrt/random.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

constexpr int64_t perBlock = 8;
/// The number of elements whose bits a CPU draws at once, with vectors of 512 bits for 8 blocks.
constexpr int64_t perDraw = 64;

/// Broadcasts `scalar` if `type` is a vector type.
static Value spread(Emitter &e, Value scalar, Type type) {
  return isa<VectorType>(type) ? vector::BroadcastOp::create(e.b, e.loc, type, scalar) : scalar;
}
static Value constant(Emitter &e, Type type, int64_t value) { return spread(e, e.integer(value).v, type); }
static Value shiftRight(Emitter &e, Value x, Value by) { return arith::ShRUIOp::create(e.b, e.loc, x, by); }
static Value lowWord(Emitter &e, Value x) {
  return arith::AndIOp::create(e.b, e.loc, x, constant(e, x.getType(), 0xffffffff));
}

/// Reads the key of random numbers, and the start of this rank's block in each dim.
Dropping::Dropping(Emitter &e, DrawnOpInterface op, Ptr random, ArrayRef<Ptr> offsets)
    : e(e), drop(op.getDropAttr()), sizes(drawnSizes(op)), sequences(op.getDrawnSequences()), ranks(zigzagRanks(op)) {
  auto word = [&](int at) {
    Num loaded = random.load(e.integer(at));
    return e.wrap(arith::ExtUIOp::create(e.b, e.loc, e.b.getI64Type(), loaded.v));
  };
  key[0] = word(PCRT_RANDOM_SEED_LOW), key[1] = word(PCRT_RANDOM_SEED_HIGH), step = word(PCRT_RANDOM_STEP);
  number = e.wrap(lowWord(e, (word(PCRT_RANDOM_KEY) + int64_t(PCRT_RANDOM_DROPS)).v));
  for (IndexedDim dim : op.getDrawnDims())
    local.push_back(cast<RankedTensorType>(dim.value.getType()).getDimSize(dim.dim));
  starts.resize(sizes.size());
  for (auto [d, offset] : llvm::zip_equal(drop.getSplit(), offsets))
    starts[d] = e.extend(offset.load(e.integer(0)));
  // In a step of a ring the keys come from the rank that is `shift` places before this one.
  if (drop.getShift())
    starts.back() = (starts.back() + (sizes.back() - drop.getShift() * local.back())) % sizes.back();
  Num first = word(PCRT_RANDOM_ROW);
  starts[0] = starts[0].v ? starts[0] + first : first;
}

Num Dropping::place(int64_t d, Num at) const {
  if (starts[d].v)
    at = at + starts[d];
  return isInZigzag(d) ? positionOf(e, at, sizes[d], ranks) : at;
}

Num Dropping::row(ArrayRef<Num> index) const {
  Num number = place(0, index[0]);
  for (auto [d, at] : llvm::enumerate(index.drop_front()))
    number = number * sizes[d + 1] + place(d + 1, at);
  return number * int64_t(llvm::divideCeil(sizes.back(), perBlock));
}

Num Dropping::row(Num number) const {
  SmallVector<Num> index(sizes.size() - 1);
  for (size_t d = index.size(); d-- > 0; number = number / local[d])
    index[d] = number % e.integer(local[d]);
  return row(index);
}

std::array<Num, 4> pc::kernels::philox(Emitter &e, std::array<Num, 4> counter, PhiloxKey key) {
  Type type = counter[0].v.getType();
  auto each = [&](Num x) { return x.width() ? x.v : spread(e, x.v, type); };
  auto product = [&](uint32_t factor, Value x) -> Value {
    return arith::MulIOp::create(e.b, e.loc, x, constant(e, type, factor));
  };
  auto mix = [&](Value product, Value word, Num key) -> Value {
    Value upper = shiftRight(e, product, constant(e, type, 32));
    return arith::XOrIOp::create(e.b, e.loc, arith::XOrIOp::create(e.b, e.loc, upper, word), each(key));
  };
  // Words of 32 bits are held in 64 bits, so that one multiplication gives both halves of a product.
  Value words[4] = {counter[0].v, each(counter[1]), each(counter[2]), each(counter[3])};
  for (int round = 0; round < PCRT_PHILOX_ROUNDS; ++round) {
    Value first = product(PCRT_PHILOX_FACTOR0, words[0]), second = product(PCRT_PHILOX_FACTOR1, words[2]);
    words[0] = mix(second, words[1], key[0]), words[1] = lowWord(e, second);
    words[2] = mix(first, words[3], key[1]), words[3] = lowWord(e, first);
    key[0] = e.wrap(lowWord(e, (key[0] + int64_t(PCRT_PHILOX_KEY0)).v));
    key[1] = e.wrap(lowWord(e, (key[1] + int64_t(PCRT_PHILOX_KEY1)).v));
  }
  return {e.wrap(words[0]), e.wrap(words[1]), e.wrap(words[2]), e.wrap(words[3])};
}

/// The counter has the number of the block in its low words.
Dropping::Bits Dropping::draw(Value block) const {
  Type type = block.getType();
  std::array<Num, 4> words =
      philox(e, {e.wrap(lowWord(e, block)), e.wrap(shiftRight(e, block, constant(e, type, 32))), step, number},
             {key[0], key[1]});
  auto join = [&](Num low, Num high) -> Value {
    return arith::OrIOp::create(e.b, e.loc, low.v, arith::ShLIOp::create(e.b, e.loc, high.v, constant(e, type, 32)));
  };
  return {join(words[0], words[1]), join(words[2], words[3])};
}

/// Draws a separate block for each element of a vector, because the vector may begin or end inside a block.
Num Dropping::eachAlone(Num row, Num column, ArrayRef<int32_t> steps) const {
  const int64_t width = static_cast<int64_t>(steps.size());
  SmallVector<int64_t> wide(steps.begin(), steps.end());
  Num at = e.splat(column, width) + e.wrap(arith::ConstantOp::create(e.b, e.loc, e.b.getI64VectorAttr(wide)));
  at = place(static_cast<int64_t>(sizes.size()) - 1, at);
  Type type = at.v.getType();
  Num eight = e.wrap(constant(e, type, perBlock)), four = e.wrap(constant(e, type, 4));
  Bits bits = draw((e.splat(row, width) + at / eight).v);
  Num within = at % eight;
  Num half = e.select(within < four, e.wrap(bits.low), e.wrap(bits.high));
  half = e.wrap(shiftRight(e, half.v, (within % four * e.wrap(constant(e, type, 16))).v));
  half = half & e.wrap(constant(e, type, 0xffff));
  return e.wrap(arith::TruncIOp::create(e.b, e.loc, VectorType::get(width, e.b.getI32Type()), half.v));
}

/// The first `width` 16-bit numbers of a vector, as i32.
static Num widened(Emitter &e, Value bits, int64_t width) {
  auto type = cast<VectorType>(bits.getType());
  const int64_t count = type.getNumElements() * type.getElementTypeBitWidth() / 16;
  bits = vector::BitCastOp::create(e.b, e.loc, VectorType::get(count, e.b.getI16Type()), bits);
  if (width < count)
    bits = vector::ShuffleOp::create(e.b, e.loc, bits, bits, llvm::to_vector(llvm::seq<int64_t>(0, width)));
  return e.wrap(arith::ExtUIOp::create(e.b, e.loc, VectorType::get(width, e.b.getI32Type()), bits));
}

/// The random numbers of elements that form groups of `unit` (a power of two). Each group is in one block, at a
/// multiple of `unit`.
Num Dropping::byBlock(Num row, Num column, ArrayRef<int32_t> steps, int64_t unit) const {
  const int64_t width = static_cast<int64_t>(steps.size()), last = static_cast<int64_t>(sizes.size()) - 1;
  Type i32 = e.b.getI32Type();
  SmallVector<Value> blocks, elements;
  for (int64_t i = 0; i < width; i += unit) {
    Num at = place(last, column + int64_t(steps[i]));
    blocks.push_back((row + at / perBlock).v);
    if (unit == perBlock)
      continue;
    Bits bits = draw(blocks.back());
    Num within = at % e.integer(perBlock);
    Value half = e.select(within < e.integer(4), e.wrap(bits.low), e.wrap(bits.high)).v;
    if (unit < 4)
      half = shiftRight(e, half, (within % e.integer(4) * 16).v);
    for (int64_t j = 0; j < unit; ++j) {
      Value word = arith::TruncIOp::create(e.b, e.loc, i32, j ? shiftRight(e, half, e.integer(16 * j).v) : half);
      elements.push_back((e.wrap(word) & integer32(e, 0xffff)).v);
    }
  }
  if (unit < perBlock)
    return e.wrap(vector::FromElementsOp::create(e.b, e.loc, VectorType::get(width, i32), elements));
  return widened(e, drawInOrder(blocks), width);
}

/// Draws the bits of several blocks at once, and puts them in the order of the blocks.
Value Dropping::drawInOrder(ArrayRef<Value> blocks) const {
  const int64_t count = static_cast<int64_t>(blocks.size());
  Bits bits = draw(vector::FromElementsOp::create(e.b, e.loc, VectorType::get(count, e.b.getI64Type()), blocks));
  SmallVector<int64_t> turns; // the order that interleaves the halves of blocks
  for (int64_t block = 0; block < count; ++block)
    turns.append({block, count + block});
  return vector::ShuffleOp::create(e.b, e.loc, bits.low, bits.high, turns);
}

int64_t Dropping::wordsAhead(int64_t columns) const {
  return isCut() ? 0 : static_cast<int64_t>(llvm::alignTo(columns, perDraw)) / 2;
}

/// On a CPU, the bits of a whole row are drawn before its first use.
void Dropping::drawAhead(Num row, Num from, Num to, Ptr ahead) const {
  if (!ahead.e)
    return;
  const int64_t last = static_cast<int64_t>(sizes.size()) - 1;
  e.loop(from / perDraw * perDraw, to, perDraw, [&](Num column) {
    SmallVector<Value> blocks;
    for (int64_t i = 0; i < perDraw; i += perBlock)
      blocks.push_back((row + place(last, column + i) / perBlock).v);
    auto words = VectorType::get(perDraw / 2, e.b.getI32Type());
    ahead.store(e.wrap(vector::BitCastOp::create(e.b, e.loc, words, drawInOrder(blocks))), column / 2);
  });
}

Num Dropping::apply(Num x, Num row, Ptr ahead, Num column, ArrayRef<int32_t> steps) const {
  if (!ahead.e)
    return apply(x, row, column, steps);
  const int64_t width = x.width();
  return keep(x, widened(e, ahead.load(column / 2, (width + 1) / 2).v, width));
}

bool Dropping::isCut() const {
  const size_t last = sizes.size() - 1;
  return (starts[last].v && local[last] % perBlock) || (isInZigzag(last) && sizes[last] / (2 * ranks) % perBlock);
}

/// Neighbouring elements share a draw, unless blocks are cut.
Num Dropping::numbers(Num row, Num column, ArrayRef<int32_t> steps) const {
  const int64_t width = static_cast<int64_t>(steps.size());
  if (isCut())
    return eachAlone(row, column, steps);
  int64_t run = 1;
  while (run < width && steps[run] == steps[0] + run)
    ++run;
  bool isTail = !llvm::isPowerOf2_64(run); // the tail of a row on a CPU
  int64_t unit = isTail ? (e.lanes % perBlock ? 1 : perBlock) : std::min(run, perBlock);
  return byBlock(row, column, steps, unit);
}

Num Dropping::apply(Num x, Num row, Num column, ArrayRef<int32_t> steps) const {
  Num bits = numbers(row, column, steps);
  if (!x.width())
    bits = e.wrap(vector::ExtractOp::create(e.b, e.loc, bits.v, ArrayRef<int64_t>{0}));
  return keep(x, bits);
}

Num Dropping::keep(Num x, Num bits) const {
  return e.select(bits < integer32(e, drop.getThreshold()), e.real(0), x * drop.scale());
}

/// Puts the numbers into a vector, so that one draw serves all of them.
void Dropping::apply(MutableArrayRef<Num> x, Num row, Num column) const {
  auto values = llvm::map_to_vector(x, [](Num value) { return value.v; });
  auto type = VectorType::get(static_cast<int64_t>(x.size()), e.b.getF32Type());
  Num all = e.wrap(vector::FromElementsOp::create(e.b, e.loc, type, values));
  all = apply(all, row, column, llvm::to_vector(llvm::seq<int32_t>(0, static_cast<int32_t>(x.size()))));
  for (auto [i, value] : llvm::enumerate(x))
    value = e.wrap(vector::ExtractOp::create(e.b, e.loc, all.v, ArrayRef<int64_t>{static_cast<int64_t>(i)}));
}
