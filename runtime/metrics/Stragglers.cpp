//===- Stragglers.cpp - Finds slow ranks ----------------------------------===//
// All ranks gather a window of times and compute the same result; the comparison is with the median, so that one slow
// rank does not hide in a mean.
//===----------------------------------------------------------------------===//
#include "metrics/Stragglers.h"
#include "comm/Collective.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

using namespace pcrt;

/// The least seconds that a slow rank must cost per step to be named.
static constexpr double leastSeconds = 1e-3;

std::optional<Straggler> pcrt::findStraggler(const std::vector<std::vector<double>> &worked,
                                             const std::vector<int> &peers) {
  size_t steps = worked[peers[0]].size();
  std::vector<int64_t> last(worked.size());
  for (size_t step = 0; step < steps; ++step)
    ++last[*std::max_element(peers.begin(), peers.end(),
                             [&](int a, int b) { return worked[a][step] < worked[b][step]; })];
  int rank = *std::max_element(peers.begin(), peers.end(), [&](int a, int b) { return last[a] < last[b]; });
  std::vector<double> others;
  auto sum = [&](int peer) { return std::accumulate(worked[peer].begin(), worked[peer].end(), 0.); };
  for (int peer : peers)
    if (peer != rank)
      others.push_back(sum(peer));
  std::nth_element(others.begin(), others.begin() + long(others.size() / 2), others.end());
  double median = others[others.size() / 2], factor = sum(rank) / median;
  if (last[rank] * 5 < int64_t(steps) * 4 || !(factor >= 1.1) || sum(rank) - median < leastSeconds * double(steps))
    return std::nullopt;
  return Straggler{rank, last[rank], factor};
}

void Stragglers::add(double worked) {
  if (comm.size() == 1)
    return;
  mine.push_back(worked);
  if (mine.size() == window) {
    compare();
    mine.clear();
  }
}

void Stragglers::compare() {
  std::vector<double> flat(window * comm.size());
  requireOk(comm, comm.allGatherBytes(mine.data(), int64_t(window * sizeof(double)), flat.data()));
  if (comm.rank() != 0)
    return;
  std::vector<std::vector<double>> worked;
  for (int rank = 0; rank < comm.size(); ++rank)
    worked.emplace_back(flat.begin() + long(rank * window), flat.begin() + long((rank + 1) * window));
  std::vector<std::vector<int>> stages(program.stages.size());
  for (int rank = 0; rank < comm.size(); ++rank)
    stages[program.stageAxis < 0 ? 0 : program.mesh.coordinate(rank, program.stageAxis)].push_back(rank);
  named.resize(stages.size(), -1);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (stages[stage].size() < 2)
      continue;
    std::optional<Straggler> slow = findStraggler(worked, stages[stage]);
    if (slow && slow->rank != named[stage])
      fprintf(stderr,
              "pc: warning: rank %d is slow: the others waited for it in %lld of %zu steps, and its work takes %.2f "
              "times as long as theirs\n",
              slow->rank, (long long)slow->steps, window, slow->factor);
    named[stage] = slow ? slow->rank : -1;
  }
}
