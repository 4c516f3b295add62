//===- AttentionGrad.cpp - dq, dk, dv of attention, one key/value head at a time ----===//
// With P = exp(scale q k^T - lse) recomputed per block of queries and D = rowsum(dout * o):
//   dv += P^T dout;  dS = scale P * (dout v^T - D);  dq = dS k;  dk += dS^T q.
// dk and dv are summed in scratch over the blocks and over the query heads that share them, so no other thread is
// involved.
//===-----------------------------------------------------------------------------===//
#include "Attention.h"
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
struct Layout {
  Ptr keysAcross, valuesAcross, keys, keyGradients, valueGradients, queries, outGradients, queryGradients, weights,
      gradients;

  Layout(Scratch &scratch, const AttentionShape &a, int64_t lanes) {
    int64_t block = a.block(lanes), t = a.paddedT(lanes), d = a.paddedD(lanes), strideT = a.strideT(lanes);
    keysAcross = scratch.take(d * strideT);
    valuesAcross = scratch.take(d * strideT);
    keys = scratch.take(t * d);
    keyGradients = scratch.take(t * d);
    valueGradients = scratch.take(t * d);
    queries = scratch.take(block * d);
    outGradients = scratch.take(block * d);
    queryGradients = scratch.take(block * d);
    weights = scratch.take(block * strideT);
    gradients = scratch.take(block * strideT);
  }
};
} // namespace

LogicalResult pc::kernels::emit(AttentionGradOp op, Kernel &kernel) {
  if (kernel.simt)
    return emitSimt(op, kernel);
  const AttentionShape a(op);
  Emitter &e = kernel.e;
  const int64_t lanes = e.lanes;
  Ptr q = kernel.operands[0], k = kernel.operands[1], v = kernel.operands[2], o = kernel.operands[3];
  Ptr lse = kernel.operands[4], dout = kernel.operands[5];
  Ptr counts = a.counted ? kernel.operands[6] : Ptr();
  Ptr dq = kernel.results[0], dk = kernel.results[1], dv = kernel.results[2];
  Scratch scratch{kernel.scratch};
  Layout at(scratch, a, lanes);
  kernel.items = a.batch * a.heads;
  kernel.scratchBytes = scratch.bytes();
  kernel.kind = "attention";
  const int64_t block = a.block(lanes), paddedT = a.paddedT(lanes), strideT = a.strideT(lanes),
                paddedD = a.paddedD(lanes);
  const int64_t tiledD = a.tiledD(lanes);
  const bool oddD = a.oddD(lanes);
  Num zero = e.integer(0);
  auto writeRows = [&](Num rows, Ptr from, Ptr to, int64_t stride) {
    e.loop(zero, rows, 1, [&](Num r) {
      Ptr source = from + r * paddedD, target = to + r * stride;
      e.vectors(a.d, [&](Num j, int64_t width) { target.store(source.load(j, width), j); });
    });
  };

  e.loop(kernel.lo, kernel.hi, 1, [&](Num item) {
    Num batch = item / a.heads, head = item % a.heads;
    Num keyOffset = batch * (a.t * a.keyStride()) + head * a.d;
    Matrix keys{k + keyOffset, a.keyStride()};
    transposePadded(e, a.t, a.d, keys, {at.keysAcross, strideT});
    transposePadded(e, a.t, a.d, {v + keyOffset, a.keyStride()}, {at.valuesAcross, strideT});
    copyPadded(e, e.integer(a.t), e.integer(paddedT), a.d, paddedD, keys, {at.keys, paddedD});
    zeroFill(e, at.keyGradients, paddedT * paddedD);
    zeroFill(e, at.valueGradients, paddedT * paddedD);

    e.loop(zero, e.integer(a.groups), 1, [&](Num group) {
      Num queryHead = head * a.groups + group;
      Num queryOffset = batch * (a.s * a.queryStride()) + queryHead * a.d;
      Ptr lseRow = lse + (item * a.groups + group) * a.s;
      e.loop(zero, e.integer(a.s), block, [&](Num first) {
        Num rows = e.min(e.integer(block), e.integer(a.s) - first);
        Num columns = a.columns(e, first, counts, lanes);
        Num blockOffset = queryOffset + first * a.queryStride(), m = e.integer(block);
        copyPadded(e, rows, m, a.d, paddedD, {q + blockOffset, a.queryStride()}, {at.queries, paddedD});
        copyPadded(e, rows, m, a.d, paddedD, {dout + blockOffset, a.queryStride()}, {at.outGradients, paddedD});
        product(e, m, columns, false, e.integer(a.d), {at.queries, paddedD}, {at.keysAcross, strideT},
                {at.weights, strideT}, false);
        product(e, m, columns, false, e.integer(a.d), {at.outGradients, paddedD}, {at.valuesAcross, strideT},
                {at.gradients, strideT}, false);

        e.loop(zero, rows, 1, [&](Num r) {
          Ptr outRow = o + (blockOffset + r * a.queryStride()), outGradient = at.outGradients + r * paddedD;
          Num correction = e.sums(a.d, 1, [&](Num j, int64_t width) {
            return Emitter::Carried{outRow.load(j, width) * outGradient.load(j, width)};
          })[0];
          Num minusLse = e.real(0) - lseRow.load(first + r);
          Num end = a.seen(e, first + r, counts);
          Ptr weight = at.weights + r * strideT, gradient = at.gradients + r * strideT;
          e.loop(zero, columns, lanes, [&](Num j) {
            Num visible = e.before(j, end, lanes);
            Num p = e.exp(e.fma(weight.load(j, lanes), e.real(a.scale), minusLse));
            Num ds = p * (gradient.load(j, lanes) - correction) * a.scale;
            weight.store(e.select(visible, p, e.real(0)), j);
            gradient.store(e.select(visible, ds, e.real(0)), j);
          });
        });
        // Rows that pad the last block take no part.
        e.loop(rows, m, 1, [&](Num r) {
          e.loop(zero, columns, lanes, [&](Num j) { at.gradients.store(e.zeros(lanes), r * strideT + j); });
        });
        product(e, m, e.integer(tiledD), oddD, columns, {at.gradients, strideT}, {at.keys, paddedD},
                {at.queryGradients, paddedD}, false);
        writeRows(rows, at.queryGradients, dq + blockOffset, a.queryStride());
        product(e, columns, e.integer(tiledD), oddD, rows, {at.gradients, 1, strideT}, {at.queries, paddedD},
                {at.keyGradients, paddedD}, true);
        product(e, columns, e.integer(tiledD), oddD, rows, {at.weights, 1, strideT}, {at.outGradients, paddedD},
                {at.valueGradients, paddedD}, true);
      });
    });
    writeRows(e.integer(a.t), at.keyGradients, dk + keyOffset, a.keyStride());
    writeRows(e.integer(a.t), at.valueGradients, dv + keyOffset, a.keyStride());
  });
  return success();
}
