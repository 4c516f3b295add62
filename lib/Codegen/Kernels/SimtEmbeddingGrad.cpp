//===- SimtEmbeddingGrad.cpp - The gradient of an embedding, on a GPU ----------------===//
// Ids are sorted, so that the rows of equal ids form a run. Runs are cut into chunks, and one team adds the rows of
// each chunk in order. If a run has several chunks, their sums are then added in order. The result for an id depends
// only on the id's own rows, and needs no atomics.
//===-----------------------------------------------------------------------------===//
#include "../Emit/RowMath.h"
#include "Embedding.h"
#include "Kernels.h"
#include "pc/Cost/CudaWorkspace.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
/// Emits one part of the gradient (kernel.part): clear the table, sort tiles of ids, merge them, add chunks of runs,
/// add runs. The parts pass tables to each other in the workspace (EmbeddingSort), so their order and layouts must
/// agree.
class EmbeddingGrad {
public:
  EmbeddingGrad(EmbeddingGradOp op, Kernel &kernel, Ptr base)
      : op(op), k(kernel), e(*kernel.simt), at(op), base(base), dy(kernel.operands[0]), ids(kernel.operands[1]),
        table(kernel.results[0]) {
    rows = op.getTables() * op.getRows(), width = op.getWidth();
    count = op.getIds().getType().getNumElements();
  }

  /// Five kernels: clear the table, sort tiles of ids, merge the tiles, add chunks of runs, and add runs.
  void emit() {
    // If only the incoming gradients are bf16, a thread reads 16 bytes at a time, contiguously within a warp.
    bool inF32 = table.element.isF32() && (!base.e || base.element.isF32());
    if (inF32 && (k.part == 0 || k.part == 4))
      e.setWidest(4);
    const int64_t vectors = width / e.widthFor(width);
    parts = llvm::divideCeil(vectors, threads * (64 / e.widthFor(width)));
    partVectors = llvm::divideCeil(vectors, parts);
    pieces = llvm::divideCeil(partVectors, threads);
    switch (k.part) {
    case 0:
      clear();
      break;
    case 1:
      sortTiles();
      break;
    case 2:
      mergeTiles();
      break;
    case 3:
      addChunks();
      break;
    case 4:
      addRuns();
      break;
    }
  }

private:
  /// Part 0: sets the table to zeros, or to `base` if that is different memory.
  void clear() {
    k.forItems(1, rows * width, /*reduces=*/false, [&](Num) {
      auto fill = [&] {
        e.vectors(rows * width, [&](Num i, int64_t w) { table.store(base.e ? base.load(i, w) : e.zeros(w), i); });
      };
      if (base.e)
        e.when(areApart(base, table), fill);
      else
        fill();
    });
  }

  /// The sort key (i32) of the id at `i`: the id or, if there are several tables, its row among all of them. Ids that
  /// are in no table come after the rows.
  Num keyOf(Num i) {
    if (op.getTables() == 1)
      return ids.load(i);
    auto [row, inside] = localRow(k, op, i);
    return toI32(e.select(inside, row, e.integer(rows)));
  }

  /// Part 1: sorts each tile of ids. The new position of an id is the number of ids that come before it.
  void sortTiles() {
    const int64_t tile = at.tile, team = std::max<int64_t>(32, tile / 2);
    e.teams(at.padded / tile, team, 1, [&](Num number) {
      Num first = number * tile;
      Ptr own = e.shared(tile, e.b.getI32Type());
      // The tile is padded with larger ids.
      e.loop(e.rank, e.integer(tile), team, [&](Num i) {
        Num exists = first + i < e.integer(count), id = keyOf(e.select(exists, first + i, e.integer(0)));
        own.store(e.select(exists, id, integer32(e, INT32_MAX)), i);
      });
      e.barrier();
      e.loop(e.rank, e.integer(tile), team, [&](Num i) {
        Num id = own.load(i), larger = e.extend(id), orEqual = larger + 1;
        Num place = e.unrolled(e.integer(0), tile, 1, {e.integer(0)}, [&](Num j, const Emitter::Carried &before) {
          return Emitter::Carried{before[0] + one(e.extend(own.load(j)) < e.select(j < i, orEqual, larger))};
        })[0];
        word(at.tileIds).store(id, first + place);
        word(at.tilePlaces).store(toI32(first + i), first + place);
      });
      e.loop(e.rank, e.integer(tile / at.chunk), team,
             [&](Num i) { word(at.longRuns).store(integer32(e, -1), number * (tile / at.chunk) + i); });
    });
  }

  /// Part 2: an id's final position is the sum over tiles of the number of ids that come before it. Also computes each
  /// id's number in its run and the run's length.
  void mergeTiles() {
    const int64_t tile = at.tile, tiles = at.padded / tile;
    e.teams(at.padded, 1, 64, [&](Num i) {
      Num id = word(at.tileIds).load(i), own = i / e.integer(tile);
      auto below = [&](Num first, Num bound) { // the number of ids of a tile below `bound`
        Num low = e.integer(0);
        for (int64_t step = tile / 2; step >= 1; step /= 2) {
          Num there = word(at.tileIds).load(first + low + (step - 1));
          low = low + e.select(e.extend(there) < bound, e.integer(step), e.integer(0));
        }
        return low + one(e.extend(word(at.tileIds).load(first + low)) < bound);
      };
      Num id64 = e.extend(id), none = e.integer(0);
      auto sums = e.loop(none, e.integer(tiles), 1, {none, none, none}, [&](Num t, const Emitter::Carried &sums) {
        Num less = below(t * tile, id64), upTo = below(t * tile, id64 + 1);
        return Emitter::Carried{sums[0] + less, sums[1] + upTo,
                                sums[2] + e.select(t < own, upTo, e.select(own < t, less, none))};
      });
      Num place = sums[2] + i % e.integer(tile), number = place - sums[0], length = sums[1] - sums[0];
      word(at.places).store(word(at.tilePlaces).load(i), place);
      word(at.numbers).store(toI32(number), place);
      word(at.lengths).store(toI32(length), place);
      // Among the positions that one chunk spans, at most one run of several chunks begins.
      e.when((place < e.integer(count)) & (number < e.integer(1)) & (e.integer(at.chunk) < length),
             [&] { word(at.longRuns).store(toI32(place), place / e.integer(at.chunk)); });
    });
  }

  /// Part 3: adds the rows of each chunk. Chunks begin at every chunk-th id of a run. If a run has several chunks,
  /// their sums are kept.
  void addChunks() {
    forParts(count, [&](Num place) {
      Num number = wordAt(at.numbers, place), left = wordAt(at.lengths, place) - number;
      Num begins = number % e.integer(at.chunk) < e.integer(1);
      e.when(begins, [&] {
        Num here = wordAt(at.places, place);
        auto [row, inside] = localRow(k, op, here);
        e.when(counts(k, op, here, inside), [&, row = row] {
          Num end = place + e.min(left, e.integer(at.chunk));
          Emitter::Carried sums = add(place, end, [&](Num i, Num column, int64_t w) {
            return dy.load(wordAt(at.places, i) * width + column, w);
          });
          Num isWhole = (left + number) < e.integer(at.chunk + 1);
          e.when(
              isWhole, [&] { write(row, sums); },
              [&] {
                Num slot = sumSlot(place, number);
                store(sums,
                      [&](Num column, Num sum) { word(at.sums, e.b.getF32Type()).store(sum, slot * width + column); });
              });
        });
      });
    });
  }

  /// Part 4: adds the sums of the chunks of long runs.
  void addRuns() {
    forParts(at.padded / at.chunk, [&](Num stretch) {
      Num place = wordAt(at.longRuns, stretch);
      e.when(e.integer(-1) < place, [&] {
        Num here = wordAt(at.places, place);
        auto [row, inside] = localRow(k, op, here);
        e.when(counts(k, op, here, inside), [&, row = row] {
          Num chunks = (wordAt(at.lengths, place) + (at.chunk - 1)) / e.integer(at.chunk);
          write(row, add(e.integer(0), chunks, [&](Num chunk, Num column, int64_t w) {
                  Num slot = sumSlot(place + chunk * at.chunk, chunk);
                  return word(at.sums, e.b.getF32Type()).load(slot * width + column, w);
                }));
        });
      });
    });
  }

  /// The slot for the sum of the chunk that begins at `place`. Among the positions that one chunk spans, at most two
  /// chunks with kept sums begin: the last chunk of one run and the first chunk of the next run.
  Num sumSlot(Num place, Num number) { return place / e.integer(at.chunk) * 2 + one(e.integer(0) < number); }

  /// Runs one team for each part of a row. A part has as many columns as the team's threads can hold in registers.
  void forParts(int64_t number, llvm::function_ref<void(Num)> body) {
    e.teams(number * parts, threads, 1, [&](Num team) {
      part = parts > 1 ? std::optional(team % e.integer(parts)) : std::nullopt;
      body(parts > 1 ? team / e.integer(parts) : team);
    });
  }

  /// A vector of the row that this thread works on. If it does not exist (`exists` is false), `column` is the column of
  /// an existing vector.
  struct Piece {
    Num exists, column;
  };
  /// The vectors of a row that this thread adds up.
  SmallVector<Piece> own() {
    const int64_t vector = e.widthFor(width);
    SmallVector<Piece> own;
    for (int64_t p = 0; p < pieces; ++p) {
      Num number = e.rank + p * threads, exists = number < e.integer(partVectors);
      if (part) {
        number = *part * partVectors + number;
        exists = exists & (number < e.integer(width / vector));
      }
      own.push_back({exists, e.select(exists, number, e.integer(0)) * vector});
    }
    return own;
  }
  /// Sums rows [lo, hi) in order, reading four at a time.
  Emitter::Carried add(Num lo, Num hi, llvm::function_ref<Num(Num, Num, int64_t)> rowOf) {
    const int64_t vector = e.widthFor(width), ahead = 4;
    SmallVector<Piece> mine = own();
    auto trips = [&](Num lo, Num hi, int64_t rows, const Emitter::Carried &init) {
      return e.loop(lo, hi, rows, init, [&](Num i, const Emitter::Carried &before) {
        Emitter::Carried sums(before);
        for (int64_t r = 0; r < rows; ++r)
          for (auto [sum, piece] : llvm::zip_equal(sums, mine))
            sum = sum + rowOf(i + r, piece.column, vector);
        return sums;
      });
    };
    Num middle = lo + (hi - lo) / e.integer(ahead) * ahead;
    return trips(middle, hi, 1, trips(lo, middle, ahead, Emitter::Carried(pieces, e.zeros(vector))));
  }
  void store(const Emitter::Carried &sums, llvm::function_ref<void(Num, Num)> write) {
    for (auto [sum, piece] : llvm::zip_equal(sums, own()))
      e.when(piece.exists, [&, sum = sum, piece = piece] { write(piece.column, sum); });
  }
  /// Stores a row of the table, or adds to it if the gradient is a sum.
  void write(Num row, const Emitter::Carried &sums) {
    store(sums, [&](Num column, Num sum) {
      Num index = row * width + column;
      table.store(base.e ? table.load(index, sum.width()) + sum : sum, index);
    });
  }

  Ptr word(int64_t offset, Type element = {}) {
    Ptr words{&e, k.workspace.base, e.b.getI32Type()};
    return (words + e.integer(offset)).as(element ? element : e.b.getI32Type());
  }
  Num wordAt(int64_t offset, Num index) { return e.extend(word(offset).load(index)); }
  Num one(Num condition) { return e.select(condition, e.integer(1), e.integer(0)); }
  Num toI32(Num x) { return e.wrap(arith::TruncIOp::create(e.b, e.loc, e.b.getI32Type(), x.v)); }

  static constexpr int64_t threads = 128;
  EmbeddingGradOp op;
  Kernel &k;
  SimtEmitter &e;
  const EmbeddingSort at;
  Ptr base, dy, ids, table;
  int64_t rows, width, count;
  int64_t parts = 1, partVectors = 0, pieces = 0; ///< parts of a row; vectors of a part; vectors of a thread
  std::optional<Num> part;                        ///< the part of this team, if there are several
};
} // namespace

void pc::kernels::emitSimt(EmbeddingGradOp op, Kernel &kernel, Ptr base) {
  kernel.kind = "embedding";
  EmbeddingGrad(op, kernel, base).emit();
}
