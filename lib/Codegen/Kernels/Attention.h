//===- Attention.h - Shapes shared by attention and its gradient --------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_ATTENTION_H
#define PC_LIB_CODEGEN_KERNELS_ATTENTION_H

#include "Tiles.h"
#include "pc/IR/PC.h"

namespace pc::kernels {

/// q: [batch, s, heads, groups, d]; k, v: [batch, t, heads, d]. All sizes in elements.
struct AttentionShape {
  int64_t batch, s, t, heads, groups, d;
  double scale;
  bool causal, counted;
  bool narrow = false;                ///< all factors are bf16, also the weights and the gradients of scores
  Factors factors = Factors::numbers; ///< of the products on a CPU

  template <typename OpT> explicit AttentionShape(OpT op) {
    llvm::ArrayRef<int64_t> q = llvm::cast<mlir::RankedTensorType>(op.getQ().getType()).getShape();
    batch = q[0], s = q[1], heads = q[2], groups = q[3], d = q[4];
    t = llvm::cast<mlir::RankedTensorType>(op.getK().getType()).getShape()[1];
    scale = op.getScale().convertToDouble();
    causal = op.getCausal();
    counted = op.getSees() && llvm::cast<mlir::RankedTensorType>(op.getSees().getType()).getRank() == 1;
  }

  /// How many keys query `row` sees; rows behind the last query count as the last one. `counts`: those of the op, if it
  /// has any.
  Num seen(Emitter &e, Num row, Ptr counts) const {
    if (counted)
      return e.extend(counts.load(e.min(row, e.integer(s - 1))));
    return causal ? e.min(row + 1, e.integer(t)) : e.integer(t);
  }
  /// The number of columns, in whole tiles, that any of the `block` rows from `first` on sees. A row sees at least as
  /// many as the one before.
  Num columns(Emitter &e, Num first, Ptr counts, int64_t lanes) const {
    Num padded = e.integer(paddedT(lanes));
    if (!causal)
      return padded;
    const int64_t tile = tileColumns(lanes);
    Num end = counted ? seen(e, first + (block(lanes) - 1), counts) : first + block(lanes);
    return e.min((end + (tile - 1)) / tile * tile, padded);
  }

  /// Chooses products of words (pairs of bf16) if all of `matrices` (q, k, v, dout) are bf16 and the CPU can multiply
  /// words.
  void chooseFactors(const Emitter &e, llvm::ArrayRef<Ptr> matrices) {
    narrow = llvm::all_of(matrices, [](Ptr m) { return m.element.isBF16(); });
    factors = narrow && d % 2 == 0 && e.roundsToBf16 ? Factors::words : Factors::numbers;
  }
  /// Rounds a weight or a gradient of a score to bf16, if products are of numbers; words are rounded when they are
  /// made.
  Num rounded(Num x) const { return narrow && factors == Factors::numbers ? fromBf16(*x.e, roundToBf16(x)) : x; }
  /// How many factors an element of a product's matrices holds.
  int64_t perElement() const { return factors == Factors::words ? 2 : 1; }
  /// Elements of a row of q, k, v or dout in products along d, and the same padded to full vectors.
  int64_t depth() const { return d / perElement(); }
  int64_t paddedDepth(int64_t lanes) const { return roundUp(depth(), lanes); }
  /// A tensor of rows `stride` numbers apart, for a product along d.
  Matrix alongD(Emitter &e, Ptr tensor, int64_t stride) const {
    bool words = factors == Factors::words;
    return {words ? tensor.as(e.b.getF32Type()) : tensor, stride / perElement()};
  }

  int64_t queryStride() const { return heads * groups * d; }
  int64_t keyStride() const { return heads * d; }
  /// Queries that are worked on together, a multiple of tileRows.
  int64_t block(int64_t lanes) const { return std::min<int64_t>(32, roundUp(s, tileRows(lanes))); }
  int64_t paddedT(int64_t lanes) const { return roundUp(t, std::max(tileColumns(lanes), block(lanes))); }
  /// Row stride of matrices with t columns. It is no power of two, which would map all rows to a few sets of the cache.
  int64_t strideT(int64_t lanes) const { return paddedT(lanes) + 16; }
  int64_t paddedD(int64_t lanes) const { return roundUp(d, lanes); }
  /// Columns of d-wide products: whole tiles, and whether one more vector follows.
  int64_t tiledD(int64_t lanes) const { return paddedD(lanes) / tileColumns(lanes) * tileColumns(lanes); }
  bool oddD(int64_t lanes) const { return tiledD(lanes) < paddedD(lanes); }
};

/// Hands out one thread's scratch memory, in f32 elements; every piece starts at a multiple of 64 bytes.
struct Scratch {
  Ptr base;
  int64_t used = 0;

  Ptr take(int64_t elements) {
    Ptr p = base.e ? base + base.e->integer(used) : Ptr();
    used += roundUp(elements, 16);
    return p;
  }
  int64_t bytes() const { return used * 4; }
};

} // namespace pc::kernels
#endif
