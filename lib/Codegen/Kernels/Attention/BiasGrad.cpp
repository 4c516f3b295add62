//===- BiasGrad.cpp - The gradient of attention's bias on a GPU ------------------------------===//
// There is one thread per entry. It adds, in order, the gradients of the scores of all pairs of a query and a key with
// the same distance. It computes products again that the kernels of dq, dk and dv have computed in other threads, so
// that no two threads add to the same number.
//===-----------------------------------------------------------------------------===//
#include "Attention.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// Entry i belongs to all pairs with key - query = i - (s - 1).
void pc::kernels::emitBiasGrad(const AttentionShape &a, Kernel &kernel) {
  Emitter &e = kernel.e;
  Ptr q = kernel.operands[0], k = kernel.operands[1], v = kernel.operands[2], o = kernel.operands[3];
  Ptr lse = kernel.operands[4], dout = kernel.operands[5], bias = a.bias(kernel, 6), starts = a.starts(kernel, 6);
  std::optional<Dropping> dropping = a.dropping(kernel, 6);
  const int64_t entries = a.addends(), heads = a.heads * a.groups;
  kernel.kind = "attention";
  // The gradient of an entry is the sum of dscore over all its pairs. It computes q.k, dout.v and dout.o again for each
  // pair, in one loop over d, instead of storing a matrix of s x t scores.
  kernel.forItems(a.batch * heads * entries, 1, /*reduces=*/false, [&](Num item) {
    Num entry = item % entries, head = item / entries % heads, batch = item / (entries * heads);
    Num ahead = entry - (a.s - 1), none = e.integer(0);
    // The queries for which key = query + ahead exists. A causal mask or a window may exclude the whole entry.
    Num begin = e.max(none, none - ahead), end = e.min(e.integer(a.s), e.integer(a.t) - ahead);
    if (a.causal)
      end = e.select(none < ahead, none, end);
    if (a.window)
      end = e.select(e.integer(-a.window) < ahead, end, none);
    Num addend = bias.load(head * entries + entry);
    Num sum = e.loop(begin, end, 1, {e.real(0)}, [&](Num query, const Emitter::Carried &before) {
      Num key = query + ahead, keyRow = batch * (a.t * a.keyStride()) + key * a.keyStride() + a.keyAt(head / a.groups);
      Num queryRow = batch * (a.s * a.queryStride()) + query * a.queryStride() + a.queryAt(head);
      Num outRow = batch * (a.s * a.outStride()) + query * a.outStride() + head * a.d;
      Emitter::Carried dots =
          e.loop(none, e.integer(a.d), 1, {e.real(0), e.real(0), e.real(0)}, [&](Num j, const Emitter::Carried &sums) {
            Num change = dout.load(outRow + j);
            return Emitter::Carried{e.fma(q.load(queryRow + j), k.load(keyRow + j), sums[0]),
                                    e.fma(change, v.load(keyRow + j), sums[1]),
                                    e.fma(change, o.load(outRow + j), sums[2])};
          });
      Num weight = e.exp(a.score(e, dots[0], addend).value - lse.load((batch * heads + head) * a.s + query));
      if (dropping) {
        Num drawn = dropping->row({batch, head / a.groups, head % a.groups, query});
        dots[1] = dropping->apply(dots[1], drawn, key, {0});
      }
      // The derivative of the softmax: dscore = p (dp - D) with dp = dout.v and D = dout.o.
      Num change = weight * (dots[1] - dots[2]);
      if (a.documented)
        change = e.select(key < a.firstSeen(e, query, a.startsOf(starts, batch)), e.real(0), change);
      return Emitter::Carried{before[0] + change};
    })[0];
    kernel.results[3].store(sum, item);
  });
}
