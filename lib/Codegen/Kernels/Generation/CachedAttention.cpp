//===- CachedAttention.cpp - Kernels that write and read a cache of keys and values ------------===//
// The keys of a head and slot are contiguous in memory, in the order of their positions. The kernel reads them once,
// for all query heads that share them. Its result for a token depends only on the token's slot, so answers do not
// depend on the other tokens of a step.
//===-----------------------------------------------------------------------------------------===//
#include "../../Emit/RowMath.h"
#include "../Attention/Attention.h"
#include "../Kernels.h"
#include "pc/IR/Generation.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
/// The sizes of a cache [b, n, k, t, d], and where its rows begin.
struct CacheShape {
  explicit CacheShape(Value cache) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(cache.getType()).getShape();
    slots = shape[1], heads = shape[2], context = shape[3], width = shape[4];
  }
  Num has(Emitter &e, Num slot, Num position) const {
    return e.inRange(slot, e.integer(slots)) & e.inRange(position, e.integer(context));
  }
  /// The first element of position 0 of `head` in a slot of batch row `b`.
  Num head(Num b, Num slot, Num head) const { return ((b * slots + slot) * heads + head) * (context * width); }

  int64_t slots, heads, context, width;
};
} // namespace

/// An item is one head of one token.
LogicalResult pc::kernels::emit(CacheWriteOp op, Kernel &kernel) {
  const CacheShape cache(op.getCache());
  ArrayRef<int64_t> x = cast<RankedTensorType>(op.getX().getType()).getShape();
  const int64_t tokens = x[1];
  Emitter &e = kernel.e;
  kernel.kind = "copy";
  kernel.forItems(x[0] * tokens * cache.heads, cache.width, /*reduces=*/false, [&](Num item) {
    Num token = item / cache.heads, head = item % cache.heads;
    Num slot = e.extend(kernel.operands[2].load(token)), position = e.extend(kernel.operands[3].load(token));
    e.when(cache.has(e, slot, position), [&] {
      Ptr from = kernel.operands[1] + item * cache.width;
      Ptr to = kernel.results[0] + (cache.head(token / tokens, slot, head) + position * cache.width);
      e.vectors(cache.width, [&](Num i, int64_t width) { to.store(from.load(i, width), i); });
    });
  });
  return success();
}

namespace {
/// Computes the attention of one token and one key/value head, for all query heads that share it. An item is such a
/// pair of token and head.
class CachedAttentionKernel {
public:
  CachedAttentionKernel(CachedAttentionOp op, Kernel &kernel)
      : op(op), kernel(kernel), cache(op.getKeys()), groups(cast<RankedTensorType>(op.getQ().getType()).getDimSize(3)) {
    unsigned next = 5;
    if (op.getBias())
      bias = kernel.operands[next++];
    if (op.getSinks())
      sinks = kernel.operands[next];
  }

  void emit() {
    ArrayRef<int64_t> q = cast<RankedTensorType>(op.getQ().getType()).getShape();
    const int64_t tokens = q[1], row = groups * cache.width;
    kernel.kind = "attention";
    kernel.scratchBytes = kernel.simt ? 0 : 4 * groups * stride;
    kernel.forItems(q[0] * tokens * cache.heads, cache.width, /*reduces=*/kernel.part == 0, [&](Num item) {
      Num token = item / cache.heads, head = item % cache.heads;
      Num slot = e.extend(kernel.operands[3].load(token)), position = e.extend(kernel.operands[4].load(token));
      Ptr o = kernel.results[0] + item * row;
      e.when(
          cache.has(e, slot, position),
          [&] {
            Num at = cache.head(token / tokens, slot, head);
            Ptr query = kernel.operands[0] + item * row, keys = kernel.operands[1] + at,
                values = kernel.operands[2] + at;
            if (!kernel.simt)
              attend(query, keys, values, o, head, position);
            else if (kernel.part == 0)
              scoreInWorkspace(item, query, keys, head, position);
            else
              sumFromWorkspace(item, values, o, position);
          },
          [&] {
            if (!kernel.simt || kernel.part)
              e.vectors(row, [&](Num i, int64_t width) { o.store(e.zeros(width), i); });
          });
    });
  }

private:
  /// The first key in sight.
  Num firstKey(Num position) {
    std::optional<uint64_t> window = op.getWindow();
    return window ? e.max(position + (1 - static_cast<int64_t>(*window)), e.integer(0)) : e.integer(0);
  }

  /// Returns the row of the workspace for a query head of an item. It holds the scores of all positions, the largest
  /// score, and 1 over the sum of weights.
  Ptr rowOf(Num item, int64_t g) { return kernel.workspace + (item * groups + g) * (cache.context + 2); }

  /// On a GPU, a first kernel computes scores, for which all threads of an item add up products.
  void scoreInWorkspace(Num item, Ptr q, Ptr keys, Num head, Num position) {
    for (int64_t g = 0; g < groups; ++g) {
      Ptr query = q + e.integer(g * cache.width), row = rowOf(item, g);
      Emitter::Carried start = {sinks.e ? sinks.load(head * groups + g)
                                        : e.real(-std::numeric_limits<double>::infinity()),
                                e.real(sinks.e ? 1 : 0)};
      Emitter::Carried end =
          e.loop(firstKey(position), position + 1, 1, start, [&](Num t, const Emitter::Carried &before) {
            Ptr key = keys + t * cache.width;
            Num score = e.sums(cache.width, 1, [&](Num i, int64_t width) {
              return Emitter::Carried{query.load(i, width) * key.load(i, width)};
            })[0];
            score = changed(score * op.getScale().convertToDouble(), head, g, t, position);
            e.once([&] { row.store(score, t); });
            Num largest = e.max(before[0], score);
            return Emitter::Carried{largest, e.fma(before[1], e.exp(before[0] - largest), e.exp(score - largest))};
          });
      e.once([&] {
        row.store(end[0], e.integer(cache.context));
        row.store(e.real(1) / end[1], e.integer(cache.context + 1));
      });
    }
  }

  /// A second kernel computes the weighted sum of values. Each thread of an item has some of its columns.
  void sumFromWorkspace(Num item, Ptr values, Ptr o, Num position) {
    for (int64_t g = 0; g < groups; ++g) {
      Ptr out = o + e.integer(g * cache.width), row = rowOf(item, g);
      Num largest = row.load(e.integer(cache.context)), factor = row.load(e.integer(cache.context + 1));
      e.vectors(cache.width, [&](Num i, int64_t width) {
        Num sum =
            e.loop(firstKey(position), position + 1, 1, {e.zeros(width)}, [&](Num t, const Emitter::Carried &sums) {
              Num weight = e.exp(row.load(t) - largest);
              return Emitter::Carried{e.fma((values + t * cache.width).load(i, width), weight, sums[0])};
            })[0];
        out.store(sum * factor, i);
      });
    }
  }

  /// Scores of all keys in sight, then their weights, then the sum of values by weight.
  void attend(Ptr q, Ptr keys, Ptr values, Ptr o, Num head, Num position) {
    Num begin = firstKey(position), end = position + 1;
    Emitter::Carried largest = scoreKeys(q, keys, head, position, begin, end), factors;
    for (int64_t g = 0; g < groups; ++g)
      factors.push_back(weigh(scores + e.integer(g * stride), begin, end, largest[g],
                              sinks.e ? sinks.load(head * groups + g) : Num()));
    sumValues(values, o, begin, end, factors);
  }

  /// Stores the scores of every query head, and returns the largest ones. A key is read once, for all query heads.
  Emitter::Carried scoreKeys(Ptr q, Ptr keys, Num head, Num position, Num begin, Num end) {
    Emitter::Carried start;
    for (int64_t g = 0; g < groups; ++g)
      start.push_back(sinks.e ? sinks.load(head * groups + g) : e.real(-std::numeric_limits<double>::infinity()));
    return e.loop(begin, end, 1, start, [&](Num t, const Emitter::Carried &before) {
      Emitter::Carried largest;
      Ptr key = keys + t * cache.width;
      Emitter::Carried products = e.sums(cache.width, groups, [&](Num i, int64_t width) {
        Emitter::Carried terms;
        Num k = key.load(i, width);
        for (int64_t g = 0; g < groups; ++g)
          terms.push_back((q + e.integer(g * cache.width)).load(i, width) * k);
        return terms;
      });
      for (int64_t g = 0; g < groups; ++g) {
        Num score = changed(products[g] * op.getScale().convertToDouble(), head, g, t, position);
        scores.store(score, t + g * stride);
        largest.push_back(e.max(before[g], score));
      }
      return largest;
    });
  }

  /// Applies the cap to a score and adds the score's addend.
  Num changed(Num score, Num head, int64_t g, Num t, Num position) {
    if (std::optional<llvm::APFloat> cap = op.getSoftcap())
      score = tanh(e, score * (1 / cap->convertToDouble())) * cap->convertToDouble();
    if (bias.e)
      score = score + bias.load((head * groups + g) * (2 * cache.context - 1) + (t - position + (cache.context - 1)));
    return score;
  }

  /// Replaces scores by weights. Returns 1 over their sum. Whole vectors begin at `begin`, so the order of the sum
  /// depends only on the number of keys.
  Num weigh(Ptr row, Num begin, Num end, Num largest, Num sink) {
    const int64_t lanes = e.lanes;
    Num whole = end - (end - begin) % e.integer(lanes);
    auto weight = [&](Num t, int64_t width) {
      Num x = width ? row.load(t, width) : row.load(t);
      x = e.exp(x - largest);
      row.store(x, t);
      return x;
    };
    Num sum = e.sum(e.loop(begin, whole, lanes, {e.zeros(lanes)}, [&](Num t, const Emitter::Carried &sums) {
      return Emitter::Carried{sums[0] + weight(t, lanes)};
    })[0]);
    sum = e.loop(whole, end, 1, {sum},
                 [&](Num t, const Emitter::Carried &sums) { return Emitter::Carried{sums[0] + weight(t, 0)}; })[0];
    if (sink.e)
      sum = sum + e.exp(sink - largest);
    return e.real(1) / sum;
  }

  /// Sums values by weight, for as many columns at a time as sums of all query heads fit into registers.
  void sumValues(Ptr values, Ptr o, Num begin, Num end, const Emitter::Carried &factors) {
    const int64_t most = std::max<int64_t>(1, 12 / groups) * e.lanes;
    for (int64_t from = 0; from < cache.width; from += most) {
      SmallVector<std::pair<int64_t, int64_t>> parts; // first column and width
      for (int64_t at = from, last = std::min(from + most, cache.width); at < last;) {
        int64_t width = std::min(e.lanes, last - at);
        parts.push_back({at, width});
        at += width;
      }
      Emitter::Carried zeros;
      for (int64_t g = 0; g < groups; ++g)
        for (auto [at, width] : parts)
          zeros.push_back(e.zeros(width));
      Emitter::Carried sums = e.loop(begin, end, 1, zeros, [&](Num t, const Emitter::Carried &before) {
        Emitter::Carried after, columns;
        Ptr value = values + t * cache.width;
        for (auto [at, width] : parts)
          columns.push_back(value.load(e.integer(at), width));
        for (int64_t g = 0, i = 0; g < groups; ++g) {
          Num weight = scores.load(t + g * stride);
          for (size_t part = 0; part < parts.size(); ++part, ++i)
            after.push_back(e.fma(e.splat(weight, parts[part].second), columns[part], before[i]));
        }
        return after;
      });
      for (int64_t g = 0, i = 0; g < groups; ++g)
        for (auto [at, width] : parts)
          o.store(sums[i++] * factors[g], e.integer(g * cache.width + at));
    }
  }

  CachedAttentionOp op;
  Kernel &kernel;
  Emitter &e = kernel.e;
  const CacheShape cache;
  const int64_t groups, stride = roundUp(cache.context, 16);
  Ptr bias, sinks, scores = kernel.scratch; ///< scores: a row of `stride` elements per query head
};
} // namespace

LogicalResult pc::kernels::emit(CachedAttentionOp op, Kernel &kernel) {
  CachedAttentionKernel(op, kernel).emit();
  return success();
}
