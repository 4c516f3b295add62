//===- PlainGemm.cpp - A matrix product as the ABI defines it -------------===//
// Three nested loops per batch entry, for each combination of f32 and bf16 operands. The only supported epilogue is a
// bias.
//===----------------------------------------------------------------------===//
#include "cpu/PlainGemm.h"
#include "base/Types.h"

using namespace pcrt;

namespace {

struct F32 {
  using Storage = float;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
};

struct BF16 {
  using Storage = uint16_t;
  static float load(uint16_t value) { return bf16ToFloat(value); }
  static uint16_t store(float value) { return floatToBf16(value); }
};

template <typename A, typename B, typename C>
void multiply(const pcrt_gemm_desc &d, const void *aIn, const void *bIn, void *cOut, const float *bias) {
  auto *a = static_cast<const A::Storage *>(aIn);
  auto *b = static_cast<const B::Storage *>(bIn);
  auto *c = static_cast<C::Storage *>(cOut);
  for (int64_t batch = 0; batch < d.batch; ++batch)
    for (int64_t m = 0; m < d.m; ++m)
      for (int64_t n = 0; n < d.n; ++n) {
        const auto *row = a + batch * d.a_batch_stride + m * d.a_m_stride;
        const auto *column = b + batch * d.b_batch_stride + n * d.b_n_stride;
        float sum = 0;
        for (int64_t k = 0; k < d.k; ++k)
          sum += A::load(row[k * d.a_k_stride]) * B::load(column[k * d.b_k_stride]);
        auto &at = c[batch * d.c_batch_stride + m * d.c_m_stride + n * d.c_n_stride];
        if (d.epilogue == PCRT_EPILOGUE_BIAS)
          sum += bias[n];
        at = C::store(d.accumulate ? C::load(at) + sum : sum);
      }
}

template <typename A, typename B>
void multiplyInto(const pcrt_gemm_desc &d, const void *a, const void *b, void *c, const float *bias) {
  d.c_dtype == PCRT_BF16 ? multiply<A, B, BF16>(d, a, b, c, bias) : multiply<A, B, F32>(d, a, b, c, bias);
}

template <typename A>
void multiplyBy(const pcrt_gemm_desc &d, const void *a, const void *b, void *c, const float *bias) {
  d.b_dtype == PCRT_BF16 ? multiplyInto<A, BF16>(d, a, b, c, bias) : multiplyInto<A, F32>(d, a, b, c, bias);
}

} // namespace

void pcrt::plainGemm(const pcrt_gemm_desc &d, const void *a, const void *b, void *c, const float *bias) {
  d.a_dtype == PCRT_BF16 ? multiplyBy<BF16>(d, a, b, c, bias) : multiplyBy<F32>(d, a, b, c, bias);
}
