// fma_peak: the f32 multiply-add rate of this machine's cores, GF/s on one thread and on all of them, as one line of JSON.
// Sixteen independent accumulators of one vector register each hide the latency of the FMA; nothing touches memory.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int Lanes = 16;
#else
constexpr int Lanes = 8;
#endif
typedef float Vector __attribute__((vector_size(Lanes * sizeof(float))));
constexpr int Accumulators = 16;

/// Runs `rounds` times 16 vector FMAs; the result keeps the compiler from dropping them.
float burn(long rounds) {
  Vector sums[Accumulators];
  for (int i = 0; i < Accumulators; ++i)
    for (int lane = 0; lane < Lanes; ++lane)
      sums[i][lane] = 1.0f + 0.001f * float(i + lane);
  Vector scale, shift;
  for (int lane = 0; lane < Lanes; ++lane) {
    scale[lane] = 0.999f;
    shift[lane] = 0.001f;
  }
  for (long round = 0; round < rounds; ++round) {
#pragma clang loop unroll(full)
    for (int i = 0; i < Accumulators; ++i) {
      sums[i] = sums[i] * scale + shift;
      asm volatile("" : "+v"(sums[i])); // one FMA each, none folded away
    }
  }
  float total = 0;
  for (int i = 0; i < Accumulators; ++i)
    for (int lane = 0; lane < Lanes; ++lane)
      total += sums[i][lane];
  return total;
}

/// The best rate of five runs on `threads` threads, GF/s.
double measure(int threads) {
  const long rounds = 20'000'000;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<float> sink(threads);
    auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t)
      team.emplace_back([&sink, t] { sink[t] = burn(rounds); });
    for (std::thread &thread : team)
      thread.join();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * Lanes * Accumulators * double(rounds) * threads / seconds / 1e9);
    if (sink[0] == 42.0f) // never; uses the result
      printf(" ");
  }
  return best;
}

} // namespace

int main() {
  int threads = int(std::thread::hardware_concurrency());
  double one = measure(1), all = measure(threads);
  printf("{\"threads\": %d, \"one_thread_gflops\": %.1f, \"all_threads_gflops\": %.1f}\n", threads, one, all);
}
