//===- MmaAttentionGrad.cpp - The gradient of attention on tensor cores ---------------===//
// With P = exp(scale q k^T - lse) recomputed tile by tile and D = rowsum(dout * o):
//   dS = P * (dout v^T - D);  dq = scale dS k  (part 0, which loops over keys as the forward pass does, and stores D);
//   dv = P^T dout;  dk = scale dS^T q  (part 1: warps hold keys, and loop over queries of all heads that share them).
//===-----------------------------------------------------------------------------===//
#include "MmaAttention.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
/// The operands and results of the gradient.
struct MmaGradBuffers {
  Ptr q, k, v, o, lse, dout, dq, dk, dv, dots, counts, bias, starts;
  std::optional<Dropping> dropping;
};
} // namespace

/// Whether other instructions run while products are in flight. Other options need too many registers.
static bool overlapsProducts(const MmaAttention &at) { return at.warpgroups && at.a.isPlain(); }

/// Part 0, dq: a block of queries loops over keys; stores D for part 1.
static void emitQueries(MmaAttention &at, Kernel &kernel, const MmaGradBuffers &in) {
  SimtEmitter &e = at.e;
  const AttentionShape &a = at.a;
  // Tile sizes leave enough registers for the sums.
  const bool small = a.d > 64 || (at.warpgroups && !a.isPlain()), overlaps = overlapsProducts(at);
  QueryBlock block(at, kernel, small ? 32 : 64, in.k, in.v, in.counts, in.bias, in.starts, in.dropping);
  e.teams(kernel.items, at.threads, 1, [&](Num item) {
    block.begin(item);
    // For each of the thread's two rows: -lse in base 2, and D = dout . o, which the softmax's derivative subtracts.
    Num minusLse[2], dots[2];
    for (int64_t r = 0; r < 2; ++r) {
      Num statistic = at.statistic(block.batch, block.query.inside[r], block.head);
      minusLse[r] = in.lse.load(statistic) * -at.log2e;
      Num dot = e.zeros(2);
      for (int64_t n = 0; n < 2 * at.pieces; ++n) {
        Num place = block.outRows[r] + at.column + 8 * n;
        dot = e.fma(in.o.load(place, 2), in.dout.load(place, 2), dot);
      }
      dots[r] = at.sumOfRow(e.sum(dot));
      e.when(block.query.exists[r] & (at.column < e.integer(2)), [&] { in.dots.store(dots[r], statistic); });
    }
    auto queries = at.left(in.q, block.rows), gradients = at.left(in.dout, block.outRows);
    auto init = [&](Ptr) { return at.zeros(8 * at.pieces); };
    auto done = block.passKeys(init, [&](Num first, Ptr keys, Ptr values, const Emitter::Carried &dq) {
      if (!overlaps)
        block.copyNext();
      Emitter::Carried weights = at.timesTransposed(queries, keys, block.tile, !overlaps);
      Emitter::Carried changes = block.kept(first, at.timesTransposed(gradients, values, block.tile, !overlaps));
      if (overlaps) {
        block.copyNext();
        at.finish(0, {weights, changes});
      }
      Emitter::Carried slopes = a.changesScores() ? block.score(first, weights) : Emitter::Carried();
      const double unit = a.changesScores() ? 1 : a.scale;
      // p = exp(score - lse), dscore = p (dp - D). In `changes`, elements i % 4 / 2 = r belong to row r.
      for (auto [i, change] : llvm::enumerate(changes)) {
        Num p = e.exp2(e.fma(weights[i], e.real(unit * at.log2e), minusLse[i % 4 / 2]));
        change = p * (change - dots[i % 4 / 2]);
        if (!slopes.empty())
          change = change * slopes[i];
      }
      changes = block.masked(first, changes, 0);
      Emitter::Carried sums = dq;
      at.add(sums, at.left(changes), keys);
      return sums;
    });
    Num scales[2] = {e.real(a.scale), e.real(a.scale)};
    at.store(done, scales, in.dq, block.rows, block.query.exists);
  });
}

namespace {
/// Part 1, dk and dv: a block of keys loops over the queries of all heads that share it. Tiles of queries and their
/// gradients are copied to shared memory one iteration ahead.
class KeyBlock {
public:
  using Carried = Emitter::Carried;

  KeyBlock(MmaAttention &at, const MmaGradBuffers &in) : at(at), in(in) {}

  int64_t items() const { return a.batch * a.heads * blocks; }
  /// Emits the code for block number `item`.
  void emit(Num item);

private:
  void begin(Num item);
  /// Starts to copy the tile for iteration `turn`: queries of `head` from `first` on.
  void stage(Num turn, Num first, Num head);
  /// One iteration: adds to dk and dv, which are stored in `sums` one after the other.
  Carried addTile(Num half, Num first, Num next, Num head, Carried sums);
  /// Does what addTile does, by warpgroups: computes exponentials during the product dout v^T, and dS during the
  /// addition to dv. `copyNext` starts the copies of the next tile.
  Carried addTileInFlight(Num half, Num first, Num next, Carried sums, llvm::function_ref<void()> copyNext);
  /// Replaces products of keys and queries by P^T, and products of values and gradients by dS^T without the scale.
  void softmaxGradient(Num half, Num first, Num head, Carried &weights, Carried &changes);
  /// Returns lists in the layout of P^T, one after the other, with zeros for queries that do not exist or do not see
  /// the key. The tile of queries ends before `next`.
  Carried visible(Num first, Num next, const Carried &lists);
  Carried masked(Num first, const Carried &lists);

  MmaAttention &at;
  const MmaGradBuffers &in;
  SimtEmitter &e = at.e;
  const AttentionShape &a = at.a;
  // Values of wide heads stay in shared memory, because the sums leave no registers for them.
  const bool wide = a.d > 64;
  const int64_t blocks = llvm::divideCeil(a.t, at.perBlock),
                tile = (wide ? 16 : 32) * (at.warpgroups && a.isPlain() ? 2 : 1);
  Ptr queries = at.tile(2 * tile), gradients = at.tile(2 * tile); // tiles of this iteration and the next
  Ptr lses = at.shared(2 * tile, e.b.getF32Type()), dots = at.shared(2 * tile, e.b.getF32Type());
  Ptr values = wide ? at.tile(at.perBlock) : Ptr();

  // Set by begin().
  Num firstKey, keyHead, batch, rows[2]; ///< `rows`: where this thread's two keys begin
  Ptr begins;
  MmaAttention::TwoRows key;
  MmaAttention::Left myKeys, myValues;
};

/// Finds batch row, key head and first key of the block.
void KeyBlock::begin(Num item) {
  at.begin();
  firstKey = item % blocks * at.perBlock, keyHead = item / blocks % a.heads, batch = item / (blocks * a.heads);
  begins = a.startsOf(in.starts, batch);
  key = at.rows(firstKey, a.t);
  for (int64_t r = 0; r < 2; ++r)
    rows[r] = at.keyRow(batch, key.inside[r], keyHead);
  myKeys = at.left(in.k, rows);
  if (!wide)
    myValues = at.left(in.v, rows);
}

/// Starts the copy of a tile of queries and of gradients of outputs, for iteration `turn`.
void KeyBlock::stage(Num turn, Num first, Num head) {
  Num half = turn % 2 * tile;
  auto inside = [&](Num line) { return e.min(first + line, e.integer(a.s - 1)); };
  auto queryRow = [&](Num line) { return at.queryRow(batch, inside(line), head); };
  at.stage(in.q, queries + half * at.pitch, tile, queryRow);
  at.stage(in.dout, gradients + half * at.pitch, tile, [&](Num line) { return at.outRow(batch, inside(line), head); });
  e.when(e.rank < e.integer(tile), [&] {
    Num statistic = at.statistic(batch, inside(e.rank), head);
    e.copyAsync(in.lse + statistic, lses + (half + e.rank), 4);
    e.copyAsync(in.dots + statistic, dots + (half + e.rank), 4);
  });
  e.commitCopies();
}

/// Replaces products by the weights P and by the gradients dS, using the statistics of each query.
void KeyBlock::softmaxGradient(Num half, Num first, Num head, Carried &weights, Carried &changes) {
  for (int64_t n = 0; n < tile / 8; ++n)
    for (int64_t c = 0; c < 2; ++c) {
      Num place = half + at.column + (8 * n + c);
      Num minusLse = lses.load(place) * -at.log2e, dot = dots.load(place), drawn, query;
      if (in.dropping || a.biased)
        query = e.min(first + at.column + (8 * n + c), e.integer(a.s - 1));
      if (in.dropping)
        drawn = in.dropping->row({batch, keyHead, head % e.integer(a.groups), query});
      for (int64_t r = 0; r < 2; ++r) {
        const int64_t i = 4 * n + 2 * r + c;
        auto kept = [&](Num x) { return in.dropping ? in.dropping->apply(x, drawn, key.inside[r], {0}) : x; };
        AttentionShape::Score score;
        if (a.changesScores())
          score = at.score(weights[i], in.bias, head, query, key.inside[r]);
        weights[i] = a.changesScores() ? e.fma(score.value, e.real(at.log2e), minusLse)
                                       : e.fma(weights[i], e.real(a.scale * at.log2e), minusLse);
        weights[i] = e.exp2(weights[i]);
        changes[i] = weights[i] * (kept(changes[i]) - dot);
        if (score.slope.v)
          changes[i] = changes[i] * score.slope;
        weights[i] = kept(weights[i]);
      }
    }
}

/// Values become 0 for pairs of which the query does not see the key.
Emitter::Carried KeyBlock::masked(Num first, const Carried &lists) {
  Carried masked(lists.size());
  for (int64_t n = 0; n < tile / 8; ++n)
    for (int64_t c = 0; c < 2; ++c) {
      Num query = first + at.column + (8 * n + c), exists = query < e.integer(a.s);
      Num sight = a.seen(e, query, in.counts), unseen = a.limits() ? a.firstSeen(e, query, begins) : Num();
      for (int64_t r = 0; r < 2; ++r) {
        Num visible = a.causal ? exists & (key.number[r] < sight) : exists;
        if (a.limits())
          visible = visible & e.notBefore(key.number[r], unseen);
        for (size_t i = 4 * n + 2 * r + c; i < lists.size(); i += tile / 2)
          masked[i] = e.select(visible, lists[i], e.real(0));
      }
    }
  return masked;
}

/// Tiles in which all pairs are visible need no test.
Emitter::Carried KeyBlock::visible(Num first, Num next, const Carried &lists) {
  if (!a.causal && a.s % tile == 0)
    return lists;
  // If `whole` is true, all queries of the tile exist and see all keys of the block.
  Num whole = e.notBefore(e.integer(a.s), next);
  if (a.causal)
    whole = whole & e.notBefore(a.seen(e, first, in.counts), firstKey + at.perBlock);
  if (a.limits()) // the last query of the tile sees the block's first key
    whole = whole & e.notBefore(firstKey, a.firstSeen(e, next - 1, begins));
  return e.choose(whole, lists, [&] { return masked(first, lists); });
}

/// dS is 0 if P is, so only P is masked.
Emitter::Carried KeyBlock::addTileInFlight(Num half, Num first, Num next, Carried sums,
                                           llvm::function_ref<void()> copyNext) {
  Ptr queriesNow = queries + half * at.pitch, gradientsNow = gradients + half * at.pitch;
  Carried weights = at.timesTransposed(myKeys, queriesNow, tile, /*waits=*/false);
  Carried changes = at.timesTransposed(wide ? at.left(values) : myValues, gradientsNow, tile, /*waits=*/false);
  copyNext();
  at.finish(1, {weights});
  auto place = [&](int64_t i) { return half + at.column + (i / 4 * 8 + i % 2); };
  for (auto [i, weight] : llvm::enumerate(weights))
    weight = e.exp2(e.fma(weight, e.real(a.scale * at.log2e), lses.load(place(int64_t(i))) * -at.log2e));
  weights = visible(first, next, weights);
  MutableArrayRef dk = MutableArrayRef(sums).take_front(sums.size() / 2),
                  dv = MutableArrayRef(sums).drop_front(dk.size());
  at.add(dv, at.left(weights), gradientsNow, /*waits=*/false);
  at.finish(1, {changes});
  for (auto [i, change] : llvm::enumerate(changes))
    change = weights[i] * (change - dots.load(place(int64_t(i))));
  at.add(dk, at.left(changes), queriesNow, /*waits=*/false);
  at.finish(0, {dk, dv});
  return sums;
}

/// One iteration: products, softmax gradient, and the additions to dk and dv.
Emitter::Carried KeyBlock::addTile(Num half, Num first, Num next, Num head, Carried sums) {
  Ptr queriesNow = queries + half * at.pitch, gradientsNow = gradients + half * at.pitch;
  Carried weights = at.timesTransposed(myKeys, queriesNow, tile);
  Carried changes = at.timesTransposed(wide ? at.left(values) : myValues, gradientsNow, tile);
  softmaxGradient(half, first, head, weights, changes);
  Carried both = weights;
  both.append(changes);
  both = visible(first, next, both);
  weights.assign(both.begin(), both.begin() + weights.size());
  changes.assign(both.begin() + weights.size(), both.end());
  const size_t count = sums.size() / 2;
  at.add(MutableArrayRef(sums).take_front(count), at.left(changes), queriesNow);
  at.add(MutableArrayRef(sums).drop_front(count), at.left(weights), gradientsNow);
  return sums;
}

/// Loops over the queries of all heads that share the block's keys. With two buffers, the next tile is copied during an
/// iteration.
void KeyBlock::emit(Num item) {
  begin(item);
  // One iteration works on a tile of queries of one head.
  Num begin = a.causal && !a.counted ? e.min(firstKey, e.integer(a.s)) / tile * tile : e.integer(0);
  Num end = a.lastQuery(e, firstKey, at.perBlock);
  Num turns = (end - begin + (tile - 1)) / tile * a.groups;
  Num firstHead = keyHead * a.groups;
  e.when(e.integer(0) < turns, [&] {
    if (wide)
      at.stage(in.v, values, at.perBlock,
               [&](Num line) { return at.keyRow(batch, e.min(firstKey + line, e.integer(a.t - 1)), keyHead); });
    stage(e.integer(0), begin, firstHead);
  });

  // carried: first query and head of the iteration, dk, dv
  const int64_t count = 8 * at.pieces;
  Carried init = {begin, firstHead};
  init.append(at.zeros(2 * count));
  auto done = e.loop(e.integer(0), turns, 1, init, [&](Num turn, const Carried &carried) {
    at.meetTiles();
    Num first = carried[0], head = carried[1], next = first + tile;
    Num lastOfHead = e.notBefore(next, end);
    Num nextFirst = e.select(lastOfHead, begin, next), nextHead = e.select(lastOfHead, head + 1, head);
    auto copyNext = [&] { e.when(turn + 1 < turns, [&] { stage(turn + 1, nextFirst, nextHead); }); };
    Num half = turn % 2 * tile;
    Carried following = {nextFirst, nextHead}, sums(carried.begin() + 2, carried.end());
    if (overlapsProducts(at) && !a.counted) {
      following.append(addTileInFlight(half, first, next, sums, copyNext));
      return following;
    }
    copyNext();
    auto work = [&] { return addTile(half, first, next, head, sums); };
    if (a.counted) { // possibly no query of the tile sees a key of the block
      Num last = a.seen(e, first + (tile - 1), in.counts);
      following.append(e.choose(e.notBefore(firstKey, last), sums, work));
    } else {
      following.append(work());
    }
    return following;
  });
  Num scales[2] = {e.real(a.scale), e.real(a.scale)}, ones[2] = {e.real(1), e.real(1)};
  auto sums = ArrayRef(done).drop_front(2);
  at.store(sums.take_front(count), scales, in.dk, rows, key.exists);
  at.store(sums.drop_front(count), ones, in.dv, rows, key.exists);
}
} // namespace

static void emitKeys(MmaAttention &at, Kernel &kernel, const MmaGradBuffers &in) {
  KeyBlock block(at, in);
  kernel.items = block.items();
  at.e.teams(kernel.items, at.threads, 1, [&](Num item) { block.emit(item); });
}

/// Part 0 computes dq, and part 1 dk and dv.
void pc::kernels::emitMmaAttentionGrad(const AttentionShape &a, Kernel &kernel) {
  MmaAttention at(*kernel.simt, a, MmaAttention::warpgroupsFor(a, kernel));
  auto in = kernel.operands, out = kernel.results;
  MmaGradBuffers buffers{in[0],
                         in[1],
                         in[2],
                         in[3],
                         in[4],
                         in[5],
                         out[0],
                         out[1],
                         out[2],
                         kernel.workspace,
                         a.counts(kernel, 6),
                         a.bias(kernel, 6),
                         a.starts(kernel, 6),
                         a.dropping(kernel, 6)};
  kernel.kind = "attention";
  if (kernel.part == 0)
    emitQueries(at, kernel, buffers);
  else
    emitKeys(at, kernel, buffers);
}
