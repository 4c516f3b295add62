//===- SimtAttention.cpp - Attention and its gradient for the threads of a GPU ------===//
// These kernels are for cases that neither a library nor MmaAttention.cpp handles (f32, odd shapes). A few threads
// share a query (for dk and dv, a key) and hold its vectors in registers; keys (for dk and dv, queries) pass through
// shared memory tile by tile. Softmax is online, so scores are never stored. The gradient recomputes P = exp(scale q
// k^T - lse), with D = rowsum(dout * o):
//   dS = scale P * (dout v^T - D);  dq = dS k  (part 0);  dv = P^T dout;  dk = dS^T q  (part 1).
//===-----------------------------------------------------------------------------===//
#include "../Kernels.h"
#include "Attention.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {

using Slice = SmallVector<Num>; ///< this thread's vectors of a row of d elements

/// Divides queries and head elements among the threads of a block. `sharing` threads have one query, and each holds
/// `pieces` vectors of it. fits() returns true if registers and shared memory suffice.
class SimtAttention {
public:
  SimtAttention(SimtEmitter &e, const AttentionShape &a) : e(e), a(a), width(e.widthFor(a.d)) {
    while (a.d / sharing > 32 && a.d % (2 * sharing * width) == 0)
      sharing *= 2;
    pieces = a.d / (sharing * width);
  }

  static constexpr int64_t threads = 128;
  /// The number of queries (or keys) of a block, and of rows of a tile in shared memory.
  int64_t perBlock() const { return threads / sharing; }
  int64_t tile() const { return a.d <= 128 ? 32 : 16; }
  int64_t heads() const { return a.heads * a.groups; }
  bool fits() const { return pieces * width <= 64 && tile() * a.d * 8 + 1024 <= 48 * 1024; }

  /// Offset of this thread's vector `i` in a row.
  Num place(int64_t i) { return (part() + i * sharing) * width; }
  Num part() { return e.rank % e.integer(sharing); }
  Num member() { return e.rank / e.integer(sharing); }

  Num queryRow(Num batch, Num s, Num head) { return (batch * a.s + s) * a.queryStride() + a.queryAt(head); }
  Num outRow(Num batch, Num s, Num head) { return ((batch * a.s + s) * heads() + head) * a.d; }
  Num keyRow(Num batch, Num t, Num keyHead) { return (batch * a.t + t) * a.keyStride() + a.keyAt(keyHead); }

  Slice load(Ptr from, Num row) {
    Slice values;
    for (int64_t i = 0; i < pieces; ++i)
      values.push_back(from.load(row + place(i), width));
    return values;
  }
  void store(const Slice &values, Ptr to, Num row) {
    for (int64_t i = 0; i < pieces; ++i)
      to.store(values[i], row + place(i));
  }
  Slice zeros() { return Slice(pieces, e.zeros(width)); }

  /// The dot product of two rows that `sharing` threads hold in pieces. Each of these threads gets the result.
  Num dot(const Slice &x, const Slice &y) {
    Num sum = x[0] * y[0];
    for (int64_t i = 1; i < pieces; ++i)
      sum = e.fma(x[i], y[i], sum);
    Num total = e.sum(sum);
    for (int64_t mask = sharing / 2; mask >= 1; mask /= 2)
      total = total + e.shuffle(total, mask);
    return total;
  }
  void add(Slice &sums, Num factor, const Slice &x) {
    for (int64_t i = 0; i < pieces; ++i)
      sums[i] = e.fma(x[i], e.splat(factor, width), sums[i]);
  }

  /// The score of a query and a key, and its slope. `addends` are those of the query.
  AttentionShape::Score score(Num product, Ptr addends, Num key) {
    Num addend = a.biased ? addends.load(e.min(key, e.integer(a.t - 1))) : Num();
    return a.score(e, product, addend);
  }
  /// Addends of the existing query `row` of query head `head`.
  Ptr addendsOf(Ptr bias, Num head, Num row) {
    return a.biased ? bias + (head * a.addends() + a.addendsAt(row)) : Ptr();
  }

  /// Copies `count` rows (at rowAt(number)) to shared memory as f32; rows from `end` on repeat the last one.
  void copyTile(Ptr from, Ptr to, Num first, Num end, llvm::function_ref<Num(Num)> rowAt) {
    const int64_t vectors = a.d / width;
    e.loop(e.rank, e.integer(tile() * vectors), threads, [&](Num i) {
      Num row = i / e.integer(vectors), column = i % e.integer(vectors) * width;
      Num source = e.min(first + row, end - 1);
      to.store(from.load(rowAt(source) + column, width), row * a.d + column);
    });
  }

  SimtEmitter &e;
  const AttentionShape &a;
  const int64_t width;
  int64_t sharing = 1, pieces = 1;
};

} // namespace

/// The forward pass without tensor cores. Returns false if a head is too large for the registers of a team.
bool pc::kernels::emitSimtAttention(const AttentionShape &a, Kernel &kernel) {
  SimtEmitter &e = *kernel.simt;
  SimtAttention at(e, a);
  if (!at.fits())
    return false;
  Ptr q = kernel.operands[0], k = kernel.operands[1], v = kernel.operands[2];
  Ptr o = kernel.results[0], lse = kernel.results[1], counts = a.counts(kernel, 3), bias = a.bias(kernel, 3);
  Ptr starts = a.starts(kernel, 3);
  std::optional<Dropping> dropping = a.dropping(kernel, 3);
  // Larger groups rescale less often, but hold more scores in registers.
  constexpr int64_t together = 8; // keys that share one rescaling
  const int64_t blocks = llvm::divideCeil(a.s, at.perBlock()), tile = at.tile();
  kernel.kind = "attention";
  kernel.items = a.batch * at.heads() * blocks;
  Ptr keys = e.shared(tile * a.d), values = e.shared(tile * a.d);
  e.teams(kernel.items, at.threads, 1, [&](Num item) {
    // An item is a block of queries of one head. A team holds its queries in registers, and passes over the keys in
    // tiles, which all its threads copy to shared memory.
    Num firstQuery = item % e.integer(blocks) * at.perBlock(), head = item / e.integer(blocks) % e.integer(at.heads());
    Num batch = item / e.integer(blocks * at.heads()), keyHead = head / e.integer(a.groups);
    Ptr begins = a.startsOf(starts, batch);
    Num query = firstQuery + at.member(), exists = query < e.integer(a.s);
    Num inside = e.min(query, e.integer(a.s - 1));
    // Threads after the last query compute its results again, and do not store them. So all threads reach the barriers.
    Slice mine = at.load(q, at.queryRow(batch, inside, head));
    Num end = a.seen(e, firstQuery + (at.perBlock() - 1), counts), mySight = a.seen(e, query, counts);
    auto keyRow = [&](Num t) { return at.keyRow(batch, t, keyHead); };
    Num drawn = dropping ? dropping->row({batch, keyHead, head % a.groups, inside}) : Num();
    Num unseen = a.limits() ? a.firstSeen(e, inside, begins) : Num();
    Ptr addends = at.addendsOf(bias, head, inside);

    // carried: maximum (initially below any score, but finite), sum, output
    Emitter::Carried init = {a.sunk ? a.sink(kernel, 3, head) : e.real(-1e30), e.real(a.sunk ? 1 : 0)};
    init.append(at.zeros());
    Num begin = a.firstOfTile(e, firstQuery, begins, tile);
    auto done = e.loop(begin, end, tile, init, [&](Num first, const Emitter::Carried &carried) {
      e.barrier(); // no thread reads the previous tile any more
      at.copyTile(k, keys, first, e.integer(a.t), keyRow);
      at.copyTile(v, values, first, e.integer(a.t), keyRow);
      e.barrier();
      return e.loop(e.integer(0), e.integer(tile), together, carried, [&](Num j, const Emitter::Carried &carried) {
        Num maximum = carried[0], sum = carried[1];
        Slice output(carried.begin() + 2, carried.end());
        SmallVector<Num> scores;
        for (int64_t u = 0; u < together; ++u) {
          Num key = first + j + u;
          Num visible = key < mySight;
          if (a.limits())
            visible = visible & e.notBefore(key, unseen);
          Num score = at.score(at.dot(mine, at.load(keys, (j + u) * a.d)), addends, key).value;
          scores.push_back(e.select(visible, score, e.real(-std::numeric_limits<float>::infinity())));
        }
        Num larger = maximum;
        for (Num score : scores)
          larger = e.maximumOf(larger, score);
        // A larger maximum rescales the sums for the previous one.
        Num shrink = e.exp(maximum - larger);
        sum = sum * shrink;
        for (Num &x : output)
          x = x * shrink;
        SmallVector<Num> weights;
        for (int64_t u = 0; u < together; ++u) {
          weights.push_back(e.exp(scores[u] - larger));
          sum = sum + weights[u];
        }
        if (dropping)
          dropping->apply(weights, drawn, first + j);
        for (int64_t u = 0; u < together; ++u)
          at.add(output, weights[u], at.load(values, (j + u) * a.d));
        Emitter::Carried next = {larger, sum};
        next.append(output);
        return next;
      });
    });
    e.when(exists, [&] {
      // An output without any visible key is 0, and its lse is -infinity.
      Slice output(done.begin() + 2, done.end());
      Num logSum = done[0] + e.log(done[1]), any = e.real(0) < done[1];
      for (Num &x : output) {
        x = x / done[1];
        x = a.counted ? e.select(any, x, e.zeros(at.width)) : x;
      }
      if (a.counted) // a query may see no key
        logSum = e.select(any, logSum, e.real(-std::numeric_limits<float>::infinity()));
      at.store(output, o, at.outRow(batch, inside, head));
      e.when(at.part() < e.integer(1), [&] { lse.store(logSum, (batch * at.heads() + head) * a.s + query); });
    });
  });
  return true;
}

namespace {
/// The operands and results of the gradient.
struct SimtGradBuffers {
  Ptr q, k, v, o, lse, dout, dq, dk, dv, counts, bias, starts;
  std::optional<Dropping> dropping;

  /// x, or 0 if the weight of key `key` in row `drawn` is dropped.
  Num kept(Num x, Num drawn, Num key) const { return dropping ? dropping->apply(x, drawn, key, {0}) : x; }
};
} // namespace

/// dq: threads hold queries and loop over keys, as in the forward pass.
static void emitQueries(SimtAttention &at, Kernel &kernel, const SimtGradBuffers &in) {
  SimtEmitter &e = at.e;
  const AttentionShape &a = at.a;
  const int64_t blocks = llvm::divideCeil(a.s, at.perBlock()), tile = at.tile();
  kernel.items = a.batch * at.heads() * blocks;
  Ptr keys = e.shared(tile * a.d), values = e.shared(tile * a.d);
  e.teams(kernel.items, at.threads, 1, [&](Num item) {
    Num firstQuery = item % e.integer(blocks) * at.perBlock(), head = item / e.integer(blocks) % e.integer(at.heads());
    Num batch = item / e.integer(blocks * at.heads()), keyHead = head / e.integer(a.groups);
    Ptr begins = a.startsOf(in.starts, batch);
    Num query = firstQuery + at.member(), inside = e.min(query, e.integer(a.s - 1));
    Num row = at.queryRow(batch, inside, head), outRow = at.outRow(batch, inside, head);
    Slice mine = at.load(in.q, row), gradient = at.load(in.dout, outRow);
    // D = dout . o, which the softmax's derivative subtracts from each gradient of a weight.
    Num correction = at.dot(gradient, at.load(in.o, outRow));
    Num lse = in.lse.load((batch * at.heads() + head) * a.s + inside);
    Num end = a.seen(e, firstQuery + (at.perBlock() - 1), in.counts), mySight = a.seen(e, query, in.counts);
    auto keyRow = [&](Num t) { return at.keyRow(batch, t, keyHead); };
    Num drawn = in.dropping ? in.dropping->row({batch, keyHead, head % a.groups, inside}) : Num();
    Num begin = a.firstOfTile(e, firstQuery, begins, tile),
        unseen = a.limits() ? a.firstSeen(e, inside, begins) : Num();
    Ptr addends = at.addendsOf(in.bias, head, inside);
    Slice zeros = at.zeros();
    auto done = e.loop(begin, end, tile, zeros, [&](Num first, const Emitter::Carried &carried) {
      e.barrier();
      at.copyTile(in.k, keys, first, e.integer(a.t), keyRow);
      at.copyTile(in.v, values, first, e.integer(a.t), keyRow);
      e.barrier();
      return e.loop(e.integer(0), e.integer(tile), 1, carried, [&](Num j, const Emitter::Carried &carried) {
        Slice sums = carried, keyVector = at.load(keys, j * a.d);
        Num key = first + j, visible = key < mySight;
        if (a.limits())
          visible = visible & e.notBefore(key, unseen);
        auto score = at.score(at.dot(mine, keyVector), addends, key);
        // The weight is computed again from lse, so the forward pass stores no weights.
        Num p = e.exp(score.value - lse);
        Num change = in.kept(at.dot(gradient, at.load(values, j * a.d)), drawn, key);
        Num ds = p * (change - correction) * a.scale;
        if (score.slope.v)
          ds = ds * score.slope;
        at.add(sums, e.select(visible, ds, e.real(0)), keyVector);
        return sums;
      });
    });
    e.when(query < e.integer(a.s), [&] { at.store(done, in.dq, row); });
  });
}

/// dk and dv: threads hold keys and loop over the queries of all heads that share the key.
static void emitKeys(SimtAttention &at, Kernel &kernel, const SimtGradBuffers &in) {
  SimtEmitter &e = at.e;
  const AttentionShape &a = at.a;
  const int64_t blocks = llvm::divideCeil(a.t, at.perBlock()), tile = at.tile(), d = a.d;
  const int64_t perQuery = at.threads / tile; // threads that compute D of one query
  kernel.items = a.batch * a.heads * blocks;
  Ptr queries = e.shared(tile * d), gradients = e.shared(tile * d), statistics = e.shared(2 * tile);
  e.teams(kernel.items, at.threads, 1, [&](Num item) {
    // An item is a block of keys of one key head. Its sums get terms from all query heads that share it (`groups`).
    Num firstKey = item % e.integer(blocks) * at.perBlock(), keyHead = item / e.integer(blocks) % e.integer(a.heads);
    Num batch = item / e.integer(blocks * a.heads);
    Ptr begins = a.startsOf(in.starts, batch);
    Num key = firstKey + at.member();
    Num row = at.keyRow(batch, e.min(key, e.integer(a.t - 1)), keyHead);
    Slice myKey = at.load(in.k, row), myValue = at.load(in.v, row);
    // A causal mask hides the keys from queries before them, so the loop begins at the first tile of queries that sees
    // a key.
    Num begin = a.causal && !a.counted ? e.min(firstKey, e.integer(a.s)) / e.integer(tile) * tile : e.integer(0);
    Num end = a.lastQuery(e, firstKey, at.perBlock());
    Emitter::Carried init = at.zeros();
    init.append(at.zeros());
    auto done = e.loop(e.integer(0), e.integer(a.groups), 1, init, [&](Num group, const Emitter::Carried &carried) {
      Num head = keyHead * a.groups + group;
      auto queryRow = [&](Num s) { return at.queryRow(batch, s, head); };
      auto outRow = [&](Num s) { return at.outRow(batch, s, head); };
      return e.loop(begin, end, tile, carried, [&](Num first, const Emitter::Carried &carried) {
        e.barrier();
        at.copyTile(in.q, queries, first, e.integer(a.s), queryRow);
        at.copyTile(in.dout, gradients, first, e.integer(a.s), outRow);
        // D of each query of the tile: `perQuery` neighbouring threads add up dout . o, and the first of them stores it
        // with the query's lse.
        Num line = e.rank / e.integer(perQuery), lane = e.rank % e.integer(perQuery);
        Num query = e.min(first + line, e.integer(a.s - 1)), from = outRow(query);
        Num partial = e.loop(lane * at.width, e.integer(d), perQuery * at.width, {e.real(0)},
                             [&](Num i, const Emitter::Carried &sum) {
                               Num product = in.o.load(from + i, at.width) * in.dout.load(from + i, at.width);
                               return Emitter::Carried{sum[0] + e.sum(product)};
                             })[0];
        // Neighbouring threads add up their parts of dout . o of one query.
        for (int64_t mask = perQuery / 2; mask >= 1; mask /= 2)
          partial = partial + e.shuffle(partial, mask);
        e.when(lane < e.integer(1), [&] {
          statistics.store(partial, line);
          statistics.store(in.lse.load((batch * at.heads() + head) * a.s + query), line + tile);
        });
        e.barrier();
        return e.loop(e.integer(0), e.integer(tile), 1, carried, [&](Num j, const Emitter::Carried &carried) {
          Slice keySums(carried.begin(), carried.begin() + at.pieces);
          Slice valueSums(carried.begin() + at.pieces, carried.end());
          Slice queryVector = at.load(queries, j * d), gradient = at.load(gradients, j * d);
          Num query = first + j, visible = query < e.integer(a.s);
          if (a.causal)
            visible = visible & (key < a.seen(e, query, in.counts));
          if (a.limits())
            visible = visible & e.notBefore(key, a.firstSeen(e, query, begins));
          Ptr addends = a.biased ? at.addendsOf(in.bias, head, e.min(query, e.integer(a.s - 1))) : Ptr();
          auto score = at.score(at.dot(queryVector, myKey), addends, key);
          Num p = e.exp(score.value - statistics.load(j + tile));
          p = e.select(visible, p, e.real(0));
          Num drawn = in.dropping ? in.dropping->row({batch, keyHead, group, query}) : Num();
          Num ds = p * (in.kept(at.dot(gradient, myValue), drawn, key) - statistics.load(j)) * a.scale;
          if (score.slope.v)
            ds = ds * score.slope;
          at.add(keySums, e.select(visible, ds, e.real(0)), queryVector);
          at.add(valueSums, in.kept(p, drawn, key), gradient);
          Emitter::Carried next(keySums);
          next.append(valueSums);
          return next;
        });
      });
    });
    e.when(key < e.integer(a.t), [&] {
      at.store(Slice(done.begin(), done.begin() + at.pieces), in.dk, row);
      at.store(Slice(done.begin() + at.pieces, done.end()), in.dv, row);
    });
  });
}

/// Part 0 computes dq and part 1 dk and dv, as with tensor cores.
bool pc::kernels::emitSimtAttentionGrad(const AttentionShape &a, Kernel &kernel) {
  SimtAttention at(*kernel.simt, a);
  if (!at.fits())
    return false;
  auto in = kernel.operands, out = kernel.results;
  SimtGradBuffers buffers{in[0],
                          in[1],
                          in[2],
                          in[3],
                          in[4],
                          in[5],
                          out[0],
                          out[1],
                          out[2],
                          a.counts(kernel, 6),
                          a.bias(kernel, 6),
                          a.starts(kernel, 6),
                          a.dropping(kernel, 6)};
  kernel.kind = "attention";
  if (kernel.part == 0)
    emitQueries(at, kernel, buffers);
  else
    emitKeys(at, kernel, buffers);
  return true;
}
