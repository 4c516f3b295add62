//===- Measure.cpp - Measurements of the ranks of this machine ------------===//
// This file has the calls that a rank makes by itself, and the sampling: a warm-up, because clocks fall under load,
// then rounds over all cases, then repetitions of disturbed cases.
//===----------------------------------------------------------------------===//
#include "Bench.h"
#include "comm/Collective.h"

#include <algorithm>
#include <chrono>
#include <numeric>

using namespace pcrt;
using namespace pc_calibrate;

/// Adds a product to the table and returns its number.
int Bench::addProduct(const Shape &shape, int32_t dtype, bool isBeside) {
  auto [m, k, n, kind, accumulates] = shape;
  const bool turnsA = kind == ProductKind::TransposedA, turnsB = kind == ProductKind::TransposedB;
  pcrt_gemm_desc desc{};
  desc.name = "product";
  desc.batch = 1, desc.m = m, desc.n = n, desc.k = k;
  desc.a_m_stride = turnsA ? 1 : k, desc.a_k_stride = turnsA ? m : 1;
  desc.b_k_stride = turnsB ? 1 : n, desc.b_n_stride = turnsB ? k : 1;
  desc.c_m_stride = n, desc.c_n_stride = 1;
  desc.a_dtype = desc.b_dtype = dtype;
  desc.c_dtype = turnsA ? int32_t(PCRT_F32) : dtype;
  desc.accumulate = accumulates;
  desc.rest = -1;
  auto bytes = [](int64_t elements, int32_t of) { return (elements * (of == PCRT_F32 ? 4 : 2) + 255) / 256 * 256; };
  int64_t b = bytes(m * k, dtype), c = b + bytes(k * n, dtype);
  productBytes = std::max(productBytes, c + bytes(m * n, desc.c_dtype));
  tables.products.push_back({desc, 0, b, c, isBeside});
  return int(tables.products.size()) - 1;
}

static std::string nameOf(const Shape &shape, int32_t dtype) {
  static constexpr const char *kinds[] = {"", ", b transposed", ", a transposed"};
  return std::string(dtype == PCRT_F32 ? "f32" : "bf16") + " product " + std::to_string(shape.rows) + " x " +
         std::to_string(shape.summed) + " x " + std::to_string(shape.columns) + kinds[int(shape.kind)] +
         (shape.accumulates ? ", added" : "");
}

void Bench::addProducts(std::vector<Measurement> &to, const std::vector<Shape> &shapes, int32_t dtype) {
  to.reserve(shapes.size()); // cases point to them
  for (const Shape &shape : shapes) {
    to.push_back(named(nameOf(shape, dtype), shape.flops()));
    cases.push_back({&to.back(), [this, product = addProduct(shape, dtype)] { target.product(product); }});
  }
}

void Bench::addAdding() {
  if (sizes.adding < 0)
    return;
  Shape shape = sizes.bf16Products[sizes.adding];
  shape.accumulates = true;
  results.adding = named(nameOf(shape, PCRT_BF16), shape.flops());
  cases.push_back({&results.adding, [this, product = addProduct(shape, PCRT_BF16)] { target.product(product); }});
}

void Bench::addUnaligned() {
  if (results.device.multiprocessors == 0 || results.bf16Products.size() < 2)
    return;
  Shape shape = sizes.bf16Products[1];
  --shape.columns;
  results.unaligned = named(nameOf(shape, PCRT_BF16), shape.flops());
  cases.push_back({&results.unaligned, [this, product = addProduct(shape, PCRT_BF16)] { target.product(product); }});
}

void Bench::addMemory() {
  results.copy = named("copy" + inMiB(sizes.copy), 2. * double(sizes.copy));
  cases.push_back({&results.copy, [this] { target.copy(productBytes, productBytes + sizes.copy, sizes.copy); }});
  if (sizes.sum) {
    results.sum = named("sum of two tensors" + inMiB(sizes.sum), 3. * double(sizes.sum));
    cases.push_back({&results.sum, [this] {
                       int64_t a = productBytes, b = a + sizes.sum;
                       target.sum(b + sizes.sum, a, b, sizes.sum);
                     }});
  }
  results.launch = named(results.device.multiprocessors ? "smallest kernel" : "fork and join", 0, true);
  cases.push_back({&results.launch, [this] { target.launch(); }});
  if (!sizes.carry)
    return;
  auto carry = [&](const std::string &way) { // disks vary more than a quiet machine may
    return named("copy " + way + " the " + sizes.away + inMiB(sizes.carry), double(sizes.carry), sizes.away == "disk");
  };
  results.carryOut = carry("to");
  cases.push_back({&results.carryOut, [this] { target.carryOut(sizes.carry); }});
  results.carryIn = carry("from");
  cases.push_back({&results.carryIn, [this] { target.carryIn(sizes.carry); }});
}

/// The seconds of one call.
double Bench::time(Case &one) {
  return target.time(int(&one - cases.data()), one.repeats, one.call) / double(one.repeats);
}

/// One sample of a case; if each rank measures its own seconds, their mean.
double Bench::sample(Case &one) {
  waited = 0;
  double seconds = time(one);
  if (!one.own)
    return seconds;
  std::vector<double> everyone(comm.size());
  requireOk(comm, comm.allGatherBytes(one.own, sizeof *one.own, everyone.data()));
  return std::accumulate(everyone.begin(), everyone.end(), 0.) / double(comm.size() * one.repeats);
}

/// Rank 0's number, on all ranks.
int64_t Bench::numberOfFirst(int64_t mine) {
  std::vector<int64_t> everyone(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, everyone.data()));
  return everyone[0];
}

void Bench::sampleAll(const std::vector<Case *> &some, int warm, int rounds) {
  for (Case *one : some)
    one->seconds.clear();
  for (int round = -warm; round < rounds; ++round)
    for (Case *one : some)
      if (double seconds = sample(*one); round >= 0)
        one->seconds.push_back(seconds);
  for (Case *one : some) {
    std::sort(one->seconds.begin(), one->seconds.end());
    one->result->seconds = one->seconds[rounds / 2];
    if (one->own) // uses the mean, because a few long calls contribute to the total
      one->result->seconds = std::accumulate(one->seconds.begin(), one->seconds.end(), 0.) / rounds;
    one->result->spread = (one->seconds[rounds - 1 - rounds / 4] - one->seconds[rounds / 4]) / one->result->seconds;
  }
}

/// The cases that were disturbed on rank 0.
std::vector<Bench::Case *> Bench::noisierThan(double noise) {
  std::vector<Case *> some;
  for (Case &one : cases)
    if (numberOfFirst(!one.result->isSmall && one.result->spread > noise))
      some.push_back(&one);
  return some;
}

Measurements Bench::run(double seconds, double noise) {
  results.device = target.facts();
  results.threads = target.threads();
  results.sizes = sizes = target.sizes(/*isShort=*/seconds < 1);
  otherBytes = std::max({2 * sizes.copy, 3 * sizes.sum, 8 * sizes.largeMove});
  addProducts(results.products, sizes.products, PCRT_F32);
  addProducts(results.bf16Products, sizes.bf16Products, PCRT_BF16);
  addAdding();
  addUnaligned();
  addMemory();
  addMoves();
  addBeside();
  addMeeting();
  tables.bytes = productBytes + otherBytes + int64_t(tables.flows.size()) * messageBytes;
  target.prepare(tables);
  const int rounds = seconds < 5 ? 3 : 9;
  const double sample = seconds / double(rounds) / double(cases.size());
  for (Case &one : cases) {
    time(one);
    int64_t repeats = numberOfFirst(std::clamp<int64_t>(int64_t(sample / std::max(time(one), 1e-9)), 1, 20000));
    one.repeats = repeats < one.turns ? repeats : repeats / one.turns * one.turns;
  }
  // Clocks fall under load, so samples count only after a warm-up. Disturbed cases are measured again.
  const auto begin = std::chrono::steady_clock::now();
  auto hasTime = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 3 * seconds;
  };
  std::vector<Case *> some;
  for (Case &one : cases)
    some.push_back(&one);
  do {
    sampleAll(some, rounds / 4 + 1, rounds);
    some = noisierThan(noise);
  } while (!some.empty() && numberOfFirst(hasTime()));
  return std::move(results);
}

std::vector<Measurement> pc_calibrate::allOf(const Measurements &results) {
  std::vector<Measurement> all;
  auto add = [&](const std::vector<Measurement> &some) {
    for (const Measurement &one : some)
      if (one.isThere())
        all.push_back(one);
  };
  add(results.products);
  add(results.bf16Products);
  add({results.adding, results.unaligned});
  add({results.copy, results.sum, results.update, results.streaming, results.carryOut, results.carryIn});
  for (const GroupMoves *moves : {&results.node, &results.pair, &results.across}) {
    add(moves->large);
    add(moves->small);
    add({moves->message});
  }
  add({results.meeting, results.beside});
  for (const AttentionTimes &one : results.attention)
    add({one.forward, one.backward});
  add({results.launch});
  return all;
}

Measurement pc_calibrate::noisiest(const Measurements &results) {
  Measurement most;
  for (const Measurement &one : allOf(results))
    if (!one.isSmall && one.spread >= most.spread)
      most = one;
  return most;
}

Measurements pc_calibrate::measure(Target &target, Comm &comm, int nodeRanks, double seconds, double noise) {
  return Bench(target, comm, nodeRanks).run(seconds, noise);
}
