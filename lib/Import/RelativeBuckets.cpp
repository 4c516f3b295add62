//===- RelativeBuckets.cpp - Buckets of relative positions --------------------------------===//
// The arithmetic is f32 as in transformers' `_relative_position_bucket`, so that a distance at the border of two
// buckets falls into the same bucket as in transformers.
//===-----------------------------------------------------------------------------===//
#include "RelativeBuckets.h"

#include <algorithm>
#include <cmath>

using namespace pc;

/// The bucket of a distance among `count`, computed in f32 as transformers does.
static int64_t bucketOf(int64_t distance, int64_t count, int64_t farthest) {
  int64_t exact = count / 2;
  if (distance < exact)
    return distance;
  auto scale = static_cast<float>(std::log(double(farthest) / double(exact)));
  float share = std::log(static_cast<float>(distance) / static_cast<float>(exact)) / scale;
  return std::min(exact + static_cast<int64_t>(share * static_cast<float>(count - exact)), count - 1);
}

/// Goes through all distances from -(sequence - 1) on, and begins a new piece when the bucket changes.
RelativeBuckets::RelativeBuckets(int64_t sequence, int64_t buckets, int64_t farthest, bool bothWays) {
  int64_t count = bothWays ? buckets / 2 : buckets;
  for (int64_t index = 0; index < 2 * sequence - 1; ++index) {
    int64_t ahead = index - (sequence - 1);
    int64_t bucket = bothWays && ahead > 0 ? count + bucketOf(ahead, count, farthest)
                                           : bucketOf(std::max<int64_t>(-ahead, 0), count, farthest);
    if (!values.empty() && values.back() == bucket)
      continue;
    pieces.push_back(index);
    values.push_back(bucket);
  }
}
