//===- Figures.cpp - a machine for pc-compile, of what was measured --------===//
#include "Figures.h"
#include "core/PeakRate.h"
#include "pcrt/version.h"

#include <algorithm>
#include <cmath>

using namespace pc_calibrate;

static double medianRate(std::vector<Measurement> some) {
  std::sort(some.begin(), some.end(), [](const Measurement &a, const Measurement &b) { return a.rate() < b.rate(); });
  return some[some.size() / 2].rate();
}

static double bestRate(const std::vector<Measurement> &some) {
  double best = 0;
  for (const Measurement &one : some)
    best = std::max(best, one.rate());
  return best;
}

/// Products, memory, threads.
static void addWork(const Measurements &results, Json &machine, std::vector<std::string> &guesses) {
  double best = bestRate(results.products), share = medianRate(results.products) / best;
  machine["f32_flops"] = best;
  machine["product_share"] = share;
  if (results.bf16Products.empty())
    guesses.push_back("bf16_flops");
  else
    machine["bf16_flops"] = medianRate(results.bf16Products) / share;
  machine["memory_bandwidth"] = results.memory[0].rate();
  machine["stream_share"] = std::min(1., results.memory[1].rate() / results.memory[0].rate());
  machine["op_seconds"] = results.launch.seconds;
}

/// What ranks of a node send each other. A collective of n ranks takes collective_seconds and n - 1 hops.
static void addNode(const Measurements &results, Json &machine, std::vector<std::string> &guesses) {
  const GroupMoves &node = results.node, &pair = results.pair;
  if (!node.size) {
    guesses.insert(guesses.end(), {"node_bandwidth", "collective_seconds", "move_seconds"});
    return;
  }
  machine["node_bandwidth"] = node.bandwidth();
  double hop = pair.size ? std::max(0., (node.gatherSeconds() - pair.gatherSeconds()) / (node.size - 2)) : 0;
  machine["collective_seconds"] =
      pair.size ? std::max(0., pair.gatherSeconds() - hop) : std::max(node.gatherSeconds(), node.sumSeconds());
  machine["node_hop_seconds"] = hop;
  machine["move_seconds"] = node.message.seconds / 2;
}

/// What ranks of different nodes send each other, as many at a time as a node has.
static void addNetwork(const Measurements &results, Json &machine, std::vector<std::string> &guesses) {
  const GroupMoves &across = results.across;
  if (!across.size) {
    guesses.push_back("network_bandwidth");
    return;
  }
  constexpr double guess = 5e-6; // of the machine `cpu`
  auto orGuess = [&](const char *name) { return machine.contains(name) ? machine[name].get<double>() : guess; };
  double base = orGuess("collective_seconds"), nodes = across.size;
  machine["node_ranks"] = results.nodeRanks;
  machine["network_bandwidth"] = across.bandwidth();
  machine["network_hop_seconds"] = std::max(0., (across.gatherSeconds() - base) / (nodes - 1));
  machine["tree_hop_seconds"] = std::max(0., (across.sumSeconds() - base) / (2 * std::log2(nodes)));
  machine["network_latency"] = std::max(0., across.message.seconds / 2 - orGuess("move_seconds"));
}

Json pc_calibrate::machineOf(const Measurements &results, int ranks, double spread) {
  Json machine;
  machine["like"] = "cpu";
  machine["device"] = std::to_string(results.threads) + (results.threads == 1 ? " core" : " cores") + " a rank of " +
                      std::to_string(ranks) +
                      (results.nodes > 1 ? " on " + std::to_string(results.nodes) + " nodes" : "") + ", " +
                      pcrt::cpuName();
  std::vector<std::string> guesses = {"attention_share", "attention_keys", "straggle_share"};
  addWork(results, machine, guesses);
  addNode(results, machine, guesses);
  addNetwork(results, machine, guesses);
  const GroupMoves &beside = results.node.size ? results.node : results.across;
  if (beside.size)
    machine["contend_share"] =
        std::clamp((results.beside.seconds - results.products[0].seconds) / beside.large[1].seconds, 0., 1.);
  else
    guesses.push_back("contend_share");
  machine["spread"] = std::min(spread, 1.);
  Json &measured = machine["measured"];
  measured["by"] = std::string("pc-calibrate ") + pcrt_version;
  measured["ranks"] = ranks;
  measured["nodes"] = results.nodes;
  measured["threads"] = results.threads;
  measured["processor"] = pcrt::cpuName();
  measured["guesses"] = guesses;
  for (const Measurement &one : allOf(results))
    measured["seconds"][one.name] = {{"median", one.seconds}, {"spread", one.spread}};
  return machine;
}
