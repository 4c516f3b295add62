//===- RowsOfTokens.cpp - from tokens to the rows of their experts, and back ===//
#include "cpu/Grouped.h"

#include <cstring>

using namespace pcrt;

void GroupedProducts::toRows(const pcrt_gemm_desc &d, const float *a, float *c) {
  pool.ranges(firstRow[size_t(d.experts)], [&](int, int64_t lo, int64_t hi) {
    gather(PCRT_LIES_TOKENS, reinterpret_cast<const char *>(a), d.n * 4, reinterpret_cast<char *>(c), lo, hi);
  });
}

void GroupedProducts::toTokens(const pcrt_gemm_desc &d, const float *a, float *c) {
  const int64_t rows = firstRow[size_t(d.experts)];
  pool.ranges(d.n, [&](int, int64_t lo, int64_t hi) {
    for (int64_t token = 0; token < d.tokens; ++token)
      memset(c + token * d.n + lo, 0, size_t(hi - lo) * sizeof(float));
    for (int64_t row = 0; row < rows; ++row) {
      float *sum = c + tokenOf[row] * d.n;
      const float *each = a + row * d.n;
      for (int64_t column = lo; column < hi; ++column)
        sum[column] += each[column];
    }
  });
}
