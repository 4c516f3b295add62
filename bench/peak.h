//===- peak.h - The measurement of a peak rate ----------------------------===//
// Shared by fma_peak, bf16_peak and read_peak: the time of work on one thread and on all of them, and the line of JSON.
//===----------------------------------------------------------------------===//
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

/// The best rate of five runs on `threads` threads, in 10^9 per second. Each thread constructs a `Work`, which is not
/// timed, and calls its run(), which does Work::amount of flops or bytes; the slowest thread counts.
template <typename Work> double peakRate(int threads) {
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<double> seconds(threads);
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t)
      team.emplace_back([&seconds, t] {
        Work work;
        auto start = std::chrono::steady_clock::now();
        work.run();
        seconds[t] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      });
    for (std::thread &thread : team)
      thread.join();
    best = std::max(best, Work::amount * threads / *std::max_element(seconds.begin(), seconds.end()) / 1e9);
  }
  return best;
}

template <typename Work> void printPeak(const char *unit = "gflops") {
  int threads = int(std::thread::hardware_concurrency());
  double one = peakRate<Work>(1), all = peakRate<Work>(threads);
  printf("{\"threads\": %d, \"one_thread_%s\": %.1f, \"all_threads_%s\": %.1f}\n", threads, unit, one, unit, all);
}
