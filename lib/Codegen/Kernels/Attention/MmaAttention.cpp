//===- MmaAttention.cpp - Attention on tensor cores ----------------------------------===//
// A block has 64 queries; each warp has 16 of them in registers. Keys and values pass through shared memory tile by
// tile; the next tile is copied while the current one is used. Softmax is online, in powers of two. Its weights never
// leave registers, because the accumulator of one product has the layout of the left operand of the next.
//===-----------------------------------------------------------------------------===//
#include "MmaAttention.h"
#include "../Mma.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

//===---------------------------------------------------------------------------===//
// Pieces of the kernels
//===---------------------------------------------------------------------------===//

/// Positions of this thread follow from the layouts of the matrix instructions.
void MmaAttention::begin() {
  Num lane = e.rank % 32, line = lane % 8, matrix = lane / 8;
  warp = e.rank / 32;
  row = lane / 4;
  column = lane % 4 * 2;
  Num odd = matrix % 2 * 8, upper = matrix / 2 * 8;
  rowsFirst = (odd + line) * pitch + upper;
  columnsFirst = (upper + line) * pitch + odd;
}

/// A thread has two rows of a warp's 16, eight rows apart.
MmaAttention::TwoRows MmaAttention::rows(Num first, int64_t count) {
  TwoRows two;
  for (int64_t r = 0; r < 2; ++r) {
    two.number[r] = first + warp * 16 + row + 8 * r;
    two.inside[r] = e.min(two.number[r], e.integer(count - 1));
    two.exists[r] = two.number[r] < e.integer(count);
  }
  return two;
}

/// Threads copy adjacent vectors of 8 elements, asynchronously.
void MmaAttention::stage(Ptr from, Ptr to, int64_t rows, llvm::function_ref<Num(Num)> rowAt) {
  constexpr int64_t vector = 8;
  const int64_t inRow = a.d / vector, all = rows * inRow;
  for (int64_t first = 0; first < all; first += threads) {
    Num i = e.rank + first;
    auto copy = [&] {
      Num line = i / inRow, at = i % inRow * vector;
      e.copyAsync(from + (rowAt(line) + at), to + (warpgroups ? placeInTile(line, at, rows) : line * pitch + at), 16);
    };
    if (first + threads <= all)
      copy();
    else
      e.when(i < e.integer(all), copy);
  }
}

Value MmaAttention::word(Ptr from, Num at) {
  return LLVM::LoadOp::create(e.b, e.loc, e.b.getI32Type(), (from + at).base, 4);
}

/// Loads the left operand of a product from global memory, at the thread's two rows.
MmaAttention::Left MmaAttention::left(Ptr from, const Num (&at)[2]) {
  SmallVector<Words> words;
  for (int64_t p = 0; p < pieces; ++p) {
    Words piece;
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t r = 0; r < 2; ++r)
        piece.push_back(word(from, at[r] + column + (16 * p + 8 * half)));
    words.push_back(piece);
  }
  return {words, {}};
}

/// Loads the left operand from a tile in shared memory. Warpgroups read the tile themselves.
MmaAttention::Left MmaAttention::left(Ptr tile) {
  if (warpgroups)
    return {{}, tile};
  SmallVector<Words> words;
  Ptr at = tile + (warp * (16 * pitch) + rowsFirst);
  for (int64_t p = 0; p < pieces; ++p)
    words.push_back(matrices(at + e.integer(16 * p), /*transposed=*/false));
  return {words, {}};
}

/// Rounds sums to bf16. They have the layout of a left operand, so no exchange is needed.
MmaAttention::Left MmaAttention::left(ArrayRef<Num> sums) {
  SmallVector<Words> words;
  auto pairType = VectorType::get(2, e.b.getF32Type()), halfType = VectorType::get(2, e.b.getBF16Type());
  for (size_t i = 0; i < sums.size(); i += 8) {
    Words piece;
    for (size_t pair = i; pair < i + 8; pair += 2) {
      Value both = vector::FromElementsOp::create(e.b, e.loc, pairType, ValueRange{sums[pair].v, sums[pair + 1].v});
      both = arith::TruncFOp::create(e.b, e.loc, halfType, both);
      piece.push_back(LLVM::BitcastOp::create(e.b, e.loc, e.b.getI32Type(), both));
    }
    words.push_back(piece);
  }
  return {words, {}};
}

MmaAttention::Words MmaAttention::matrices(Ptr at, bool transposed) { return loadMatrices(e, at, transposed); }

/// The product of the left operand and the transposed tile, whose rows become columns of the result.
MmaAttention::Carried MmaAttention::timesTransposed(const Left &left, Ptr tile, int64_t rows, bool waits) {
  if (warpgroups)
    return timesTransposedByWarpgroups(left, tile, rows, waits);
  Carried sums = zeros(rows / 2);
  Ptr at = tile + columnsFirst;
  for (int64_t p = 0; p < pieces; ++p)
    for (int64_t n = 0; n < rows / 16; ++n) {
      Words right = matrices(at + e.integer(16 * (n * pitch + p)), /*transposed=*/false);
      for (int64_t half = 0; half < 2; ++half)
        multiplyPieces(e, MutableArrayRef(sums).slice(8 * n + 4 * half, 4), left.pieces[p],
                       ArrayRef(right).slice(2 * half, 2));
    }
  return sums;
}

/// Adds the product of the left operand and the tile to the sums.
void MmaAttention::add(MutableArrayRef<Num> sums, const Left &left, Ptr tile, bool waits) {
  if (warpgroups) {
    llvm::copy(addByWarpgroups(sums, left, tile, waits), sums.begin());
    return;
  }
  Ptr at = tile + rowsFirst;
  for (auto [k, piece] : llvm::enumerate(left.pieces))
    for (int64_t n = 0; n < pieces; ++n) {
      Words right = matrices(at + e.integer(16 * (int64_t(k) * pitch + n)), /*transposed=*/true);
      for (int64_t half = 0; half < 2; ++half)
        multiplyPieces(e, sums.slice(8 * n + 4 * half, 4), piece, ArrayRef(right).slice(2 * half, 2));
    }
}

/// Waits for this thread's copies, and then for the other threads, which copy other parts of the same tile.
void MmaAttention::meetTiles() {
  e.waitForCopies();
  if (warpgroups) // cp.async writes through the generic proxy, wgmma reads through the asynchronous proxy
    LLVM::InlineAsmOp::create(e.b, e.loc, TypeRange(), ValueRange(), "fence.proxy.async.shared::cta;", "~{memory}",
                              /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                              LLVM::AsmDialectAttr(), ArrayAttr());
  e.barrier();
}

Num MmaAttention::sumOfRow(Num x) {
  x = x + e.shuffle(x, 1);
  return x + e.shuffle(x, 2);
}

Num MmaAttention::maximumOfRow(Num x) {
  x = e.maximumOf(x, e.shuffle(x, 1));
  return e.maximumOf(x, e.shuffle(x, 2));
}

/// Writes pairs of results of the thread's two rows, each multiplied by a factor of its row.
void MmaAttention::store(ArrayRef<Num> sums, Num factor[2], Ptr to, const Num (&at)[2], const Num (&exists)[2]) {
  auto pairType = VectorType::get(2, e.b.getF32Type());
  for (int64_t r = 0; r < 2; ++r)
    e.when(exists[r], [&] {
      for (int64_t n = 0; n < 2 * pieces; ++n) {
        Num low = sums[4 * n + 2 * r] * factor[r], high = sums[4 * n + 2 * r + 1] * factor[r];
        Value pair = vector::FromElementsOp::create(e.b, e.loc, pairType, ValueRange{low.v, high.v});
        to.store(e.wrap(pair), at[r] + column + 8 * n);
      }
    });
}

//===---------------------------------------------------------------------------===//
// A block of queries
//===---------------------------------------------------------------------------===//

QueryBlock::QueryBlock(MmaAttention &at, Kernel &kernel, int64_t tile, Ptr k, Ptr v, Ptr counts, Ptr bias, Ptr starts,
                       const std::optional<Dropping> &dropping, bool keysAhead)
    : tile(tile), at(at), k(k), v(v), counts(counts), bias(bias), starts(starts), keys(at.tile(2 * tile)),
      values(at.tile(2 * tile)), dropping(dropping), keysAhead(keysAhead),
      blocks(llvm::divideCeil(at.a.s, at.perBlock)) {
  kernel.items = at.a.batch * at.numHeads * blocks;
}

/// Finds head, batch row and first query of the block, and the keys that its queries can see.
void QueryBlock::begin(Num item) {
  SimtEmitter &e = at.e;
  at.begin();
  // Blocks that see the most keys start first.
  firstQuery = (e.integer(blocks - 1) - item % blocks) * at.perBlock;
  head = item / blocks % at.numHeads;
  batch = item / (blocks * at.numHeads);
  keyHead = head / at.a.groups;
  begins = at.a.startsOf(starts, batch);
  query = at.rows(firstQuery, at.a.s);
  for (int64_t r = 0; r < 2; ++r) {
    rows[r] = at.queryRow(batch, query.inside[r], head);
    outRows[r] = at.outRow(batch, query.inside[r], head);
    sight[r] = at.a.seen(e, query.number[r], counts);
    if (at.a.limits())
      unseen[r] = at.a.firstSeen(e, query.inside[r], begins);
    if (dropping)
      drawn[r] = dropping->row({batch, keyHead, head % at.a.groups, query.inside[r]});
  }
}

/// A loop over tiles of keys. The next tile is copied while `meet` works on this one.
QueryBlock::Carried QueryBlock::passKeys(llvm::function_ref<Carried(Ptr)> init,
                                         llvm::function_ref<Carried(Num, Ptr, Ptr, const Carried &)> meet) {
  SimtEmitter &e = at.e;
  // Keys before `end` are seen by some query of the block, keys before `shared` by all.
  Num end = at.a.seen(e, firstQuery + (at.perBlock - 1), counts);
  shared = at.a.seen(e, firstQuery, counts);
  auto half = [&](Num first) { return first / tile % 2 * (tile * at.pitch); }; // the buffer of a tile
  auto stage = [&](Ptr from, Ptr to, Num first) {
    at.stage(from, to, tile,
             [&](Num line) { return at.keyRow(batch, e.min(first + line, e.integer(at.a.t - 1)), keyHead); });
  };
  Num begin = at.a.firstOfTile(e, firstQuery, begins, tile);
  if (keysAhead) {
    stage(k, keys + half(begin), begin);
    stage(k, keys + half(begin + tile), begin + tile);
    stage(v, values + half(begin), begin);
    e.commitCopies();
    at.meetTiles();
    return e.loop(begin, end, tile, init(keys + half(begin)), [&](Num first, const Carried &carried) {
      at.meetTiles();
      Num next = first + tile;
      copyNext = [&, next] {
        e.when(next + tile < end, [&] { stage(k, keys + half(first), next + tile); });
        e.when(next < end, [&] { stage(v, values + half(next), next); });
        e.commitCopies();
      };
      return meet(first, keys + half(next), values + half(first), carried);
    });
  }
  auto stageBoth = [&](Num first) {
    stage(k, keys + half(first), first);
    stage(v, values + half(first), first);
    e.commitCopies();
  };
  e.when(begin < end, [&] { stageBoth(begin); });
  return e.loop(begin, end, tile, init(Ptr()), [&](Num first, const Carried &carried) {
    at.meetTiles();
    Num next = first + tile;
    copyNext = [&, next] { e.when(next < end, [&] { stageBoth(next); }); };
    return meet(first, keys + half(first), values + half(first), carried);
  });
}

/// Turns products into scores and returns the slopes, which exist only for capped scores.
QueryBlock::Carried QueryBlock::score(Num first, Carried &products) {
  Carried slopes;
  for (auto [i, product] : llvm::enumerate(products)) {
    Num key = at.e.min(first + at.column + int64_t(i / 4 * 8 + i % 2), at.e.integer(at.a.t - 1));
    auto [value, slope] = at.score(product, bias, head, query.inside[i % 4 / 2], key);
    product = value;
    if (slope.v)
      slopes.push_back(slope);
  }
  return slopes;
}

/// Replaces values of keys that a query does not see by `hidden`. Tiles that all queries see completely need no test.
QueryBlock::Carried QueryBlock::masked(Num first, Carried values, double hidden) {
  SimtEmitter &e = at.e;
  if (!at.a.causal && at.a.t % tile == 0)
    return values;
  Num isShared = e.notBefore(shared, first + tile);
  if (at.a.limits()) // the last query of the block sees the tile's first key
    isShared = isShared & e.notBefore(first, at.a.firstSeen(e, firstQuery + (at.perBlock - 1), begins));
  return e.choose(isShared, values, [&] {
    Carried masked;
    for (auto [i, value] : llvm::enumerate(values)) {
      Num key = first + at.column + int64_t(i / 4 * 8 + i % 2);
      value = e.select(key < sight[i % 4 / 2], value, e.real(hidden));
      if (at.a.limits())
        value = e.select(key < unseen[i % 4 / 2], e.real(hidden), value);
      masked.push_back(value);
    }
    return masked;
  });
}

/// Applies dropout to pairs of neighbouring columns.
QueryBlock::Carried QueryBlock::kept(Num first, const Carried &values) {
  Carried left = values;
  for (size_t i = 0; dropping && i < left.size(); i += 2) {
    Num column = first + at.column + int64_t(i / 4 * 8);
    dropping->apply(MutableArrayRef(left).slice(i, 2), drawn[i % 4 / 2], column);
  }
  return left;
}

//===---------------------------------------------------------------------------===//
// The forward pass
//===---------------------------------------------------------------------------===//

/// Whether the product of queries and the next tile of keys runs during the softmax of a tile, as in FlashAttention-3
/// (Shah et al., 2024, "intra-warpgroup overlap"). Heads of 64 elements need so few registers that a multiprocessor has
/// two blocks, and one multiplies during the softmax of the other; a second tile of scores would leave one block. With
/// dropout or addends of scores, registers do not suffice.
static bool overlapsSoftmax(const MmaAttention &at) {
  return at.warpgroups && at.a.d > 64 && !at.a.drops && !at.a.biased;
}

/// The forward pass: one loop over tiles of keys with an online softmax.
void pc::kernels::emitMmaAttention(const AttentionShape &a, Kernel &kernel) {
  SimtEmitter &e = *kernel.simt;
  MmaAttention at(e, a, MmaAttention::warpgroupsFor(a, kernel));
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  Ptr q = kernel.operands[0], k = kernel.operands[1], v = kernel.operands[2];
  Ptr o = kernel.results[0], lse = kernel.results[1], counts = a.counts(kernel, 3);
  std::optional<Dropping> dropping = a.dropping(kernel, 3);
  // If nothing else changes the scores, their scale is applied only in the exponent.
  const double unit = a.changesScores() ? 1 : a.scale, factor = unit * at.log2e;
  const bool overlaps = overlapsSoftmax(at);
  kernel.kind = "attention";
  QueryBlock block(at, kernel, at.warpgroups || a.d <= 64 ? 64 : 32, k, v, counts, a.bias(kernel, 3),
                   a.starts(kernel, 3), dropping, overlaps);
  e.teams(kernel.items, at.threads, 1, [&](Num item) {
    block.begin(item);
    auto queries = at.left(q, block.rows);
    Num lowest = a.sunk ? a.sink(kernel, 3, block.head) * (1 / unit) : e.real(-1e30);
    // carried: maxima (initially below any score, but finite), sums, output, and products of the tile if it overlaps
    const int64_t outputs = 8 * at.pieces;
    auto init = [&](Ptr keys) {
      Emitter::Carried first = {lowest, lowest, e.real(0), e.real(0)};
      first.append(at.zeros(outputs));
      if (overlaps)
        first.append(at.timesTransposed(queries, keys, block.tile));
      return first;
    };
    auto done = block.passKeys(init, [&](Num first, Ptr keys, Ptr values, const Emitter::Carried &carried) {
      Emitter::Carried scores, next;
      if (overlaps) {
        next = at.timesTransposed(queries, keys, block.tile, /*waits=*/false);
        scores.assign(carried.begin() + 4 + outputs, carried.end());
      }
      block.copyNext();
      if (!overlaps)
        scores = at.timesTransposed(queries, keys, block.tile);
      if (a.changesScores())
        block.score(first, scores);
      scores = block.masked(first, scores, nothing);
      Emitter::Carried following, output(carried.begin() + 4, carried.begin() + 4 + outputs);
      Num sums[2], shrink[2];
      // A thread holds elements of two rows of a tile. In a list of sums, row r has 2r, 2r + 1, 2r + 4, 2r + 5, ...
      for (int64_t r = 0; r < 2; ++r) {
        Num larger = carried[r];
        for (size_t i = 2 * r; i < scores.size(); i += i % 2 ? 3 : 1)
          larger = e.maximumOf(larger, scores[i]);
        larger = at.maximumOfRow(larger);
        // A larger maximum rescales the sums for the previous one. exp2 is an instruction; `factor` contains log2(e).
        shrink[r] = e.exp2((carried[r] - larger) * factor);
        Num minus = larger * -factor;
        sums[r] = carried[2 + r] * shrink[r];
        for (size_t i = 2 * r; i < scores.size(); i += i % 2 ? 3 : 1) {
          scores[i] = e.exp2(e.fma(scores[i], e.real(factor), minus));
          sums[r] = sums[r] + scores[i];
        }
        following.push_back(larger);
      }
      following.append({sums[0], sums[1]});
      for (auto [i, value] : llvm::enumerate(output))
        value = value * shrink[i % 4 / 2];
      at.add(output, at.left(block.kept(first, scores)), values, !overlaps);
      if (overlaps)
        at.finish(0, {output, next});
      following.append(output);
      following.append(next);
      return following;
    });
    Num inverse[2];
    for (int64_t r = 0; r < 2; ++r) {
      // The sink takes part in the sum of weights, but has no value.
      Num sum = at.sumOfRow(done[2 + r]);
      if (a.sunk)
        sum = sum + e.exp2((lowest - done[r]) * factor);
      Num logSum = done[r] * unit + e.log(sum);
      inverse[r] = e.real(1) / sum;
      if (a.counted) { // a query may see no key
        Num any = e.real(0) < sum;
        inverse[r] = e.select(any, inverse[r], e.real(0));
        logSum = e.select(any, logSum, e.real(nothing));
      }
      e.when(block.query.exists[r] & (at.column < e.integer(2)),
             [&] { lse.store(logSum, at.statistic(block.batch, block.query.inside[r], block.head)); });
    }
    at.store(ArrayRef(done).slice(4, outputs), inverse, o, block.outRows, block.query.exists);
  });
}
