//===- Measure.cpp - what the ranks of this machine can do -----------------===//
#include "Bench.h"
#include "comm/Collective.h"
#include "device/Profile.h"

#include <algorithm>
#include <cstring>
#include <span>

using namespace pcrt;
using namespace pc_calibrate;

/// Products (rows, summed, columns): of 1024 and 2048 tokens with layers of 768 to 4096, whole and divided.
static constexpr int64_t shapes[][3] = {{1024, 768, 768},   {1024, 768, 3072},  {1024, 3072, 768},
                                        {2048, 1024, 4096}, {2048, 2048, 2048}, {512, 4096, 2048}};

/// The first `count` shapes.
void Bench::addProducts(std::vector<Measurement> &to, size_t count, int32_t dtype, std::unique_ptr<Gemms> &made) {
  std::vector<pcrt_gemm_desc> &table = dtype == PCRT_F32 ? descs : bf16Descs;
  for (auto [m, k, n] : std::span(shapes).first(count))
    table.push_back(
        {"product", 1, m, n, k, 0, k, 1, 0, n, 1, 0, n, 1, 0, 0, 0, 0, 0, 0, 0, dtype, dtype, dtype, 0, 0, -1});
  made = std::make_unique<Gemms>(pool, table.data(), int(table.size()));
  if (made->plainParts()) // this CPU has no instructions for it
    return;
  made->warmUp(arena, 64 * MiB);
  to.reserve(count); // cases point to them
  for (size_t i = 0; i < count; ++i) {
    auto [m, k, n] = shapes[i];
    std::string name = std::string(dtype == PCRT_F32 ? "f32" : "bf16") + " product " + std::to_string(m) + " x " +
                       std::to_string(k) + " x " + std::to_string(n);
    to.push_back(named(name, 2. * double(m) * double(k) * double(n)));
    cases.push_back({&to.back(), [this, &made, i] {
                       if (!made->run(int(i), arena, arena + 32 * MiB, arena + 64 * MiB, nullptr, nullptr, &problem))
                         throw std::string(problem);
                     }});
  }
}

void Bench::addMemory() {
  from.assign(size_t(128 * MiB / 4), 1);
  to.assign(from.size(), 0);
  results.memory.reserve(2);
  results.memory.push_back(named("copy of 128 MiB", 2. * 128 * MiB));
  cases.push_back({&results.memory.back(), [this] {
                     pool.ranges(int64_t(from.size()), [&](int, int64_t lo, int64_t hi) {
                       memcpy(&to[size_t(lo)], &from[size_t(lo)], size_t(hi - lo) * 4);
                     });
                   }});
  results.memory.push_back(named("sum of two tensors of 6 MiB", 3. * 6 * MiB));
  cases.push_back({&results.memory.back(), [this] {
                     constexpr int64_t count = 6 * MiB / 4;
                     const float *a = from.data(), *b = a + count;
                     float *sum = to.data();
                     pool.ranges(count, [=](int, int64_t lo, int64_t hi) {
                       for (int64_t i = lo; i < hi; ++i)
                         sum[i] = a[i] + b[i];
                     });
                   }});
  results.launch = named("fork and join", 0, true);
  cases.push_back({&results.launch, [this] { pool.ranges(pool.size(), [](int, int64_t, int64_t) {}); }});
}

/// Seconds of one call, from barrier to barrier.
double Bench::time(const Case &one) {
  requireOk(comm, comm.barrier());
  int64_t start = nanoseconds();
  for (int64_t i = 0; i < one.repeats; ++i)
    one.call();
  requireOk(comm, comm.barrier());
  return double(nanoseconds() - start) * 1e-9 / double(one.repeats);
}

/// Rank 0's number, on all ranks.
int64_t Bench::numberOfFirst(int64_t mine) {
  std::vector<int64_t> everyone(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, everyone.data()));
  return everyone[0];
}

void Bench::sampleAll(int warm, int rounds) {
  for (Case &one : cases)
    one.seconds.clear();
  for (int round = -warm; round < rounds; ++round)
    for (Case &one : cases)
      if (double seconds = time(one); round >= 0)
        one.seconds.push_back(seconds);
  for (Case &one : cases) {
    std::sort(one.seconds.begin(), one.seconds.end());
    one.result->seconds = one.seconds[rounds / 2];
    one.result->spread = (one.seconds[rounds - 1 - rounds / 4] - one.seconds[rounds / 4]) / one.result->seconds;
  }
}

Measurements Bench::run(double seconds, double noise) {
  requireOk(comm, comm.allocateArena(160 * MiB, &arena));
  std::fill_n(reinterpret_cast<float *>(arena), 160 * MiB / 4, 0.5f);
  results.threads = pool.size();
  const bool isShort = seconds < 1; // the large ones take longer alone
  const size_t count = isShort ? 2 : std::size(shapes);
  largeBytes = isShort ? 3 * MiB : 24 * MiB;
  addProducts(results.products, count, PCRT_F32, gemms);
  addProducts(results.bf16Products, count, PCRT_BF16, bf16Gemms);
  addMemory();
  addMoves();
  addBeside();
  const int rounds = seconds < 5 ? 3 : 9;
  const double sample = seconds / double(rounds) / double(cases.size());
  for (Case &one : cases) {
    time(one);
    one.repeats = numberOfFirst(std::clamp<int64_t>(int64_t(sample / std::max(time(one), 1e-9)), 1, 20000));
  }
  // Clocks fall under load: what counts begins when everything is hot.
  for (int tries = 0; tries < 3; ++tries) {
    sampleAll(rounds / 4 + 1, rounds);
    if (numberOfFirst(noisiest(results).spread <= noise))
      break;
  }
  return std::move(results);
}

std::vector<Measurement> pc_calibrate::allOf(const Measurements &results) {
  std::vector<Measurement> all;
  auto add = [&](const std::vector<Measurement> &some) { all.insert(all.end(), some.begin(), some.end()); };
  add(results.products);
  add(results.bf16Products);
  add(results.memory);
  for (const GroupMoves *moves : {&results.node, &results.pair, &results.across}) {
    add(moves->large);
    add(moves->small);
    if (moves->size)
      all.push_back(moves->message);
  }
  if (results.beside.seconds > 0)
    all.push_back(results.beside);
  all.push_back(results.launch);
  return all;
}

Measurement pc_calibrate::noisiest(const Measurements &results) {
  Measurement most;
  for (const Measurement &one : allOf(results))
    if (!one.isSmall && one.spread >= most.spread)
      most = one;
  return most;
}

Measurements pc_calibrate::measure(Comm &comm, int nodeRanks, double seconds, double noise) {
  return Bench(comm, nodeRanks).run(seconds, noise);
}
