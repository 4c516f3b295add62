//===- CpuTarget.cpp - Calls of a rank that runs on CPU cores -------------===//
// Makes the calls of a compiled step through the runtime's own classes (Gemms, Pool, Comm), between two barriers.
//===----------------------------------------------------------------------===//
#include "Target.h"
#include "comm/Collective.h"
#include "comm/Environment.h"
#include "cpu/Bf16.h"
#include "cpu/DiskArena.h"
#include "cpu/Gemm.h"
#include "device/Profile.h"

#include <algorithm>
#include <cstring>
#include <optional>

using namespace pcrt;
using namespace pc_calibrate;

namespace {

/// The target of a CPU rank. Its products are those of the runtime, on the threads of the rank.
class CpuTarget final : public Target {
public:
  CpuTarget(Comm &comm, const std::string &scratch) : comm(comm), pool(threadsOfThisRank()), scratch(scratch) {}

  /// The products are results of layers, gradients of their inputs, and gradients of their weights. Sizes are 1024
  /// tokens with layers of 768 x 768 and 768 x 3072, 512 tokens with 4096 x 2048, and 256 tokens with 16000 classes,
  /// whose weights lie transposed.
  Sizes sizes(bool isShort) const override {
    using enum ProductKind;
    Sizes sizes;
    sizes.products = {{1024, 768, 768, Plain},        {1024, 768, 3072, Plain},       {1024, 3072, 768, TransposedB},
                      {768, 1024, 3072, TransposedA}, {512, 4096, 2048, Plain},       {512, 2048, 4096, TransposedB},
                      {4096, 512, 2048, TransposedA}, {256, 768, 16000, TransposedB}, {256, 16000, 768, Plain},
                      {16000, 256, 768, TransposedA}};
    if (isShort) // the large ones are long enough by themselves
      sizes.products = {sizes.products[0], sizes.products[1], {768, 256, 768, TransposedA}};
    sizes.bf16Products = sizes.products;
    sizes.adding = int(sizes.products.size()) - 1;
    sizes.copy = 128 * MiB;
    sizes.sum = 6 * MiB;
    sizes.largeMove = (isShort ? 3 : 24) * MiB;
    sizes.carry = scratch.empty() ? 0 : isShort ? MiB : 64 * MiB;
    sizes.away = "disk";
    return sizes;
  }
  int threads() const override { return pool.size(); }

  void prepare(const Tables &made) override {
    tables = &made;
    requireOk(comm, comm.allocateArena(made.bytes, &base));
    std::vector<pcrt_gemm_desc> descs;
    for (const ProductCall &call : made.products)
      descs.push_back(call.desc);
    gemms = std::make_unique<Gemms>(pool, descs.data(), int(descs.size()),
                                    agreeOnBf16({.products = true}, comm).products.native);
    gemms->warmUp(base, made.bytes);
    std::fill_n(reinterpret_cast<float *>(base), made.bytes / 4, 0.5f);
    if (comm.size() > 1)
      requireOk(comm, comm.openFlows(made.flows));
    int64_t longest = 0;
    for (const Flow &flow : made.flows)
      longest = std::max(longest, flow.bytes);
    message.resize(size_t(longest));
  }

  void product(int index) override {
    const ProductCall &call = tables->products[index];
    if (!gemms->run(index, base + call.a, base + call.b, base + call.c, nullptr, nullptr, &problem))
      fail(PCRT_INTERNAL, problem);
  }
  void copy(int64_t to, int64_t from, int64_t bytes) override {
    pool.ranges(bytes, [&](int, int64_t lo, int64_t hi) { memcpy(base + to + lo, base + from + lo, size_t(hi - lo)); });
  }
  void sum(int64_t to, int64_t left, int64_t right, int64_t bytes) override {
    const auto *a = reinterpret_cast<const float *>(base + left), *b = reinterpret_cast<const float *>(base + right);
    auto *result = reinterpret_cast<float *>(base + to);
    pool.ranges(bytes / 4, [=](int, int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i)
        result[i] = a[i] + b[i];
    });
  }
  void launch() override {
    pool.ranges(pool.size(), [](int, int64_t, int64_t) {});
  }

  void move(int index, int64_t in, int64_t out) override {
    const pcrt_move_desc &desc = tables->moves[index];
    requireOk(comm, comm.move(desc, tables->groups[desc.group], base + in, base + out, workers()));
  }
  void start(int index, int64_t in, int64_t out) override {
    const pcrt_move_desc &desc = tables->moves[index];
    started = {base + in, base + out};
    ticket = Ticket();
    ticket.moves = &desc;
    ticket.count = 1;
    ticket.group = &tables->groups[desc.group];
    ticket.ins = &started.in;
    ticket.outs = &started.out;
    requireOk(comm, comm.start(ticket, workers()));
  }
  void wait() override { requireOk(comm, comm.wait(ticket, workers())); }

  void messages(int flow, bool begins) override {
    for (bool sends : {begins, !begins})
      requireOk(comm, sends ? comm.send(flow, message.data()) : comm.receive(flow + 1, message.data()));
  }
  void carryOut(int64_t bytes) override { carry(bytes, /*toDisk=*/true); }
  void carryIn(int64_t bytes) override { carry(bytes, /*toDisk=*/false); }

  /// Measures from barrier to barrier.
  double time(int, int64_t repeats, const std::function<void()> &call) override {
    requireOk(comm, comm.barrier());
    int64_t start = nanoseconds();
    for (int64_t i = 0; i < repeats; ++i)
      call();
    requireOk(comm, comm.barrier());
    return double(nanoseconds() - start) * 1e-9;
  }

private:
  void carry(int64_t bytes, bool toDisk) {
    if (!disk)
      disk.emplace(scratch, bytes, 1, coresOfProcess());
    std::string error;
    disk->start(0, {base, 0, bytes, toDisk});
    if (!disk->wait(0, &error))
      fail(PCRT_RESOURCE, error);
  }

  ParallelFor workers() {
    return {&pool, [](void *pool, int64_t items, ParallelFor::Body body, void *arg) {
              static_cast<Pool *>(pool)->ranges(items, [&](int, int64_t lo, int64_t hi) { body(arg, lo, hi); });
            }};
  }

  Comm &comm;
  Pool pool;
  const std::string scratch;     ///< The directory of the file on disk, or empty.
  std::optional<DiskArena> disk; ///< Opened by the first copy, which is not measured.
  const Tables *tables = nullptr;
  std::unique_ptr<Gemms> gemms;
  char *base = nullptr;
  std::vector<char> message;
  struct {
    const void *in = nullptr;
    void *out = nullptr;
  } started;
  Ticket ticket;
  const char *problem = nullptr;
};

} // namespace

std::unique_ptr<Target> pc_calibrate::makeCpuTarget(Comm &comm, const std::string &scratch) {
  return std::make_unique<CpuTarget>(comm, scratch);
}
