//===- Tiles.cpp - Small matrix products and copies inside one kernel ---------------===//
// Products of matrices that are small enough for the cache, which attention uses on a CPU. Register tiles have a few
// rows and one or two vectors. Copies pad matrices, pack pairs of bf16, or transpose, so that tiles have no edge cases.
//===-----------------------------------------------------------------------------===//
#include "Tiles.h"

using namespace mlir;
using namespace pc::kernels;

/// Computes one register tile at (i, j), `columns` vectors wide.
static void tile(Emitter &e, Factors factors, Num i, Num j, int64_t columns, Num k, Matrix a, Matrix b, Matrix c,
                 bool accumulate) {
  const int64_t rows = tileRows(e.lanes);
  auto at = [&](int64_t r, int64_t v) { return (i + r) * c.rowStride + j + v * e.lanes; };
  Emitter::Carried sums;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < columns; ++v)
      sums.push_back(accumulate ? c.data.load(at(r, v), e.lanes) : e.zeros(e.lanes));
  // The sums of a tile stay in registers during the whole loop over k.
  Ptr aTile = a.data + i * a.rowStride, bTile = b.data + j;
  sums = e.loop(e.integer(0), k, 1, sums, [&](Num l, const Emitter::Carried &carried) {
    Emitter::Carried next, bs;
    Ptr aColumn = aTile + l * a.columnStride, bRow = bTile + l * b.rowStride;
    for (int64_t v = 0; v < columns; ++v)
      bs.push_back(bRow.load(e.integer(v * e.lanes), e.lanes));
    for (int64_t r = 0; r < rows; ++r) {
      Num value = e.splat(aColumn.load(e.integer(r * a.rowStride)), e.lanes);
      for (int64_t v = 0; v < columns; ++v)
        next.push_back(factors == Factors::words ? e.addProducts(value, bs[v], carried[r * columns + v])
                                                 : e.fma(value, bs[v], carried[r * columns + v]));
    }
    return next;
  });
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < columns; ++v)
      c.data.store(sums[r * columns + v], at(r, v));
}

/// Whole tiles of two vectors of columns come first, then one vector if the number is odd.
void pc::kernels::product(Emitter &e, Factors factors, Num m, Num n, bool oddVector, Num k, Matrix a, Matrix b,
                          Matrix c, bool accumulate) {
  Num zero = e.integer(0);
  auto column = [&](Num j, int64_t vectors) {
    e.loop(zero, m, tileRows(e.lanes), [&](Num i) { tile(e, factors, i, j, vectors, k, a, b, c, accumulate); });
  };
  e.loop(zero, n, tileColumns(e.lanes), [&](Num j) { column(j, 2); });
  if (oddVector)
    column(n, 1);
}

/// Rows after the last one, and columns after the last one, become zeros.
void pc::kernels::copyPadded(Emitter &e, Num rows, Num paddedRows, int64_t columns, int64_t paddedColumns, Matrix from,
                             Matrix to) {
  e.loop(e.integer(0), rows, 1, [&](Num i) {
    Ptr source = from.data + i * from.rowStride, target = to.data + i * to.rowStride;
    e.vectors(columns, [&](Num j, int64_t width) { target.store(source.load(j, width), j); });
    if (columns < paddedColumns)
      target.store(e.zeros(paddedColumns - columns), e.integer(columns));
  });
  e.loop(rows, paddedRows, 1, [&](Num i) { zeroFill(e, to.data + i * to.rowStride, paddedColumns); });
}

/// Pairs of rows are interleaved for instructions that multiply pairs of bf16.
void pc::kernels::packPadded(Emitter &e, Factors factors, Num rows, Num paddedRows, int64_t columns,
                             int64_t paddedColumns, Matrix from, Matrix to) {
  if (factors == Factors::numbers)
    return copyPadded(e, rows, paddedRows, columns, paddedColumns, from, to);
  e.loop(e.integer(0), paddedRows / 2, 1, [&](Num i) {
    Ptr target = to.data + i * to.rowStride;
    auto load = [&](Num row, Num j, int64_t width) {
      Ptr source = from.data + e.min(row, rows - 1) * from.rowStride;
      return e.select(row < rows, source.load(j, width), e.zeros(width));
    };
    e.vectors(columns, [&](Num j, int64_t width) {
      target.store(e.words(load(2 * i, j, width), load(2 * i + 1, j, width)), j);
    });
    if (columns < paddedColumns)
      target.store(e.zeros(paddedColumns - columns), e.integer(columns));
  });
}

/// Transposes `lanes` vectors of `lanes` elements in place: log2(lanes) rounds that exchange blocks of doubling size.
static void transposeRegisters(Emitter &e, SmallVectorImpl<Num> &rows) {
  const int64_t n = e.lanes;
  for (int64_t size = 1; size < n; size *= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < n; ++i) {
      bool right = i & size;
      low.push_back(right ? n + i - size : i);
      high.push_back(right ? n + i : i + size);
    }
    for (int64_t r = 0; r < n; ++r) {
      if (r & size)
        continue;
      Value a = rows[r].v, b = rows[r + size].v;
      rows[r] = e.wrap(vector::ShuffleOp::create(e.b, e.loc, a, b, low));
      rows[r + size] = e.wrap(vector::ShuffleOp::create(e.b, e.loc, a, b, high));
    }
  }
}

/// Transposes the block at (i, j), which has only `rows` x `columns` elements.
static void transposeBlock(Emitter &e, Num i, Num j, int64_t rows, int64_t columns, Matrix from, Matrix to) {
  SmallVector<int64_t> widen;
  for (int64_t c = 0; c < e.lanes; ++c)
    widen.push_back(std::min(c, columns));
  SmallVector<Num> block;
  for (int64_t r = 0; r < e.lanes; ++r) {
    if (r >= rows) {
      block.push_back(e.zeros(e.lanes));
      continue;
    }
    Num row = from.data.load((i + r) * from.rowStride + j, columns);
    if (columns < e.lanes)
      row = e.wrap(vector::ShuffleOp::create(e.b, e.loc, row.v, row.v, widen));
    block.push_back(row);
  }
  transposeRegisters(e, block);
  for (int64_t c = 0; c < columns; ++c)
    to.data.store(block[c], (j + c) * to.rowStride + i);
}

/// Works on square blocks of vectors, and on the remaining elements at the sides.
void pc::kernels::transposePadded(Emitter &e, int64_t rows, int64_t columns, Matrix from, Matrix to) {
  auto stripe = [&](Num i, int64_t height) {
    int64_t full = columns / e.lanes * e.lanes;
    if (full)
      e.loop(e.integer(0), e.integer(full), e.lanes,
             [&](Num j) { transposeBlock(e, i, j, height, e.lanes, from, to); });
    if (full < columns)
      transposeBlock(e, i, e.integer(full), height, columns - full, from, to);
  };
  int64_t full = rows / e.lanes * e.lanes;
  if (full)
    e.loop(e.integer(0), e.integer(full), e.lanes, [&](Num i) { stripe(i, e.lanes); });
  if (full < rows)
    stripe(e.integer(full), rows - full);
  // The written columns end at a full vector; rows of `to` may be longer.
  int64_t written = roundUp(rows, e.lanes);
  if (written < to.rowStride)
    e.loop(e.integer(0), e.integer(columns), 1,
           [&](Num j) { zeroFill(e, to.data + (j * to.rowStride + written), to.rowStride - written); });
}

void pc::kernels::zeroFill(Emitter &e, Ptr x, int64_t n) {
  e.loop(e.integer(0), e.integer(n), e.lanes, [&](Num i) { x.store(e.zeros(e.lanes), i); });
}
