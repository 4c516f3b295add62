//===- Choice.h - Whether a token is the one to choose from its logits ----===//
// Computes the choice from a row of logits, independently of the ops that pc-generate-steps writes. The definition is
// in PCGeneration.td.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_CHECK_GENERATION_CHOICE_H
#define PC_TOOLS_CHECK_GENERATION_CHOICE_H

#include "llvm/ADT/ArrayRef.h"
#include <cstdint>
#include <string>

/// How a token is chosen: the settings and the seed of a request, and the position of the token that is continued.
struct Sampling {
  double temperature = 0, k = 0, p = 1, leastShare = 0;
  uint64_t seed = 0;
  int64_t position = 0;
};

/// A token that a step has chosen.
struct Choice {
  Sampling sampling;
  int64_t token = 0; ///< of the vocabulary
  double logprob = 0;
};

/// Returns what is wrong with the choice, or an empty string. Differences are relative to the largest logit, or to 1 if
/// that is smaller. `largest` becomes at least the difference of the logarithmic probability.
std::string wrongChoice(const Choice &choice, llvm::ArrayRef<double> logits, double tolerance, double &largest);

#endif
