//===- CodedProduct.cpp - A product with a matrix of codes -----------------===//
// A product of few rows reads the codes directly. A product of many rows converts blocks of columns to f32, which a
// product in f32 reads while they are in the cache.
//===----------------------------------------------------------------------===//
#include "cpu/CodedProduct.h"
#include "base/Types.h"
#include "cpu/CodedKernels.h"

#include <algorithm>
#include <cstring>

using namespace pcrt;

/// The most rows for which `run` is faster than a product in f32 (a Zen 4, GPT-2's products).
static constexpr int64_t mostThinRows = 16;

/// Whether the codes of a column are contiguous.
static bool isByColumns(const pcrt_gemm_desc &d) { return d.b_k_stride == 1; }

const char *pcrt::checkCodes(const pcrt_gemm_desc &d) {
  if (!isCode(d.b_dtype))
    return d.group ? "scales of numbers that are not codes" : nullptr;
  if (isCode(d.a_dtype) || isCode(d.c_dtype))
    return "codes that are not in b";
  if ((d.batch != 1 && d.grouped != PCRT_GROUPED_PRODUCT) || d.group < 1 || d.k % d.group ||
      (d.b_dtype == PCRT_I4 ? d.group != 32 && d.group != 64 : d.group != d.k))
    return "codes in groups of a size that is not supported";
  if (d.a_k_stride != 1 || (d.c_n_stride != 1 && d.n != 1) || (d.b_k_stride != 1 && d.b_n_stride != 1))
    return "codes and rows that are not contiguous";
  return nullptr;
}

CodedProduct::CodedProduct(const pcrt_gemm_desc &share, int64_t column) : desc(share), firstColumn(column) {
  if (wide())
    return;
  const int64_t most = std::min(share.m, CodedTask::mostRows);
  rows.resize(size_t(most * share.k));
  sums.resize(size_t(most * share.n));
}

/// The task for `columns` columns from `column` of the share on.
CodedTask CodedProduct::taskOf(const void *b, const float *scales, int64_t column, int64_t columns) const {
  const pcrt_gemm_desc &d = desc;
  const bool byColumns = isByColumns(d);
  const int64_t first = firstColumn + column, scaleStride = byColumns ? d.b_n_stride / d.group : d.b_k_stride;
  const int64_t stride = byColumns ? bytesOf(d.b_dtype, d.b_n_stride) : d.b_k_stride;
  return {.a = nullptr,
          .b = static_cast<const int8_t *>(b) + first * (byColumns ? stride : 1),
          .scales = scales + first * (byColumns ? scaleStride : 1),
          .c = nullptr,
          .m = 0,
          .n = columns,
          .k = d.k,
          .group = d.group,
          .stride = stride,
          .scaleStride = scaleStride};
}

void CodedProduct::runRows(int64_t m, const char *a, const void *b, char *c, const float *bias, const float *scales) {
  widen(a, m, rows.data());
  std::fill_n(sums.begin(), m * desc.n, 0.0f);
  CodedTask task = taskOf(b, scales, 0, desc.n);
  task.a = rows.data(), task.c = sums.data(), task.m = m;
  computeCoded(task, desc.b_dtype == PCRT_I8, isByColumns(desc));
  store(sums.data(), m, desc.n, c, 0, desc.n, bias, scales);
}

/// Rows are computed in calls of nearly equal numbers of rows. Calls of three rows and more add in the same order.
void CodedProduct::run(const void *a, const void *b, void *c, const float *bias, const float *scales, int64_t m) {
  const int64_t calls = (m + CodedTask::mostRows - 1) / CodedTask::mostRows;
  for (int64_t call = 0, row = 0; call < calls; ++call) {
    const int64_t end = m / calls * (call + 1) + std::min(m % calls, call + 1);
    runRows(end - row, static_cast<const char *>(a) + row * desc.a_m_stride * elementBytes(desc.a_dtype), b,
            static_cast<char *>(c) + row * desc.c_m_stride * elementBytes(desc.c_dtype), bias, scales);
    row = end;
  }
}

std::optional<pcrt_gemm_desc> CodedProduct::wide() const {
  constexpr int64_t cached = 1 << 18, unit = 16; // numbers, columns
  if (desc.m <= mostThinRows || desc.n < unit)
    return std::nullopt;
  pcrt_gemm_desc d = desc;
  d.n = std::min(desc.n, std::max(cached / desc.k / unit * unit, unit));
  d.a_dtype = d.b_dtype = d.c_dtype = PCRT_F32;
  d.group = d.accumulate = 0;
  d.epilogue = PCRT_EPILOGUE_NONE;
  d.a_m_stride = d.k, d.c_m_stride = d.n, d.c_n_stride = 1;
  (isByColumns(desc) ? d.b_n_stride : d.b_k_stride) = isByColumns(desc) ? d.k : d.n;
  return d;
}

void CodedProduct::expand(const void *b, const float *scales, int64_t column, int64_t columns, float *to) const {
  CodedTask task = taskOf(b, scales, column, columns);
  task.c = to;
  computeCoded(task, desc.b_dtype == PCRT_I8, isByColumns(desc));
}

void CodedProduct::widen(const void *a, int64_t m, float *to) const {
  for (int64_t row = 0; row < m; ++row) {
    const char *from = static_cast<const char *>(a) + row * desc.a_m_stride * elementBytes(desc.a_dtype);
    if (desc.a_dtype == PCRT_F32)
      memcpy(to + row * desc.k, from, size_t(desc.k) * sizeof(float));
    else
      toFloats(reinterpret_cast<const uint16_t *>(from), to + row * desc.k, desc.k);
  }
}

void CodedProduct::store(float *result, int64_t m, int64_t stride, void *c, int64_t column, int64_t columns,
                         const float *bias, const float *scales) const {
  const pcrt_gemm_desc &d = desc;
  const int64_t scaleStride = isByColumns(d) ? d.b_n_stride / d.group : 1;
  const float *scale = d.b_dtype == PCRT_I8 ? scales + (firstColumn + column) * scaleStride : nullptr;
  for (int64_t row = 0; row < m; ++row) {
    float *sum = result + row * stride;
    char *at = static_cast<char *>(c) + (row * d.c_m_stride + column) * elementBytes(d.c_dtype);
    for (int64_t n = 0; scale && n < columns; ++n)
      sum[n] *= scale[n * scaleStride];
    for (int64_t n = 0; bias && n < columns; ++n)
      sum[n] += bias[column + n];
    if (d.c_dtype == PCRT_F32) {
      auto *out = reinterpret_cast<float *>(at);
      for (int64_t n = 0; d.accumulate && n < columns; ++n)
        sum[n] += out[n];
      memcpy(out, sum, size_t(columns) * sizeof(float));
    } else {
      auto *out = reinterpret_cast<uint16_t *>(at);
      for (int64_t n = 0; d.accumulate && n < columns; ++n)
        sum[n] += bf16ToFloat(out[n]);
      toBf16(sum, out, columns);
    }
  }
}
