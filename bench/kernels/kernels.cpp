//===- kernels.cpp - Special kernels against plain C++ loops, one and two threads -------===//
// Alternating rounds; prints the best and median time of a call and what it means in GB/s or GF/s. Tensors of a layer
// rotate over 12 sets, so that a call does not find its input in the cache of the one before.
//===-----------------------------------------------------------------------------===//
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
float *random(int64_t elements, float size = 1) {
  float *p = allocate(elements);
  uint32_t x = 12345;
  for (int64_t i = 0; i < elements; ++i) {
    x = x * 1664525 + 1013904223;
    p[i] = size * (float(x >> 9) / 4194304 - 1);
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
            hostLanes());
  const int sets = 12;
  std::vector<std::vector<void *>> args(sets);
  for (const Operand &operand : c.operands) {
    bool ids = operand.type.ends_with("i32");
    void *shared = nullptr;
    for (auto &list : args) {
      if (!shared || !operand.large)
        shared = random(elements(operand.type), operand.size);
      if (ids)
        for (int64_t i = 0; i < elements(operand.type); ++i)
          static_cast<int32_t *>(shared)[i] = int32_t(i * 7919 % plain::vocabulary);
      list.push_back(shared);
    }
  }
  for (auto &list : args)
    if (c.inPlace)
      list[6] = list[0], list[7] = list[2], list[8] = list[3];

  const int64_t scratchBytes = 8 << 20;
  char *scratch[2] = {reinterpret_cast<char *>(allocate(scratchBytes / 4)),
                      reinterpret_cast<char *>(allocate(scratchBytes / 4))};
  for (int size : {1, 2}) {
    Team team(size);
    int set = 0;
    auto launch = [&](pcrt_kernel_fn fn, int64_t items) {
      team.run([&](int t) { fn(args[set].data(), items * t / size, items * (t + 1) / size, scratch[t]); });
    };
    std::vector<double> times[2];
    for (int round = 0; round < 4; ++round)
      for (int side = 0; side < 2; ++side)
        for (double end = seconds() + 0.1, spent = 0; seconds() < end || spent == 0;) {
          set = (set + 1) % sets;
          double start = seconds();
          if (side)
            launch(c.plain, c.plainItems);
          else
            for (const JitKernel &kernel : kernels)
              launch(kernel.fn, kernel.items);
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
    printf("%-16s %d thread%s %9.3f | %9.3f ms %7.1f %s   plain %9.3f | %9.3f ms   ratio %.2f | %.2f\n", c.name.c_str(),
           size, size > 1 ? "s" : " ", best[0] * 1e3, median[0] * 1e3, amount / best[0], compute ? "GF/s" : "GB/s",
           best[1] * 1e3, median[1] * 1e3, best[0] / best[1], median[0] / median[1]);
    fflush(stdout);
  }
}
} // namespace

int main(int argc, char **argv) {
  using namespace plain;
  const std::string q = "4x256x12x1x64xf32", k = "4x256x12x64xf32", lse = "4x12x1x256xf32", x = "4x256x768xf32";
  const std::string table = "50304x768xf32";
  const double megabytes = rows * width * 4.0, pairs = batch * heads * tokens * (tokens + 1) / 2.0;
  const Case cases[] = {
      {"attention",
       "attention",
       "causal %0, %1, %2 scale 0.125",
       {{q, 1.5}, {k, 1.5}, {k, 1}, {q, 0}, {lse, 0}},
       2,
       plain::attention,
       batch * heads,
       4 * megabytes,
       4 * pairs * headDim},
      {"attention_grad",
       "attention_grad",
       "causal %0, %1, %2, %3, %4, %5 scale 0.125",
       {{q, 1.5}, {k, 1.5}, {k, 1}, {q, 1}, {lse, 1}, {q, 1}, {q, 0}, {k, 0}, {k, 0}},
       3,
       plain::attentionGrad,
       batch * heads,
       8 * megabytes,
       10 * pairs * headDim},
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
       {{k, 1}, {"256x32xf32", 1}, {"256x32xf32", 1}, {k, 0}},
       1,
       plain::rope,
       rows,
       2 * megabytes,
       0},
  };
  for (const Case &c : cases)
    if (argc < 2 || c.name == argv[1])
      measure(c);
}
