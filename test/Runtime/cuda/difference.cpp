//===- difference.cpp - The distance of a device's results from the CPU's -===//
// Checks largestDifference (cuda/KernelCheck.h) on small tensors, with NaNs, infinities and zeros.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "cpu/Pool.h"
#include "cuda/KernelCheck.h"

#include <cmath>
#include <cstdio>
#include <vector>

using namespace pcrt;

static void differ(const char *what, const std::vector<float> &want, const std::vector<float> &got, double expected) {
  for (int threads : {1, 3}) {
    Pool pool(threads);
    double found = largestDifference(pool, "f32", int64_t(want.size()), reinterpret_cast<const char *>(want.data()),
                                     reinterpret_cast<const char *>(got.data()));
    expect(found == expected || std::fabs(found - expected) <= 1e-6 * expected,
           std::string(what) + ", " + std::to_string(threads) + " threads: " + std::to_string(found) + ", not " +
               std::to_string(expected));
  }
}

int main() {
  float none = NAN, infinite = INFINITY;
  differ("equal", {1, -2, 3}, {1, -2, 3}, 0);
  // The largest element is equal on both sides. A difference in a small element is relative to it.
  differ("a small element differs", {1000, 1e-3f, 5}, {1000, 2e-3f, 5}, 1e-6);
  differ("a small element differs, the largest is negative", {1e-3f, 5, -1000}, {2e-3f, 5, -1000}, 1e-6);
  differ("the largest element differs", {4, 1}, {3, 1}, 0.25);
  differ("infinities do not hide a difference", {-infinite, 2, 1}, {-infinite, 2, 0}, 0.5);
  differ("no numbers on both sides", {none, 2}, {none, 2}, 0);
  differ("a number that is none", {2, 1}, {2, none}, infinite);
  differ("an infinity that is none", {infinite, 1}, {1, 1}, infinite);
  differ("something in place of zeros", {0, 0}, {0, 1e-20f}, infinite);
  return finishChecks();
}
