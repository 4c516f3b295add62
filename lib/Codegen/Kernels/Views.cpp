//===- Views.cpp - Kernels that bring elements to other places --------------------------===//
// pc.columns and pc.resize copy a part of a dim and fill the rest with zeros; all elements after the dim are
// contiguous. pc.reshape copies the whole operand, unless the result is in the operand's memory.
//===-----------------------------------------------------------------------------===//
#include "../Emit/RowMath.h"
#include "Embedding.h"
#include "pc/IR/Shapes.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// Zero, for an element of `to`.
static Num zeroOf(Ptr to) { return to.element.isInteger(32) ? integer32(*to.e, 0) : to.e->real(0); }

/// Writes `outer` rows of `written` elements: element i is element i + `from` of the row of x, which has `read`
/// elements, or 0.
static void copyRows(Kernel &kernel, int64_t outer, int64_t read, int64_t written, int64_t from) {
  // The elements of the result that come from x.
  const int64_t begin = std::clamp<int64_t>(-from, 0, written), end = std::clamp<int64_t>(read - from, begin, written);
  Emitter &e = kernel.e;
  Ptr x = kernel.operands[0], y = kernel.results[0];
  if (kernel.simt) { // rows start anywhere, so vectors would not be aligned
    kernel.forItems(outer * written, 1, /*reduces=*/false, [&](Num item) {
      Num column = item % written;
      auto copy = [&] { y.store(x.load(item / written * read + column + from), item); };
      if (begin == 0 && end == written)
        return copy();
      e.when(e.inRange(column - begin, e.integer(end - begin)), copy, [&] { y.store(zeroOf(y), item); });
    });
    return;
  }
  // Long rows are divided into pieces, so that there is work for all threads. The zeros around a row are written with
  // its last piece.
  const int64_t stretch = 4096, full = (end - begin) / stretch, pieces = full + 1, rest = (end - begin) % stretch;
  kernel.forItems(outer * pieces, std::min(written, stretch), /*reduces=*/false, [&](Num item) {
    Num row = item / pieces, first = item % pieces * stretch;
    Ptr to = y + row * written;
    auto copy = [&](int64_t n) {
      Ptr in = x + row * read;
      e.vectors(n,
                [&](Num i, int64_t width) { to.store(in.load(first + i + (begin + from), width), first + i + begin); });
    };
    auto last = [&] {
      if (begin)
        to.clear(e.integer(begin));
      if (rest)
        copy(rest);
      if (end < written)
        (to + e.integer(end)).clear(e.integer(written - end));
    };
    if (full)
      e.when(first < e.integer(full * stretch), [&] { copy(stretch); }, last);
    else
      last();
  });
}

/// The number of elements before dim `dim` of `value`, and after it.
static std::pair<int64_t, int64_t> around(Value value, int64_t dim) {
  ArrayRef<int64_t> shape = shapeOf(value);
  return {ShapedType::getNumElements(shape.take_front(dim)), ShapedType::getNumElements(shape.drop_front(dim + 1))};
}

LogicalResult pc::kernels::emit(ResizeOp op, Kernel &kernel) {
  const int64_t dim = op.getDim();
  auto [outer, inner] = around(op.getX(), dim);
  kernel.kind = "copy";
  copyRows(kernel, outer, shapeOf(op.getX())[dim] * inner, shapeOf(op.getResult())[dim] * inner, 0);
  return success();
}

/// If step and `every` are 1, copies contiguous stretches; otherwise copies entry by entry.
LogicalResult pc::kernels::emit(ColumnsOp op, Kernel &kernel) {
  const int64_t dim = op.along(), read = shapeOf(op.getX())[dim], written = shapeOf(op.getResult())[dim];
  auto [outer, inner] = around(op.getX(), dim);
  const auto from = static_cast<int64_t>(op.getFrom()), step = static_cast<int64_t>(op.getStep()),
             every = static_cast<int64_t>(op.getEvery());
  kernel.kind = "copy";
  if (step == 1 && every == 1) {
    copyRows(kernel, outer, read * inner, written * inner, from * inner);
    return success();
  }
  Emitter &e = kernel.e;
  Ptr x = kernel.operands[0], y = kernel.results[0];
  kernel.forItems(outer * written, inner, /*reduces=*/false, [&, inner = inner](Num item) {
    Num place = item % written * step + from, entry = item / written * read + place / every;
    Num exists = e.inRange(place, e.integer((read - 1) * every + 1)) & (place % every < e.integer(1));
    Ptr to = y + item * inner;
    e.when(
        exists,
        [&] {
          Ptr in = x + entry * inner;
          e.vectors(inner, [&](Num i, int64_t width) { to.store(in.load(i, width), i); });
        },
        [&] { e.vectors(inner, [&](Num i, int64_t width) { to.store(e.splat(zeroOf(to), width), i); }); });
  });
  return success();
}

/// An item is a piece of an entry of the stack.
static void copyEntries(Kernel &kernel, int64_t entries, int64_t elements,
                        llvm::function_ref<Num(int64_t entry, Num element, int64_t width)> load) {
  Emitter &e = kernel.e;
  Ptr y = kernel.results[0];
  kernel.kind = "copy";
  const int64_t stretch = std::min<int64_t>(elements, 4096), full = elements / stretch, rest = elements % stretch;
  const int64_t pieces = full + (rest > 0);
  kernel.forItems(entries * pieces, stretch, /*reduces=*/false, [&](Num item) {
    for (int64_t entry = 0; entry < entries; ++entry) {
      Num piece = item - entry * pieces, first = piece * stretch;
      auto copy = [&](int64_t count) {
        e.vectors(count,
                  [&](Num i, int64_t width) { y.store(load(entry, first + i, width), first + i + entry * elements); });
      };
      e.when(e.inRange(piece, e.integer(pieces)), [&] {
        if (rest)
          e.when(piece < e.integer(full), [&] { copy(stretch); }, [&] { copy(rest); });
        else
          copy(stretch);
      });
    }
  });
}

LogicalResult pc::kernels::emit(StackOp op, Kernel &kernel) {
  ArrayRef<int64_t> shape = shapeOf(op.getResult());
  const auto inputs = static_cast<int64_t>(op.getInputs().size());
  copyEntries(kernel, shape[0], ShapedType::getNumElements(shape.drop_front()),
              [&](int64_t entry, Num element, int64_t width) {
                return entry < inputs ? kernel.operands[entry].load(element, width) : kernel.e.zeros(width);
              });
  return success();
}

LogicalResult pc::kernels::emit(UnstackOp op, Kernel &kernel) {
  const int64_t elements = op.getResult().getType().getNumElements();
  const int64_t first = static_cast<int64_t>(op.getIndex()) * elements;
  copyEntries(kernel, 1, elements,
              [&](int64_t, Num element, int64_t width) { return kernel.operands[0].load(element + first, width); });
  return success();
}

/// Copies the operand, unless operand and result have the same home.
LogicalResult pc::kernels::emit(ReshapeOp op, Kernel &kernel) {
  const int64_t n = op.getX().getType().getNumElements();
  Emitter &e = kernel.e;
  Ptr x = kernel.operands[0], y = kernel.results[0];
  kernel.kind = "copy";
  const int64_t stretch = kernel.simt ? n : std::min<int64_t>(n, 4096), full = n / stretch, rest = n % stretch;
  kernel.forItems(full + (rest > 0), stretch, /*reduces=*/false, [&](Num item) {
    auto copy = [&](int64_t count) {
      Num first = item * stretch;
      e.vectors(count, [&](Num i, int64_t width) { y.store(x.load(first + i, width), first + i); });
    };
    e.when(areApart(x, y), [&] {
      if (rest)
        e.when(item < e.integer(full), [&] { copy(stretch); }, [&] { copy(rest); });
      else
        copy(stretch);
    });
  });
  return success();
}
