//===- RowsOfTokens.cpp - From tokens to the rows of their experts, and back -===//
// The two directions of the exchange between numbers by token and by row: a copy to each row of a token, and the sum of
// a token's rows. Each token is computed by one thread, in the order of its experts.
//===----------------------------------------------------------------------===//
#include "base/Types.h"
#include "cpu/Grouped.h"

#include <cstring>

using namespace pcrt;

void GroupedProducts::toRows(const pcrt_gemm_desc &d, const char *a, char *c) {
  pool.ranges(firstRow[size_t(d.experts)], [&](int, int64_t lo, int64_t hi) {
    gather(PCRT_LIES_TOKENS, a, d.n * elementBytes(d.a_dtype), c, lo, hi);
  });
}

void GroupedProducts::toTokens(const pcrt_gemm_desc &d, int32_t dtype, const void *a, void *c) {
  const int64_t rows = firstRow[size_t(d.experts)];
  float *to = d.c_dtype == PCRT_F32 ? static_cast<float *>(c) : sums;
  const auto *numbers = static_cast<const float *>(a);
  const auto *halves = static_cast<const uint16_t *>(a);
  pool.ranges(d.n, [&](int, int64_t lo, int64_t hi) {
    for (int64_t token = 0; token < d.tokens; ++token)
      memset(to + token * d.n + lo, 0, size_t(hi - lo) * sizeof(float));
    for (int64_t row = 0; row < rows; ++row) {
      float *sum = to + tokenOf[row] * d.n;
      if (dtype == PCRT_F32)
        for (int64_t column = lo; column < hi; ++column)
          sum[column] += numbers[row * d.n + column];
      else
        for (int64_t column = lo; column < hi; ++column)
          sum[column] += bf16ToFloat(halves[row * d.n + column]);
    }
  });
  if (d.c_dtype == PCRT_BF16)
    pool.ranges(d.tokens * d.n,
                [&](int, int64_t lo, int64_t hi) { toBf16(sums + lo, static_cast<uint16_t *>(c) + lo, hi - lo); });
}
