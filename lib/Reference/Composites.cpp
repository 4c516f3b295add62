//===- Composites.cpp - Norms, attention, rope, tables, losses, optimizers -------------------===//
// Each function is the definition of an op in double precision, written as directly as possible. Kernels and rewrites
// are tested against it, so it shares no code with them. Shapes are in Evaluators.h. Reductions run in index order.
//===-----------------------------------------------------------------------------===//
#include "Evaluators.h"
#include "pcrt/description.h"
#include "pcrt/random.h"

#include <algorithm>
#include <cmath>

using namespace pc;

/// The number of rows of a tensor (rows..., e).
static int64_t numRows(const Tensor &x) { return x.shape.back() ? x.size() / x.shape.back() : 0; }

/// The shape of a tensor (rows..., e) without e.
static Shape rowShape(const Tensor &x) { return Shape(llvm::ArrayRef(x.shape).drop_back()); }

//===---------------------------------------------------------------------------===//
// Norms
//===---------------------------------------------------------------------------===//

/// The variance is computed from the differences from the mean.
Tensors pc::layerNorm(Inputs in, double eps) {
  const Tensor &x = *in[0], &gamma = *in[1], &beta = *in[2];
  int64_t e = x.shape.back();
  Tensor y(x.shape), mean(rowShape(x)), rstd(rowShape(x));
  for (int64_t r = 0; r < numRows(x); ++r) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < e; ++i)
      sum += x[r * e + i];
    mean[r] = sum / e;
    for (int64_t i = 0; i < e; ++i)
      squares += (x[r * e + i] - mean[r]) * (x[r * e + i] - mean[r]);
    rstd[r] = 1 / std::sqrt(squares / e + eps);
    for (int64_t i = 0; i < e; ++i)
      y[r * e + i] = (x[r * e + i] - mean[r]) * rstd[r] * gamma[i] + beta[i];
  }
  return {y, mean, rstd};
}

/// dgamma and dbeta are sums over all rows.
Tensors pc::layerNormGrad(Inputs in) {
  const Tensor &dy = *in[0], &x = *in[1], &mean = *in[2], &rstd = *in[3], &gamma = *in[4];
  int64_t e = x.shape.back();
  Tensor dx(x.shape), dgamma(gamma.shape), dbeta(gamma.shape);
  for (int64_t r = 0; r < numRows(x); ++r) {
    // dx = rstd (g - mean(g) - h mean(g h)) with h the normalized x.
    double meanG = 0, meanGX = 0; // means of g = dy gamma, and of g times the normalized x
    for (int64_t i = 0; i < e; ++i) {
      double normal = (x[r * e + i] - mean[r]) * rstd[r], d = dy[r * e + i];
      dgamma[i] += d * normal;
      dbeta[i] += d;
      meanG += d * gamma[i] / e;
      meanGX += d * gamma[i] * normal / e;
    }
    for (int64_t i = 0; i < e; ++i) {
      double normal = (x[r * e + i] - mean[r]) * rstd[r];
      dx[r * e + i] = rstd[r] * (dy[r * e + i] * gamma[i] - meanG - normal * meanGX);
    }
  }
  return {dx, dgamma, dbeta};
}

/// eps is added to the mean of the squares, before the root.
Tensors pc::rmsNorm(Inputs in, double eps) {
  const Tensor &x = *in[0], &gamma = *in[1];
  int64_t e = x.shape.back();
  Tensor y(x.shape), rstd(rowShape(x));
  for (int64_t r = 0; r < numRows(x); ++r) {
    double squares = 0;
    for (int64_t i = 0; i < e; ++i)
      squares += x[r * e + i] * x[r * e + i];
    rstd[r] = 1 / std::sqrt(squares / e + eps);
    for (int64_t i = 0; i < e; ++i)
      y[r * e + i] = x[r * e + i] * rstd[r] * gamma[i];
  }
  return {y, rstd};
}

/// dx = rstd (g - h mean(g h)), where h is the normalized x and g = dy gamma.
Tensors pc::rmsNormGrad(Inputs in) {
  const Tensor &dy = *in[0], &x = *in[1], &rstd = *in[2], &gamma = *in[3];
  int64_t e = x.shape.back();
  Tensor dx(x.shape), dgamma(gamma.shape);
  for (int64_t r = 0; r < numRows(x); ++r) {
    double meanGX = 0;
    for (int64_t i = 0; i < e; ++i) {
      double normal = x[r * e + i] * rstd[r], d = dy[r * e + i];
      dgamma[i] += d * normal;
      meanGX += d * gamma[i] * normal / e;
    }
    for (int64_t i = 0; i < e; ++i)
      dx[r * e + i] = rstd[r] * (dy[r * e + i] * gamma[i] - x[r * e + i] * rstd[r] * meanGX);
  }
  return {dx, dgamma};
}

//===---------------------------------------------------------------------------===//
// Attention
//===---------------------------------------------------------------------------===//

/// Rotates pairs of elements (i, i + c) or, if interleaved, (2i, 2i + 1). The inverse rotates by the negative angle.
Tensors pc::rope(Inputs in, bool inverse, bool interleaved, int64_t first) {
  const Tensor &x = *in[0], &cos = *in[1], &sin = *in[2];
  int64_t batch = x.shape[0], length = x.shape[1], d = x.shape.back(), half = cos.shape.back();
  int64_t heads = batch * length * d ? x.size() / (batch * length * d) : 0;
  Tensor y(x);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < length; ++s)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < half; ++i) {
          int64_t at = ((b * length + s) * heads + h) * d + first + (interleaved ? 2 * i : i);
          int64_t other = interleaved ? at + 1 : at + half, row = cos.rank() == 3 ? b * length + s : s;
          double u = x[at], w = x[other], c = cos[row * half + i], z = sin[row * half + i];
          if (inverse)
            z = -z;
          y[at] = u * c - w * z;
          y[other] = w * c + u * z;
        }
  return {y};
}

namespace {
/// Positions of the elements of q (b, s, k, g, d), k and v (b, t, k, d) and lse (b, k, g, s).
struct AttentionIndex {
  int64_t B, S, T, K, G, D;
  AttentionIndex(const Tensor &q, const Tensor &k)
      : B(q.shape[0]), S(q.shape[1]), T(k.shape[1]), K(q.shape[2]), G(q.shape[3]), D(q.shape[4]) {}
  int64_t q(int64_t b, int64_t s, int64_t k, int64_t g) const { return (((b * S + s) * K + k) * G + g) * D; }
  int64_t kv(int64_t b, int64_t t, int64_t k) const { return ((b * T + t) * K + k) * D; }
  int64_t lse(int64_t b, int64_t k, int64_t g, int64_t s) const { return ((b * K + k) * G + g) * S + s; }
  /// Calls `row(b, s, k, g)` for every query.
  template <typename F> void forEachQuery(F row) const {
    for (int64_t b = 0; b < B; ++b)
      for (int64_t s = 0; s < S; ++s)
        for (int64_t k = 0; k < K; ++k)
          for (int64_t g = 0; g < G; ++g)
            row(b, s, k, g);
  }
};

double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += a[i] * b[i];
  return sum;
}
} // namespace

/// An element is dropped if its random number is below the threshold of the drop. Kept elements are scaled up.
Mask pc::maskOf(DrawnOpInterface op, const Tensor *random, const EvaluateContext &context) {
  DropAttr drop = op.getDropAttr();
  if (!drop)
    return [](llvm::ArrayRef<int64_t>) { return 1; };
  // The random bits of an element depend only on its global index, so that all placements drop the same elements.
  // Philox gives eight 16-bit numbers per counter.
  uint32_t words[PCRT_RANDOM_COUNT];
  for (int i = 0; i < PCRT_RANDOM_COUNT; ++i)
    words[i] = static_cast<uint32_t>(static_cast<int64_t>((*random)[i]));
  Shape start = context.drawnStart, sizes = context.drawnSizes;
  start[0] += words[PCRT_RANDOM_ROW];
  sizes.back() = (sizes.back() + 7) / 8 * 8;
  llvm::SmallVector<int64_t> sequences = op.getDrawnSequences();
  return [=](llvm::ArrayRef<int64_t> index) {
    uint64_t number = 0;
    for (auto [d, i] : llvm::enumerate(index)) {
      int64_t at = start[d] + i;
      bool isPosition = llvm::is_contained(sequences, static_cast<int64_t>(d));
      number = number * sizes[d] + (isPosition ? sequencePosition(op, at) : at);
    }
    uint32_t counter[4] = {static_cast<uint32_t>(number / 8), static_cast<uint32_t>(number / 8 >> 32),
                           words[PCRT_RANDOM_STEP], PCRT_RANDOM_DROPS + words[PCRT_RANDOM_KEY]};
    pcrt_philox(counter, words[PCRT_RANDOM_SEED_LOW], words[PCRT_RANDOM_SEED_HIGH]);
    uint32_t bits = counter[number % 8 / 2] >> 16 * (number % 2) & 0xffff;
    return bits < drop.getThreshold() ? 0.0 : drop.scale();
  };
}

double Scores::of(double product, int64_t k, int64_t g, int64_t s, int64_t t) const {
  double score = scale * product;
  if (cap)
    score = cap * std::tanh(score / cap);
  int64_t groups = bias ? bias->shape[1] : 1, entries = bias ? bias->shape[2] : 1;
  return bias ? score + (*bias)[(k * groups + g) * entries + t - s + queries - 1] : score;
}
double Scores::slope(double product) const {
  double capped = cap ? std::tanh(scale * product / cap) : 0;
  return scale * (1 - capped * capped);
}

/// Softmax over the keys that the query sees, computed with the largest score subtracted.
Tensors pc::attention(Inputs in, const Scores &score, const Sight &sees, Rounding factor, const Mask &mask) {
  const Tensor &q = *in[0], &k = *in[1], &v = *in[2];
  AttentionIndex at(q, k);
  Tensor o(q.shape), lse(Shape{at.B, at.K, at.G, at.S});
  std::vector<double> scores(at.T);
  at.forEachQuery([&](int64_t b, int64_t s, int64_t h, int64_t g) {
    double largest = -INFINITY, sum = 0;
    int64_t query = at.q(b, s, h, g);
    for (int64_t t = 0; t < at.T; ++t) {
      scores[t] = sees(b, s, t) ? score.of(dot(&q.data[query], &k.data[at.kv(b, t, h)], at.D), h, g, s, t) : -INFINITY;
      largest = std::max(largest, scores[t]);
    }
    // A sink takes part in the softmax of each query, but has no value to add.
    if (score.sinks) {
      double sink = (*score.sinks)[h * at.G + g];
      largest = std::max(largest, sink);
      sum = std::exp(sink - largest);
    }
    for (int64_t t = 0; t < at.T; ++t)
      if (sees(b, s, t))
        sum += std::exp(scores[t] - largest);
    lse[at.lse(b, h, g, s)] = largest + std::log(sum);
    for (int64_t t = 0; t < at.T; ++t) {
      if (!sees(b, s, t))
        continue;
      double weight = factor(std::exp(scores[t] - largest) * mask({b, h, g, s, t})) / sum;
      for (int64_t i = 0; i < at.D; ++i)
        o[query + i] += weight * v[at.kv(b, t, h) + i];
    }
  });
  return {o, lse};
}

/// Recomputes the weights from the scores and the log-sum-exp, as kernels do.
Tensors pc::attentionGrad(Inputs in, const Scores &score, const Sight &sees, Rounding factor, const Mask &mask,
                          bool ofBias) {
  const Tensor &q = *in[0], &k = *in[1], &v = *in[2], &o = *in[3], &lse = *in[4], &dout = *in[5];
  AttentionIndex at(q, k);
  Tensor dq(q.shape), dk(k.shape), dv(v.shape), dbias(Shape{at.B, at.K, at.G, at.S + at.T - 1});
  at.forEachQuery([&](int64_t b, int64_t s, int64_t h, int64_t g) {
    int64_t query = at.q(b, s, h, g);
    // dout . o is the sum over keys of p dp, which the gradient of softmax subtracts.
    double doutO = dot(&dout.data[query], &o.data[query], at.D);
    for (int64_t t = 0; t < at.T; ++t) {
      if (!sees(b, s, t))
        continue;
      int64_t key = at.kv(b, t, h);
      double product = dot(&q.data[query], &k.data[key], at.D);
      double p = std::exp(score.of(product, h, g, s, t) - lse[at.lse(b, h, g, s)]);
      double kept = mask({b, h, g, s, t});
      // The gradient of softmax: p (dp - sum p dp), where that sum is dout . o.
      double change = p * (kept * dot(&dout.data[query], &v.data[key], at.D) - doutO);
      double dscore = factor(change * score.slope(product));
      dbias[((b * at.K + h) * at.G + g) * dbias.shape[3] + t - s + at.S - 1] += change;
      for (int64_t i = 0; i < at.D; ++i) {
        dv[key + i] += factor(p * kept) * dout[query + i];
        dq[query + i] += dscore * k[key + i];
        dk[key + i] += dscore * q[query + i];
      }
    }
  });
  return ofBias ? Tensors{dq, dk, dv, dbias} : Tensors{dq, dk, dv};
}

/// With tables of a rotation, q and k are rotated after they are split.
Tensors pc::splitQkv(Inputs in) {
  const Tensor &x = *in[0];
  // Each key head has its query heads first, then its key and its value.
  Shape start(5, 0), size(x.shape), flat = {x.shape[0], x.shape[1], x.shape[2], x.shape[4]};
  size[3] -= 2;
  Tensors parts = {x.box(start, size)};
  start[3] = size[3], size[3] = 1;
  for (; start[3] < x.shape[3]; ++start[3])
    parts.push_back(x.box(start, size)), parts.back().shape = flat;
  if (in.size() == 3)
    for (int i : {0, 1})
      parts[i] = rope({&parts[i], in[1], in[2]}, /*inverse=*/false)[0];
  return parts;
}

/// The inverse of splitQkv: rotates gradients of q and k back, and joins the three along the heads.
Tensors pc::joinQkv(Inputs in) {
  Tensors parts = {*in[0], *in[1], *in[2]};
  if (in.size() == 5)
    for (int i : {0, 1})
      parts[i] = rope({&parts[i], in[3], in[4]}, /*inverse=*/true)[0];
  Shape shape(parts[0].shape), start(5, 0);
  shape[3] += 2;
  Tensor x(shape);
  for (Tensor &part : parts) {
    shape[3] = part.rank() == 5 ? part.shape[3] : 1;
    part.shape = shape;
    x.merge(start, part, [](double &to, double from) { to = from; });
    start[3] += shape[3];
  }
  return {x};
}

/// The result is the average of both parts, weighted by their sums of exponentials.
Tensors pc::mergeAttention(Inputs in) {
  const Tensor &o1 = *in[0], &lse1 = *in[1], &o2 = *in[2], &lse2 = *in[3];
  AttentionIndex at(o1, o1);
  Tensor o(o1.shape), lse(lse1.shape);
  at.forEachQuery([&](int64_t b, int64_t s, int64_t h, int64_t g) {
    int64_t row = at.lse(b, h, g, s), query = at.q(b, s, h, g);
    // Both parts are softmax averages over their own keys; exp(lse) is the weight of each part.
    double largest = std::max(lse1[row], lse2[row]);
    double first = std::exp(lse1[row] - largest), second = std::exp(lse2[row] - largest);
    lse[row] = largest + std::log(first + second);
    for (int64_t i = 0; i < at.D; ++i)
      o[query + i] = (o1[query + i] * first + o2[query + i] * second) / (first + second);
  });
  return {o, lse};
}

//===---------------------------------------------------------------------------===//
// Tables and losses
//===---------------------------------------------------------------------------===//

/// The largest element of a row is subtracted first, which does not change the result.
Tensors pc::softmax(Inputs in) {
  const Tensor &x = *in[0];
  int64_t c = x.shape.back();
  Tensor y(x.shape);
  for (int64_t r = 0; r < numRows(x); ++r) {
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < c; ++i)
      largest = std::max(largest, x[r * c + i]);
    for (int64_t i = 0; i < c; ++i)
      sum += y[r * c + i] = std::exp(x[r * c + i] - largest);
    for (int64_t i = 0; i < c; ++i)
      y[r * c + i] /= sum;
  }
  return {y};
}

/// Marks the entries with 1 and leaves the others 0, so that the result can be a factor.
Tensors pc::topK(Inputs in, int64_t k) {
  const Tensor &x = *in[0];
  int64_t c = x.shape.back();
  Tensor chosen(x.shape);
  std::vector<int64_t> order(c);
  for (int64_t r = 0; r < numRows(x); ++r) {
    for (int64_t i = 0; i < c; ++i)
      order[i] = i;
    // The sort is stable, so that among equal entries the first ones are chosen, as in kernels.
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return x[r * c + i] > x[r * c + j]; });
    for (int64_t i = 0; i < k; ++i)
      chosen[r * c + order[i]] = 1;
  }
  return {chosen};
}

/// The score of a group is the sum of its two largest entries.
Tensors pc::topGroups(Inputs in, int64_t groups, int64_t keep) {
  const Tensor &x = *in[0];
  int64_t size = x.shape.back() / groups;
  Tensor best(Shape{numRows(x), groups}), mask(x.shape);
  for (int64_t i = 0; i < best.size(); ++i) {
    double first = -INFINITY, second = -INFINITY;
    for (double value : llvm::ArrayRef(x.data).slice(i * size, size)) {
      second = std::max(second, std::min(first, value));
      first = std::max(first, value);
    }
    best[i] = first + second;
  }
  Tensor kept = topK({&best}, keep)[0];
  for (int64_t i = 0; i < mask.size(); ++i)
    mask[i] = kept[i / size];
  return {mask};
}

/// Counts the entries of each expert in the order of positions until its capacity is reached.
Tensors pc::admit(Inputs in, int64_t capacity, int64_t ranks) {
  const Tensor &x = *in[0];
  int64_t length = x.shape[1], experts = x.shape[2];
  Tensor taken(x.shape);
  // "First" means by position in the sequence, not by index, which differ in zigzag order.
  std::vector<int64_t> indexOf(length); // by position
  for (int64_t i = 0; i < length; ++i)
    indexOf[zigzagPosition(i, length, ranks)] = i;
  for (int64_t b = 0; b < x.shape[0]; ++b)
    for (int64_t n = 0; n < experts; ++n)
      for (int64_t p = 0, count = 0; p < length && count < capacity; ++p)
        if (int64_t at = (b * length + indexOf[p]) * experts + n; x[at] > 0) {
          taken[at] = x[at];
          ++count;
        }
  return {taken};
}

/// Entries are ordered by expert, then by token. Entries after the last full round belong to the last round.
Tensors pc::roundOfRows(Inputs in, int64_t round, int64_t rounds, int64_t limit) {
  const Tensor &x = *in[0];
  int64_t experts = x.shape.back(), number = 0;
  Tensor taken(x.shape);
  for (int64_t n = 0; n < experts; ++n)
    for (int64_t at = n; at < x.size(); at += experts)
      if (x[at] > 0 && std::min(number++ / limit, rounds - 1) == round)
        taken[at] = x[at];
  return {taken};
}

/// The largest element of a row is subtracted before exponentials are taken, and added afterwards.
Tensors pc::logSumExp(Inputs in) {
  const Tensor &x = *in[0];
  int64_t v = x.shape.back();
  Tensor result(Shape(llvm::ArrayRef<int64_t>(x.shape).drop_back()));
  for (int64_t r = 0; r < result.size(); ++r) {
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < v; ++i)
      largest = std::max(largest, x[r * v + i]);
    for (int64_t i = 0; i < v; ++i)
      sum += std::exp(x[r * v + i] - largest);
    result[r] = std::log(sum) + largest;
  }
  return {result};
}

/// The log-sum-exp of the logits minus the target's logit.
Tensors pc::crossEntropy(Inputs in) {
  const Tensor &logits = *in[0], &targets = *in[1];
  Tensors nll = logSumExp(in);
  for (int64_t r = 0; r < targets.size(); ++r)
    nll[0][r] -= logits[r * logits.shape.back() + static_cast<int64_t>(targets[r])];
  return nll;
}

//===---------------------------------------------------------------------------===//
// Optimizers, as torch.optim defines them
//===---------------------------------------------------------------------------===//

/// Decay is decoupled from the gradient, as in torch.optim.AdamW. If the coefficient is NaN, the step is skipped and
/// nothing changes.
Tensors pc::adamw(Inputs in) {
  Tensor p = *in[0], m = *in[2], v = *in[3];
  const Tensor &gradient = *in[1], &coefficient = *in[4], &hyper = *in[5];
  double lr = hyper[PCRT_HYPER_LR], beta1 = hyper[PCRT_HYPER_BETA1], beta2 = hyper[PCRT_HYPER_BETA2];
  double eps = hyper[PCRT_HYPER_EPS], decay = hyper[PCRT_HYPER_WEIGHT_DECAY];
  double correction1 = hyper[PCRT_HYPER_CORRECTION1], correction2 = hyper[PCRT_HYPER_CORRECTION2];
  if (std::isnan(coefficient[0]))
    return {p, m, v};
  for (int64_t i = 0; i < p.size(); ++i) {
    double g = coefficient[0] * gradient[i];
    p[i] -= lr * decay * p[i];
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    p[i] -= lr / correction1 * m[i] / (std::sqrt(v[i]) / std::sqrt(correction2) + eps);
  }
  return {p, m, v};
}

/// Decay is added to the gradient, as in torch.optim.SGD. If the coefficient is NaN, nothing changes.
Tensors pc::sgd(Inputs in) {
  Tensor p = *in[0];
  const Tensor &gradient = *in[1], &coefficient = *in[2], &hyper = *in[3];
  if (std::isnan(coefficient[0]))
    return {p};
  for (int64_t i = 0; i < p.size(); ++i)
    p[i] -= hyper[PCRT_HYPER_LR] * (coefficient[0] * gradient[i] + hyper[PCRT_HYPER_WEIGHT_DECAY] * p[i]);
  return {p};
}

//===---------------------------------------------------------------------------===//
// Nonlinearities
//===---------------------------------------------------------------------------===//

double pc::activation(ActivationKind kind, double x) {
  switch (kind) {
  case ActivationKind::GeluTanh:
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case ActivationKind::Gelu:
    return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  case ActivationKind::Silu:
    return x / (1 + std::exp(-x));
  case ActivationKind::Relu:
    return x > 0 ? x : 0;
  case ActivationKind::Tanh:
    return std::tanh(x);
  case ActivationKind::Sigmoid:
    return 1 / (1 + std::exp(-x));
  }
  return 0;
}

double pc::activationSlope(ActivationKind kind, double x) {
  switch (kind) {
  case ActivationKind::GeluTanh: {
    double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
  }
  case ActivationKind::Gelu:
    return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  case ActivationKind::Silu: {
    double s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s));
  }
  case ActivationKind::Relu:
    return x > 0 ? 1 : 0;
  case ActivationKind::Tanh:
    return 1 - std::tanh(x) * std::tanh(x);
  case ActivationKind::Sigmoid:
    return 1 / (1 + std::exp(-x)) / (1 + std::exp(x));
  }
  return 0;
}
