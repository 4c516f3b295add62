//===- Measure.cpp - what the ranks of this machine can do -----------------===//
#include "Measure.h"
#include "comm/Collective.h"
#include "cpu/Gemm.h"
#include "device/Profile.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>

using namespace pcrt;
using namespace pc_calibrate;

namespace {

constexpr int64_t MiB = int64_t(1) << 20;
/// Products (rows, summed, columns): of 1024 and 2048 tokens with layers of 768 to 4096, whole and divided.
constexpr int64_t shapes[][3] = {{1024, 768, 768},   {1024, 768, 3072},  {1024, 3072, 768},
                                 {2048, 1024, 4096}, {2048, 2048, 2048}, {512, 4096, 2048}};

Measurement named(const std::string &name, double work, bool isSmall = false) { return {name, work, 0, 0, isSmall}; }

class Bench {
public:
  explicit Bench(Comm &comm) : comm(comm), pool(threadsOfThisRank()) {
    for (int rank = 0; rank < comm.size(); ++rank)
      all.ranks.push_back(rank);
    all.me = comm.rank();
  }

  Measurements run(double seconds, double noise);

private:
  struct Case {
    Measurement *result;
    std::function<void()> call;
    int64_t repeats = 1;
    std::vector<double> seconds = {};
  };

  void addProducts(std::vector<Measurement> &to, size_t count, int32_t dtype, std::unique_ptr<Gemms> &gemms);
  void addMemory();
  void addMoves();
  double time(const Case &one);
  int64_t numberOfFirst(int64_t mine);
  void sampleAll(int warm, int rounds);

  Comm &comm;
  Pool pool;
  Group all;
  Measurements results;
  std::vector<Case> cases;
  std::vector<pcrt_gemm_desc> descs, bf16Descs;
  std::unique_ptr<Gemms> gemms, bf16Gemms;
  char *arena = nullptr;
  std::vector<float> from, to;
  const char *problem = nullptr;
};

} // namespace

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

void Bench::addMoves() {
  if (comm.size() == 1)
    return;
  const int64_t size = comm.size();
  struct Kind {
    const char *name;
    pcrt_move_kind kind;
    double sent; ///< Of the whole tensor's bytes, by a rank in a ring.
  };
  const Kind kinds[] = {{"all_reduce", PCRT_ALL_REDUCE, 2. * double(size - 1) / double(size)},
                        {"all_gather", PCRT_ALL_GATHER, double(size - 1) / double(size)}};
  results.moves.reserve(2), results.latencies.reserve(2);
  for (const Kind &kind : kinds)
    for (int64_t bytes : {24 * MiB, int64_t(4096)}) {
      bool small = bytes == 4096;
      std::vector<Measurement> &to = small ? results.latencies : results.moves;
      to.push_back(
          named(std::string(kind.name) + (small ? " of 4 kB" : " of 24 MiB"), kind.sent * double(bytes), small));
      bool gathers = kind.kind == PCRT_ALL_GATHER;
      int64_t outer = gathers ? 1 : bytes / 4, extent = gathers ? size : 1, inner = gathers ? bytes / 4 / size : 1;
      cases.push_back({&to.back(), [this, kind, gathers, outer, extent, inner] {
                         pcrt_move_desc desc{kind.name, kind.kind, 0, PCRT_F32, PCRT_SUM, outer, extent,
                                             inner,     1,         1, "",       0,        0};
                         ParallelFor workers{&pool, [](void *pool, int64_t items, ParallelFor::Body body, void *arg) {
                                               static_cast<Pool *>(pool)->ranges(
                                                   items, [&](int, int64_t lo, int64_t hi) { body(arg, lo, hi); });
                                             }};
                         char *out = gathers ? arena + 32 * MiB : arena;
                         requireOk(comm, comm.move(desc, all, arena, out, workers));
                       }});
    }
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
  requireOk(comm, comm.allocateArena(96 * MiB, &arena));
  std::fill_n(reinterpret_cast<float *>(arena), 96 * MiB / 4, 0.5f);
  results.threads = pool.size();
  const size_t count = seconds < 1 ? 2 : std::size(shapes); // the large ones take longer alone
  addProducts(results.products, count, PCRT_F32, gemms);
  addProducts(results.bf16Products, count, PCRT_BF16, bf16Gemms);
  addMemory();
  addMoves();
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
  for (const std::vector<Measurement> *some :
       {&results.products, &results.bf16Products, &results.memory, &results.moves, &results.latencies})
    all.insert(all.end(), some->begin(), some->end());
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

Measurements pc_calibrate::measure(Comm &comm, double seconds, double noise) { return Bench(comm).run(seconds, noise); }
