//===- Sampling.cpp - Kernels that choose tokens -----------------------------------------------===//
// Adds noise with which the largest logit is a sample, and finds the smallest logit that top-k, top-p and min-p keep.
// The threshold is found without sorting. Each of the three conditions holds for all logits from some value on, so a
// binary search through the ordered bit patterns of f32 finds this value in 32 passes over the row.
//===-----------------------------------------------------------------------------------------===//
#include "../../Emit/RowMath.h"
#include "../Kernels.h"
#include "../Philox.h"
#include "pc/IR/Generation.h"
#include "pcrt/random.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

static constexpr double infinity = std::numeric_limits<double>::infinity();

/// An item is a block of 1024 classes of one row. A row at temperature 0 is copied.
LogicalResult pc::kernels::emit(GumbelOp op, Kernel &kernel) {
  constexpr int64_t block = 1024;
  auto type = cast<RankedTensorType>(op.getLogits().getType());
  const int64_t classes = type.getShape().back(), rows = type.getNumElements() / classes;
  const int64_t blocks = llvm::divideCeil(classes, block);
  const int64_t settings = cast<RankedTensorType>(op.getSampling().getType()).getShape().back();
  Emitter &e = kernel.e;
  Ptr above = op.getAbove() ? kernel.operands[3] : Ptr();
  kernel.kind = "elementwise";
  kernel.forItems(rows * blocks, 1, /*reduces=*/false, [&](Num item) {
    Num row = item / blocks, first = item % blocks * block;
    Num end = e.min(first + block, e.integer(classes)), temperature = kernel.operands[1].load(row * settings);
    Ptr from = kernel.operands[0] + row * classes, to = kernel.results[0] + row * classes;
    auto word = [&](Ptr ptr, Num at) {
      return e.wrap(arith::ExtUIOp::create(e.b, e.loc, e.b.getI64Type(), ptr.load(at).v));
    };
    Num offset = op.getOffset() ? e.extend(kernel.operands.back().load(e.integer(0))) : e.integer(0);
    e.when(
        e.real(0) < temperature,
        [&] {
          const PhiloxKey key{word(kernel.operands[2], row * 3), word(kernel.operands[2], row * 3 + 1)};
          Num position = word(kernel.operands[2], row * 3 + 2), inverse = e.real(1) / temperature;
          // Each Philox call gives four words. The word of a class depends on its global number, not on its place on
          // this rank, so a split vocabulary draws the same numbers.
          e.loop(first, end, 1, [&](Num i) {
            Num number = offset + i;
            std::array<Num, 4> words =
                philox(e, {number / e.integer(4), position, e.integer(0), e.integer(PCRT_RANDOM_SAMPLES)}, key);
            Num which = number % e.integer(4), bits = words[3];
            for (int w = 2; w >= 0; --w)
              bits = e.select(which < e.integer(w + 1), words[w], bits);
            // 23 bits give u = (bits + 0.5) / 2^23, which is never 0 or 1. -log(-log u) is then a sample of the Gumbel
            // distribution, and the class with the largest y is a sample of the softmax.
            bits = e.wrap(arith::ShRUIOp::create(e.b, e.loc, bits.v, e.integer(9).v));
            Num u = e.wrap(arith::SIToFPOp::create(e.b, e.loc, e.b.getF32Type(), bits.v));
            u = (u + 0.5) * (1.0 / (1 << 23));
            Num logit = from.load(i), y = e.fma(logit, inverse, 0.0 - e.log(0.0 - e.log(u)));
            to.store(above.e ? e.select(logit < above.load(row), e.real(-infinity), y) : y, i);
          });
        },
        [&] { e.loop(first, end, 1, [&](Num i) { to.store(from.load(i), i); }); });
  });
  return success();
}

namespace {
/// Emits the search for the threshold of one row. Bit patterns of f32, with the bits of negative numbers inverted
/// except for the sign, have the order of the numbers (`number`).
class ThresholdSearch {
public:
  ThresholdSearch(Emitter &e, Ptr logits, int64_t classes, Num temperature)
      : e(e), logits(logits), classes(classes), inverse(e.real(1) / temperature) {
    largest =
        e.reductions(classes, {true}, [&](Num i, int64_t width) { return Emitter::Carried{logits.load(i, width)}; })[0];
  }

  /// The smallest logit that the three conditions keep.
  Num least(Num k, Num p, Num share) {
    Num minusInfinity = e.real(-infinity);
    auto one = [&](Num) { return e.real(1); };
    auto weight = [&](Num x) { return e.exp(e.max((x - largest) * inverse, e.real(-80))); };
    // An entry is kept if fewer than k entries are larger (top-k), if the larger entries weigh less than p (top-p), and
    // if it has at least the given share of the largest weight (min-p).
    Num ofCount = search(e.real(0) < k, k, minusInfinity, one);
    Num all = sumFrom(ofCount, weight);
    Num ofWeight = search(p < e.real(1), p * all, ofCount, weight);
    Num ofShare = e.select(e.real(0) < share, largest + e.log(share) / inverse, minusInfinity);
    Num from = e.min(e.max(e.max(ofCount, ofWeight), ofShare), largest);
    Num negated = e.reductions(classes, {true}, [&](Num i, int64_t width) {
      Num x = logits.load(i, width);
      return Emitter::Carried{e.select(x < e.splat(from, width), e.splat(minusInfinity, width), 0.0 - x)};
    })[0];
    return 0.0 - negated;
  }

private:
  /// Returns the f32 with number `n` in the order of all f32.
  Num number(Num n) {
    Type i32 = e.b.getI32Type();
    Value bits = arith::TruncIOp::create(e.b, e.loc, i32, n.v);
    Value sign = arith::ShRSIOp::create(e.b, e.loc, bits, integer32(e, 31).v);
    Value mask = arith::AndIOp::create(e.b, e.loc, sign, integer32(e, 0x7fffffff).v);
    bits = arith::XOrIOp::create(e.b, e.loc, bits, mask);
    return e.wrap(arith::BitcastOp::create(e.b, e.loc, e.b.getF32Type(), bits));
  }

  /// The sum of `term` of all logits that are at least `from`, or larger than it.
  Num sumFrom(Num from, llvm::function_ref<Num(Num)> term, bool larger = false) {
    return e.sums(classes, 1, [&](Num i, int64_t width) {
      Num x = logits.load(i, width), bound = e.splat(from, width), zero = e.zeros(width), y = term(x);
      y = y.width() ? y : e.splat(y, width);
      return Emitter::Carried{larger ? e.select(bound < x, y, zero) : e.select(x < bound, zero, y)};
    })[0];
  }

  /// The smallest number at which the terms of larger logits add up to less than `bound`. Returns `otherwise` if
  /// `wanted` is false.
  Num search(Num wanted, Num bound, Num otherwise, llvm::function_ref<Num(Num)> term) {
    // The range begins with the numbers of -infinity and infinity. No logit is larger than infinity, so the condition
    // holds at the upper end.
    Num low = e.integer(-int64_t(0x7f800000) - 1), high = e.integer(0x7f800000);
    Num passes = e.select(wanted, e.integer(33), e.integer(0));
    Emitter::Carried found = e.loop(e.integer(0), passes, 1, {low, high}, [&](Num, const Emitter::Carried &range) {
      Num middle = range[0] + (range[1] - range[0]) / e.integer(2);
      Num holds = sumFrom(number(middle), term, /*larger=*/true) < bound, isOpen = range[0] + 1 < range[1];
      return Emitter::Carried{e.select(holds, range[0], middle), e.select(holds & isOpen, middle, range[1])};
    });
    return e.select(wanted, number(found[1]), otherwise);
  }

  Emitter &e;
  Ptr logits;
  const int64_t classes;
  Num inverse, largest;
};
} // namespace

/// An item is a row. A row without settings that drop tokens is not searched.
LogicalResult pc::kernels::emit(SamplingThresholdOp op, Kernel &kernel) {
  auto type = cast<RankedTensorType>(op.getLogits().getType());
  const int64_t classes = type.getShape().back(), rows = type.getNumElements() / classes;
  Emitter &e = kernel.e;
  kernel.kind = "reduction";
  kernel.forItems(rows, classes, /*reduces=*/true, [&](Num row) {
    auto setting = [&](int64_t i) { return kernel.operands[1].load(row * 4 + i); };
    Num temperature = setting(0), k = setting(1), p = setting(2), share = setting(3);
    auto any = [&](Num a, Num b) { return e.select(a, a, b); };
    Num cuts = any(any(e.real(0) < k, p < e.real(1)), e.real(0) < share);
    e.when((e.real(0) < temperature) & cuts,
           [&] {
             ThresholdSearch search(e, kernel.operands[0] + row * classes, classes, temperature);
             Num least = search.least(k, p, share);
             e.once([&] { kernel.results[0].store(least, row); });
           },
           [&] { e.once([&] { kernel.results[0].store(e.real(-infinity), row); }); });
  });
  return success();
}
