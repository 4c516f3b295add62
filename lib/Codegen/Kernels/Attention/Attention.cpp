//===- Attention.cpp - softmax(scale q k^T + mask) v, one head at a time ------------===//
// For each head, the kernel copies V and the transpose of K to scratch memory, and then works on blocks of 32 queries.
// Scores of a block exist only in scratch memory. With a causal mask, a block stops at the diagonal. Attention of bf16
// rounds exp(scores - maximum) to bf16, but sums the f32 values. The backward pass is in AttentionGrad.cpp.
//===-----------------------------------------------------------------------------===//
#include "Attention.h"
#include "../../Emit/RowMath.h"
#include "../Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
/// The pieces of one thread's scratch memory. With a null base it only counts their bytes.
struct ForwardScratch {
  Ptr keys, values, queries, scores, out, maxima, sums, addends, drawn;

  ForwardScratch(Scratch &scratch, const AttentionShape &a, int64_t lanes, int64_t wordsAhead) {
    int64_t block = a.block(lanes), t = a.paddedT(lanes), d = a.paddedD(lanes), strideT = a.strideT(lanes);
    keys = scratch.take(a.depth() * strideT);
    values = scratch.take(t * d / a.perElement());
    queries = scratch.take(block * a.paddedDepth(lanes));
    scores = scratch.take(block * strideT);
    out = scratch.take(block * d);
    maxima = scratch.take(roundUp(block, lanes));
    sums = scratch.take(roundUp(block, lanes));
    addends = a.biased ? scratch.take(a.paddedAddends(lanes)) : Ptr();
    drawn = wordsAhead ? scratch.takeWords(wordsAhead) : Ptr();
  }
};
} // namespace

/// Applies scale, cap and addend to a product, and keeps the slope for the gradient.
AttentionShape::Score AttentionShape::score(Emitter &e, Num product, Num addend) const {
  Score score{product * scale, {}};
  if (cap > 0) {
    Num part = tanh(e, score.value * (1 / cap));
    score = {part * cap, part * part * -1.0 + 1.0};
  }
  if (biased)
    score.value = score.value + addend;
  return score;
}

void pc::kernels::copyAddends(Emitter &e, const AttentionShape &a, Ptr bias, Num head, Ptr to) {
  const int64_t count = a.addends();
  zeroFill(e, to, a.paddedAddends(e.lanes));
  Ptr from = bias + head * count;
  e.vectors(count, [&](Num j, int64_t width) { to.store(from.load(j, width), j); });
}

namespace {
/// A block of queries of one head, from `first` on, and the keys from `begin` to `columns` that any of them sees.
struct QueryTile {
  Num batch, head, first, columns, begin;
  Ptr begins;
  Num sink; ///< if queries have a sink
};

/// Emits the kernel. A method emits the code of one level of its loops: a query head, a block of its queries, a query.
class AttentionKernel {
public:
  /// `a.chooseFactors` must have been called.
  AttentionKernel(const AttentionShape &a, Kernel &kernel) : a(a), kernel(kernel) {}

  void emit() {
    // An item is one query head: its keys and values are copied once, and all blocks of its queries use these copies.
    kernel.items = a.batch * a.heads * a.groups;
    kernel.scratchBytes = scratch.bytes();
    kernel.kind = "attention";
    e.loop(kernel.lo, kernel.hi, 1, [&](Num item) { queryHead(item); });
  }

private:
  /// Computes one query head of one batch row, block by block of queries.
  void queryHead(Num item) {
    Num batch = item / (a.heads * a.groups), head = item % (a.heads * a.groups);
    Num queryOffset = batch * (a.s * a.queryStride()) + a.queryAt(head);
    Num outOffset = batch * (a.s * a.outStride()) + head * a.d;
    Num keyOffset = batch * (a.t * a.keyStride()) + a.keyAt(head / a.groups);
    Ptr lseRow = lse + item * a.s;
    Ptr begins = a.startsOf(starts, batch);
    Num sink = a.sunk ? a.sink(kernel, 3, head) : Num();
    if (a.biased)
      copyAddends(e, a, bias, head, at.addends);
    transposePadded(e, a.t, depth, a.alongD(e, k + keyOffset, a.keyStride()), {at.keys, strideT});
    packPadded(e, a.factors, e.integer(a.t), e.integer(paddedT), a.d, paddedD, {v + keyOffset, a.keyStride()},
               {at.values, paddedD});
    e.loop(zero, e.integer(a.s), block, [&](Num first) {
      Num rows = e.min(e.integer(block), e.integer(a.s) - first);
      // Skips keys that no query of the block sees: those before `begin`, and those from `columns` on.
      Num columns = a.columns(e, first, counts, lanes), begin = a.firstOfTile(e, first, begins, tileColumns(lanes));
      weighValues({batch, head, first, columns, begin, begins, sink}, rows, queryOffset);
      writeResults(rows, first, outOffset, lseRow);
    });
  }

  /// Writes weights times values, and the maximum and the sum of each query, to scratch.
  void weighValues(const QueryTile &in, Num rows, Num queryOffset) {
    Num count = a.limits() ? in.columns - in.begin : in.columns;
    auto fromBegin = [&](Ptr p, int64_t stride) { return a.limits() ? p + in.begin * stride : p; };
    Ptr scores = fromBegin(at.scores, 1);
    Num blockOffset = queryOffset + in.first * a.queryStride();
    copyPadded(e, rows, e.integer(block), depth, paddedDepth, a.alongD(e, q + blockOffset, a.queryStride()),
               {at.queries, paddedDepth});
    product(e, a.factors, e.integer(block), count, false, e.integer(depth), {at.queries, paddedDepth},
            {fromBegin(at.keys, 1), strideT}, {scores, strideT}, false);
    e.loop(zero, e.integer(block), 1, [&](Num r) { softmax(in, r); });
    Ptr weights = a.limits() ? at.scores + in.begin / a.perElement() : at.scores;
    Ptr values = a.limits() ? at.values + in.begin / a.perElement() * paddedD : at.values;
    product(e, a.factors, e.integer(block), e.integer(a.tiledD(lanes)), a.oddD(lanes), count / a.perElement(),
            {weights, strideT}, {values, paddedD}, {at.out, paddedD}, false);
  }

  /// Replaces the scores of query r of the block by weights, and stores their maximum and their sum, which divides
  /// them later.
  void softmax(const QueryTile &in, Num r) {
    // Weights overwrite scores that have already been read.
    Ptr row = at.scores + r * strideT, weights = a.factors == Factors::words ? row.as(e.b.getBF16Type()) : row;
    Num end = a.seen(e, in.first + r, counts), unseen = a.limits() ? a.firstSeen(e, in.first + r, in.begins) : Num();
    auto seen = [&](Num j, Num x, Num other) {
      x = e.select(e.before(j, end, lanes), x, other);
      return a.limits() ? e.select(e.before(j, unseen, lanes), other, x) : x;
    };
    Ptr addends = a.biased ? at.addends + a.addendsAt(e.min(in.first + r, e.integer(a.s - 1))) : Ptr();
    const double scale = a.changesScores() ? 1 : a.scale;
    Num drawn = dropping ? dropping->row({in.batch, in.head / a.groups, in.head % a.groups, in.first + r}) : Num();
    if (dropping)
      dropping->drawAhead(drawn, in.begin, in.columns, at.drawn);
    // The largest score is subtracted before exp, so that weights are at most 1.
    Num minusInfinity = e.splat(e.real(-std::numeric_limits<double>::infinity()), lanes);
    Num maximum = e.maximum(e.loop(in.begin, in.columns, lanes, {minusInfinity}, [&](Num j, const Emitter::Carried &m) {
      Num x = row.load(j, lanes);
      if (a.changesScores()) {
        x = a.score(e, x, a.biased ? addends.load(j, lanes) : Num()).value;
        row.store(x, j);
      }
      return Emitter::Carried{e.max(seen(j, x, minusInfinity), m[0])};
    })[0]) * scale;
    if (a.sunk)
      maximum = e.max(maximum, in.sink);
    Num sum = e.sum(e.loop(in.begin, in.columns, lanes, {e.zeros(lanes)}, [&](Num j, const Emitter::Carried &sums) {
      Num p = e.exp(e.fma(row.load(j, lanes), e.real(scale), e.real(0) - maximum));
      p = seen(j, p, e.real(0));
      weights.store(a.rounded(dropping ? dropping->apply(p, drawn, at.drawn, j, steps) : p), j);
      return Emitter::Carried{sums[0] + p};
    })[0]);
    if (a.sunk)
      sum = sum + e.exp(in.sink - maximum);
    at.maxima.store(maximum, r);
    at.sums.store(sum, r);
  }

  /// Writes o and the log-sum-exp of a block of queries. The sum of weights divides the output instead of the weights,
  /// because the output has fewer elements.
  void writeResults(Num rows, Num first, Num outOffset, Ptr lseRow) {
    e.loop(zero, e.integer(roundUp(block, lanes)), lanes,
           [&](Num r) { at.maxima.store(at.maxima.load(r, lanes) + e.log(at.sums.load(r, lanes)), r); });
    e.loop(zero, rows, 1, [&](Num r) {
      Num factor = e.real(1) / at.sums.load(r), logSum = at.maxima.load(r);
      if (a.counted) { // a query may see no key
        Num any = e.real(0) < at.sums.load(r);
        factor = e.select(any, factor, e.real(0));
        logSum = e.select(any, logSum, e.real(-std::numeric_limits<double>::infinity()));
      }
      lseRow.store(logSum, first + r);
      Ptr from = at.out + r * paddedD, to = o + (outOffset + (first + r) * a.outStride());
      e.vectors(a.d, [&](Num j, int64_t width) { to.store(from.load(j, width) * factor, j); });
    });
  }

  const AttentionShape &a;
  Kernel &kernel;
  Emitter &e = kernel.e;
  const int64_t lanes = e.lanes;
  Ptr q = kernel.operands[0], k = kernel.operands[1], v = kernel.operands[2];
  Ptr counts = a.counts(kernel, 3), bias = a.bias(kernel, 3), starts = a.starts(kernel, 3);
  std::optional<Dropping> dropping = a.dropping(kernel, 3);
  const SmallVector<int32_t> steps = e.steps(lanes);
  Ptr o = kernel.results[0], lse = kernel.results[1];
  Scratch scratch{kernel.scratch};
  ForwardScratch at{scratch, a, lanes, dropping ? dropping->wordsAhead(a.paddedT(lanes)) : 0};
  const int64_t block = a.block(lanes), paddedT = a.paddedT(lanes), strideT = a.strideT(lanes),
                paddedD = a.paddedD(lanes), depth = a.depth(), paddedDepth = a.paddedDepth(lanes);
  Num zero = e.integer(0);
};
} // namespace

void pc::kernels::emitAttention(AttentionShape a, Kernel &kernel) {
  a.chooseFactors(kernel, {kernel.operands[0], kernel.operands[1], kernel.operands[2]});
  AttentionKernel(a, kernel).emit();
}
