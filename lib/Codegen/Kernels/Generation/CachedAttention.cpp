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
/// The sizes of a cache, and where its rows begin. Batch row b of part p has the number p B + b, where B is the number
/// of batch rows, as if parts were additional batch rows.
struct CacheShape : CacheSizes {
  explicit CacheShape(Value cache) : CacheSizes(cast<RankedTensorType>(cache.getType()).getShape()) {}
  Num hasSlot(Emitter &e, Num slot) const { return e.inRange(slot, e.integer(slots)); }
  /// The first element of position 0 of `head` in a slot of batch row `b`.
  Num head(Num b, Num slot, Num head) const { return ((b * slots + slot) * heads + head) * (context * width); }
};

/// What a kernel needs to know about the token of an item. Items are ordered by part, batch row, token and head.
struct TokenOfItem {
  /// `ids` is the number of the operand with slots; the operand with positions follows it. The offset, if there is one,
  /// is the last operand.
  TokenOfItem(Kernel &kernel, const CacheShape &cache, int64_t tokens, unsigned ids, bool hasOffset, Num item)
      : head(item % cache.heads), row(item / (cache.heads * tokens)), number(item / cache.heads) {
    Emitter &e = kernel.e;
    if (cache.parts > 1 || hasOffset) {
      part = row / cache.batch;
      number = number % (cache.batch * tokens);
      first = hasOffset ? part + e.extend(kernel.operands.back().load(e.integer(0))) : part;
      first = first * cache.context;
    }
    slot = e.extend(kernel.operands[ids].load(number));
    position = e.extend(kernel.operands[ids + 1].load(number));
  }
  Num head, row, number; ///< the head, the batch row (of all parts), and the token without its part
  Num part, first;       ///< the part, and its first position; null in a cache without parts
  Num slot, position;
};
} // namespace

/// An item is one head of one token, for one part of the cache.
LogicalResult pc::kernels::emit(CacheWriteOp op, Kernel &kernel) {
  const CacheShape cache(op.getCache());
  const int64_t tokens = cast<RankedTensorType>(op.getX().getType()).getDimSize(1);
  Emitter &e = kernel.e;
  kernel.kind = "copy";
  kernel.forItems(cache.parts * cache.batch * tokens * cache.heads, cache.width, /*reduces=*/false, [&](Num item) {
    TokenOfItem token(kernel, cache, tokens, 2, op.getOffset() != nullptr, item);
    Num position = token.first.e ? token.position - token.first : token.position;
    e.when(cache.hasSlot(e, token.slot) & e.inRange(position, e.integer(cache.context)), [&] {
      Ptr from = kernel.operands[1] + (token.number * cache.heads + token.head) * cache.width;
      Ptr to = kernel.results[0] + (cache.head(token.row, token.slot, token.head) + position * cache.width);
      e.vectors(cache.width, [&](Num i, int64_t width) { to.store(from.load(i, width), i); });
    });
  });
  return success();
}

namespace {
/// Computes the attention of one token and one key/value head, for all query heads that share it. An item does this for
/// one part of the cache.
class CachedAttentionKernel {
public:
  CachedAttentionKernel(CachedAttentionOp op, Kernel &kernel)
      : op(op), kernel(kernel), cache(op.getKeys()), groups(cast<RankedTensorType>(op.getQ().getType()).getDimSize(3)) {
    unsigned next = 5;
    if (Value table = op.getBias()) {
      bias = kernel.operands[next++];
      biasSize = cast<RankedTensorType>(table.getType()).getDimSize(2);
    }
    if (op.getSinks())
      sinks = kernel.operands[next];
    if (op.getLse())
      lse = kernel.results[1];
  }

  /// Emits the op. On a CPU, an item computes all of its part of the cache. On a GPU, part 0 writes the scores to the
  /// workspace, and part 1 sums the values with their weights. An item that sees no key writes zeros, and an lse of
  /// -1e30, which gives it no weight when parts are merged.
  void emit() {
    const int64_t tokens = cast<RankedTensorType>(op.getQ().getType()).getDimSize(1), row = groups * cache.width;
    kernel.kind = "attention";
    kernel.scratchBytes = kernel.simt ? 0 : 4 * groups * stride;
    int64_t items = cache.parts * cache.batch * tokens * cache.heads;
    kernel.forItems(items, cache.width, /*reduces=*/kernel.part == 0, [&](Num item) {
      TokenOfItem token(kernel, cache, tokens, 3, op.getOffset() != nullptr, item);
      Item now = itemOf(token, item);
      Ptr o = kernel.results[0] + item * row;
      e.when(
          now.sees,
          [&] {
            Num at = cache.head(token.row, token.slot, token.head);
            Ptr query = kernel.operands[0] + now.query * row;
            Ptr keys = kernel.operands[1] + at, values = kernel.operands[2] + at;
            if (!kernel.simt)
              attend(query, keys, values, o, now);
            else if (kernel.part == 0)
              scoreInWorkspace(query, keys, now);
            else
              sumFromWorkspace(values, o, now);
          },
          [&] {
            if (!kernel.simt || kernel.part)
              e.vectors(row, [&](Num i, int64_t width) { o.store(e.zeros(width), i); });
            if (lse.e && kernel.part == 0)
              e.once([&] {
                for (int64_t g = 0; g < groups; ++g)
                  lse.store(e.real(-1e30), indexOfLse(now, g));
              });
          });
    });
  }

private:
  /// An item. Its positions and keys are counted from the first one of its part.
  struct Item {
    Num number, head, query, part;     ///< `query`: the token and head, without the part
    Num position, begin, end, isFirst; ///< keys in sight, and whether this part has position 0 (null without parts)
    Num sees;                          ///< whether there is anything to compute
  };

  /// A part sees its keys that are not beyond the token's position and that are within the window.
  Item itemOf(const TokenOfItem &token, Num item) {
    Item now{item, token.head, token.number * cache.heads + token.head, token.part, token.position, {}, {}, {}, {}};
    std::optional<uint64_t> window = op.getWindow();
    const bool hasParts = token.first.e;
    if (hasParts)
      now.position = token.position - token.first;
    now.begin = window ? e.max(now.position + (1 - static_cast<int64_t>(*window)), e.integer(0)) : e.integer(0);
    now.end = now.position + 1;
    now.sees = cache.hasSlot(e, token.slot);
    if (!hasParts) {
      now.sees = now.sees & e.inRange(token.position, e.integer(cache.context));
      return now;
    }
    now.isFirst = token.first < e.integer(1);
    now.end = e.max(e.min(now.end, e.integer(cache.context)), now.begin);
    Num sink = sinks.e ? e.select(now.isFirst, e.integer(1), e.integer(0)) : e.integer(0);
    now.sees = now.sees & (e.integer(-1) < token.position) & (now.begin < now.end + sink);
    return now;
  }

  Num indexOfLse(const Item &now, int64_t g) {
    Num index = (now.query * groups + g) * cache.parts;
    return now.part.e ? index + now.part : index;
  }

  /// The extra score of a query head, which only the first part has; null if there is none.
  Num sinkOf(const Item &now, int64_t g) {
    if (!sinks.e)
      return {};
    Num sink = sinks.load(now.head * groups + g);
    return now.isFirst.e ? e.select(now.isFirst, sink, e.real(-std::numeric_limits<double>::infinity())) : sink;
  }

  /// Stores the logarithm of the sum of e^score, if it is a result. `factor` is 1 over the sum of weights.
  void storeLse(const Item &now, int64_t g, Num largest, Num factor) {
    if (lse.e)
      lse.store(largest - e.log(factor), indexOfLse(now, g));
  }

  /// Returns the row of the workspace for a query head of an item. It holds the scores of all positions, the largest
  /// score, and 1 over the sum of weights.
  Ptr rowOf(Num item, int64_t g) { return kernel.workspace + (item * groups + g) * (cache.context + 2); }

  /// On a GPU, a first kernel computes scores. All threads of an item add up the products of a score.
  void scoreInWorkspace(Ptr q, Ptr keys, const Item &now) {
    for (int64_t g = 0; g < groups; ++g) {
      Ptr query = q + e.integer(g * cache.width), row = rowOf(now.number, g);
      Num sink = sinkOf(now, g), none = e.real(-std::numeric_limits<double>::infinity()), one = e.real(1);
      Num sinks = !sink.e ? e.real(0) : now.isFirst.e ? e.select(now.isFirst, one, e.real(0)) : one;
      Emitter::Carried start = {sink.e ? sink : none, sinks};
      Emitter::Carried end = e.loop(now.begin, now.end, 1, start, [&](Num t, const Emitter::Carried &before) {
        Ptr key = keys + t * cache.width;
        Num score = e.sums(cache.width, 1, [&](Num i, int64_t width) {
          return Emitter::Carried{query.load(i, width) * key.load(i, width)};
        })[0];
        score = changed(score * op.getScale().convertToDouble(), now, g, t);
        e.once([&] { row.store(score, t); });
        Num largest = e.max(before[0], score);
        return Emitter::Carried{largest, e.fma(before[1], e.exp(before[0] - largest), e.exp(score - largest))};
      });
      e.once([&] {
        row.store(end[0], e.integer(cache.context));
        row.store(one / end[1], e.integer(cache.context + 1));
        storeLse(now, g, end[0], one / end[1]);
      });
    }
  }

  /// A second kernel computes the weighted sum of values. Each thread of an item has some of its columns.
  void sumFromWorkspace(Ptr values, Ptr o, const Item &now) {
    for (int64_t g = 0; g < groups; ++g) {
      Ptr out = o + e.integer(g * cache.width), row = rowOf(now.number, g);
      Num largest = row.load(e.integer(cache.context)), factor = row.load(e.integer(cache.context + 1));
      e.vectors(cache.width, [&](Num i, int64_t width) {
        Num sum = e.loop(now.begin, now.end, 1, {e.zeros(width)}, [&](Num t, const Emitter::Carried &sums) {
          Num weight = e.exp(row.load(t) - largest);
          return Emitter::Carried{e.fma((values + t * cache.width).load(i, width), weight, sums[0])};
        })[0];
        out.store(sum * factor, i);
      });
    }
  }

  /// Computes the scores of all keys that the token sees, then their weights, and then the weighted sum of values.
  void attend(Ptr q, Ptr keys, Ptr values, Ptr o, const Item &now) {
    Emitter::Carried sinks, factors;
    for (int64_t g = 0; g < groups; ++g)
      sinks.push_back(sinkOf(now, g));
    Emitter::Carried largest = scoreKeys(q, keys, now, sinks);
    for (int64_t g = 0; g < groups; ++g) {
      factors.push_back(weigh(scores + e.integer(g * stride), now.begin, now.end, largest[g], sinks[g]));
      storeLse(now, g, largest[g], factors[g]);
    }
    sumValues(values, o, now.begin, now.end, factors);
  }

  /// Stores the scores of every query head, and returns the largest ones. A key is read once, for all query heads.
  Emitter::Carried scoreKeys(Ptr q, Ptr keys, const Item &now, const Emitter::Carried &sinks) {
    Emitter::Carried start;
    for (int64_t g = 0; g < groups; ++g)
      start.push_back(sinks[g].e ? sinks[g] : e.real(-std::numeric_limits<double>::infinity()));
    return e.loop(now.begin, now.end, 1, start, [&](Num t, const Emitter::Carried &before) {
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
        Num score = changed(products[g] * op.getScale().convertToDouble(), now, g, t);
        scores.store(score, t + g * stride);
        largest.push_back(e.max(before[g], score));
      }
      return largest;
    });
  }

  /// Applies the cap to a score and adds the score's addend.
  Num changed(Num score, const Item &now, int64_t g, Num t) {
    if (std::optional<llvm::APFloat> cap = op.getSoftcap())
      score = tanh(e, score * (1 / cap->convertToDouble())) * cap->convertToDouble();
    if (bias.e)
      score = score + bias.load((now.head * groups + g) * biasSize + (t - now.position + (biasSize - 1) / 2));
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

  /// Computes weighted sums of values, for as many columns at a time as fit into registers for all query heads.
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
  int64_t biasSize = 0;
  Ptr bias, sinks, lse, scores = kernel.scratch; ///< scores: a row of `stride` elements per query head
};
} // namespace

LogicalResult pc::kernels::emit(CachedAttentionOp op, Kernel &kernel) {
  CachedAttentionKernel(op, kernel).emit();
  return success();
}
