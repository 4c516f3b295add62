//===- difference.cpp - how far results of a device are from the CPU's -----===//
#include "device/Pool.h"
#include "device/cuda/KernelCheck.h"

#include <cmath>
#include <cstdio>
#include <vector>

using namespace pcrt;

static int problems = 0;

static void expect(const char *what, const std::vector<float> &want, const std::vector<float> &got, double expected) {
  for (int threads : {1, 3}) {
    Pool pool(threads);
    double found = largestDifference(pool, "f32", int64_t(want.size()), reinterpret_cast<const char *>(want.data()),
                                     reinterpret_cast<const char *>(got.data()));
    if (found == expected || std::fabs(found - expected) <= 1e-6 * expected)
      continue;
    printf("FAILED: %s, %d threads: %g, not %g\n", what, threads, found, expected);
    ++problems;
  }
}

int main() {
  float none = NAN, infinite = INFINITY;
  expect("equal", {1, -2, 3}, {1, -2, 3}, 0);
  // The largest element is equal on both sides: it is what a difference in a small one is measured by.
  expect("a small element differs", {1000, 1e-3f, 5}, {1000, 2e-3f, 5}, 1e-6);
  expect("a small element differs, the largest is negative", {1e-3f, 5, -1000}, {2e-3f, 5, -1000}, 1e-6);
  expect("the largest element differs", {4, 1}, {3, 1}, 0.25);
  expect("infinities do not hide a difference", {-infinite, 2, 1}, {-infinite, 2, 0}, 0.5);
  expect("no numbers on both sides", {none, 2}, {none, 2}, 0);
  expect("a number that is none", {2, 1}, {2, none}, infinite);
  expect("an infinity that is none", {infinite, 1}, {1, 1}, infinite);
  expect("something in place of zeros", {0, 0}, {0, 1e-20f}, infinite);
  printf("%d failed\n", problems);
  return problems != 0;
}
