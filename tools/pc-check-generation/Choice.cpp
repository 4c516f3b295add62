//===- Choice.cpp - Whether a token is the one to choose from its logits --===//
// A logit that equals a limit except for rounding may be chosen or not. So a token must be allowed by the loose limits,
// and must be at least as probable as all tokens that the strict limits allow.
//===----------------------------------------------------------------------===//
#include "Choice.h"

#include "pcrt/random.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <numeric>

/// Returns the smallest logit that is left after top-k, top-p and min-p, in this order.
static double leastLogit(const Sampling &sampling, llvm::ArrayRef<double> logits) {
  std::vector<double> left(logits.begin(), logits.end());
  llvm::sort(left, std::greater<>());
  const double best = left[0];
  auto share = [&](double logit) { return std::exp((logit - best) / sampling.temperature); };
  auto keepFrom = [&](double least) { llvm::erase_if(left, [&](double logit) { return logit < least; }); };
  if (sampling.k > 0 && sampling.k < double(left.size()))
    keepFrom(left[static_cast<size_t>(sampling.k) - 1]);
  if (sampling.p < 1) {
    double all = 0, before = 0;
    for (double logit : left)
      all += share(logit);
    size_t kept = 0; // a class remains if the classes before it have less than p together
    for (; kept < left.size() && before < sampling.p * all; ++kept)
      before += share(left[kept]);
    keepFrom(left[kept - 1]); // equal logits remain together
  }
  llvm::erase_if(left, [&](double logit) { return share(logit) < sampling.leastShare; });
  return left.back();
}

/// The Gumbel noise of a class.
static double noise(const Sampling &sampling, uint32_t number) {
  uint32_t counter[4] = {number / 4, static_cast<uint32_t>(sampling.position), 0, 1u << 30};
  pcrt_philox(counter, static_cast<uint32_t>(sampling.seed), static_cast<uint32_t>(sampling.seed >> 32));
  return -std::log(-std::log(((counter[number % 4] >> 9) + 0.5) / 8388608.0));
}

std::string wrongChoice(const Choice &choice, llvm::ArrayRef<double> logits, double tolerance, double &largest) {
  const Sampling &sampling = choice.sampling;
  const int64_t token = choice.token;
  const double best = *llvm::max_element(logits);
  double scale = 1, sum = 0;
  for (double logit : logits)
    scale = std::max(scale, std::abs(logit)), sum += std::exp(logit - best);
  const double logprob = logits[token] - best - std::log(sum);
  const double difference = std::abs(choice.logprob - logprob) / scale, slack = tolerance * scale;
  largest = std::max(largest, difference);
  if (!(difference <= tolerance))
    return llvm::formatv(
        "token {0} has the logarithmic probability {1:f6}, in the model's forward pass {2:f6}: relative "
        "difference {3:e}",
        token, choice.logprob, logprob, difference);
  const bool samples = sampling.temperature > 0;
  const double least = samples ? leastLogit(sampling, logits) : -INFINITY;
  auto score = [&](int64_t number) {
    return samples ? logits[number] / sampling.temperature + noise(sampling, static_cast<uint32_t>(number))
                   : logits[number];
  };
  if (logits[token] < least - slack)
    return llvm::formatv("token {0} is excluded by top-k, top-p or min-p: its logit is {1:f6}, the least one {2:f6}",
                         token, logits[token], least);
  const double allowed = samples ? slack + slack / sampling.temperature : slack;
  for (int64_t other = 0; other < static_cast<int64_t>(logits.size()); ++other)
    if (logits[other] >= least + slack && score(other) > score(token) + allowed)
      return llvm::formatv("token {0} is chosen instead of {1}, whose score is larger: {3:f6} instead of {2:f6}", token,
                           other, score(token), score(other));
  return "";
}
