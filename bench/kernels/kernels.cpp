//===- kernels.cpp - Special kernels compared with plain C++ loops, on one and two threads -===//
// Alternates rounds; prints the best and median time of a call, and the rate in GB/s or GF/s. Tensors of a layer rotate
// over 12 sets, so that a call does not find its input in the cache of the one before. Kernels of bf16 are compared
// with the loops in f32.
//===----------------------------------------------------------------------===//
#include "Jit.h"
#include "plain.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include <thread>

namespace {
/// Threads that spin for work, as the runtime's do.
class Team {
public:
  explicit Team(int size) : size(size) {
    for (int t = 1; t < size; ++t)
      threads.emplace_back([this, t] {
        for (int seen = 0;;) {
          int now;
          while ((now = generation.load(std::memory_order_acquire)) == seen)
            __builtin_ia32_pause();
          seen = now;
          if (!work)
            return;
          work(t);
          ++finished;
        }
      });
  }
  ~Team() {
    work = nullptr;
    ++generation;
    for (std::thread &t : threads)
      t.join();
  }
  void run(std::function<void(int)> body) {
    work = std::move(body);
    finished = 0;
    generation.fetch_add(1, std::memory_order_release);
    work(0);
    while (finished != size - 1)
      __builtin_ia32_pause();
  }
  const int size;

private:
  std::function<void(int)> work;
  std::atomic<int> generation{0}, finished{0};
  std::vector<std::thread> threads;
};

float *allocate(int64_t elements) {
  const size_t page = 2 << 20, bytes = (size_t(elements) * 4 + 64 + page - 1) / page * page;
  void *p = aligned_alloc(page, bytes);
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, 0, bytes);
  return static_cast<float *>(p);
}
/// Random numbers up to `size`. With `bf16`, the lower halves of their bits are cut off.
float *random(int64_t elements, float size, bool bf16) {
  float *p = allocate(elements);
  uint32_t x = 12345;
  for (int64_t i = 0; i < elements; ++i) {
    x = x * 1664525 + 1013904223;
    float value = size * (float(x >> 9) / 4194304 - 1);
    if (bf16)
      memcpy(reinterpret_cast<uint16_t *>(p) + i, reinterpret_cast<uint16_t *>(&value) + 1, 2);
    else
      p[i] = value;
  }
  return p;
}

struct Operand {
  std::string type;   ///< "4x256xf32"
  float size;         ///< amplitude of random values; 0: a result
  bool large = false; ///< exists once instead of 12 times
};
struct Case {
  std::string name, op, format;
  std::vector<Operand> operands;
  size_t results; ///< the last ones of `operands`
  pcrt_kernel_fn plain;
  int64_t plainItems;
  double bytes, flops;  ///< of one call
  bool inPlace = false; ///< adamw: results are operands 0, 2, 3
};

int64_t elements(const std::string &type) {
  int64_t n = 1, d = 0;
  for (char c : type) {
    if (c == 'x')
      n *= d, d = 0;
    else if (c >= '0' && c <= '9')
      d = d * 10 + (c - '0');
    else
      break;
  }
  return n;
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void measure(const Case &c) {
  std::string arguments, in, out;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    std::string type = "tensor<" + c.operands[i].type + ">";
    bool result = i >= c.operands.size() - c.results;
    if (!result)
      arguments += (i ? ", %" : "%") + std::to_string(i) + ": " + type;
    std::string &list = result ? out : in;
    list += (list.empty() ? "" : ", ") + type;
  }
  std::vector<JitKernel> kernels =
      jitOp("func.func @f(" + arguments + ") {\n  %r:" + std::to_string(c.results) + " = pc." + c.op + " " + c.format +
                " : (" + in + ") -> (" + out + ")\n  return\n}\n",
            hostLanes(), hostRoundsToBf16());
  const int sets = 12;
  std::vector<std::vector<void *>> args(sets), plainArgs(sets);
  for (const Operand &operand : c.operands) {
    bool ids = operand.type.ends_with("i32"), bf16 = operand.type.ends_with("bf16");
    void *shared = nullptr;
    for (int set = 0; set < sets; ++set) {
      if (!shared || !operand.large)
        shared = random(elements(operand.type), operand.size, bf16);
      if (ids)
        for (int64_t i = 0; i < elements(operand.type); ++i)
          static_cast<int32_t *>(shared)[i] = int32_t(i * 7919 % plain::vocabulary);
      args[set].push_back(shared);
      plainArgs[set].push_back(bf16 ? random(elements(operand.type), operand.size, false) : shared);
    }
  }
  for (auto *lists : {&args, &plainArgs})
    for (auto &list : *lists)
      if (c.inPlace)
        list[6] = list[0], list[7] = list[2], list[8] = list[3];

  const int64_t scratchBytes = 8 << 20;
  char *scratch[2] = {reinterpret_cast<char *>(allocate(scratchBytes / 4)),
                      reinterpret_cast<char *>(allocate(scratchBytes / 4))};
  for (int size : {1, 2}) {
    Team team(size);
    int set = 0;
    auto launch = [&](pcrt_kernel_fn fn, int64_t items, const std::vector<void *> &args) {
      team.run([&](int t) { fn(args.data(), items * t / size, items * (t + 1) / size, scratch[t]); });
    };
    std::vector<double> times[2];
    for (int round = 0; round < 4; ++round)
      for (int side = 0; side < 2; ++side)
        for (double end = seconds() + 0.1, spent = 0; seconds() < end || spent == 0;) {
          set = (set + 1) % sets;
          double start = seconds();
          if (side)
            launch(c.plain, c.plainItems, plainArgs[set]);
          else
            for (const JitKernel &kernel : kernels)
              launch(kernel.fn, kernel.items, args[set]);
          spent = seconds() - start;
          times[side].push_back(spent);
        }
    double best[2], median[2];
    for (int side = 0; side < 2; ++side) {
      std::sort(times[side].begin(), times[side].end());
      best[side] = times[side][0], median[side] = times[side][times[side].size() / 2];
    }
    bool compute = c.flops > 0;
    double amount = (compute ? c.flops : c.bytes) * 1e-9;
    printf("%-19s %d thread%s %9.3f | %9.3f ms %7.1f %s   plain %9.3f | %9.3f ms   ratio %.2f | %.2f\n", c.name.c_str(),
           size, size > 1 ? "s" : " ", best[0] * 1e3, median[0] * 1e3, amount / best[0], compute ? "GF/s" : "GB/s",
           best[1] * 1e3, median[1] * 1e3, best[0] / best[1], median[0] / median[1]);
    fflush(stdout);
  }
}

const std::string queries = "4x256x12x1x64x", keys = "4x256x12x64x", logSums = "4x12x1x256xf32";
constexpr double pairs = plain::batch * plain::heads * plain::tokens * (plain::tokens + 1) / 2.0;

Case attention(const std::string &name, const std::string &element) {
  const std::string q = queries + element, k = keys + element;
  return {name,
          "attention",
          "causal %0, %1, %2 scale 0.125",
          {{q, 1.5}, {k, 1.5}, {k, 1}, {q, 0}, {logSums, 0}},
          2,
          plain::attention,
          plain::batch * plain::heads,
          0,
          4 * pairs * plain::headDim};
}
Case attentionGrad(const std::string &name, const std::string &element) {
  const std::string q = queries + element, k = keys + element;
  return {name,
          "attention_grad",
          "causal %0, %1, %2, %3, %4, %5 scale 0.125",
          {{q, 1.5}, {k, 1.5}, {k, 1}, {q, 1}, {logSums, 1}, {q, 1}, {q, 0}, {k, 0}, {k, 0}},
          3,
          plain::attentionGrad,
          plain::batch * plain::heads,
          0,
          10 * pairs * plain::headDim};
}
} // namespace

int main(int argc, char **argv) {
  using namespace plain;
  const std::string x = "4x256x768xf32", turned = keys + "f32", table = "50304x768xf32";
  const double megabytes = rows * width * 4.0;
  const Case cases[] = {
      attention("attention", "f32"),
      attention("attention_bf16", "bf16"),
      attentionGrad("attention_grad", "f32"),
      attentionGrad("attention_grad_bf16", "bf16"),
      {"layer_norm_grad",
       "layer_norm_grad",
       "%0, %1, %2, %3, %4",
       {{x, 1}, {x, 1}, {"4x256xf32", 1}, {"4x256xf32", 1}, {"768xf32", 1}, {x, 0}, {"768xf32", 0}, {"768xf32", 0}},
       3,
       plain::layerNormGrad,
       rows,
       3 * megabytes,
       0},
      {"embedding",
       "embedding",
       "%0, %1",
       {{table, 1, true}, {"4x256xi32", 1}, {x, 0}},
       1,
       plain::embedding,
       rows,
       2 * megabytes,
       0},
      {"embedding_grad",
       "embedding_grad",
       "%0, %1",
       {{x, 1}, {"4x256xi32", 1}, {table, 0, true}},
       1,
       plain::embeddingGrad,
       width,
       vocabulary * width * 4.0 + 3 * megabytes,
       0},
      {"adamw",
       "adamw",
       "%0, %1, %2, %3, %4, %5",
       {{table, 0.1f, true},
        {table, 0.1f, true},
        {table, 0, true},
        {table, 0, true},
        {"f32", 1},
        {"8xf32", 0.5},
        {table, 0, true},
        {table, 0, true},
        {table, 0, true}},
       3,
       plain::adamw,
       vocabulary * width,
       7.0 * vocabulary * width * 4,
       0,
       true},
      {"rope",
       "rope",
       "%0, %1, %2",
       {{turned, 1}, {"256x32xf32", 1}, {"256x32xf32", 1}, {turned, 0}},
       1,
       plain::rope,
       rows,
       2 * megabytes,
       0},
      {"recurrence",
       "recurrence \"x s c, x s c -> x s c\" along \"s\"",
       "%0, %1",
       {{x, 0.5}, {x, 1}, {x, 0}},
       1,
       plain::recurrence,
       plain::batch,
       3 * megabytes,
       0},
  };
  for (const Case &c : cases)
    if (argc < 2 || c.name == argv[1])
      measure(c);
}
