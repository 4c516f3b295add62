//===- Figures.cpp - Turns measurements into a machine for pc-compile -----===//
// Each figure is the solution of the formula in lib/Cost/Cost.cpp that uses it, so that the machine predicts what was
// measured.
//===----------------------------------------------------------------------===//
#include "Figures.h"
#include "metrics/PeakRate.h"
#include "pcrt/version.h"

#include <algorithm>
#include <cmath>

using namespace pc_calibrate;

namespace {

/// Figures of the known machine that replace missing measurements.
struct Like {
  const char *name;
  double collectiveSeconds, moveSeconds; ///< As in lib/Cost/Machine.cpp.
};

/// The model of products of whole waves of tiles: seconds = 2 m n (k + ramp) / rate.
struct Waves {
  double rate = 0, ramp = 0;
};

/// Computes the machine from the measurements of rank 0. Figures that need a missing measurement are listed in
/// `guesses`.
class Figures {
public:
  explicit Figures(const Measurements &results) : results(results), onDevice(results.device.multiprocessors > 0) {
    if (onDevice)
      like = {likeDevice(), 8.4e-6, 6.8e-6};
    machine["like"] = like.name;
  }

  /// Adds the figures of products, memory, and the cost of each call.
  void addWork() {
    onDevice ? addProductsOfDevice() : addProductsOfCores();
    addMemory();
    machine["op_seconds"] = results.launch.seconds;
    const std::string link = onDevice ? "host_bandwidth" : "disk_bandwidth";
    if (results.carryOut.isThere()) // the same number of bytes is sent in each direction
      machine[link] = 2 / (1 / results.carryOut.rate() + 1 / results.carryIn.rate());
    else
      guesses.push_back(link);
    if (onDevice)
      machine["host_bytes"] = double(results.device.hostBytes) / results.nodeRanks;
  }

  /// Attention takes flops / (peak x share), with half of the flops if masked. If its share grows with the number of
  /// keys that a query sees, as in the model, two lengths determine how; otherwise there is one share, between theirs.
  void addAttention() {
    if (results.attention.size() < 2) {
      guesses.insert(guesses.end(), {"attention_share", "attention_keys"});
      return;
    }
    const AttentionTimes &few = results.attention.front(), &many = results.attention.back();
    double share = std::sqrt(shareOf(few, /*ofKeys=*/false) * shareOf(many, /*ofKeys=*/false)), keys = 0;
    // 1 / share of n keys that are seen = (1 + keys / n) / share
    double atFew = 1 / shareOf(few, true), atMany = 1 / shareOf(many, true), seenFew = double(few.keys) / 2,
           seenMany = double(many.keys) / 2;
    double slope = (atFew - atMany) / (1 / seenFew - 1 / seenMany), atAll = atMany - slope / seenMany;
    if (slope > 0 && atAll >= 1) {
      share = 1 / atAll;
      keys = slope / atAll;
    }
    machine["attention_share"] = std::min(1., share);
    machine["attention_keys"] = keys;
  }

  /// Adds the traffic within a node. A collective of n ranks takes collective_seconds and n - 1 hops.
  void addNode() {
    const GroupMoves &node = results.node, &pair = results.pair;
    if (!node.size) {
      guesses.insert(guesses.end(), {"node_bandwidth", "all_reduce_speed", "collective_seconds", "move_seconds"});
      return;
    }
    machine["node_bandwidth"] = node.bandwidth();
    machine["all_reduce_speed"] = node.allReduceSpeed();
    if (onDevice) {
      machine["link_share"] = 1;
      machine["node_latency"] = 0; // move_seconds has it
    }
    double hop = pair.size ? std::max(0., (node.gatherSeconds() - pair.gatherSeconds()) / (node.size - 2)) : 0;
    machine["collective_seconds"] =
        pair.size ? std::max(0., pair.gatherSeconds() - hop) : std::max(node.gatherSeconds(), node.sumSeconds());
    machine["node_hop_seconds"] = hop;
    machine["move_seconds"] = node.message.seconds / 2;
  }

  /// Adds the traffic between nodes, with as many ranks at a time as a node has.
  void addNetwork() {
    const GroupMoves &across = results.across;
    if (!across.size) {
      guesses.push_back("network_bandwidth");
      return;
    }
    auto orGuess = [&](const char *name, double guess) {
      return machine.contains(name) ? machine[name].get<double>() : guess;
    };
    double base = orGuess("collective_seconds", like.collectiveSeconds), nodes = across.size;
    machine["node_ranks"] = results.nodeRanks;
    machine["network_bandwidth"] = across.bandwidth();
    if (onDevice)
      machine["link_share"] = 1;
    machine["network_hop_seconds"] = std::max(0., (across.gatherSeconds() - base) / (nodes - 1));
    machine["tree_hop_seconds"] = std::max(0., (across.sumSeconds() - base) / (2 * std::log2(nodes)));
    machine["network_latency"] = std::max(0., across.message.seconds / 2 - orGuess("move_seconds", like.moveSeconds));
  }

  /// Adds the share of a move's time by which it slows down concurrent work.
  void addContention() {
    const GroupMoves &moves = results.node.size ? results.node : results.across;
    if (!moves.size) {
      guesses.push_back("contend_share");
      return;
    }
    const Measurement &alone = (onDevice ? results.bf16Products : results.products)[results.sizes.beside];
    double copying = onDevice ? moves.large[1].work / moves.bandwidth() : moves.large[1].seconds;
    machine["contend_share"] = std::clamp((results.beside.seconds - alone.seconds) / copying, 0., 1.);
  }

  /// Adds the jitter: ranks that work for s seconds wait sqrt(s jitter) seconds for the last one.
  void addJitter() {
    if (!results.meeting.isThere()) {
      guesses.push_back("jitter_seconds");
      return;
    }
    double waited = std::max(0., results.meeting.seconds - results.node.sumSeconds());
    machine["jitter_seconds"] = waited * waited / results.products[0].seconds;
  }

  Json machine;
  std::vector<std::string> guesses;

private:
  /// The known machine that is most like this device: that of MachineModel::nameFor of lib/Cost, or the H200, which has
  /// the H100's chip.
  const char *likeDevice() const {
    const DeviceFacts &device = results.device;
    if (device.name.find("H200") != std::string::npos)
      return "h200";
    return device.arch >= 100 ? "b200" : device.arch >= 90 ? "h100" : "a100";
  }

  /// Adds the best rate of the products and the share of it that all of them reach; bf16's rate is such that all of its
  /// products together reach that share of it.
  void addProductsOfCores() {
    double best = bestRate(results.products), share = commonRate(results.products) / best;
    machine["f32_flops"] = best;
    machine["product_share"] = share;
    if (results.bf16Products.empty())
      guesses.push_back("bf16_flops");
    else
      machine["bf16_flops"] = commonRate(results.bf16Products) / share;
    if (!results.adding.isThere()) {
      guesses.push_back("accumulate_seconds");
      return;
    }
    const Shape &shape = results.sizes.bf16Products[results.sizes.adding];
    double more = results.adding.seconds - results.bf16Products[results.sizes.adding].seconds;
    machine["accumulate_seconds"] = std::max(0., more) / double(shape.rows * shape.columns);
  }

  /// Adds the memory's rate: half of the bytes of a step on cores belong to the optimizer, whose tensors no cache
  /// holds, and half to kernels of layers, whose tensors a cache may hold.
  void addMemory() {
    double copies = results.copy.rate(), streams = results.streaming.isThere() ? results.streaming.rate() : 0;
    if (results.sum.isThere())
      streams =
          results.update.isThere() ? 2 / (1 / results.update.rate() + 1 / results.sum.rate()) : results.sum.rate();
    double most = std::max({copies, onDevice ? 0 : streams});
    machine["memory_bandwidth"] = most;
    machine["memory_share"] = copies / most;
    if (streams > 0)
      machine["stream_share"] = std::min(1., streams / most);
    else
      guesses.push_back("stream_share");
  }

  /// Adds the rates that are measured inside a large product. A product therefore reaches all of the rate
  /// (product_share is 1).
  void addProductsOfDevice() {
    Waves f32 = wavesOf(results.products, results.sizes.products),
          bf16 = wavesOf(results.bf16Products, results.sizes.bf16Products);
    machine["f32_flops"] = f32.rate;
    machine["bf16_flops"] = bf16.rate;
    machine["product_share"] = 1;
    machine["product_ramp"] = bf16.ramp;
    // With one column less, the number of tiles is the same.
    machine["unaligned_share"] = std::min(1., results.bf16Products[1].seconds / results.unaligned.seconds);
    machine["multiprocessors"] = results.device.multiprocessors;
    machine["memory_bytes"] = results.device.memoryBytes;
    guesses.insert(guesses.end(), {"product_tiles", "shared_bandwidth"});
  }

  /// The rate and the ramp, from the first two products, which differ only in the summed dim.
  static Waves wavesOf(const std::vector<Measurement> &products, const std::vector<Shape> &shapes) {
    const Measurement &little = products[0], &much = products[1];
    double k = double(shapes[0].summed), more = double(shapes[1].summed) - k;
    Waves waves{much.rate(), 0};
    if (double later = much.seconds - little.seconds; later > 0)
      waves = {(much.work - little.work) / later, little.seconds * more / later - k};
    // Longer sums may be slower for other reasons, such as falling clocks; then no ramp can be seen.
    return waves.ramp > 0 ? waves : Waves{much.rate(), 0};
  }

  /// The share of the peak that causal attention and its gradient reach together; with `ofKeys`, without the loss that
  /// the model attributes to heads and masks.
  double shareOf(const AttentionTimes &one, bool ofKeys) const {
    double flops = (one.forward.work + one.backward.work) / 2, keys = double(one.keys), head = double(one.headDim);
    double peak = machine[one.bf16 ? "bf16_flops" : "f32_flops"].get<double>();
    double share = flops / (one.forward.seconds + one.backward.seconds) / peak;
    return ofKeys ? share / std::min(1., 2 * head / (head + 128)) / (keys / (keys + 256)) : share;
  }

  /// The rate of a mix with the same amount of work of every operation.
  static double commonRate(const std::vector<Measurement> &some) {
    double seconds = 0;
    for (const Measurement &one : some)
      seconds += 1 / one.rate();
    return double(some.size()) / seconds;
  }
  static double bestRate(const std::vector<Measurement> &some) {
    double best = 0;
    for (const Measurement &one : some)
      best = std::max(best, one.rate());
    return best;
  }

  const Measurements &results;
  const bool onDevice;
  Like like{"cpu", 5e-6, 5e-6};
};

} // namespace

/// Describes the ranks, for readers of the file.
static std::string describe(const Measurements &results, int ranks) {
  std::string text = results.device.name;
  if (text.empty())
    text = std::to_string(results.threads) + (results.threads == 1 ? " core" : " cores");
  text += " a rank of " + std::to_string(ranks);
  if (results.nodes > 1)
    text += " on " + std::to_string(results.nodes) + " nodes";
  return text + (results.device.name.empty() ? ", " + pcrt::cpuName() : "");
}

Json pc_calibrate::machineOf(const Measurements &results, int ranks, double spread) {
  Figures figures(results);
  figures.machine["device"] = describe(results, ranks);
  figures.addWork();
  figures.addAttention();
  figures.addNode();
  figures.addNetwork();
  figures.addContention();
  figures.addJitter();
  figures.guesses.push_back("straggle_share");
  Json &machine = figures.machine;
  machine["spread"] = std::min(spread, 1.);
  Json &measured = machine["measured"];
  measured["by"] = std::string("pc-calibrate ") + pcrt_version;
  measured["ranks"] = ranks;
  measured["nodes"] = results.nodes;
  if (results.device.name.empty()) { // runs on this processor compute their peak from these figures
    measured["threads"] = results.threads;
    measured["processor"] = pcrt::cpuName();
  }
  measured["guesses"] = figures.guesses;
  for (const Measurement &one : allOf(results)) {
    measured["seconds"][one.name] = {{"median", one.seconds}, {"spread", one.spread}};
    if (one.work > 0)
      measured["seconds"][one.name]["rate"] = one.rate();
  }
  return machine;
}
