//===- SimtOnRows.cpp - Products of rows in f32, on a GPU ----------------------------===//
// A block has 64 x 64 sums, and a thread 4 x 4 of them. The summed dim passes through shared memory, 16 elements at a
// time, in two buffers: one is read while the other is written, so one barrier per chunk is enough.
//===-----------------------------------------------------------------------------===//
#include "OnRows.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
constexpr int64_t side = 64, depth = 16, threads = 256, own = 4;
constexpr int64_t pitch = side + 4; ///< line stride of a tile in shared memory, in elements

/// The product of two operands in shared memory by the threads of one block. begin() must be called first. x and y are
/// the position of this thread's sums.
class Multiplier {
public:
  using Carried = OnRows::Carried;

  explicit Multiplier(OnRows &on) : on(on), e(on.e) { e.setWidest(own); }

  /// Allocates shared memory. Must be called first inside the kernel.
  void begin() {
    left = e.shared(2 * depth * pitch), right = e.shared(2 * depth * pitch);
    x = e.rank % (side / own) * own, y = e.rank / (side / own) * own;
  }

  /// The number of vectors of `width` contiguous elements that a thread copies of a chunk, [depth, side].
  static int64_t trips(int64_t width) { return llvm::divideCeil(depth * side / width, threads); }
  /// The position of this thread's vector number `trip` in a chunk. If `deep` is true, elements along the depth are
  /// contiguous.
  std::pair<Num, Num> place(int64_t trip, int64_t width, bool deep) {
    const int64_t inLine = (deep ? depth : side) / width;
    Num i = e.rank + trip * threads, along = i % inLine * width, line = i / inLine;
    return deep ? std::pair(along, line) : std::pair(line, along);
  }
  /// Copies one chunk of an operand to shared memory: read(trip, position in the depth, position in the side).
  void stage(Ptr to, int64_t width, bool deep, llvm::function_ref<Num(int64_t, Num, Num)> read) {
    for (int64_t trip = 0; trip < trips(width); ++trip) {
      auto [inDepth, inSide] = place(trip, width, deep);
      Num values = read(trip, inDepth, inSide);
      if (!deep)
        to.store(values, inDepth * pitch + inSide);
      else
        for (int64_t j = 0; j < width; ++j)
          to.store(e.wrap(vector::ExtractOp::create(e.b, e.loc, values.v, ArrayRef<int64_t>{j})),
                   (inDepth + j) * pitch + inSide);
    }
  }
  /// The vector at `base` + `at`, or zeros if it does not exist.
  Num loadIf(Num exists, Ptr from, Num base, Num at, int64_t width) {
    Num values = from.load(base + e.select(exists, at, e.integer(0)), width);
    return e.select(exists, values, e.zeros(width));
  }

  /// The sums over [lo, hi), a chunk at a time: stageBoth(first of a chunk, left tile, right tile).
  Carried sum(Num lo, Num hi, llvm::function_ref<void(Num, Ptr, Ptr)> stageBoth) {
    return e.loop(lo, hi, depth, Carried(own, e.zeros(own)), [&](Num first, const Carried &before) {
      Num buffer = (first - lo) / depth % 2 * (depth * pitch);
      stageBoth(first, left + buffer, right + buffer);
      e.barrier();
      Carried sums(before);
      for (int64_t line = 0; line < depth; ++line) {
        Num some = (left + buffer).load(y + line * pitch, own), others = (right + buffer).load(x + line * pitch, own);
        for (auto [i, sum] : llvm::enumerate(sums)) {
          Num one = e.wrap(vector::ExtractOp::create(e.b, e.loc, some.v, ArrayRef<int64_t>{static_cast<int64_t>(i)}));
          sum = e.fma(e.splat(one, own), others, sum);
        }
      }
      return sums;
    });
  }

  /// Writes this thread's sums: row i is at `to` + lineAt(i) if `exists`(i), its columns from `column` on, below n.
  void write(const Carried &sums, Ptr to, Num column, int64_t n, llvm::function_ref<Num(Num)> exists,
             llvm::function_ref<Num(Num)> lineAt) {
    const int64_t width = e.widthFor(n);
    for (auto [i, sum] : llvm::enumerate(sums))
      e.when(exists(y + static_cast<int64_t>(i)), [&, i = static_cast<int64_t>(i), sum = sum] {
        Num line = lineAt(y + i);
        for (int64_t j = 0; j < own; j += width) {
          Num place = column + x + j;
          Value part =
              vector::ShuffleOp::create(e.b, e.loc, sum.v, sum.v, llvm::to_vector(llvm::seq<int64_t>(j, j + width)));
          e.when(place < e.integer(n), [&] { to.store(e.wrap(part), line + place); });
        }
      });
  }

  OnRows &on;
  SimtEmitter &e;
  Ptr left, right;
  Num x, y; ///< the first column and the first row of this thread's sums in the block
};
} // namespace

/// Operands may have their summed dim inside or outside, which decides how tiles are copied.
void pc::kernels::emitProductByNumbers(OnRows &on) {
  SimtEmitter &e = on.e;
  const pcrt_gemm_desc &d = on.d;
  Multiplier m(on);
  forRowBlocks(on, threads, side, side, [&](const RowBlock &block) {
    m.begin();
    // If `deep` is true, neighbouring elements of the weights are along the summed dim, so one copy has several of
    // these elements.
    const bool deep = d.b_n_stride != 1;
    const int64_t widthOfA = e.widthFor(d.k), widthOfB = e.widthFor(deep ? d.k : d.n);
    auto exists = [&](Num line) { return block.first + line < block.end; };
    OnRows::Carried rows; // offsets of this thread's rows of a
    for (int64_t trip = 0; trip < Multiplier::trips(widthOfA); ++trip) {
      Num line = m.place(trip, widthOfA, /*deep=*/true).second;
      rows.push_back(on.rowAt(d.a_lies, e.select(exists(line), block.first + line, block.first), d.k));
    }
    Num none = e.integer(0), depthEnd = e.integer(d.k);
    auto sums = m.sum(none, depthEnd, [&](Num first, Ptr left, Ptr right) {
      m.stage(left, widthOfA, /*deep=*/true, [&](int64_t trip, Num inDepth, Num inSide) {
        Num at = first + inDepth;
        return m.loadIf((at < depthEnd) & exists(inSide), on.a, rows[trip], at, widthOfA);
      });
      m.stage(right, widthOfB, deep, [&](int64_t, Num inDepth, Num inSide) {
        Num at = first + inDepth, column = block.column + inSide;
        Num isThere = (at < depthEnd) & (column < e.integer(d.n));
        Num values =
            on.weights.load(block.expert, e.select(isThere, at, none), e.select(isThere, column, none), widthOfB);
        return e.select(isThere, values, e.zeros(widthOfB));
      });
    });
    auto lineAt = [&](Num line) { return (block.first + line) * d.n; };
    m.write(sums, d.c_lies == PCRT_LIES_TOKENS ? on.made() : on.c, block.column, d.n, exists, lineAt);
  });
}

/// The gradient of an expert's weights, without tensor cores: the depth of the product is the expert's rows.
void pc::kernels::emitGradientByNumbers(OnRows &on) {
  SimtEmitter &e = on.e;
  const pcrt_gemm_desc &d = on.d;
  Multiplier m(on);
  const int64_t rows = llvm::divideCeil(d.m, side), columns = llvm::divideCeil(d.n, side);
  e.teams(on.at->experts * rows * columns, threads, 1, [&](Num item) {
    m.begin();
    Num expert = item / (rows * columns), row = item / columns % rows * side, column = item % columns * side;
    Num first = on.entry(on.at->firstRows, expert), end = on.entry(on.at->firstRows, expert + 1);
    auto sums = m.sum(first, end, [&](Num at, Ptr left, Ptr right) {
      auto stage = [&](Ptr to, Ptr from, int32_t lies, int64_t extent, Num begin) {
        const int64_t width = e.widthFor(extent);
        m.stage(to, width, /*deep=*/false, [&](int64_t, Num inDepth, Num inSide) {
          Num line = at + inDepth, place = begin + inSide, exists = line < end;
          Num base = on.rowAt(lies, e.select(exists, line, first), extent);
          return m.loadIf(exists & (place < e.integer(extent)), from, base, place, width);
        });
      };
      stage(left, on.a, d.a_lies, d.m, row);
      stage(right, on.b, d.b_lies, d.n, column);
    });
    auto exists = [&](Num line) { return row + line < e.integer(d.m); };
    auto lineAt = [&](Num line) { return expert * d.c_batch_stride + (row + line) * d.c_m_stride; };
    m.write(sums, on.c, column, d.n, exists, lineAt);
  });
}
