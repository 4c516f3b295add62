//===- OnRows.cpp - Routed einsums on rows, on a GPU ---------------------------------===//
// Rows are ordered by expert, then by token. A warp counts and places 32 tokens of one expert at a time. Sums are in
// the order of experts or of tokens, without atomics.
//===-----------------------------------------------------------------------------===//
#include "OnRows.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
constexpr int64_t warp = 32, warps = 8;

/// Emits the two kernels that sort the chosen (token, expert) entries into rows: one counts, the other places. Both
/// give the same tables for the same mask, in any order of blocks.
class FindRows {
public:
  explicit FindRows(OnRows &on) : on(on), e(on.e), at(*on.at), chunks(llvm::divideCeil(at.tokens, at.chunk)) {}

  /// Part 0: counts the rows of each chunk.
  void count() {
    e.teams(chunks, warp * warps, 1, [&](Num chunk) {
      forExperts([&](Num expert) {
        Num votes = e.ballot(hasChosen(token(chunk), expert));
        onFirst([&] { on.table(at.counts).store(e.bitCount(votes), expert * chunks + chunk); });
      });
    });
  }

  /// Part 1: each row gets its token and each entry its row; tiles get their experts.
  void place() {
    e.teams(chunks, warp * warps, 1, [&](Num chunk) {
      Ptr all = e.shared(at.experts, e.b.getI32Type()), before = e.shared(at.experts, e.b.getI32Type());
      forExperts([&](Num expert) {
        auto sums = sumOver(e.integer(chunks), 2, [&](Num other) {
          Num count = on.entry(at.counts, expert * chunks + other);
          return OnRows::Carried{count, e.select(other < chunk, count, e.integer(0))};
        });
        onFirst([&] {
          all.store(toI32(sums[0]), expert);
          before.store(toI32(sums[1]), expert);
        });
      });
      e.barrier();
      forExperts([&](Num expert) {
        auto sums = sumOver(expert, 2, [&](Num other) {
          Num count = e.extend(all.load(other));
          return OnRows::Carried{count, tilesOf(count)};
        });
        Num first = sums[0], firstTile = sums[1], own = e.extend(all.load(expert));
        Num here = token(chunk), exists = here < e.integer(at.tokens), chosen = hasChosen(here, expert);
        // A row's number: the rows of earlier experts, those of this expert in earlier chunks, and those of lower
        // threads in the warp.
        Num votes = e.ballot(chosen);
        Num row = first + e.extend(before.load(expert)) + e.extend(e.bitsBefore(votes));
        chosen = chosen & (row < e.integer(at.rows)); // guards against a mask with more rows than the program allows
        e.when(chosen, [&] { on.table(at.tokenOf).store(toI32(here), row); });
        e.when(exists, [&] {
          on.table(at.rowOf).store(toI32(e.select(chosen, row, e.integer(-1))), here * at.experts + expert);
        });
        e.when(chunk < e.integer(1), [&] { describe(expert, first, firstTile, own); });
      });
    });
  }

private:
  /// Writes the first row and the tiles of one expert, with a warp; for the last expert, also the end of all rows.
  void describe(Num expert, Num first, Num firstTile, Num own) {
    Num most = e.integer(at.rows), isLast = e.integer(at.experts - 2) < expert;
    onFirst([&] {
      on.table(at.firstRows).store(toI32(e.min(first, most)), expert);
      e.when(isLast, [&] { on.table(at.firstRows).store(toI32(e.min(first + own, most)), expert + 1); });
    });
    Num lane = e.rank % warp, end = firstTile + tilesOf(own);
    e.loop(firstTile + lane, e.min(end, e.integer(at.tiles)), warp, [&](Num tile) {
      on.table(at.tileExperts).store(toI32(expert), tile);
      on.table(at.tileRows).store(toI32(first + (tile - firstTile) * at.tile), tile);
    });
    e.when(isLast, [&] {
      e.loop(end + lane, e.integer(at.tiles), warp,
             [&](Num tile) { on.table(at.tileExperts).store(toI32(e.integer(-1)), tile); });
    });
  }

  Num tilesOf(Num rows) { return (rows + (at.tile - 1)) / at.tile; }
  Num toI32(Num x) { return e.wrap(arith::TruncIOp::create(e.b, e.loc, e.b.getI32Type(), x.v)); }
  Num token(Num chunk) { return chunk * at.chunk + e.rank % warp; }
  /// Emits a test: the token exists and has chosen the expert.
  Num hasChosen(Num token, Num expert) {
    Num exists = token < e.integer(at.tokens);
    Num entry = on.mask.load(e.select(exists, token, e.integer(0)) * at.experts + expert);
    Num isSet = e.wrap(arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::UNE, entry.v, e.real(0).v));
    return exists & isSet;
  }
  /// The experts of this warp.
  void forExperts(llvm::function_ref<void(Num)> body) { e.loop(e.rank / warp, e.integer(at.experts), warps, body); }
  void onFirst(llvm::function_ref<void()> body) { e.when(e.rank % warp < e.integer(1), body); }
  /// Sums the values of body(i) for i in [0, end) with a warp. Each of its threads gets the sums.
  OnRows::Carried sumOver(Num end, int64_t count, llvm::function_ref<OnRows::Carried(Num)> body) {
    OnRows::Carried sums(count, e.integer(0));
    sums = e.loop(e.rank % warp, end, warp, sums, [&](Num i, const OnRows::Carried &before) {
      OnRows::Carried next(before);
      for (auto [sum, more] : llvm::zip_equal(next, body(i)))
        sum = sum + more;
      return next;
    });
    for (Num &sum : sums)
      for (int64_t distance = warp / 2; distance >= 1; distance /= 2)
        sum = sum + e.extend(e.shuffle(toI32(sum), distance));
    return sums;
  }

  OnRows &on;
  SimtEmitter &e;
  const RowTables &at;
  const int64_t chunks;
};
} // namespace

/// Copies one number per token and expert to the rows, or the lines of tokens to their rows.
static void emitPack(OnRows &on) {
  SimtEmitter &e = on.e;
  if (on.d.a_lies == PCRT_LIES_TOKENS)
    return e.items(on.at->rows, on.d.n, /*reduces=*/false, [&](Num row) {
      e.when(row < on.entry(on.at->firstRows, e.integer(on.at->experts)), [&] {
        Num from = on.rowAt(PCRT_LIES_TOKENS, row, on.d.n), to = row * on.d.n;
        e.vectors(on.d.n, [&](Num i, int64_t width) { on.c.store(on.a.load(from + i, width), to + i); });
      });
    });
  e.teams(on.at->tokens * on.at->experts, 1, 256, [&](Num i) {
    Num row = on.entry(on.at->rowOf, i);
    e.when(e.notBefore(row, e.integer(0)), [&] { on.c.store(on.a.load(i), row); });
  });
}

/// Copies numbers of rows back to tokens and experts; entries without a row are 0. The result may overwrite the mask.
static void emitUnpack(OnRows &on) {
  SimtEmitter &e = on.e;
  e.teams(on.at->tokens * on.at->experts, 1, 256, [&](Num i) {
    Num row = on.entry(on.at->rowOf, i);
    auto none = [&] { return e.real(0); };
    on.c.store(e.pick(e.notBefore(row, e.integer(0)), [&] { return on.a.load(row); }, none), i);
  });
}

/// Adds the rows of each token, in the order of its experts. The rows are an operand, or part 2 of a product has
/// computed them.
static void emitCombine(OnRows &on, Ptr rows) {
  SimtEmitter &e = on.e;
  const int64_t width = on.d.n;
  e.items(on.at->tokens, width, /*reduces=*/false, [&](Num token) {
    e.vectors(width, [&](Num column, int64_t vector) {
      Num none = vector ? e.zeros(vector) : e.real(0);
      auto sums =
          e.loop(e.integer(0), e.integer(on.at->experts), 1, {none}, [&](Num expert, const OnRows::Carried &sum) {
            Num row = on.entry(on.at->rowOf, token * on.at->experts + expert);
            return e.choose(row < e.integer(0), sum,
                            [&] { return OnRows::Carried{sum[0] + rows.load(row * width + column, vector)}; });
          });
      on.c.store(sums[0], token * width + column);
    });
  });
}

/// A plain product has the same blocks, and needs no tables to find them.
void pc::kernels::forRowBlocks(OnRows &on, int64_t threads, int64_t rows, int64_t columns,
                               llvm::function_ref<void(const RowBlock &)> body) {
  SimtEmitter &e = on.e;
  // Blocks that run at the same time share tiles of rows or of columns, which stay in the second-level cache. Therefore
  // `together` blocks of columns of the same rows follow each other, then the blocks of the next rows.
  const int64_t all = llvm::divideCeil(on.d.n, columns), together = std::min<int64_t>(all, 16);
  const int64_t stripes = llvm::divideCeil(all, together), parts = on.tile / rows, height = on.tiles * parts;
  e.teams(stripes * height * together, threads, 1, [&](Num item) {
    Num stripe = item / (height * together), part = item / together % height, tile = part / parts;
    Num number = stripe * together + item % together;
    if (on.d.grouped == PCRT_GROUPED_NONE)
      return e.when((number < e.integer(all)) & (part * rows < e.integer(on.d.m)),
                    [&] { body({e.integer(0), part * rows, e.integer(on.d.m), number * columns}); });
    Num expert = on.entry(on.at->tileExperts, tile);
    e.when(e.notBefore(expert, e.integer(0)) & (number < e.integer(all)), [&] {
      Num end = on.entry(on.at->firstRows, expert + 1);
      Num first = on.entry(on.at->tileRows, tile) + part % parts * rows;
      e.when(first < end, [&] { body({expert, first, end, number * columns}); });
    });
  });
}

/// A fusion with codes has its operands in another order than the einsum.
std::optional<RoutedBuffers> pc::kernels::routedBuffers(Operation *op, const Kernel &kernel) {
  EinsumOp einsum = routedOnRows(op);
  std::optional<Grouped> grouped = asGrouped(einsum);
  if (!grouped)
    return std::nullopt;
  auto fusion = dyn_cast<FusionOp>(op);
  if (!fusion)
    return RoutedBuffers{einsum, *grouped, SmallVector<Ptr, 3>(kernel.operands.begin(), kernel.operands.end()), {}};
  CodedExperts coded = *asCodedExperts(fusion);
  auto bufferOf = [&](Value outside) {
    return kernel.operands[std::distance(fusion.getInputs().begin(), llvm::find(fusion.getInputs(), outside))];
  };
  grouped->desc = coded.desc;
  SmallVector<Ptr, 3> operands(3, bufferOf(coded.mask));
  operands[grouped->a] = bufferOf(coded.a), operands[grouped->b] = bufferOf(coded.codes);
  return RoutedBuffers{einsum, *grouped, operands, bufferOf(coded.scales)};
}

unsigned pc::kernels::groupedParts(EinsumOp op) {
  std::optional<Grouped> grouped = asGrouped(op);
  return grouped && grouped->desc.grouped == PCRT_GROUPED_PRODUCT && grouped->desc.c_lies == PCRT_LIES_TOKENS ? 4 : 3;
}

/// Parts 0 and 1 find the rows, and part 2 computes. A result by token needs a further part that adds its rows.
LogicalResult pc::kernels::emitGrouped(EinsumOp op, Kernel &kernel) {
  std::optional<RoutedBuffers> routed = routedBuffers(op, kernel);
  if (!routed)
    return op->emitOpError() << "works on routed tokens, but is not a matrix product of them";
  emitRouted(*routed, kernel);
  return success();
}

void pc::kernels::emitRouted(const RoutedBuffers &routed, Kernel &kernel) {
  OnRows on(routed, kernel);
  const bool multiplies = on.d.grouped <= PCRT_GROUPED_GRADIENT;
  kernel.kind = kernel.part < 2 ? "index" : !multiplies ? "copy" : kernel.part == 2 ? "product" : "reduction";
  switch (kernel.part) {
  case 0:
    FindRows(on).count();
    break;
  case 1:
    FindRows(on).place();
    break;
  case 2:
    if (on.d.grouped == PCRT_GROUPED_PACK)
      emitPack(on);
    else if (on.d.grouped == PCRT_GROUPED_UNPACK && on.d.c_lies == PCRT_LIES_TOKENS)
      emitCombine(on, on.a);
    else if (on.d.grouped == PCRT_GROUPED_UNPACK)
      emitUnpack(on);
    else if (on.d.grouped == PCRT_GROUPED_GRADIENT)
      (suitsTensorCores(on) ? emitGradientByTensorCores : emitGradientByNumbers)(on);
    else
      (suitsTensorCores(on) ? emitProductByTensorCores : emitProductByNumbers)(on);
    break;
  case 3:
    emitCombine(on, on.made());
    break;
  }
}
