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
/// The index in a cache (b, n, k, t, d) at which the row of a position and a head begins. Parts of positions are caches
/// one after the other.
struct CacheIndex : CacheSizes {
  explicit CacheIndex(const Tensor &cache) : CacheSizes(cache.shape) {}
  bool hasSlot(double slot) const { return slot >= 0 && slot < double(slots); }
  int64_t row(int64_t part, int64_t b, double slot, int64_t head, int64_t position) const {
    return ((((part * batch + b) * slots + int64_t(slot)) * heads + head) * context + position) * width;
  }
};
} // namespace

/// A token whose slot or position is outside of the cache writes nothing. `offset` is the first part.
Tensors pc::cacheWrite(Inputs in, int64_t offset) {
  const Tensor &x = *in[1], &slots = *in[2], &positions = *in[3];
  Tensor result = *in[0];
  const CacheIndex at(result);
  int64_t tokens = x.shape[1];
  for (int64_t token = 0; token < slots.size(); ++token) {
    double position = positions[token] - double(offset * at.context);
    if (!at.hasSlot(slots[token]) || !(position >= 0 && position < double(at.parts * at.context)))
      continue;
    int64_t part = int64_t(position) / at.context, inPart = int64_t(position) % at.context;
    for (int64_t head = 0; head < at.heads; ++head)
      std::copy_n(x.data.begin() + (token * at.heads + head) * at.width, at.width,
                  result.data.begin() + at.row(part, token / tokens, slots[token], head, inPart));
  }
  return {result};
}

/// Softmax over the keys of the token's slot, up to the token's own position. Each part of a cache has its own result.
Tensors pc::cachedAttention(CachedAttentionOp op, Inputs in, int64_t offset) {
  const Tensor &q = *in[0], &keys = *in[1], &values = *in[2], &slots = *in[3], &positions = *in[4];
  const CacheIndex at(keys);
  Scores score{op.getScale().convertToDouble()};
  score.queries = at.context;
  if (std::optional<llvm::APFloat> cap = op.getSoftcap())
    score.cap = cap->convertToDouble();
  size_t next = 5;
  if (op.getBias()) {
    score.bias = in[next++];
    score.queries = (score.bias->shape[2] + 1) / 2;
  }
  const Tensor *sinks = op.getSinks() ? in[next] : nullptr;
  const int64_t tokens = q.shape[1], groups = q.shape[3], d = at.width, heads = at.heads * groups;
  Shape shape(q.shape), rows(q.shape.begin(), std::prev(q.shape.end()));
  rows.push_back(at.parts);
  if (op.hasParts())
    shape.insert(shape.begin(), at.parts);
  Tensor o(shape), lse(rows, -1e30);
  // The result of one query head of one token for a part whose first position is `base`.
  auto attend = [&](int64_t part, int64_t token, int64_t head) {
    const int64_t k = head / groups, base = (offset + part) * at.context;
    const int64_t query = token * heads + head, result = (part * slots.size() * heads + query) * d;
    const int64_t begin = at.row(part, token / tokens, slots[token], k, 0);
    auto position = static_cast<int64_t>(positions[token]);
    int64_t first = op.getWindow() ? position - static_cast<int64_t>(*op.getWindow()) + 1 : 0;
    std::vector<double> weights;
    // A sink counts once for each query, so only the first part of a cache has it.
    const bool sink = sinks && base == 0;
    double largest = sink ? (*sinks)[head] : -INFINITY;
    // A part has the positions from `base` on. The token sees those up to its own position and inside of the window.
    for (int64_t t = std::max(first, base); t <= std::min(position, base + at.context - 1); ++t) {
      double product = 0;
      for (int64_t i = 0; i < d; ++i)
        product += q[query * d + i] * keys[begin + (t - base) * d + i];
      weights.push_back(score.of(product, k, head % groups, position, t));
      largest = std::max(largest, weights.back());
    }
    if (weights.empty() && !sink)
      return;
    double sum = sink ? std::exp((*sinks)[head] - largest) : 0;
    for (double &weight : weights)
      sum += weight = std::exp(weight - largest);
    const int64_t start = begin + (std::max(first, base) - base) * d;
    for (size_t t = 0; t < weights.size(); ++t)
      for (int64_t i = 0; i < d; ++i)
        o[result + i] += weights[t] / sum * values[start + static_cast<int64_t>(t) * d + i];
    lse[query * at.parts + part] = largest + std::log(sum);
  };
  const double end = op.hasParts() ? INFINITY : double(at.context); // with parts, the end of the cache is not known
  for (int64_t part = 0; part < at.parts; ++part)
    for (int64_t token = 0; token < slots.size(); ++token)
      if (at.hasSlot(slots[token]) && positions[token] >= 0 && positions[token] < end)
        for (int64_t head = 0; head < heads; ++head)
          attend(part, token, head);
  if (op.hasParts())
    return {o, lse};
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
    // The settings of a row: temperature, top-k, top-p, min-p.
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
    // Equal logits are kept or dropped together, so that the result does not depend on the order of a sort.
    for (size_t i = 0, next; p < 1 && i < sorted.size(); i = next) {
      for (next = i; next < sorted.size() && sorted[next] == sorted[i]; ++next)
        before += weights[next];
      if (before >= p * all) {
        cut(sorted[i]);
        break;
      }
    }
    // A class needs at least `share` of the probability of the best class: exp((x - largest) / temperature) >= share.
    if (share > 0)
      cut(std::min(largest, largest + temperature * std::log(share)));
    result[row] = sorted.back();
  }
  return {result};
}
