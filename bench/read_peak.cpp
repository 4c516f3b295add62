//===- read_peak.cpp - The rate at which this machine reads memory --------===//
// Prints GB/s on one thread and on all of them, as one line of JSON. Each thread sums an array that is larger than the
// caches. A token that is generated alone needs all weights once, so this rate bounds its time.
//===----------------------------------------------------------------------===//
#include "peak.h"

namespace {

typedef float Vector __attribute__((vector_size(32)));

struct Reads {
  static constexpr double amount = 512 << 20; // bytes

  void run() {
    Vector sums[4] = {};
    for (size_t i = 0; i < array.size(); i += 4) {
      __builtin_prefetch(&array[i] + 128);
      __builtin_prefetch(&array[i] + 130);
      for (size_t k = 0; k < 4; ++k) {
        sums[k] += array[i + k];
        asm volatile("" : "+v"(sums[k])); // none folded away
      }
    }
  }

  std::vector<Vector> array = std::vector<Vector>(size_t(amount) / sizeof(Vector), Vector{1});
};

} // namespace

int main() { printPeak<Reads>("gbytes"); }
