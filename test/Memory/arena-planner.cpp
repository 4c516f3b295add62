//===- arena-planner.cpp - The planner on small, random and large instances -===//
// Every plan is checked by `checkArena` and compared with the lower bound `maxLiveBytes`; `checkArena` itself is tested
// with wrong plans.
//===----------------------------------------------------------------------===//
#include "../Checks.h"
#include "pc/Memory/ArenaPlanner.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

using namespace pc;

/// Plans and checks an arena. Returns its size divided by the bound.
static double solve(llvm::ArrayRef<ArenaBuffer> buffers, const char *name = nullptr) {
  ArenaPlan plan = planArena(buffers);
  std::string error = checkArena(buffers, plan);
  require(error.empty(), error.c_str());
  int64_t bound = maxLiveBytes(buffers);
  if (name)
    std::printf("%s: %lld of %lld\n", name, static_cast<long long>(plan.bytes), static_cast<long long>(bound));
  return bound ? static_cast<double>(plan.bytes) / bound : 1;
}

static void expectMistake(llvm::ArrayRef<ArenaBuffer> buffers, ArenaPlan plan) {
  require(!checkArena(buffers, plan).empty(), "a wrong plan passed");
}

int main() {
  solve({{1, 0, 0}}, "one buffer");
  solve({{128, 0, 1}, {100, 2, 3}, {64, 4, 5}}, "disjoint lifetimes");
  solve({{128, 0, 5}, {128, 1, 4}, {128, 2, 3}}, "nested lifetimes");
  solve({}, "nothing");

  std::mt19937_64 random(7); // raw bits only: distributions differ between libraries
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  double worst = 1, sum = 0;
  for (int instance = 0; instance < 200; ++instance) {
    llvm::SmallVector<ArenaBuffer> buffers;
    int64_t span = 2 + below(100);
    for (int64_t i = 0, n = 1 + below(120); i < n; ++i) {
      int64_t first = below(span);
      buffers.push_back({1 + below(1 << below(16)), first, first + below(span - first)});
    }
    double ratio = solve(buffers);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  std::printf("200 random instances, mean %.2f of the bound, worst %.2f\n", sum / 200, worst);

  // A training step: per layer, activations that wait for the backward pass, temporaries that don't, and gradients that
  // stay.
  llvm::SmallVector<ArenaBuffer> step;
  int64_t layers = 1000, length = 2 * layers * 10;
  for (int64_t layer = 0; layer < layers; ++layer) {
    int64_t forward = layer * 10, backward = length - layer * 10 - 10;
    for (int64_t i = 0; i < 8; ++i)
      step.push_back({4096 << below(4), forward + i, backward + 9 - i});
    for (int64_t i = 0; i < 5; ++i) {
      step.push_back({4096 << below(5), forward + i, forward + i + 1});
      step.push_back({4096 << below(5), backward + i, backward + i + 1});
    }
    for (int64_t i = 0; i < 2; ++i)
      step.push_back({65536, backward + i, length});
  }
  std::printf("training step of %zu buffers, %.2f of the bound\n", step.size(), solve(step));

  // In a pipeline stage, most buffers live for a few of many microbatches, and some for all.
  for (int64_t inFlight : {1, 12, 60}) {
    llvm::SmallVector<ArenaBuffer> stage = {{1 << 20, 0, 6400}, {1 << 18, 100, 6200}};
    for (int64_t microbatch = 0; microbatch < 600; ++microbatch) {
      int64_t forward = microbatch * 10, backward = std::min<int64_t>(6400, forward + inFlight * 10 + 5);
      for (int64_t i = 0; i < 3; ++i)
        stage.push_back({4096 << below(4), forward + i, backward});
      stage.push_back({65536, forward, forward});
      stage.push_back({32768 + 64 * below(9), backward, backward});
    }
    std::printf("stage with %lld of 600 microbatches in flight, %.3f of the bound\n", static_cast<long long>(inFlight),
                solve(stage));
  }

  llvm::SmallVector<ArenaBuffer> pair = {{64, 0, 1}, {64, 1, 2}};
  expectMistake(pair, {{0, 0}, 128});                       // both at position 1
  expectMistake(pair, {{0, 64}, 64});                       // outside
  expectMistake(pair, {{0, 32}, 128});                      // off the grid
  expectMistake(pair, {{0}, 128});                          // no offset
  expectMistake({{128, 0, 1}, {64, 1, 2}}, {{0, 64}, 128}); // half over each other
  std::printf("mistakes found\n");
}
