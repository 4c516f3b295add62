//===- MmaOnRows.cpp - Products of rows on tensor cores, on a GPU --------------------===//
// A block has four warps, each with a quarter of the block's sums. The summed dim passes through shared memory, 32
// elements at a time, in two buffers: cp.async copies one while mma.sync multiplies the other. Lines are padded by 16
// bytes, so that the eight rows of a matrix that ldmatrix loads are in different banks.
//===-----------------------------------------------------------------------------===//
#include "../Mma.h"
#include "OnRows.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
constexpr int64_t depth = 32, threads = 128, inCopy = 8, padding = 8, piece = 16;

/// An operand's tile in shared memory. Its shape is [side, depth] if `deep`, otherwise [depth, side].
struct Tile {
  int64_t side;
  bool deep;
  Ptr memory = {};

  int64_t width() const { return deep ? depth : side; }
  int64_t lines() const { return deep ? side : depth; }
  int64_t pitch() const { return width() + padding; }
  int64_t elements() const { return lines() * pitch(); }
  /// The number of copies that a thread makes for a tile.
  int64_t trips() const { return lines() * width() / inCopy / threads; }
};

/// Multiplies a tile of rows by a tile of columns in one block: stages chunks of both in shared memory, multiplies
/// them, and gives each thread its sums. begin() must be called first.
class TileProduct {
public:
  using Carried = OnRows::Carried;

  TileProduct(OnRows &on, Tile left, Tile right) : e(on.e), left(left), right(right) {}

  /// Allocates shared memory. Must be called first inside the kernel.
  void begin() {
    for (Tile *tile : {&left, &right})
      tile->memory = e.shared(2 * tile->elements(), e.b.getBF16Type());
    Num warp = e.rank / 32, lane = e.rank % 32;
    line = lane % 8, odd = lane / 8 % 2 * 8, upper = lane / 16 * 8;
    row = warp / 2 * rows() + lane / 4, column = warp % 2 * columns() + lane % 4 * 2;
    firstRow = warp / 2 * rows(), firstColumn = warp % 2 * columns();
  }

  const Tile &leftTile() const { return left; }
  const Tile &rightTile() const { return right; }

  /// The position of this thread's copy number `trip`: its line and the element in it.
  std::pair<Num, Num> place(const Tile &tile, int64_t trip) {
    Num i = e.rank + trip * threads;
    return {i / (tile.width() / inCopy), i % (tile.width() / inCopy) * inCopy};
  }
  /// The source of a copy: its offset in `from`, and whether it exists (null: it does). If it does not, zeros are
  /// written.
  struct Source {
    Num at, exists;
  };
  /// Starts to copy a tile to the buffer at `buffer` in shared memory, 16 bytes per thread at a time. at(trip, line,
  /// element) returns the source; elements that do not exist become 0.
  void stage(const Tile &tile, Num buffer, Ptr from, llvm::function_ref<Source(int64_t, Num, Num)> at) {
    for (int64_t trip = 0; trip < tile.trips(); ++trip) {
      auto [own, element] = place(tile, trip);
      Ptr to = tile.memory + (buffer * tile.elements() + own * tile.pitch() + element);
      Source source = at(trip, own, element);
      auto copy = [&] { e.copyAsync(from + source.at, to, 16); };
      if (source.exists.v)
        e.when(source.exists, copy, [&] { to.store(e.zeros(inCopy), e.integer(0)); });
      else
        copy();
    }
  }

  /// Writes a tile of numbers that are computed to the buffer at `buffer`: read(line, element) returns `inCopy` of
  /// them.
  void stageNumbers(const Tile &tile, Num buffer, llvm::function_ref<Num(Num, Num)> read) {
    for (int64_t trip = 0; trip < tile.trips(); ++trip) {
      auto [own, element] = place(tile, trip);
      (tile.memory + (buffer * tile.elements() + own * tile.pitch() + element)).store(read(own, element), e.integer(0));
    }
  }

  /// The sums over [lo, hi), a chunk at a time: stageBoth(first of a chunk, number of the buffer) starts its copies.
  Carried sum(Num lo, Num hi, llvm::function_ref<void(Num, Num)> stageBoth) {
    auto start = [&](Num first) {
      stageBoth(first, (first - lo) / depth % 2);
      e.commitCopies();
    };
    e.when(lo < hi, [&] { start(lo); });
    Carried none(rows() * columns() / 32, e.real(0));
    return e.loop(lo, hi, depth, none, [&](Num first, const Carried &before) {
      e.waitForCopies();
      e.barrier(); // the chunk has arrived, and no thread reads the previous one
      Num next = first + depth;
      e.when(next < hi, [&] { start(next); });
      Carried sums(before);
      multiply((first - lo) / depth % 2, sums);
      return sums;
    });
  }

  /// Writes pairs of sums to each row i of the block for which exists(i) holds. Row i begins at lineAt(i). Columns from
  /// `first` on are written if they are below n.
  void write(const Carried &sums, Ptr to, Num first, int64_t n, llvm::function_ref<Num(Num)> exists,
             llvm::function_ref<Num(Num)> lineAt) {
    auto pairType = VectorType::get(2, e.b.getF32Type());
    for (int64_t i = 0; i < rows() / piece; ++i)
      for (int64_t r = 0; r < 2; ++r) {
        Num line = row + (piece * i + 8 * r);
        e.when(exists(line), [&] {
          Num begin = lineAt(line);
          for (int64_t j = 0; j < columns() / 8; ++j) {
            size_t at = (i * (columns() / 8) + j) * 4 + 2 * r;
            Value pair = vector::FromElementsOp::create(e.b, e.loc, pairType, ValueRange{sums[at].v, sums[at + 1].v});
            Num place = first + column + 8 * j;
            e.when(place < e.integer(n), [&] { to.store(e.wrap(pair), begin + place); });
          }
        });
      }
  }

private:
  /// The rows and columns of a warp.
  int64_t rows() const { return left.side / 2; }
  int64_t columns() const { return right.side / 2; }

  /// sums += a chunk of the left operand times a chunk of the right operand.
  void multiply(Num buffer, Carried &sums) {
    auto begin = [&](const Tile &tile, Num first) {
      return tile.memory + (buffer * tile.elements() + first * (tile.deep ? tile.pitch() : 1));
    };
    // The position of this thread's row in four 8 x 8 matrices. Those of the left operand are ordered by rows first.
    auto own = [&](const Tile &tile, Num ofSide, Num ofDepth) {
      Num atSide = tile.deep ? ofSide + line : ofSide, atDepth = tile.deep ? ofDepth : ofDepth + line;
      return tile.deep ? atSide * tile.pitch() + atDepth : atDepth * tile.pitch() + atSide;
    };
    Ptr a = begin(left, firstRow) + own(left, odd, upper), b = begin(right, firstColumn) + own(right, upper, odd);
    auto next = [&](const Tile &tile, int64_t inSide, int64_t inDepth) {
      return e.integer(piece * (tile.deep ? inSide * tile.pitch() + inDepth : inDepth * tile.pitch() + inSide));
    };
    for (int64_t d = 0; d < depth / piece; ++d) {
      SmallVector<SmallVector<Value, 4>> lefts;
      for (int64_t i = 0; i < rows() / piece; ++i)
        lefts.push_back(loadMatrices(e, a + next(left, i, d), /*transposed=*/!left.deep));
      for (int64_t j = 0; j < columns() / piece; ++j) {
        auto rights = loadMatrices(e, b + next(right, j, d), /*transposed=*/!right.deep);
        for (int64_t i = 0; i < rows() / piece; ++i)
          for (int64_t half = 0; half < 2; ++half)
            multiplyPieces(e, MutableArrayRef(sums).slice((i * (columns() / 8) + 2 * j + half) * 4, 4), lefts[i],
                           ArrayRef(rights).slice(2 * half, 2));
      }
    }
  }

  SimtEmitter &e;
  Tile left, right;
  Num line, odd, upper;      ///< this thread's position among the matrices that it loads
  Num firstRow, firstColumn; ///< position of this warp's sums in the block
  Num row, column;           ///< position of this thread's first sum
};

int64_t sideFor(int64_t n) { return n > 64 ? 128 : 64; }
} // namespace

bool pc::kernels::suitsTensorCores(const OnRows &on) {
  const pcrt_gemm_desc &d = on.d;
  bool isProduct = d.grouped != PCRT_GROUPED_GRADIENT;
  return on.a.element.isBF16() && (on.b.element.isBF16() || on.weights.areCodes()) && d.n % inCopy == 0 &&
         (isProduct ? d.k : d.m) % inCopy == 0;
}

/// Multiplies the rows of one expert by its weights. The rows of a tile may be scattered over the tokens.
void pc::kernels::emitProductByTensorCores(OnRows &on) {
  SimtEmitter &e = on.e;
  const pcrt_gemm_desc &d = on.d;
  const int64_t side = sideFor(d.n);
  // If the depth is a multiple of the tile's depth, no copy needs a check of its end.
  const bool whole = d.k % depth == 0;
  TileProduct m(on, {on.tile, /*deep=*/true}, {side, d.b_n_stride != 1});
  forRowBlocks(on, threads, on.tile, side, [&](const RowBlock &block) {
    m.begin();
    auto exists = [&](Num line) { return block.first + line < block.end; };
    // Lines after the last row of the expert read the block's first row, so that loads stay inside of the buffer.
    OnRows::Carried rows; // offsets of this thread's rows of a; rows that do not exist are not stored
    for (int64_t trip = 0; trip < m.leftTile().trips(); ++trip) {
      Num line = m.place(m.leftTile(), trip).first;
      rows.push_back(on.rowAt(d.a_lies, e.select(exists(line), block.first + line, block.first), d.k));
    }
    Num weights = block.expert * d.b_batch_stride, end = e.integer(d.k);
    // Elements beyond the end of the depth are copied as zeros, which add nothing to the sums.
    auto ifThere = [&](Num at) { return whole ? Num() : at < end; };
    auto sums = m.sum(e.integer(0), end, [&](Num first, Num buffer) {
      m.stage(m.leftTile(), buffer, on.a, [&](int64_t trip, Num, Num element) {
        return TileProduct::Source{rows[trip] + first + element, ifThere(first + element)};
      });
      auto placeOf = [&](Num line, Num element) {
        Num inDepth = first + (m.rightTile().deep ? element : line);
        Num column = block.column + (m.rightTile().deep ? line : element);
        // A column beyond the last one reads column 0; its sums are not stored.
        if (d.n % side)
          column = e.select(column < e.integer(d.n), column, e.integer(0));
        return std::pair(inDepth, column);
      };
      if (on.weights.areCodes())
        return m.stageNumbers(m.rightTile(), buffer, [&](Num line, Num element) {
          auto [inDepth, column] = placeOf(line, element);
          Num exists = inDepth < end, at = whole ? inDepth : e.select(exists, inDepth, e.integer(0));
          Num values = on.weights.load(block.expert, at, column, inCopy);
          return whole ? values : e.select(exists, values, e.zeros(inCopy));
        });
      m.stage(m.rightTile(), buffer, on.b, [&](int64_t, Num line, Num element) {
        auto [inDepth, column] = placeOf(line, element);
        return TileProduct::Source{weights + inDepth * d.b_k_stride + column * d.b_n_stride, ifThere(inDepth)};
      });
    });
    auto lineAt = [&](Num line) { return (block.first + line) * d.n; };
    m.write(sums, d.c_lies == PCRT_LIES_TOKENS ? on.made() : on.c, block.column, d.n, exists, lineAt);
  });
}

/// The gradient of an expert's weights. The summed dim is the expert's rows.
void pc::kernels::emitGradientByTensorCores(OnRows &on) {
  SimtEmitter &e = on.e;
  const pcrt_gemm_desc &d = on.d;
  const int64_t height = sideFor(d.m), width = sideFor(d.n);
  const int64_t rows = llvm::divideCeil(d.m, height), columns = llvm::divideCeil(d.n, width);
  TileProduct m(on, {height, /*deep=*/false}, {width, /*deep=*/false});
  e.teams(on.at->experts * rows * columns, threads, 1, [&](Num item) {
    m.begin();
    Num expert = item / (rows * columns), row = item / columns % rows * height, column = item % columns * width;
    Num first = on.entry(on.at->firstRows, expert), end = on.entry(on.at->firstRows, expert + 1);
    auto sums = m.sum(first, end, [&](Num chunk, Num buffer) {
      auto stage = [&](const Tile &tile, Ptr from, int32_t lies, int64_t extent, Num begin) {
        m.stage(tile, buffer, from, [&](int64_t, Num line, Num element) {
          Num number = chunk + line, place = begin + element, exists = number < end;
          if (extent % tile.side)
            place = e.select(place < e.integer(extent), place, e.integer(0));
          return TileProduct::Source{on.rowAt(lies, e.select(exists, number, first), extent) + place, exists};
        });
      };
      stage(m.leftTile(), on.a, d.a_lies, d.m, row);
      stage(m.rightTile(), on.b, d.b_lies, d.n, column);
    });
    auto exists = [&](Num line) { return row + line < e.integer(d.m); };
    auto lineAt = [&](Num line) { return expert * d.c_batch_stride + (row + line) * d.c_m_stride; };
    m.write(sums, on.c, column, d.n, exists, lineAt);
  });
}
