//===- Embedding.cpp - Rows of a table by id, and the sum of gradients per id --------===//
// The lookup copies a row per id, or zeros if the row is on another rank. The gradient adds rows per id in the order of
// the ids, so that results are the same on every run; on a GPU, the ids are sorted for this purpose
// (SimtEmbeddingGrad.cpp).
//===-----------------------------------------------------------------------------===//
#include "Embedding.h"
#include "../Emit/RowMath.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// A padding token has a row in the table, but its gradient does not count.
Num pc::kernels::counts(Kernel &kernel, EmbeddingGradOp op, Num i, Num inside) {
  std::optional<int64_t> padding = op.getPadding();
  if (!padding)
    return inside;
  Emitter &e = kernel.e;
  Value id = kernel.operands[1].load(i).v, filler = integer32(e, *padding).v;
  return inside & e.wrap(arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ne, id, filler));
}

Num pc::kernels::areApart(Ptr a, Ptr b) {
  return a.e->wrap(LLVM::ICmpOp::create(a.e->b, a.e->loc, LLVM::ICmpPredicate::ne, a.base, b.base));
}

/// Copies one row of the table per id, or zeros if another rank has the row.
LogicalResult pc::kernels::emit(EmbeddingOp op, Kernel &kernel) {
  const int64_t width = op.getWidth();
  Emitter &e = kernel.e;
  Ptr table = kernel.operands[0], out = kernel.results[0];
  const int64_t ids = op.getIds().getType().getNumElements();
  kernel.items = ids;
  kernel.kind = "embedding";
  auto writeRow = [&](Num i, LocalRow row) {
    Ptr target = out + i * width;
    e.when(
        row.inside,
        [&] {
          Ptr source = table + row.row * width;
          e.vectors(width, [&](Num j, int64_t w) { target.store(source.load(j, w), j); });
        },
        [&] { e.vectors(width, [&](Num j, int64_t w) { target.store(e.zeros(w), j); }); });
  };
  if (kernel.simt) { // the runtime checks ids before it copies them to the device
    kernel.forItems(ids, width, /*reduces=*/false, [&](Num i) { writeRow(i, localRow(kernel, op, i)); });
    return success();
  }
  // Rows of ids outside of the block of a split table are zeros; ids outside of a whole table are an error.
  kernel.status = e.loop(kernel.lo, kernel.hi, 1, {e.integer(0)}, [&](Num i, const Emitter::Carried &status) {
    LocalRow row = localRow(kernel, op, i);
    writeRow(i, row);
    if (op.getOffset())
      return status;
    // `first` is 1 + the first id that is not in the table, or 0 if there is none yet. It becomes the kernel's status.
    Num first = e.select(e.inRange(status[0], e.integer(1)), i + 1, status[0]);
    return Emitter::Carried{e.select(row.inside, status[0], first)};
  })[0];
  return success();
}

/// Adds rows of gradients to the table without atomics: every element of the table belongs to one item.
LogicalResult pc::kernels::emit(EmbeddingGradOp op, Kernel &kernel, Ptr base) {
  if (kernel.simt) {
    emitSimt(op, kernel, base);
    return success();
  }
  const int64_t rows = op.getTables() * op.getRows(), width = op.getWidth();
  const int64_t ids = op.getIds().getType().getNumElements();
  // An item owns a rectangle of the table: it clears the rectangle, then goes through all ids in order and adds their
  // gradients in it. In a large table most of the work is clearing, so an item owns rows. In a small table most of the
  // work is adding, which is balanced if an item owns columns.
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
      auto [row, inside] = localRow(kernel, op, i);
      e.when(counts(kernel, op, i, inside & e.inRange(row - start, end - start)), [&, row = row] {
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
