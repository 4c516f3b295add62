//===- Embedding.cpp - Rows of a table by id, and the sum of gradients per id --------===//
#include "../RowMath.h"
#include "Kernels.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

static RankedTensorType tensorOf(Value v) { return cast<RankedTensorType>(v.getType()); }

/// The row of this rank's block of the table for the id at `i`; may lie outside of the block.
static Num localRow(Kernel &kernel, Num i, bool hasOffset) {
  Emitter &e = kernel.e;
  Num row = e.extend(kernel.operands[1].load(i));
  return hasOffset ? row - e.extend(kernel.operands[2].load(e.integer(0))) : row;
}

/// Whether the id at `i` adds to the gradient: it is `inside` of the block and not the padding id.
static Num counts(Kernel &kernel, EmbeddingGradOp op, Num i, Num inside) {
  std::optional<int64_t> padding = op.getPadding();
  if (!padding)
    return inside;
  Emitter &e = kernel.e;
  Value id = kernel.operands[1].load(i).v, filler = integer32(e, *padding).v;
  return inside & e.wrap(arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ne, id, filler));
}

/// Whether two buffers have different addresses.
static Num areApart(Ptr a, Ptr b) {
  return a.e->wrap(LLVM::ICmpOp::create(a.e->b, a.e->loc, LLVM::ICmpPredicate::ne, a.base, b.base));
}

LogicalResult pc::kernels::emit(EmbeddingOp op, Kernel &kernel) {
  const int64_t rows = tensorOf(op.getTable()).getShape()[0], width = tensorOf(op.getTable()).getShape()[1];
  const bool hasOffset = bool(op.getOffset());
  Emitter &e = kernel.e;
  Ptr table = kernel.operands[0], out = kernel.results[0];
  const int64_t ids = tensorOf(op.getIds()).getNumElements();
  kernel.items = ids;
  kernel.kind = "embedding";
  auto writeRow = [&](Num i, Num row, Num inside) {
    Ptr target = out + i * width;
    e.when(
        inside,
        [&] {
          Ptr source = table + row * width;
          e.vectors(width, [&](Num j, int64_t w) { target.store(source.load(j, w), j); });
        },
        [&] { e.vectors(width, [&](Num j, int64_t w) { target.store(e.zeros(w), j); }); });
  };
  if (kernel.simt) { // the runtime checks ids before they get to the device
    kernel.forItems(ids, width, /*reduces=*/false, [&](Num i) {
      Num row = localRow(kernel, i, hasOffset);
      writeRow(i, row, e.inRange(row, e.integer(rows)));
    });
    return success();
  }
  // Rows of ids outside of the block of a split table are zeros; ids outside of a whole table are an error.
  kernel.status = e.loop(kernel.lo, kernel.hi, 1, {e.integer(0)}, [&](Num i, const Emitter::Carried &status) {
    Num row = localRow(kernel, i, hasOffset), inside = e.inRange(row, e.integer(rows));
    writeRow(i, row, inside);
    if (hasOffset)
      return status;
    Num first = e.select(e.inRange(status[0], e.integer(1)), i + 1, status[0]);
    return Emitter::Carried{e.select(inside, status[0], first)};
  })[0];
  return success();
}

/// Part 0 clears the table, or copies `base` into it. In part 1 the item of the first of equal ids sums the rows of all
/// of them, in order; this needs no atomics.
static LogicalResult emitGradSimt(EmbeddingGradOp op, Kernel &kernel, Ptr base) {
  const int64_t rows = tensorOf(op.getResult()).getShape()[0], width = tensorOf(op.getResult()).getShape()[1];
  const int64_t ids = tensorOf(op.getIds()).getNumElements();
  const bool hasOffset = bool(op.getOffset());
  SimtEmitter &e = *kernel.simt;
  Ptr dy = kernel.operands[0], idAt = kernel.operands[1], table = kernel.results[0];
  kernel.kind = "embedding";
  if (kernel.part == 0) {
    kernel.forItems(1, rows * width, /*reduces=*/false, [&](Num) {
      if (base.e)
        e.when(areApart(base, table),
               [&] { e.vectors(rows * width, [&](Num i, int64_t w) { table.store(base.load(i, w), i); }); });
      else
        e.vectors(rows * width, [&](Num i, int64_t w) { table.store(e.zeros(w), i); });
    });
    return success();
  }
  const int64_t threads = 128, vector = e.widthFor(width), pieces = llvm::divideCeil(width / vector, threads);
  if (pieces * vector > 64)
    return op.emitOpError() << "has no CUDA kernel for rows of " << width << " elements";
  kernel.items = ids;
  e.teams(ids, threads, 1, [&](Num i) {
    Num mine = idAt.load(i), row = localRow(kernel, i, hasOffset), end = e.integer(ids);
    Num earlier = e.loop(e.rank, i, threads, {e.real(0)}, [&](Num j, const Emitter::Carried &found) {
      return Emitter::Carried{e.select(equal(idAt.load(j), mine), e.real(1), found[0])};
    })[0];
    Num isFirst = e.across({true}, {earlier})[0] < e.real(0.5);
    e.when(counts(kernel, op, i, isFirst & e.inRange(row, e.integer(rows))), [&] {
      SmallVector<Num> columns, exists;
      for (int64_t p = 0; p < pieces; ++p) {
        Num at = e.rank + p * threads;
        exists.push_back(at < e.integer(width / vector));
        columns.push_back(e.select(exists.back(), at, e.integer(0)) * vector);
      }
      // Compares 32 ids at a time, and gets a bit for each that matches.
      Num lane = e.rank % e.integer(32);
      Emitter::Carried zeros(pieces, e.zeros(vector));
      Emitter::Carried sums =
          e.loop(i / e.integer(32) * 32, end, 32, zeros, [&](Num base, const Emitter::Carried &before) {
            Num j = base + lane, inside = j < end;
            Num matches = e.matches(equal(idAt.load(e.select(inside, j, i)), mine) & inside & e.notBefore(j, i));
            return e.choose(equal(matches, integer32(e, 0)), before, [&] {
              return e.loop(e.integer(0), e.integer(32), 1, before, [&](Num bit, const Emitter::Carried &sums) {
                return e.choose(e.bitClear(matches, bit), sums, [&] {
                  Emitter::Carried next;
                  for (int64_t p = 0; p < pieces; ++p)
                    next.push_back(sums[p] + dy.load((base + bit) * width + columns[p], vector));
                  return next;
                });
              });
            });
          });
      for (int64_t p = 0; p < pieces; ++p)
        e.when(exists[p], [&] {
          Num at = row * width + columns[p];
          table.store(base.e ? table.load(at, vector) + sums[p] : sums[p], at);
        });
    });
  });
  return success();
}

LogicalResult pc::kernels::emit(EmbeddingGradOp op, Kernel &kernel, Ptr base) {
  if (kernel.simt)
    return emitGradSimt(op, kernel, base);
  const int64_t rows = tensorOf(op.getResult()).getShape()[0], width = tensorOf(op.getResult()).getShape()[1];
  const int64_t ids = tensorOf(op.getIds()).getNumElements();
  const bool hasOffset = bool(op.getOffset());
  // An item owns a rectangle of the table: it clears it, then goes through all ids in order and adds their parts in it.
  // In a large table most of the work is clearing, so an item owns rows. In a small one it is adding, which columns
  // share evenly.
  const bool large = rows > 4096;
  const int64_t rowBlock = large ? (rows + 63) / 64 : rows, columnBlock = large ? width : std::min<int64_t>(64, width);
  const int64_t rowItems = (rows + rowBlock - 1) / rowBlock, columnItems = (width + columnBlock - 1) / columnBlock;

  Emitter &e = kernel.e;
  kernel.items = rowItems * columnItems;
  kernel.kind = "embedding";

  auto rectangle = [&](Num start, Num end, Num column, int64_t columns) {
    Ptr dy = kernel.operands[0] + column, table = kernel.results[0] + column;
    if (base.e)
      e.when(areApart(base, kernel.results[0]), [&] {
        e.loop(start, end, 1, [&](Num row) {
          Ptr source = base + column + row * width, target = table + row * width;
          e.vectors(columns, [&](Num j, int64_t w) { target.store(source.load(j, w), j); });
        });
      });
    else if (columns == width)
      (table + start * width).clear((end - start) * width);
    else
      e.loop(start, end, 1, [&](Num row) { (table + row * width).clear(e.integer(columns)); });
    e.loop(e.integer(0), e.integer(ids), 1, [&](Num i) {
      Num row = localRow(kernel, i, hasOffset);
      e.when(counts(kernel, op, i, e.inRange(row - start, end - start)), [&] {
        Ptr source = dy + i * width, target = table + row * width;
        e.vectors(columns, [&](Num j, int64_t w) { target.store(target.load(j, w) + source.load(j, w), j); });
      });
    });
  };
  e.loop(kernel.lo, kernel.hi, 1, [&](Num item) {
    Num start = item / columnItems * rowBlock, end = e.min(start + rowBlock, e.integer(rows));
    Num column = item % columnItems * columnBlock;
    int64_t full = width / columnBlock * columnBlock;
    auto wide = [&] { rectangle(start, end, column, columnBlock); };
    auto narrow = [&] { rectangle(start, end, e.integer(full), width - full); };
    if (full == width)
      wide();
    else
      e.when(column < e.integer(full), wide, narrow);
  });
  return success();
}
