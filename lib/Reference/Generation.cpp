//===- Generation.cpp - The meaning of ops that generate text ---------------------------------===//
// Caches of keys and values, attention to them, and the choice of tokens, in double precision.
//===-----------------------------------------------------------------------------------------===//
#include "pc/IR/Generation.h"
#include "Evaluators.h"
#include "pcrt/random.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace pc;

namespace {
/// The index in a cache (b, n, k, t, d) at which the row of a position and a head begins.
struct CacheIndex {
  explicit CacheIndex(const Tensor &cache)
      : slots(cache.shape[1]), heads(cache.shape[2]), context(cache.shape[3]), width(cache.shape[4]) {}
  bool has(double slot, double position) const {
    return slot >= 0 && slot < double(slots) && position >= 0 && position < double(context);
  }
  int64_t row(int64_t b, double slot, int64_t head, int64_t position) const {
    return (((b * slots + int64_t(slot)) * heads + head) * context + position) * width;
  }
  int64_t slots, heads, context, width;
};
} // namespace

/// A token whose slot or position is outside of the cache writes nothing.
Tensors pc::cacheWrite(Inputs in) {
  const Tensor &x = *in[1], &slots = *in[2], &positions = *in[3];
  Tensor result = *in[0];
  const CacheIndex at(result);
  int64_t tokens = x.shape[1];
  for (int64_t token = 0; token < slots.size(); ++token)
    for (int64_t head = 0; head < at.heads; ++head)
      if (at.has(slots[token], positions[token]))
        std::copy_n(x.data.begin() + (token * at.heads + head) * at.width, at.width,
                    result.data.begin() +
                        at.row(token / tokens, slots[token], head, static_cast<int64_t>(positions[token])));
  return {result};
}

/// Softmax over the positions up to the token's own, of the keys of its slot.
Tensors pc::cachedAttention(CachedAttentionOp op, Inputs in) {
  const Tensor &q = *in[0], &keys = *in[1], &values = *in[2], &slots = *in[3], &positions = *in[4];
  const CacheIndex at(keys);
  Scores score{op.getScale().convertToDouble()};
  score.queries = at.context;
  if (std::optional<llvm::APFloat> cap = op.getSoftcap())
    score.cap = cap->convertToDouble();
  size_t next = 5;
  if (op.getBias())
    score.bias = in[next++];
  if (op.getSinks())
    score.sinks = in[next];
  int64_t tokens = q.shape[1], groups = q.shape[3], d = at.width;
  Tensor o(q.shape);
  for (int64_t token = 0; token < slots.size(); ++token) {
    if (!at.has(slots[token], positions[token]))
      continue;
    auto position = static_cast<int64_t>(positions[token]);
    int64_t first = op.getWindow() ? std::max<int64_t>(0, position - static_cast<int64_t>(*op.getWindow()) + 1) : 0;
    for (int64_t head = 0; head < at.heads * groups; ++head) {
      int64_t k = head / groups, g = head % groups, query = (token * at.heads * groups + head) * d;
      int64_t begin = at.row(token / tokens, slots[token], k, 0);
      std::vector<double> weights;
      double largest = score.sinks ? (*score.sinks)[head] : -INFINITY;
      for (int64_t t = first; t <= position; ++t) {
        double product = 0;
        for (int64_t i = 0; i < d; ++i)
          product += q[query + i] * keys[begin + t * d + i];
        weights.push_back(score.of(product, k, g, position, t));
        largest = std::max(largest, weights.back());
      }
      double sum = score.sinks ? std::exp((*score.sinks)[head] - largest) : 0;
      for (double &weight : weights)
        sum += weight = std::exp(weight - largest);
      for (size_t t = 0; t < weights.size(); ++t)
        for (int64_t i = 0; i < d; ++i)
          o[query + i] += weights[t] / sum * values[begin + (first + static_cast<int64_t>(t)) * d + i];
    }
  }
  return {o};
}

/// Each class has its own random number.
Tensors pc::gumbel(GumbelOp op, Inputs in, int64_t offset) {
  const Tensor &logits = *in[0], &sampling = *in[1], &seeds = *in[2];
  const Tensor *above = op.getAbove() ? in[3] : nullptr;
  int64_t classes = logits.shape.back(), settings = sampling.shape.back();
  Tensor y(logits);
  for (int64_t i = 0; i < logits.size(); ++i) {
    int64_t row = i / classes, number = offset + i % classes;
    double temperature = sampling[row * settings];
    if (!(temperature > 0))
      continue;
    auto word = [](double x) { return static_cast<uint32_t>(static_cast<int64_t>(x)); };
    uint32_t counter[4] = {static_cast<uint32_t>(number / 4), word(seeds[row * 3 + 2]), 0, PCRT_RANDOM_SAMPLES};
    pcrt_philox(counter, word(seeds[row * 3]), word(seeds[row * 3 + 1]));
    double u = (double(counter[number % 4] >> 9) + 0.5) / (1 << 23);
    y[i] = above && logits[i] < (*above)[row] ? -INFINITY : logits[i] / temperature - std::log(-std::log(u));
  }
  return {y};
}

/// Sorts a row, and cuts it three times.
Tensors pc::samplingThreshold(Inputs in) {
  const Tensor &logits = *in[0], &sampling = *in[1];
  int64_t classes = logits.shape.back();
  Tensor result(Shape(logits.shape.begin(), logits.shape.end() - 1), -INFINITY);
  for (int64_t row = 0; row < result.size(); ++row) {
    double temperature = sampling[row * 4], k = sampling[row * 4 + 1], p = sampling[row * 4 + 2];
    double share = sampling[row * 4 + 3];
    if (!(temperature > 0) || (k <= 0 && p >= 1 && share <= 0))
      continue;
    std::vector<double> sorted(logits.data.begin() + row * classes, logits.data.begin() + (row + 1) * classes);
    if (llvm::any_of(sorted, [](double x) { return std::isnan(x); })) { // which cannot be sorted
      result[row] = std::nan("");
      continue;
    }
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const double largest = sorted[0];
    auto cut = [&](double least) {
      sorted.erase(std::find_if(sorted.begin(), sorted.end(), [&](double x) { return x < least; }), sorted.end());
    };
    if (k > 0 && k < double(classes))
      cut(sorted[static_cast<size_t>(std::ceil(k)) - 1]);
    std::vector<double> weights(sorted.size());
    std::transform(sorted.begin(), sorted.end(), weights.begin(),
                   [&](double x) { return std::exp((x - largest) / temperature); });
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    double before = 0; // the weight of classes with larger logits
    for (size_t i = 0, next; p < 1 && i < sorted.size(); i = next) {
      for (next = i; next < sorted.size() && sorted[next] == sorted[i]; ++next)
        before += weights[next];
      if (before >= p * all) {
        cut(sorted[i]);
        break;
      }
    }
    if (share > 0)
      cut(std::min(largest, largest + temperature * std::log(share)));
    result[row] = sorted.back();
  }
  return {result};
}
