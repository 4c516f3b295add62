//===- figures.cpp - The cost model that pc-calibrate solves --------------===//
// usage: pc-figures-test FILE.json
// Computes measurements with the cost model of a known machine. pc-calibrate must find the figures of that machine from
// them, also after they are written to the file and read as pc-compile reads them.
//===----------------------------------------------------------------------===//
#include "Figures.h"
#include "../Checks.h"
#include "pc/Cost/Cost.h"
#include "pc/Cost/Machine.h"

#include <cmath>
#include <cstring>
#include <fstream>

using namespace pc_calibrate;

static bool isNear(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::max(std::fabs(a), std::fabs(b)); }
static void expectNear(const std::string &what, double got, double wanted) {
  expect(isNear(got, wanted), what + " is " + std::to_string(got) + ", not " + std::to_string(wanted));
}

static pc::ProductWork workOf(const Shape &shape, bool bf16, bool unaligned) {
  return {1, double(shape.rows), double(shape.columns), double(shape.summed), bf16, unaligned};
}
static Measurement productOf(const Shape &shape, bool bf16, bool unaligned, const pc::MachineModel &machine) {
  return {"product", shape.flops(), pc::productSeconds(workOf(shape, bf16, unaligned), machine)};
}

/// Attention of 8192 tokens.
static AttentionTimes attentionOf(int64_t keys, int64_t headDim, bool bf16, const pc::MachineModel &machine) {
  double product = 2. * 8192 * double(keys) * 2048;
  auto take = [&](double products) {
    return Measurement{"attention", products * product,
                       pc::attentionSeconds({products * product, keys, headDim, true, bf16}, machine)};
  };
  return {keys, headDim, bf16, take(2), take(5)};
}

/// Returns invented times of moves of n ranks. A collective takes the time for its bytes, `base`, and hops of
/// `gatherHops` or `sumHops` seconds in total.
static GroupMoves movesOf(int n, double base, double gatherHops, double sumHops, double bandwidth, double message,
                          double allReduceSpeed = 1) {
  GroupMoves moves;
  moves.size = n;
  for (double times : {2., 1., 1.}) {
    double small = base + (times == 2 ? sumHops : gatherHops), sent = times * (n - 1) / n;
    moves.small.push_back({"small", sent * 4096, small});
    moves.large.push_back({"large", sent * 1e9, small + sent * 1e9 / (bandwidth * (times == 2 ? allReduceSpeed : 1))});
  }
  moves.message = {"message", 0, 2 * message};
  return moves;
}

/// The predicted speed of a message between devices is at most that of the thread blocks that the runtime gives it.
/// Only the link limits a message between CPUs.
static void testMessages() {
  for (const char *name : {"a100", "h100", "b200"}) {
    std::string error;
    std::optional<pc::MachineModel> machine = pc::MachineModel::find(name, error);
    expect(machine.has_value(), error);
    auto rate = [&](double bytes) {
      pc::NodeSpread inNode{true, 2};
      return bytes / (pc::messageSeconds(bytes, inNode, *machine) - pc::messageSeconds(0, inNode, *machine));
    };
    for (double bytes : {4096., 1e6, 4194303., 4194304., 67108864., 1e9})
      expect(rate(bytes) <= (bytes < 4194304 ? 2 : 8) * 40e9 * (1 + 1e-6),
             std::string(name) + ": a message of " + std::to_string(bytes) + " bytes goes at " +
                 std::to_string(rate(bytes)));
    if (!strcmp(name, "h100"))
      expectNear("a message of 64 MiB on an H100", rate(67108864) / 1e9, 320);
    machine->multiprocessors = 0;
    expectNear("a message of CPUs", rate(67108864), machine->node.bandwidth * machine->linkShare);
  }
}

/// A machine with the figures of `results`, as pc-compile reads it.
static pc::MachineModel readBack(const Measurements &results, const std::string &path) {
  std::ofstream(path) << machineOf(results, 8, 0.01);
  std::string error;
  std::optional<pc::MachineModel> machine = pc::MachineModel::find(path, error);
  expect(machine.has_value(), error);
  return machine.value_or(pc::MachineModel());
}

static pc::MachineModel named(const char *name) {
  std::string error;
  return *pc::MachineModel::find(name, error);
}

static void checkDevices(const std::string &path) {
  pc::MachineModel truth = named("h100");
  truth.f32Flops = 45e12, truth.bf16Flops = 650e12, truth.productShare = 1, truth.productRamp = 71;
  truth.unalignedShare = 0.4, truth.attentionShare = 0.7, truth.attentionKeys = 300;
  truth.memoryBandwidth = 2.9e12, truth.streamShare = 0.8, truth.opSeconds = 1.3e-6;
  truth.allReduceSpeed = 1.3;
  truth.node.bandwidth = 370e9, truth.collectiveSeconds = 9e-6, truth.nodeHopSeconds = 2e-6, truth.moveSeconds = 7e-6;
  truth.network.bandwidth = 44e9, truth.networkHopSeconds = 11e-6, truth.treeHopSeconds = 13e-6;
  truth.network.latency = 6e-6, truth.contendShare = 0.3;

  Measurements results;
  results.device = {"NVIDIA H100 80GB HBM3", 90, int(truth.multiprocessors), int64_t(80e9),
                    int64_t(8 * truth.hostBytes)};
  results.sizes.products = {{6144, 1024, 2816}, {6144, 4096, 2816}};
  results.sizes.bf16Products = {{6144, 1024, 2816}, {6144, 8192, 2816}, {8192, 8192, 8192}};
  results.sizes.beside = 2;
  for (const Shape &shape : results.sizes.products)
    results.products.push_back(productOf(shape, false, false, truth));
  for (const Shape &shape : results.sizes.bf16Products)
    results.bf16Products.push_back(productOf(shape, true, false, truth));
  results.unaligned = productOf({6144, 8192, 2815}, true, true, truth);
  results.copy = {"copy", 2e9, 2e9 / truth.memoryBandwidth};
  results.streaming = {"streaming", 1e9, 1e9 / (truth.memoryBandwidth * truth.streamShare)};
  results.launch = {"kernel", 0, truth.opSeconds};
  results.attention = {attentionOf(1024, 128, true, truth), attentionOf(4096, 128, true, truth)};
  results.nodeRanks = 8, results.nodes = 4;
  double base = truth.collectiveSeconds, hop = truth.nodeHopSeconds;
  results.node = movesOf(8, base, 7 * hop, 14 * hop, truth.node.bandwidth, truth.moveSeconds, truth.allReduceSpeed);
  results.pair = movesOf(2, base, hop, 2 * hop, truth.node.bandwidth, truth.moveSeconds);
  results.across = movesOf(4, base, 3 * truth.networkHopSeconds, 4 * truth.treeHopSeconds, truth.network.bandwidth,
                           truth.moveSeconds + truth.network.latency);
  const Measurement &alone = results.bf16Products[2];
  results.beside = {"beside", alone.work,
                    alone.seconds + truth.contendShare * results.node.large[1].work / truth.node.bandwidth};

  pc::MachineModel got = readBack(results, path);
  truth.linkShare = truth.memoryShare = 1;
  truth.node.latency = 0;
  truth.spread = 0.01;
  for (auto &[name, value] : truth.json())
    if (std::optional<double> wanted = value.getAsNumber())
      expectNear(name.str(), got.json().get(name)->getAsNumber().value_or(-1), *wanted);
  for (const Shape &shape : {Shape{8192, 2048, 8192}, {512, 512, 512}, {4096, 11008, 4096}})
    expectNear("a product's time", pc::productSeconds(workOf(shape, true, false), got),
               pc::productSeconds(workOf(shape, true, false), truth));
}

/// Checks that products of all shapes have one rate, and that attention has one share if its share does not grow with
/// its length.
static void checkCores(const std::string &path) {
  pc::MachineModel truth = named("cpu");
  truth.f32Flops = 2e11, truth.bf16Flops = 5e11, truth.attentionShare = 0.6, truth.memoryShare = 0.4;
  Measurements results;
  results.products = {productOf({1024, 768, 768}, false, false, truth)};
  results.bf16Products = {productOf({1024, 768, 768}, true, false, truth)};
  for (auto *products : {&results.products, &results.bf16Products}) { // one that takes twice as long
    products->push_back(products->front());
    products->back().seconds *= 2;
  }
  truth.accumulateSeconds = 2e-10;
  results.sizes.bf16Products = {{1024, 768, 768}, {16000, 256, 768, ProductKind::TransposedA}};
  results.sizes.adding = 1;
  results.adding = {"added", 0, results.bf16Products[1].seconds + truth.accumulateSeconds * 16000 * 768};
  results.copy = {"copy", 2e9, 2e9 / (truth.memoryBandwidth * truth.memoryShare)};
  results.update = {"update", 3e9, 3e9 / (truth.memoryBandwidth * 0.75)};
  results.sum = {"sum", 3e8, 3e8 / (truth.memoryBandwidth * 1.5)};
  results.launch = {"fork and join", 0, 1e-7};
  results.attention = {attentionOf(256, 64, false, truth), attentionOf(1024, 64, false, truth)};
  truth.jitterSeconds = 3e-5;
  results.node = movesOf(2, 1e-6, 0, 0, truth.node.bandwidth, truth.moveSeconds);
  double worked = results.products[0].seconds;
  results.meeting = {"meeting", 0, std::sqrt(truth.jitterSeconds * worked) + results.node.sumSeconds()};
  results.sizes.beside = 0;
  results.beside = {"beside", 0, worked};
  pc::MachineModel got = readBack(results, path);
  expectNear("jitter_seconds", got.jitterSeconds, truth.jitterSeconds);
  expectNear("f32_flops", got.f32Flops, truth.f32Flops);
  expectNear("bf16_flops", got.bf16Flops, truth.bf16Flops);
  expectNear("product_share", got.productShare, 2. / 3);
  expectNear("accumulate_seconds", got.accumulateSeconds, truth.accumulateSeconds);
  expectNear("attention_share", got.attentionShare, truth.attentionShare);
  expectNear("attention_keys", got.attentionKeys, 0);
  expectNear("memory_bandwidth", got.memoryBandwidth, truth.memoryBandwidth);
  expectNear("memory_share", got.memoryShare, truth.memoryShare);
  expectNear("stream_share", got.streamShare, 1);
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  checkDevices(argv[1]);
  checkCores(argv[1]);
  testMessages();
  return finishChecks();
}
