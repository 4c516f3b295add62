//===- fma_peak.cpp - The peak rate of f32 multiply-adds on this CPU ------===//
// Prints the f32 multiply-add rate of this machine's cores, GF/s on one thread and on all of them, as one line of JSON.
// Sixteen independent accumulators of one vector register each hide the latency of the FMA; no memory is accessed.
//===----------------------------------------------------------------------===//
#include "peak.h"

namespace {

#if defined(__AVX512F__)
constexpr int Lanes = 16;
#else
constexpr int Lanes = 8;
#endif
typedef float Vector __attribute__((vector_size(Lanes * sizeof(float))));
constexpr int Accumulators = 16;

constexpr long rounds = 20'000'000;

/// Rounds of 16 vector multiply-adds that do not depend on each other.
struct MultiplyAdds {
  static constexpr double amount = 2.0 * Lanes * Accumulators * double(rounds);

  void run() {
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
  }
};

} // namespace

int main() { printPeak<MultiplyAdds>(); }
