//===- Bf16.cpp - The ways in which the CPU multiplies bf16 ---------------===//
// Matrix products are measured by one product of oneDNN in each of the two ways, kernels by loops of vdpbf16ps and FMA
// on registers. The best of several runs counts. The widened way is chosen only if it is 10 % faster, so that noise
// does not decide.
//===----------------------------------------------------------------------===//
#include "cpu/Bf16.h"
#include "comm/Collective.h"
#include "comm/Environment.h"
#include "cpu/Matmul.h"
#include "device/Profile.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#ifdef __x86_64__
#include <immintrin.h>
#endif

using namespace pcrt;

static constexpr const char *variable = "PCRT_CPU_BF16";

/// The widened way is used only if it is faster by this factor, because less may be noise.
static constexpr double clearlyFaster = 1.1;

static bool hasNativeProducts() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

/// The best of several runs, in nanoseconds.
template <typename F> static double bestTime(int runs, F &&run) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < runs; ++i) {
    int64_t start = nanoseconds();
    run();
    best = std::min(best, nanoseconds() - start);
  }
  return double(std::max<int64_t>(best, 1));
}

/// The rate of one product that is large enough to reach oneDNN's rate and small enough for a cache.
static double rateOfProducts(bool native) {
  constexpr int64_t m = 256, n = 512, k = 512;
  pcrt_gemm_desc d{};
  d.batch = 1, d.m = m, d.n = n, d.k = k;
  d.a_m_stride = k, d.a_k_stride = 1, d.b_k_stride = n, d.b_n_stride = 1, d.c_m_stride = n, d.c_n_stride = 1;
  d.a_dtype = d.b_dtype = d.c_dtype = PCRT_BF16;
  std::vector<uint16_t> a(m * k), b(k * n), c(m * n);
  workAlone();
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::stream stream(engine);
  Matmul product(d, *operandsOf(d), /*packB=*/false, native, engine);
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> scratch(product.scratchBytes() / sizeof(Line) + 1);
  auto run = [&] {
    product.setB(b.data(), scratch.data(), stream);
    product.run(a.data(), c.data(), nullptr, scratch.data(), stream);
  };
  run(); // oneDNN generates code
  return m * n * k / bestTime(5, run);
}

#ifdef __x86_64__
static constexpr int numSums = 12, numRounds = 4096;

// Independent sums, enough to keep the units busy. The asm statement hides their values from the compiler.
#define PCRT_ADD_PRODUCTS(NAME, TARGET, FACTOR, ZERO, ADD)                                                             \
  __attribute__((target(TARGET))) static void NAME() {                                                                 \
    FACTOR factor = ZERO;                                                                                              \
    __m512 sums[numSums];                                                                                              \
    for (__m512 &sum : sums)                                                                                           \
      sum = _mm512_setzero_ps();                                                                                       \
    for (int round = 0; round < numRounds; ++round) {                                                                  \
      __asm__ volatile("" : "+v"(factor));                                                                             \
      _Pragma("clang loop unroll(full)") for (int i = 0; i < numSums; ++i) sums[i] = ADD;                              \
    }                                                                                                                  \
    for (__m512 &sum : sums)                                                                                           \
      __asm__ volatile("" ::"v"(sum));                                                                                 \
  }
PCRT_ADD_PRODUCTS(addPairs, "avx512f,avx512bf16", __m512bh, (__m512bh)_mm512_setzero_si512(),
                  _mm512_dpbf16_ps(sums[i], factor, factor))
PCRT_ADD_PRODUCTS(addInF32, "avx512f", __m512, _mm512_setzero_ps(), _mm512_fmadd_ps(factor, factor, sums[i]))
#undef PCRT_ADD_PRODUCTS

static void measureKernels(Bf16Rates &rates) {
  if (!__builtin_cpu_supports("avx512bf16"))
    return;
  rates.native = 32. * numSums * numRounds / bestTime(20, addPairs);
  rates.inF32 = 16. * numSums * numRounds / bestTime(20, addInF32);
}
#else
static void measureKernels(Bf16Rates &) {}
#endif

void Bf16Uses::add(const pcrt_program &program) {
  for (int i = 0; i < program.num_gemms; ++i)
    products = products || program.gemms[i].a_dtype == PCRT_BF16 || program.gemms[i].b_dtype == PCRT_BF16;
  for (int i = 0; i < program.num_kernels; ++i)
    kernels = kernels || program.kernels[i].fn_f32;
}

Bf16Measurement pcrt::measureBf16(const Bf16Uses &uses) {
  Bf16Measurement measured;
  measured.products.used = uses.products;
  measured.kernels.used = uses.kernels;
  if (uses.products && hasNativeProducts()) {
    measured.products.native = rateOfProducts(/*native=*/true);
    measured.products.inF32 = rateOfProducts(/*native=*/false);
  }
  if (uses.kernels)
    measureKernels(measured.kernels);
  return measured;
}

/// Chooses the better way for the slowest rank, because the others wait for it. Ranks of some pipeline stages may have
/// nothing to multiply.
static Bf16Way choose(const std::vector<Bf16Measurement> &ofRanks, Bf16Rates Bf16Measurement::*what) {
  Bf16Rates slowest;
  for (const Bf16Measurement &measured : ofRanks) {
    const Bf16Rates &rates = measured.*what;
    if (!rates.used)
      continue;
    slowest.native = slowest.used ? std::min(slowest.native, rates.native) : rates.native;
    slowest.inF32 = slowest.used ? std::min(slowest.inF32, rates.inF32) : rates.inF32;
    slowest.used = true;
  }
  if (!slowest.used)
    return {};
  const char *wish = getenv(variable);
  const bool decided = wish && *wish;
  if (decided && switchedOn(variable, false) && slowest.native == 0)
    fail(PCRT_USAGE, std::string(variable) + "=1, but the CPU of one rank has no AVX512_BF16; unset " + variable);
  Bf16Way way;
  way.native =
      decided ? switchedOn(variable, false) : slowest.native > 0 && slowest.native * clearlyFaster >= slowest.inF32;
  auto gigaflops = [](double rate) { return std::to_string(std::lround(2 * rate)); };
  const double mine = way.native ? slowest.native : slowest.inF32, other = way.native ? slowest.inF32 : slowest.native;
  way.text = std::string(way.native ? "native" : "in f32") + " (";
  if (decided)
    way.text += std::string(variable) + "=" + wish;
  else if (slowest.native == 0)
    way.text += "no AVX512_BF16";
  else
    way.text += gigaflops(mine) + " Gflop/s per thread, " + (way.native ? "in f32 " : "native ") + gigaflops(other);
  way.text += ")";
  return way;
}

Bf16Choice pcrt::chooseBf16(const std::vector<Bf16Measurement> &ofRanks) {
  return {choose(ofRanks, &Bf16Measurement::products), choose(ofRanks, &Bf16Measurement::kernels)};
}

Json pcrt::describe(const Bf16Choice &choice) {
  Json ways = Json::object();
  if (!choice.products.text.empty())
    ways["products"] = choice.products.text;
  if (!choice.kernels.text.empty())
    ways["kernels"] = choice.kernels.text;
  return ways;
}

Bf16Choice pcrt::agreeOnBf16(const Bf16Uses &uses, Comm &comm) {
  const Bf16Measurement mine = measureBf16(uses);
  std::vector<Bf16Measurement> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, all.data()));
  return chooseBf16(all);
}
