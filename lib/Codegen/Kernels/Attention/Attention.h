//===- Attention.h - Shapes shared by attention and its gradient --------------------===//
// Declares the sizes, strides and options of an attention, and functions that all of its kernels need: they compute
// which keys a query sees, where its document begins, and what is added to its scores. CPU kernels work on tiles of a
// few queries. GPU kernels use SIMT code or tensor cores.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_ATTENTION_ATTENTION_H
#define PC_LIB_CODEGEN_KERNELS_ATTENTION_ATTENTION_H

#include "../../Emit/Kernel.h"
#include "../../Emit/Tiles.h"
#include "../Dropping.h"
#include "pc/IR/PC.h"
#include "pc/IR/Shapes.h"

namespace pc::kernels {

/// The shapes are o and q: [batch, s, heads, groups, d]; k and v: [batch, t, heads, d]. All sizes are in elements. In
/// packed attention, q, k and v are parts of [batch, s, heads, groups + 2, d], and so are their gradients.
struct AttentionShape {
  int64_t batch, s, t, heads, groups, d;
  int64_t perHead, perKey; ///< strides between key/value heads in a row of q, and of k and v
  double scale;
  bool causal, counted = false;
  int64_t window = 0;                 ///< the most keys that a query sees, including its own; 0: all up to its own
  double cap = 0;                     ///< the softcap of scores; 0: none
  bool biased = false;                ///< whether scores have addends, [heads, groups, s + t - 1]
  bool sunk = false;                  ///< whether queries have an extra score (a sink), [heads, groups]
  bool sumsBias = false;              ///< whether the gradient of addends is also computed
  bool documented = false;            ///< whether queries see only keys of their document, whose start is given
  DrawnOpInterface drops;             ///< the op, if it drops weights
  bool narrow = false;                ///< all factors are bf16, including the weights and the gradients of scores
  Factors factors = Factors::numbers; ///< factors of the products on a CPU

  template <typename OpT> explicit AttentionShape(OpT op) {
    llvm::ArrayRef<int64_t> o = shapeOf(op.getO());
    batch = o[0], s = t = o[1], heads = o[2], groups = o[3], d = o[4];
    scale = op.getScale().convertToDouble();
    causal = op.getCausal();
    if constexpr (requires { op.getQkv(); }) {
      perHead = perKey = (groups + 2) * d;
    } else {
      perHead = groups * d, perKey = d;
      t = shapeOf(op.getK())[1];
      counted = op.getSees() && shapeOf(op.getSees()).size() == 1;
      if (op.getDropAttr())
        drops = op;
      int64_t seen = op.getWindow().value_or(0);
      window = seen < t ? seen : 0;
      cap = op.getSoftcap() ? op.getSoftcap()->convertToDouble() : 0;
      biased = op.getBias() != nullptr;
      sunk = op.hasSinks();
      if constexpr (requires { op.getDbias(); })
        sumsBias = op.getDbias() != nullptr;
      documented = op.getStarts() != nullptr;
    }
  }

  /// Returns the addends of scores. They are the operand after `count` operands.
  Ptr bias(Kernel &kernel, size_t count) const { return biased ? kernel.operands[count] : Ptr(); }
  /// Returns the sink of query head `head` (among all heads). The sinks follow `count` operands and the addends.
  Num sink(Kernel &kernel, size_t count, Num head) const { return kernel.operands[count + biased].load(head); }
  /// `starts` returns the starts of documents, [batch, s], which follow `count` operands, addends and sinks. `startsOf`
  /// returns the part for batch row `batch`.
  Ptr starts(Kernel &kernel, size_t count) const { return documented ? kernel.operands[count + biased + sunk] : Ptr(); }
  Ptr startsOf(Ptr starts, Num batch) const { return documented ? starts + batch * s : Ptr(); }
  /// Returns the number of keys that each query sees, if the op has this operand. It follows `count` operands, addends,
  /// sinks, starts and the operands of dropout.
  Ptr counts(Kernel &kernel, size_t count) const {
    return counted ? kernel.operands[count + biased + sunk + documented + !!drops] : Ptr();
  }
  /// Returns the dropout of the weights. Must be called outside of loops.
  std::optional<Dropping> dropping(Kernel &kernel, size_t count) const {
    if (!drops)
      return std::nullopt;
    count += biased + sunk + documented;
    return Dropping(kernel.e, drops, kernel.operands[count],
                    llvm::ArrayRef(kernel.operands).drop_front(count + 1 + counted));
  }

  /// Whether a score is not just `scale` times a product.
  bool changesScores() const { return cap > 0 || biased; }
  /// A score and how it depends on the product.
  struct Score {
    Num value, slope; ///< its derivative is `scale` times `slope`, which exists only for capped scores
  };
  /// Returns the score for the product of a query and a key. `addend` is used if scores have addends.
  Score score(Emitter &e, Num product, Num addend) const;
  /// `addends` returns the number of addends of one head. `addendsAt` returns the index of the first addend of query
  /// `row`, whose addends are in the order of keys.
  int64_t addends() const { return s + t - 1; }
  Num addendsAt(Num row) const { return (s - 1) - row; }

  /// Whether scores are `scale` times products, each query sees all keys up to some key, and nothing is dropped.
  bool isPlain() const { return !changesScores() && !limits() && !drops; }

  /// Whether a window or documents hide earlier keys from a query.
  bool limits() const { return window || documented; }
  /// Returns the first key that query `row` sees, if there are limits. Rows after the last query count as the last one.
  /// `starts` has the starts of documents of this batch row, if there are any.
  Num firstSeen(Emitter &e, Num row, Ptr starts) const {
    Num first = window ? e.max(row + (1 - window), e.integer(0)) : e.integer(0);
    return documented ? e.max(first, e.extend(starts.load(e.min(row, e.integer(s - 1))))) : first;
  }
  /// Returns the start of the tile with the first key that any row from `first` on sees.
  Num firstOfTile(Emitter &e, Num first, Ptr starts, int64_t tile) const {
    return limits() ? firstSeen(e, first, starts) / tile * tile : e.integer(0);
  }
  /// Returns the end of the queries that see any of the `count` keys from `first` on.
  Num lastQuery(Emitter &e, Num first, int64_t count) const {
    return window ? e.min(e.integer(s), first + (count - 1 + window)) : e.integer(s);
  }

  /// Returns the number of keys that query `row` sees. Rows after the last query count as the last one. `counts` are
  /// the key counts of the op, if it has any.
  Num seen(Emitter &e, Num row, Ptr counts) const {
    if (counted)
      return e.extend(counts.load(e.min(row, e.integer(s - 1))));
    return causal ? e.min(row + 1, e.integer(t)) : e.integer(t);
  }
  /// Returns the number of columns, in whole tiles, that any of the `block` rows from `first` on sees. A row sees at
  /// least as many columns as the previous row.
  Num columns(Emitter &e, Num first, Ptr counts, int64_t lanes) const {
    Num padded = e.integer(paddedT(lanes));
    if (!causal)
      return padded;
    const int64_t tile = tileColumns(lanes);
    Num end = counted ? seen(e, first + (block(lanes) - 1), counts) : first + block(lanes);
    return e.min((end + (tile - 1)) / tile * tile, padded);
  }

  /// Chooses products of words (pairs of bf16) if all of `matrices` (q, k, v, dout) are bf16 and the kernel may
  /// multiply words.
  void chooseFactors(Kernel &kernel, llvm::ArrayRef<Ptr> matrices) {
    narrow = llvm::all_of(matrices, [](Ptr m) { return m.element.isBF16(); });
    kernel.multipliesPairs = narrow && d % 2 == 0 && kernel.e.multipliesPairs;
    factors = kernel.multipliesPairs ? Factors::words : Factors::numbers;
  }
  /// Rounds a weight or a gradient of a score to bf16. If products use words, does nothing, because such values are
  /// rounded when they are packed into words.
  Num rounded(Num x) const { return narrow && factors == Factors::numbers ? fromBf16(*x.e, roundToBf16(x)) : x; }
  /// The number of factors in an element of a product's matrices.
  int64_t perElement() const { return factors == Factors::words ? 2 : 1; }
  /// `depth` is the number of elements in a row of q, k, v or dout for products along d. The next function pads this
  /// number to full vectors.
  int64_t depth() const { return d / perElement(); }
  int64_t paddedDepth(int64_t lanes) const { return roundUp(depth(), lanes); }
  /// Returns a tensor with row stride `stride` as a matrix for a product along d.
  Matrix alongD(Emitter &e, Ptr tensor, int64_t stride) const {
    bool words = factors == Factors::words;
    return {words ? tensor.as(e.b.getF32Type()) : tensor, stride / perElement()};
  }

  /// The strides between positions: in q and dq (queryStride), in k, v, dk and dv (keyStride), and in o and dout
  /// (outStride).
  int64_t queryStride() const { return heads * perHead; }
  int64_t keyStride() const { return heads * perKey; }
  int64_t outStride() const { return heads * groups * d; }
  /// `queryAt` returns the offset in a row of a query head, which is numbered among all query heads. `keyAt` returns
  /// that of a key/value head.
  Num queryAt(Num head) const { return perHead == groups * d ? head * d : head / groups * perHead + head % groups * d; }
  Num keyAt(Num head) const { return head * perKey; }
  /// The number of queries in a block, a multiple of tileRows.
  int64_t block(int64_t lanes) const { return std::min<int64_t>(32, roundUp(s, tileRows(lanes))); }
  /// Returns the number of addends of one head, padded so that a padded row of scores can be read.
  int64_t paddedAddends(int64_t lanes) const { return roundUp(s + paddedT(lanes), lanes); }
  /// Returns the number of keys, padded to whole blocks of queries and to whole tiles. Rows are filled and multiplied
  /// in units of a tile.
  int64_t paddedT(int64_t lanes) const { return roundUp(roundUp(t, block(lanes)), tileColumns(lanes)); }
  /// Returns the row stride of matrices with t columns. It is not a power of two, because then all rows would map to a
  /// few sets of the cache.
  int64_t strideT(int64_t lanes) const { return paddedT(lanes) + 16; }
  int64_t paddedD(int64_t lanes) const { return roundUp(d, lanes); }
  /// Products that are d wide: the number of columns in whole tiles, and whether one more vector follows.
  int64_t tiledD(int64_t lanes) const { return paddedD(lanes) / tileColumns(lanes) * tileColumns(lanes); }
  bool oddD(int64_t lanes) const { return tiledD(lanes) < paddedD(lanes); }
};

/// Copies the addends of head `head` to scratch, where rows of scores can be read in whole vectors.
void copyAddends(Emitter &e, const AttentionShape &a, Ptr bias, Num head, Ptr to);
/// Emits attention on a CPU. kernel.operands begin with q, k, v. An item is one query head of one batch row.
void emitAttention(AttentionShape a, Kernel &kernel);
/// Emits the gradient of attention on a CPU. kernel.results are dq, dk, dv, and the gradient of addends by batch row.
/// An item is one key/value head of one batch row.
void emitAttentionGrad(AttentionShape a, Kernel &kernel);
/// Emits attention, or its gradient, for the threads of a GPU. Part 0 of the gradient computes dq, and part 1 computes
/// dk and dv. Returns false if there is no kernel for heads of this size.
bool emitSimtAttention(const AttentionShape &a, Kernel &kernel);
bool emitSimtAttentionGrad(const AttentionShape &a, Kernel &kernel);
/// Emits attention, or its gradient, on tensor cores if pc::isForTensorCores. The gradient's part 0 stores rowsum(dout
/// * o) for part 1.
void emitMmaAttention(const AttentionShape &a, Kernel &kernel);
void emitMmaAttentionGrad(const AttentionShape &a, Kernel &kernel);

/// Emits the gradient of a bias for the threads of a GPU. On a CPU, the gradient of attention computes it.
void emitBiasGrad(const AttentionShape &a, Kernel &kernel);

/// Allocates one thread's scratch memory, in f32 elements. Every piece is aligned to 64 bytes.
struct Scratch {
  Ptr base;
  int64_t used = 0;

  Ptr take(int64_t elements) {
    Ptr p = base.e ? base + base.e->integer(used) : Ptr();
    used += roundUp(elements, 16);
    return p;
  }
  Ptr takeWords(int64_t elements) { // i32
    Ptr p = take(elements);
    return p.e ? p.as(p.e->b.getI32Type()) : p;
  }
  int64_t bytes() const { return used * 4; }
};

} // namespace pc::kernels
#endif
