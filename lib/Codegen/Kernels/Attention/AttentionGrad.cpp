//===- AttentionGrad.cpp - dq, dk, dv of attention, one key/value head at a time ----===//
// With P = exp(scale q k^T - lse) recomputed per block of queries and D = rowsum(dout * o):
//   dv += P^T dout;  dS = scale P * (dout v^T - D);  dq = dS k;  dk += dS^T q.
// dk and dv are summed in scratch over the blocks and over the query heads that share them, so no other thread is
// involved. Attention of bf16 rounds P and dS to bf16. With dropout, the elements of P (in dv) and of dout v^T whose
// weights were dropped become 0. The gradient of addends is P * (dout v^T - D), summed over all pairs of a query and a
// key with the same distance.
//===-----------------------------------------------------------------------------===//
#include "../Kernels.h"
#include "Attention.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
/// The pieces of one thread's scratch memory. With a null base it only counts their bytes.
struct BackwardScratch {
  Ptr keysAcross, valuesAcross, keys, keyGradients, valueGradients, queries, outGradients, queryGradients, weights,
      gradients;
  Ptr packedQueries, packedOutGradients; ///< right operands of products
  Ptr gradientRows;                      ///< left operand of dq's product
  Ptr addends, addendSums;
  Ptr drawn; ///< for each row of the current block

  BackwardScratch(Scratch &scratch, const AttentionShape &a, int64_t lanes, int64_t wordsAhead) {
    int64_t block = a.block(lanes), t = a.paddedT(lanes), d = a.paddedD(lanes), strideT = a.strideT(lanes);
    keysAcross = scratch.take(a.depth() * strideT);
    valuesAcross = scratch.take(a.depth() * strideT);
    keys = scratch.take(t * d / a.perElement());
    keyGradients = scratch.take(t * d);
    valueGradients = scratch.take(t * d);
    queries = scratch.take(block * a.paddedDepth(lanes));
    outGradients = scratch.take(block * a.paddedDepth(lanes));
    queryGradients = scratch.take(block * d);
    weights = scratch.take(block * strideT);
    gradients = scratch.take(block * strideT);
    bool words = a.factors == Factors::words;
    packedQueries = words ? scratch.take(block / 2 * d) : queries;
    packedOutGradients = words ? scratch.take(block / 2 * d) : outGradients;
    gradientRows = words ? scratch.take(block * strideT / 2) : gradients;
    addends = a.biased ? scratch.take(a.paddedAddends(lanes)) : Ptr();
    drawn = wordsAhead ? scratch.takeWords(a.perElement() * wordsAhead) : Ptr();
    addendSums = a.sumsBias ? scratch.take(a.paddedAddends(lanes)) : Ptr();
  }
};

/// The queries of one head in one batch row: where they begin in q and dq, and in o and dout.
struct QueryHead {
  Num batch, keyHead, group, queryOffset, outOffset;
  Ptr lseRow, begins;
};

/// `rows` queries of a head from `first` on, and the keys from `begin` to `columns`, in whole tiles, that they see.
struct Queries {
  Num first, rows, columns, begin;
  Ptr o, dout;
};

/// A query of a block: numbers of its softmax, the keys from `unseen` to `end` that it sees, its rows in scratch.
struct QueryRow {
  Num correction, minusLse, end, drawn, unseen;
  Ptr weight, gradient, addends, addendSums, ahead;
};

/// Emits the kernel. A method emits the code of one level of its loops: a key/value head, a query head that shares it,
/// a block of queries, a row (or two) of a block, a vector of keys.
class AttentionGradKernel {
public:
  /// `a.chooseFactors` must have been called.
  AttentionGradKernel(const AttentionShape &a, Kernel &kernel) : a(a), kernel(kernel) {}

  void emit() {
    // An item is one head of keys: its gradients are summed over all query heads that share it, without atomics.
    kernel.items = a.batch * a.heads;
    kernel.scratchBytes = scratch.bytes();
    kernel.kind = "attention";
    e.loop(kernel.lo, kernel.hi, 1, [&](Num item) { keyHead(item); });
  }

private:
  /// Sums the gradients of one key/value head in scratch memory, over all query heads that share it.
  void keyHead(Num item) {
    Num batch = item / a.heads, head = item % a.heads;
    Num keyOffset = batch * (a.t * a.keyStride()) + a.keyAt(head);
    Ptr begins = a.startsOf(starts, batch);
    transposePadded(e, a.t, depth, a.alongD(e, k + keyOffset, a.keyStride()), {at.keysAcross, strideT});
    transposePadded(e, a.t, depth, a.alongD(e, v + keyOffset, a.keyStride()), {at.valuesAcross, strideT});
    packPadded(e, a.factors, e.integer(a.t), e.integer(paddedT), a.d, paddedD, {k + keyOffset, a.keyStride()},
               {at.keys, paddedD});
    zeroFill(e, at.keyGradients, paddedT * paddedD);
    zeroFill(e, at.valueGradients, paddedT * paddedD);
    e.loop(zero, e.integer(a.groups), 1, [&](Num group) { queryHead(item, batch, head, group, begins); });
    writeRows(e.integer(a.t), at.keyGradients, dk + keyOffset, a.keyStride());
    writeRows(e.integer(a.t), at.valueGradients, dv + keyOffset, a.keyStride());
  }

  /// Goes through the blocks of queries of one query head.
  void queryHead(Num item, Num batch, Num head, Num group, Ptr begins) {
    Num queryHead = head * a.groups + group;
    Num queryOffset = batch * (a.s * a.queryStride()) + a.queryAt(queryHead);
    Num outOffset = batch * (a.s * a.outStride()) + queryHead * a.d;
    Ptr lseRow = lse + (item * a.groups + group) * a.s;
    if (a.biased)
      copyAddends(e, a, bias, queryHead, at.addends);
    if (a.sumsBias)
      zeroFill(e, at.addendSums, a.paddedAddends(lanes));
    QueryHead of{batch, head, group, queryOffset, outOffset, lseRow, begins};
    e.loop(zero, e.integer(a.s), block, [&](Num first) { queries(of, first); });
    if (a.sumsBias) {
      Ptr sums = kernel.results[3] + (item * a.groups + group) * a.addends();
      e.vectors(a.addends(), [&](Num j, int64_t width) { sums.store(at.addendSums.load(j, width), j); });
    }
  }

  /// Writes dq of a block of queries, and adds to dk and dv in scratch.
  void queries(const QueryHead &of, Num first) {
    Num rows = e.min(e.integer(block), e.integer(a.s) - first);
    Num columns = a.columns(e, first, counts, lanes), begin = a.firstOfTile(e, first, of.begins, tileColumns(lanes));
    Num count = a.limits() ? columns - begin : columns;
    // With a window or documents, the block reads keys from `begin` on. Buffers over keys are used from there, so that
    // loops have `count` columns.
    auto fromBegin = [&](Ptr p, int64_t stride) { return a.limits() ? p + begin * stride : p; };
    Num blockOffset = of.queryOffset + first * a.queryStride(), m = e.integer(block);
    Num blockOutOffset = of.outOffset + first * a.outStride();
    Ptr blockQ = q + blockOffset, blockOut = o + blockOutOffset, blockDout = dout + blockOutOffset;
    // Rows after the end of the sequence are zeros, so products need no special case for the last block.
    copyPadded(e, rows, m, depth, paddedDepth, a.alongD(e, blockQ, a.queryStride()), {at.queries, paddedDepth});
    copyPadded(e, rows, m, depth, paddedDepth, a.alongD(e, blockDout, a.outStride()), {at.outGradients, paddedDepth});
    if (words) {
      packPadded(e, a.factors, rows, m, a.d, paddedD, {blockQ, a.queryStride()}, {at.packedQueries, paddedD});
      packPadded(e, a.factors, rows, m, a.d, paddedD, {blockDout, a.outStride()}, {at.packedOutGradients, paddedD});
    }
    // Scores and gradients of weights. Then, step by step, the softmax turns them into weights and gradients of scores.
    // At the end, these give dq, and add to dk and dv.
    Ptr weights = fromBegin(at.weights, 1), gradients = fromBegin(at.gradients, 1);
    product(e, a.factors, m, count, false, e.integer(depth), {at.queries, paddedDepth},
            {fromBegin(at.keysAcross, 1), strideT}, {weights, strideT}, false);
    product(e, a.factors, m, count, false, e.integer(depth), {at.outGradients, paddedDepth},
            {fromBegin(at.valuesAcross, 1), strideT}, {gradients, strideT}, false);
    // bf16 values are packed `per` to a word, so a step is `per` queries.
    Num steps = (rows + (per - 1)) / per;
    Queries here{first, rows, columns, begin, blockOut, blockDout};
    e.loop(zero, steps, 1, [&](Num step) { softmaxGradient(of, here, step); });
    Ptr gradientRows = a.limits() ? at.gradientRows + begin / per : at.gradientRows;
    Ptr keys = a.limits() ? at.keys + begin / per * paddedD : at.keys;
    product(e, a.factors, m, e.integer(tiledD), oddD, count / per, {gradientRows, strideT / per}, {keys, paddedD},
            {at.queryGradients, paddedD}, false);
    writeRows(rows, at.queryGradients, dq + blockOffset, a.queryStride());
    product(e, a.factors, count, e.integer(tiledD), oddD, steps, {gradients, 1, per * strideT},
            {at.packedQueries, paddedD}, {fromBegin(at.keyGradients, paddedD), paddedD}, true);
    product(e, a.factors, count, e.integer(tiledD), oddD, steps, {weights, 1, per * strideT},
            {at.packedOutGradients, paddedD}, {fromBegin(at.valueGradients, paddedD), paddedD}, true);
  }

  /// Computes P and dS in step `step`, for two rows at once if products use words. Rows after the last query see no
  /// key.
  void softmaxGradient(const QueryHead &of, const Queries &in, Num step) {
    SmallVector<QueryRow> taken;
    for (int64_t i = 0; i < per; ++i) {
      taken.push_back(row(of, in, step, i));
      if (dropping)
        dropping->drawAhead(taken.back().drawn, in.begin, in.columns, taken.back().ahead);
    }
    e.loop(in.begin, in.columns, lanes, [&](Num j) { softmaxGradient(taken, step, j); });
  }

  /// Reads the values that one row of queries needs: D, the log-sum-exp, and where its results go.
  QueryRow row(const QueryHead &of, const Queries &in, Num step, int64_t i) {
    Num r = step * per + i, known = e.min(r, in.rows - 1), first = in.first;
    Ptr outRow = in.o + known * a.outStride(), outGradient = in.dout + known * a.outStride();
    Num correction = e.sums(a.d, 1, [&](Num j, int64_t width) {
      return Emitter::Carried{outRow.load(j, width) * outGradient.load(j, width)};
    })[0];
    return {correction,
            e.real(0) - of.lseRow.load(first + known),
            e.select(r < in.rows, a.seen(e, first + known, counts), zero),
            dropping ? dropping->row({of.batch, of.keyHead, of.group, first + known}) : Num(),
            a.limits() ? a.firstSeen(e, first + known, of.begins) : Num(),
            at.weights + r * strideT,
            at.gradients + r * strideT,
            a.biased ? at.addends + a.addendsAt(first + known) : Ptr(),
            a.sumsBias ? at.addendSums + a.addendsAt(first + known) : Ptr(),
            ahead ? at.drawn + e.integer(i * ahead) : Ptr()};
  }

  /// Computes P and dS for `rows` and the keys from j on. They replace the products in scratch.
  void softmaxGradient(ArrayRef<QueryRow> rows, Num step, Num j) {
    SmallVector<Num> p, ds;
    for (const QueryRow &row : rows) {
      Num visible = e.before(j, row.end, lanes);
      auto seen = [&](Num x) {
        x = e.select(visible, x, e.real(0));
        return a.limits() ? e.select(e.before(j, row.unseen, lanes), e.real(0), x) : x;
      };
      // P is computed again from the scores and the log-sum-exp, because the forward pass kept no weights.
      Num product = row.weight.load(j, lanes), exponent, slope;
      if (a.changesScores()) {
        auto score = a.score(e, product, a.biased ? row.addends.load(j, lanes) : Num());
        exponent = score.value + row.minusLse, slope = score.slope;
      } else {
        exponent = e.fma(product, e.real(a.scale), row.minusLse);
      }
      Num weight = e.exp(exponent);
      auto kept = [&](Num x) { return dropping ? dropping->apply(x, row.drawn, row.ahead, j, lanesInOrder) : x; };
      Num change = weight * (kept(row.gradient.load(j, lanes)) - row.correction);
      if (a.sumsBias)
        row.addendSums.store(row.addendSums.load(j, lanes) + seen(change), j);
      Num gradient = change * a.scale;
      p.push_back(seen(kept(weight)));
      ds.push_back(seen(slope.v ? gradient * slope : gradient));
    }
    rows[0].weight.store(words ? e.words(p[0], p[1]) : a.rounded(p[0]), j);
    rows[0].gradient.store(words ? e.words(ds[0], ds[1]) : a.rounded(ds[0]), j);
    for (int64_t i = 0; words && i < per; ++i)
      (at.gradientRows.as(e.b.getBF16Type()) + (step * per + i) * strideT).store(ds[i], j);
  }

  void writeRows(Num rows, Ptr from, Ptr to, int64_t stride) {
    e.loop(zero, rows, 1, [&](Num r) {
      Ptr source = from + r * paddedD, target = to + r * stride;
      e.vectors(a.d, [&](Num j, int64_t width) { target.store(source.load(j, width), j); });
    });
  }

  const AttentionShape &a;
  Kernel &kernel;
  Emitter &e = kernel.e;
  const int64_t lanes = e.lanes;
  Ptr q = kernel.operands[0], k = kernel.operands[1], v = kernel.operands[2], o = kernel.operands[3];
  Ptr lse = kernel.operands[4], dout = kernel.operands[5];
  Ptr counts = a.counts(kernel, 6), bias = a.bias(kernel, 6), starts = a.starts(kernel, 6);
  std::optional<Dropping> dropping = a.dropping(kernel, 6);
  const SmallVector<int32_t> lanesInOrder = e.steps(lanes);
  Ptr dq = kernel.results[0], dk = kernel.results[1], dv = kernel.results[2];
  Scratch scratch{kernel.scratch};
  const int64_t ahead = dropping ? dropping->wordsAhead(a.paddedT(lanes)) : 0;
  BackwardScratch at{scratch, a, lanes, ahead};
  const int64_t block = a.block(lanes), paddedT = a.paddedT(lanes), strideT = a.strideT(lanes),
                paddedD = a.paddedD(lanes);
  const int64_t tiledD = a.tiledD(lanes), depth = a.depth(), paddedDepth = a.paddedDepth(lanes), per = a.perElement();
  const bool oddD = a.oddD(lanes), words = a.factors == Factors::words;
  Num zero = e.integer(0);
};
} // namespace

void pc::kernels::emitAttentionGrad(AttentionShape a, Kernel &kernel) {
  a.chooseFactors(kernel, {kernel.operands[0], kernel.operands[1], kernel.operands[2], kernel.operands[5]});
  AttentionGradKernel(a, kernel).emit();
}
