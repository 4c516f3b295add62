//===- TiledCodes.cpp - Codes in the orders of cuBLASLt -----------------------------------===//
// A kernel that encodes a value as floats of 8 bits in one or several ways, from one read of it. An item is a square of
// 128 x 128 elements. On a GPU, a thread has 8 x 8 of them, so that it writes 8 bytes at a time both by rows and
// transposed. Only matrices with one given scale have smaller squares at their ends, which consist of whole parts of
// threads. On a CPU, the kernel is only the reference of --check-kernels.
//===-----------------------------------------------------------------------------===//
#include "../../Emit/RowMath.h"
#include "../../Fuse/CodeProduct.h"
#include "../Kernels.h"
#include "pcrt/block_codes.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

static constexpr int64_t side = CodeTile::side, part = 8, parts = side / part;
static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {
/// The square of an item. It may extend beyond the matrix.
struct Square {
  Emitter &e;
  int64_t rows, columns;
  Num row, column; ///< of the square, in squares

  Square(Emitter &e, int64_t rows, int64_t columns, Num item)
      : e(e), rows(rows), columns(columns), row(item / along(columns)), column(item % e.integer(along(columns))) {}
  /// The number of squares along a dim.
  static int64_t along(int64_t size) { return (size + side - 1) / side; }

  /// The index of an element, whose row and column are counted in the matrix. If `turned`, the matrix is transposed.
  Num indexOf(Num r, Num c, bool turned) const { return turned ? c * rows + r : r * columns + c; }
  bool isWhole() const { return rows % side == 0 && columns % side == 0; } ///< no square extends beyond the matrix
  /// Runs the body if an element is in the matrix.
  void ifInside(Num r, Num c, llvm::function_ref<void()> body) const {
    if (isWhole())
      return body();
    e.when(r < e.integer(rows), [&] { e.when(c < e.integer(columns), body); });
  }
  /// Runs the body for the row and the column of each element, one after another.
  void forElements(llvm::function_ref<void(Num, Num)> body) const {
    e.loop(e.integer(0), e.integer(side * side), 1, [&](Num i) {
      Num r = row * side + i / side, c = column * side + i % e.integer(side);
      ifInside(r, c, [&] { body(r, c); });
    });
  }
  /// The index of the scale of the block with this row and column of blocks.
  Num scaleAt(const CodeTile &tile, Num r, Num c, bool turned) const {
    return turned ? c * (rows / tile.blockRows) + r : r * (columns / tile.blockColumns) + c;
  }
};

/// The scale of a block, and the number by which its elements are multiplied. As in the kernels of pc.encode, a block
/// of tiny elements has scale 0, and one with an element that is not finite has scale NaN.
struct BlockScale {
  Num stored, inverse;

  BlockScale(Emitter &e, Num largest, Type element) {
    Num isSmall = largest < e.real(PCRT_LEAST_SCALE), scale = float8Scale(largest, element);
    stored = e.select(isSmall, e.real(0), scale);
    stored = e.select(largest < e.real(infinity), stored, e.real(std::numeric_limits<float>::quiet_NaN()));
    inverse = e.real(1) / e.select(isSmall, e.real(1), scale); // exact: a power of two
  }
};

/// The value that a kernel encodes, which it loads or computes.
class Encoded {
public:
  Encoded(const TiledCodes &codes, Kernel &kernel) : codes(codes), kernel(kernel) {}

  /// Returns the elements from `index` on. If `keeps`, also writes those of other results.
  Num at(Num index, int64_t width, bool keeps) const {
    Emitter &e = kernel.e;
    llvm::DenseMap<Value, Num> known;
    auto valueOf = [&](Value value) {
      Num &number = known[value];
      if (!number.v)
        number = kernel.operands[cast<BlockArgument>(value).getArgNumber()].load(index, width);
      return number;
    };
    for (Operation *op : codes.computed) {
      auto operands = llvm::map_to_vector(op->getOperands(), valueOf);
      Num result = operands[0];
      if (isa<EinsumOp>(op))
        for (Num factor : ArrayRef(operands).drop_front())
          result = result * factor;
      else if (!isa<CastOp>(op))
        result = pointwiseMath(op)(e, operands);
      known[op->getResult(0)] = isBf16(op->getResult(0)) ? rounded(result) : result;
    }
    for (auto [value, number] : codes.kept)
      if (keeps)
        kernel.results[number].store(known[value], index);
    return valueOf(codes.value);
  }

private:
  static bool isBf16(Value value) { return getElementTypeOrSelf(value.getType()).isBF16(); }
  /// A value of type bf16 is rounded, as if it were stored.
  Num rounded(Num x) const {
    Emitter &e = kernel.e;
    if (!kernel.simt)
      return fromBf16(e, roundToBf16(x));
    Type bf16 = e.b.getBF16Type(), narrow = x.width() ? Type(VectorType::get(x.width(), bf16)) : bf16;
    Value half = arith::TruncFOp::create(e.b, e.loc, narrow, x.v);
    return e.wrap(arith::ExtFOp::create(e.b, e.loc, x.v.getType(), half));
  }

  const TiledCodes &codes;
  Kernel &kernel;
};

/// The part of a square that one thread of a GPU has: 8 rows of 8 elements.
class ThreadPart {
public:
  ThreadPart(SimtEmitter &e, const Square &square)
      : e(e), square(square), line(e.rank / parts), place(e.rank % e.integer(parts)),
        row(square.row * side + line * part), column(square.column * side + place * part) {}

  /// Runs the body if the part is in the matrix.
  void ifInside(llvm::function_ref<void()> body) const { square.ifInside(row, column, body); }
  void load(llvm::function_ref<Num(Num)> from) {
    for (int64_t i = 0; i < part; ++i)
      values.push_back(from(square.indexOf(row + i, column, false)));
  }
  /// Writes the part, of which row i is at(i).
  void store(llvm::function_ref<Num(int64_t)> at, Ptr to, bool turned) {
    SmallVector<Num> own;
    for (int64_t i = 0; i < part; ++i)
      own.push_back(at(i));
    for (int64_t i = 0; i < part; ++i)
      if (turned)
        to.store(fromElements([&](int64_t r) { return elementOf(own[r], i); }),
                 square.indexOf(row, column + i, /*turned=*/true));
      else
        to.store(own[i], square.indexOf(row + i, column, false));
  }
  void encode(const TiledCodes::Encoding &one, ArrayRef<Ptr> results);
  /// Multiplies by `inverse`.
  void encode(const TiledCodes::Encoding &one, ArrayRef<Ptr> results, Num inverse) {
    for (const TiledCodes::Stored &stored : one.stored)
      store([&](int64_t i) { return values[i] * inverse; }, results[stored.number], stored.turned);
  }

  Num valueOf(int64_t i) const { return values[i]; }

private:
  Num elementOf(Num vector, int64_t i) {
    return e.wrap(vector::ExtractOp::create(e.b, e.loc, vector.v, ArrayRef<int64_t>{i}));
  }
  Num fromElements(llvm::function_ref<Num(int64_t)> at) {
    SmallVector<Value> elements;
    for (int64_t i = 0; i < part; ++i)
      elements.push_back(at(i).v);
    return e.wrap(vector::FromElementsOp::create(e.b, e.loc, VectorType::get(part, e.b.getF32Type()), elements));
  }
  /// The magnitudes of row i; infinity instead of NaN, which a maximum would lose.
  Num magnitude(int64_t i) {
    Num size = e.max(values[i], 0.0 - values[i]);
    return e.select(size < e.real(infinity), size, e.splat(e.real(infinity), part));
  }
  /// The largest magnitude of each of this thread's columns.
  Num ofColumns() {
    Num largest = magnitude(0);
    for (int64_t i = 1; i < part; ++i)
      largest = e.max(largest, magnitude(i));
    return largest;
  }
  Num ofWholeColumns();

  SimtEmitter &e;
  const Square &square;
  Num line, place; ///< of the part in the square
  Num row, column; ///< of its first element in the matrix
  SmallVector<Num> values;
};
} // namespace

/// The threads of a column first write their maxima to shared memory; then one thread reduces half of a column.
Num ThreadPart::ofWholeColumns() {
  Ptr maxima = e.shared(parts * side), halves = e.shared(2 * side);
  maxima.store(ofColumns(), line * side + place * part);
  e.barrier();
  Num own = e.rank % e.integer(side), half = e.rank / side;
  Num largest = maxima.load(half * (parts / 2 * side) + own);
  for (int64_t i = 1; i < parts / 2; ++i)
    largest = e.max(largest, maxima.load((half * (parts / 2) + i) * side + own));
  halves.store(largest, half * side + own);
  e.barrier();
  return e.max(halves.load(place * part, part), halves.load(place * part + side, part));
}

void ThreadPart::encode(const TiledCodes::Encoding &one, ArrayRef<Ptr> results) {
  const CodeTile &tile = one.tile;
  auto type = getElementTypeOrSelf(one.encode->getResult(0));
  SmallVector<BlockScale, part> scales; // one for each row of the part, for its columns, or for the square
  auto forScales = [&](Num condition, llvm::function_ref<void(Ptr, bool)> store) {
    e.when(condition, [&] {
      for (const TiledCodes::Stored &stored : one.stored)
        if (stored.isScales)
          store(results[stored.number], stored.turned);
    });
  };
  if (tile.blockRows == 1) {
    for (int64_t i = 0; i < part; ++i) {
      Num largest = e.maximum(magnitude(i));
      for (int64_t mask = 1; mask < parts; mask *= 2)
        largest = e.max(largest, e.shuffle(largest, mask));
      scales.emplace_back(e, largest, type);
    }
    forScales(place < e.integer(1), [&](Ptr to, bool turned) {
      if (turned)
        return to.store(fromElements([&](int64_t i) { return scales[i].stored; }),
                        square.scaleAt(tile, row, square.column, true));
      for (int64_t i = 0; i < part; ++i)
        to.store(scales[i].stored, square.scaleAt(tile, row + i, square.column, false));
    });
  } else if (tile.blockColumns == 1) {
    scales.emplace_back(e, ofWholeColumns(), type);
    forScales(line < e.integer(1), [&](Ptr to, bool turned) {
      if (!turned)
        return to.store(scales[0].stored, square.scaleAt(tile, square.row, column, false));
      for (int64_t i = 0; i < part; ++i)
        to.store(elementOf(scales[0].stored, i), square.scaleAt(tile, square.row, column + i, true));
    });
  } else {
    scales.emplace_back(e, e.across({true}, {e.maximum(ofColumns())})[0], type);
    forScales(e.rank < e.integer(1), [&](Ptr to, bool turned) {
      to.store(scales[0].stored, square.scaleAt(tile, square.row, square.column, turned));
    });
  }
  for (const TiledCodes::Stored &stored : one.stored)
    if (!stored.isScales)
      store([&](int64_t i) { return values[i] * scales[scales.size() > 1 ? i : 0].inverse; }, results[stored.number],
            stored.turned);
}

/// Encodes a square of blocks element by element.
static void encodePlainly(const Square &square, const TiledCodes::Encoding &one, const Encoded &value,
                          ArrayRef<Ptr> results) {
  Emitter &e = square.e;
  const CodeTile &tile = one.tile;
  auto upTo = [&](int64_t count, llvm::function_ref<void(Num)> body) {
    e.loop(e.integer(0), e.integer(count), 1, body);
  };
  upTo(side / tile.blockRows, [&](Num r) {
    upTo(side / tile.blockColumns, [&](Num c) {
      Num blockRow = square.row * (side / tile.blockRows) + r,
          blockColumn = square.column * (side / tile.blockColumns) + c;
      auto at = [&](Num i) {
        return std::pair(blockRow * tile.blockRows + i / tile.blockColumns,
                         blockColumn * tile.blockColumns + i % e.integer(tile.blockColumns));
      };
      auto load = [&](Num i) { return value.at(square.indexOf(at(i).first, at(i).second, false), 0, /*keeps=*/false); };
      const int64_t elements = tile.blockRows * tile.blockColumns;
      Num largest =
          e.loop(e.integer(0), e.integer(elements), 1, {e.real(0)}, [&](Num i, const Emitter::Carried &before) {
            Num element = load(i), size = e.max(element, 0.0 - element);
            return Emitter::Carried{e.max(before[0], e.select(size < e.real(infinity), size, e.real(infinity)))};
          })[0];
      BlockScale scale(e, largest, getElementTypeOrSelf(one.encode->getResult(0)));
      for (const TiledCodes::Stored &stored : one.stored) {
        Ptr to = results[stored.number];
        if (stored.isScales)
          to.store(scale.stored, square.scaleAt(tile, blockRow, blockColumn, stored.turned));
        else
          upTo(elements, [&](Num i) {
            to.store(load(i) * scale.inverse, square.indexOf(at(i).first, at(i).second, stored.turned));
          });
      }
    });
  });
}

/// Encodes a square with a given scale element by element.
static void encodePlainly(const Square &square, const TiledCodes::Encoding &one, const Encoded &value,
                          ArrayRef<Ptr> results, Num inverse) {
  square.forElements([&](Num row, Num column) {
    Num code = value.at(square.indexOf(row, column, false), 0, /*keeps=*/false) * inverse;
    for (const TiledCodes::Stored &stored : one.stored)
      results[stored.number].store(code, square.indexOf(row, column, stored.turned));
  });
}

/// Runs the body for each square of the matrix, by 256 threads on a GPU.
static void forSquares(Kernel &kernel, int64_t rows, int64_t columns, llvm::function_ref<void(const Square &)> body) {
  kernel.items = Square::along(rows) * Square::along(columns);
  auto each = [&](Num item) { body(Square(kernel.e, rows, columns, item)); };
  if (kernel.simt)
    kernel.simt->teams(kernel.items, parts * parts, 1, each);
  else
    kernel.e.loop(kernel.lo, kernel.hi, 1, each);
}

LogicalResult pc::kernels::emitTiledCodes(const TiledCodes &codes, Kernel &kernel) {
  kernel.kind = "cast";
  const CodeTile &tile = codes.encodings[0].tile;
  const Encoded value(codes, kernel);
  auto inverse = [&](const TiledCodes::Encoding &one) { // of a given scale
    auto scale = cast<BlockArgument>(cast<EncodeScaledOp>(one.encode).getScale());
    return inverseOfScale(kernel.operands[scale.getArgNumber()].load(kernel.e.integer(0)));
  };
  forSquares(kernel, tile.rows, tile.columns, [&](const Square &square) {
    if (!kernel.simt) {
      if (!codes.kept.empty())
        square.forElements(
            [&](Num row, Num column) { value.at(square.indexOf(row, column, false), 0, /*keeps=*/true); });
      for (const TiledCodes::Encoding &one : codes.encodings)
        isa<EncodeOp>(one.encode) ? encodePlainly(square, one, value, kernel.results)
                                  : encodePlainly(square, one, value, kernel.results, inverse(one));
      return;
    }
    ThreadPart own(*kernel.simt, square);
    own.ifInside([&] {
      own.load([&](Num index) { return value.at(index, part, /*keeps=*/true); });
      for (const TiledCodes::Encoding &one : codes.encodings)
        isa<EncodeOp>(one.encode) ? own.encode(one, kernel.results) : own.encode(one, kernel.results, inverse(one));
    });
  });
  return success();
}

/// Codes that come from other ranks or tasks are transposed as bytes.
LogicalResult pc::kernels::emitTurnedCodes(EinsumOp op, Kernel &kernel) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(op.getInputs()[0].getType()).getShape();
  const size_t leading = turnedDims(op);
  const int64_t rows = ShapedType::getNumElements(shape.take_front(leading)),
                columns = ShapedType::getNumElements(shape.drop_front(leading));
  if (!leading || rows % part || columns % part)
    return op.emitOpError() << "transposes codes whose dims are not multiples of " << part << "; no kernel does that";
  kernel.kind = "copy";
  Type byte = kernel.e.b.getI8Type();
  Ptr from = kernel.operands[0].as(byte), to = kernel.results[0].as(byte);
  forSquares(kernel, rows, columns, [&](const Square &square) {
    if (!kernel.simt)
      return square.forElements([&](Num row, Num column) {
        to.store(from.load(square.indexOf(row, column, false)), square.indexOf(row, column, true));
      });
    ThreadPart own(*kernel.simt, square);
    own.ifInside([&] {
      own.load([&](Num index) { return from.load(index, part); });
      own.store([&](int64_t i) { return own.valueOf(i); }, to, /*turned=*/true);
    });
  });
  return success();
}
