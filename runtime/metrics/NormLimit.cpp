//===- NormLimit.cpp - The limit of the gradient norm ---------------------===//
// The limit is the mean plus a multiple of the population's standard deviation of the last norms that were not skipped,
// in double precision.
//===----------------------------------------------------------------------===//
#include "metrics/NormLimit.h"

#include <cmath>
#include <cstdio>
#include <limits>

using namespace pcrt;

float NormLimit::limit() const {
  constexpr float none = std::numeric_limits<float>::infinity();
  if (!deviations || past.norms.size() < least)
    return none;
  double count = double(past.norms.size()), sum = 0, squares = 0;
  for (float norm : past.norms)
    sum += norm;
  for (float norm : past.norms)
    squares += (norm - sum / count) * (norm - sum / count);
  double limit = sum / count + *deviations * std::sqrt(squares / count);
  // A norm of exactly the mean is not a spike, even if all norms were the same.
  return std::nextafterf(float(limit), none);
}

bool NormLimit::add(float norm) {
  if (!(norm < limit())) { // a NaN is not less
    ++past.skipped;
    return true;
  }
  past.skipped = 0;
  past.norms.push_back(norm);
  if (past.norms.size() > window)
    past.norms.erase(past.norms.begin());
  return false;
}

std::string pcrt::whyNotMade(double loss, double norm, float limit) {
  auto notFinite = [](const char *what, double value) {
    return std::string(what) + " is not finite (" + (std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf") + ")";
  };
  if (!std::isfinite(loss))
    return notFinite("loss", loss);
  if (!std::isfinite(norm))
    return notFinite("gradient norm", norm);
  char text[96];
  snprintf(text, sizeof text, "gradient norm %.4g is not below %.4g, the limit of --skip-spikes", norm, limit);
  return text;
}
