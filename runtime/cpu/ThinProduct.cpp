//===- ThinProduct.cpp - A product of few rows with a large matrix ---------===//
// If the rows of b^T are contiguous, an element of c is the product of two rows, and each loaded part of b is used for
// all rows of a. Otherwise the rows of b are added to the rows of c, eight at a time, in blocks of columns for which c
// stays in the first cache. The code is compiled for AVX2 and for AVX-512.
//===----------------------------------------------------------------------===//
#include "cpu/ThinProduct.h"
#include "base/Types.h"
#include "cpu/Lanes.h"

#include <algorithm>

using namespace pcrt;

namespace {

/// A product whose a and c are in f32, row by row.
template <typename T> struct Task {
  const float *a;
  const T *b;
  float *c;
  int64_t m, n, k, bStride;
};

template <int lanes, typename T> PCRT_INLINE void multiply(const Task<T> &task, bool transposed) {
  forRows<ThinProduct::mostRows>(task.m, [&]<int rows>() PCRT_ALWAYS {
    if (transposed)
      addColumnsOf<lanes, rows>(task, task.bStride);
    else
      addRowsOf<lanes, rows, 8>(task, task.bStride);
  });
}

} // namespace

#define PCRT_VARIANT(NAME, TARGET, LANES, T)                                                                           \
  __attribute__((target(TARGET))) static void NAME(const Task<T> &task, bool transposed) {                             \
    multiply<LANES>(task, transposed);                                                                                 \
  }
PCRT_VARIANT(f32Avx512, "avx512f,avx512bw,fma", 16, float)
PCRT_VARIANT(bf16Avx512, "avx512f,avx512bw,fma", 16, uint16_t)
PCRT_VARIANT(f32Avx2, "avx2,fma", 8, float)
PCRT_VARIANT(bf16Avx2, "avx2,fma", 8, uint16_t)
#undef PCRT_VARIANT

bool ThinProduct::takes(const pcrt_gemm_desc &d) {
  static const bool canRun = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return canRun && d.m >= 1 && d.m <= mostRows && d.k > 0 && (d.a_k_stride == 1) && (d.c_n_stride == 1 || d.n == 1) &&
         (d.b_k_stride == 1 || d.b_n_stride == 1);
}

ThinProduct::ThinProduct(const pcrt_gemm_desc &desc)
    : desc(desc), rows(size_t(desc.m * desc.k)), sums(size_t(desc.m * desc.n)) {}

/// Reads `count` numbers from element `first` on.
static void load(const void *from, int32_t dtype, int64_t first, int64_t count, float *to) {
  if (dtype == PCRT_F32)
    memcpy(to, static_cast<const float *>(from) + first, size_t(count) * sizeof(float));
  else
    toFloats(static_cast<const uint16_t *>(from) + first, to, count);
}

void ThinProduct::run(const void *a, const void *b, void *c, const float *bias) {
  static const bool isWide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  const pcrt_gemm_desc &d = desc;
  for (int64_t row = 0; row < d.m; ++row) {
    load(a, d.a_dtype, row * d.a_m_stride, d.k, &rows[size_t(row * d.k)]);
    float *sum = &sums[size_t(row * d.n)];
    if (d.accumulate)
      load(c, d.c_dtype, row * d.c_m_stride, d.n, sum);
    else
      std::fill_n(sum, d.n, 0.0f);
    for (int64_t column = 0; bias && column < d.n; ++column)
      sum[column] += bias[column];
  }
  const bool transposed = d.b_k_stride == 1 && (d.b_n_stride != 1 || d.n == 1);
  const int64_t bStride = transposed ? d.b_n_stride : d.b_k_stride;
  if (d.b_dtype == PCRT_F32)
    (isWide ? f32Avx512 : f32Avx2)({rows.data(), static_cast<const float *>(b), sums.data(), d.m, d.n, d.k, bStride},
                                   transposed);
  else
    (isWide ? bf16Avx512 : bf16Avx2)(
        {rows.data(), static_cast<const uint16_t *>(b), sums.data(), d.m, d.n, d.k, bStride}, transposed);
  for (int64_t row = 0; row < d.m; ++row)
    if (const float *sum = &sums[size_t(row * d.n)]; d.c_dtype == PCRT_F32)
      memcpy(static_cast<float *>(c) + row * d.c_m_stride, sum, size_t(d.n) * sizeof(float));
    else
      toBf16(sum, static_cast<uint16_t *>(c) + row * d.c_m_stride, d.n);
}
