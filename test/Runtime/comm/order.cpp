//===- order.cpp - Orders of messages and moves, for random steps ---------===//
// A random sequence of sends, reads and moves of several stages is cut into one sequence per stage. The receives that
// placeReceives adds must let the stages finish if each of them makes one call at a time.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "EarlyReceives.h"

#include <random>

using namespace pcrt;

namespace {

std::mt19937 generator;
int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(generator); }

struct Steps {
  std::vector<std::vector<StageCall>> stages;
  std::vector<MessageFlow> flows;
};

Steps randomSteps() {
  Steps steps;
  int stages = 1 + below(5);
  steps.stages.resize(stages);
  for (int flow = below(8); flow > 0 && stages > 1; --flow) {
    int source = below(stages), target = (source + 1 + below(stages - 1)) % stages;
    steps.flows.push_back({source, target, 1 + below(3), below(2) ? 0 : below(500)});
  }
  std::vector<int> underWay(steps.flows.size());
  auto add = [&](int stage, StageCall::Kind kind, int number) {
    steps.stages[stage].push_back({kind, number, below(3) ? below(1000) : 0});
  };
  auto read = [&](int flow) {
    --underWay[flow];
    add(steps.flows[flow].target, StageCall::Read, flow);
  };
  for (int i = below(60); i > 0; --i) {
    int choice = below(10);
    if (choice == 0)
      for (int stage = 0, group = below(2); stage < stages; ++stage)
        add(stage, StageCall::Meeting, group);
    else if (choice < 3 || steps.flows.empty())
      add(below(stages), StageCall::Move, below(2));
    else if (int flow = below(int(steps.flows.size()));
             underWay[flow] > 0 && (below(2) || underWay[flow] == steps.flows[flow].slots))
      read(flow);
    else if (underWay[flow] < steps.flows[flow].slots) {
      ++underWay[flow];
      add(steps.flows[flow].source, StageCall::Send, flow);
    }
  }
  for (size_t flow = 0; flow < steps.flows.size(); ++flow)
    while (underWay[flow] > 0)
      read(int(flow));
  return steps;
}

} // namespace

int main() {
  int broken = 0, refused = 0, earlyRefused = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    generator.seed(seed);
    Steps steps = randomSteps();
    auto receives = placeReceives(steps.stages, steps.flows);
    std::string problem = checkReceives(steps.stages, steps.flows, receives);
    expect(problem.empty(), "seed " + std::to_string(seed) + ": " + problem);
    earlyRefused += !checkReceives(steps.stages, steps.flows, earlyReceives(steps.stages, steps.flows)).empty();
    // A receive that is left out, or begins after its read.
    int stage = below(int(steps.stages.size()));
    if (receives[stage].empty())
      continue;
    ++broken;
    int which = below(int(receives[stage].size()));
    PlacedReceive removed = receives[stage][which];
    receives[stage].erase(receives[stage].begin() + which);
    if (below(2))
      receives[stage].push_back({steps.stages[stage].size(), removed.flow});
    refused += !checkReceives(steps.stages, steps.flows, receives).empty();
  }
  expect(earlyRefused > 300, "early receives are no order");
  expect(refused == broken, std::to_string(broken - refused) + " broken orders are accepted");
  return finishChecks();
}
