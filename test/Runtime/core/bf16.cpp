//===- bf16.cpp - How a run chooses to multiply bf16 ----------------------===//
// Checks chooseBf16 for invented measurements: the slowest rank decides, near ties keep the native way, PCRT_CPU_BF16
// overrides.
//===----------------------------------------------------------------------===//
#include "cpu/Bf16.h"
#include "Files.h"
#include "base/Failure.h"

#include <cstdlib>

using namespace pcrt;

/// Returns the choice of a run whose ranks have these rates, and the text for users.
static void testChoice() {
  using Ranks = std::vector<Bf16Rates>;
  auto choose = [](const Ranks &rates) {
    std::vector<Bf16Measurement> ofRanks;
    for (const Bf16Rates &one : rates)
      ofRanks.push_back({.products = {}, .kernels = one});
    Bf16Choice choice = chooseBf16(ofRanks);
    expect(choice.products.text.empty() && !choice.products.native, "what is not used is not chosen");
    return choice.kernels;
  };
  const Bf16Rates unused{}, lacks{true, 0, 0}, slow{true, 85, 185}, even{true, 180, 185}, fast{true, 300, 150};
  const struct {
    Ranks ranks;
    bool native;
    const char *text;
  } cases[] = {
      {{unused}, false, ""},
      {{lacks}, false, "in f32 (no AVX512_BF16)"},
      {{slow}, false, "in f32 (370 Gflop/s per thread, native 170)"},
      {{even}, true, "native (360 Gflop/s per thread, in f32 370)"},
      {{fast, fast}, true, "native (600 Gflop/s per thread, in f32 300)"},
      {{fast, lacks}, false, "in f32 (no AVX512_BF16)"}, // all ranks alike
      {{fast, slow, fast}, false, "in f32 (300 Gflop/s per thread, native 170)"},
      {{unused, fast}, true, "native (600 Gflop/s per thread, in f32 300)"},
  };
  unsetenv("PCRT_CPU_BF16");
  for (const auto &one : cases) {
    Bf16Way way = choose(one.ranks);
    expect(way.native == one.native && way.text == one.text, way.text + " and not " + one.text);
  }
  setenv("PCRT_CPU_BF16", "0", 1);
  expect(choose({fast}).text == "in f32 (PCRT_CPU_BF16=0)" && !choose({fast}).native, "f32 by wish");
  setenv("PCRT_CPU_BF16", "1", 1);
  expect(choose({slow}).text == "native (PCRT_CPU_BF16=1)" && choose({slow}).native, "native by wish");
  std::string refusal;
  try {
    choose({slow, lacks});
  } catch (const Failure &failure) {
    refusal = failure.status == PCRT_USAGE ? failure.message : "another status";
  }
  expect(refusal == "PCRT_CPU_BF16=1, but the CPU of one rank has no AVX512_BF16; unset PCRT_CPU_BF16", refusal);
  unsetenv("PCRT_CPU_BF16");
}

static void testMeasuring() {
  Bf16Measurement measured = measureBf16({.products = true, .kernels = true});
  const bool has = __builtin_cpu_supports("avx512bf16");
  for (const Bf16Rates &rates : {measured.products, measured.kernels})
    expect(rates.used && (rates.native > 0) == has && (rates.inF32 > 0) == has, "rates of this CPU");
}

int main() {
  testChoice();
  testMeasuring();
  return finishChecks();
}
