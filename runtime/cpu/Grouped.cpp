//===- Grouped.cpp - products on the rows that a mask chooses, on the CPU -===//
#include "cpu/Grouped.h"
#include "cpu/Allocations.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <oneapi/dnnl/dnnl_debug.h>
#include <sys/mman.h>

using namespace pcrt;

/// Products of fewer rows add in another order in oneDNN; what a row gives must not depend on how many there are.
static constexpr int64_t fewestRows = 16;

const char *pcrt::checkGrouped(const pcrt_gemm_desc &d) {
  if (d.grouped < PCRT_GROUPED_PRODUCT || d.grouped > PCRT_GROUPED_UNPACK)
    return "an unknown kind of rows";
  if (d.experts <= 0 || d.tokens <= 0 || d.rows <= 0 || d.rows > d.tokens * d.experts || d.rows > INT32_MAX)
    return "rows that cannot be";
  if (d.a_dtype != PCRT_F32 || d.b_dtype != PCRT_F32 || d.c_dtype != PCRT_F32 || d.accumulate ||
      d.epilogue != PCRT_EPILOGUE_NONE)
    return "rows, and a dtype or an epilogue that those do not have";
  auto isOfToken = [](int32_t lies) { return lies == PCRT_LIES_ROWS || lies == PCRT_LIES_TOKENS; };
  bool good = true;
  if (d.grouped == PCRT_GROUPED_PRODUCT)
    good = isOfToken(d.a_lies) && d.b_lies == PCRT_LIES_EXPERTS && isOfToken(d.c_lies) && d.a_k_stride == 1 &&
           d.a_m_stride == d.k && d.c_n_stride == 1 && d.c_m_stride == d.n && (d.b_n_stride == 1 || d.b_k_stride == 1);
  else if (d.grouped == PCRT_GROUPED_GRADIENT)
    good = isOfToken(d.a_lies) && isOfToken(d.b_lies) && d.c_lies == PCRT_LIES_EXPERTS && d.c_n_stride == 1;
  else
    good = d.n == 1 ? true
                    : (d.a_lies == PCRT_LIES_TOKENS) != (d.c_lies == PCRT_LIES_TOKENS) && isOfToken(d.a_lies) &&
                          isOfToken(d.c_lies);
  return good ? nullptr : "operands that lie in another way";
}

GroupedProducts::GroupedProducts(Pool &pool, const pcrt_gemm_desc *descs, int count, int firstRegion)
    : pool(pool), firstRegion(firstRegion), statuses(size_t(pool.size())) {
  int64_t rows = 0, experts = 0, a = 0, b = 0, c = 0;
  for (int i = 0; i < count; ++i) {
    const pcrt_gemm_desc &d = descs[i];
    if (!d.grouped)
      continue;
    rows = std::max(rows, d.rows);
    experts = std::max(experts, d.experts);
    if (d.grouped > PCRT_GROUPED_GRADIENT)
      continue;
    bool sumsTokens = d.grouped == PCRT_GROUPED_GRADIENT;
    if (d.a_lies == PCRT_LIES_TOKENS)
      a = std::max(a, d.rows * (sumsTokens ? d.m : d.k));
    if (d.b_lies == PCRT_LIES_TOKENS)
      b = std::max(b, d.rows * d.n);
    if (d.c_lies == PCRT_LIES_TOKENS)
      c = std::max(c, d.rows * d.n);
    if (d.grouped == PCRT_GROUPED_PRODUCT)
      padFloats = std::max(padFloats, (fewestRows * (d.k + d.n) + 15) / 16 * 16);
  }
  if (!rows)
    return;
  auto whole = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  rows = whole(rows), a = whole(a), b = whole(b), c = whole(c);
  totalBytes = 4 * (rows + a + b + c + padFloats * pool.size());
  void *mapped =
      mmap(nullptr, size_t(totalBytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    throw std::bad_alloc();
  memory = static_cast<char *>(mapped);
  tokenOf = static_cast<int32_t *>(mapped);
  gatheredA = reinterpret_cast<float *>(memory) + rows;
  gatheredB = gatheredA + a;
  made = gatheredB + b;
  pads = made + c;
  firstRow.resize(size_t(experts) + 1);
  nextRow.resize(size_t(experts));
}

GroupedProducts::~GroupedProducts() {
  if (memory)
    munmap(memory, size_t(totalBytes));
}

/// Numbers the rows of a mask: by expert, and those of one by token.
const char *GroupedProducts::findRows(const pcrt_gemm_desc &d, const float *mask) {
  std::fill(nextRow.begin(), nextRow.end(), 0);
  for (int64_t token = 0; token < d.tokens; ++token)
    for (int64_t expert = 0; expert < d.experts; ++expert)
      nextRow[size_t(expert)] += mask[token * d.experts + expert] != 0;
  int64_t row = 0;
  for (int64_t expert = 0; expert < d.experts; ++expert) {
    firstRow[size_t(expert)] = row;
    row += nextRow[size_t(expert)];
    nextRow[size_t(expert)] = firstRow[size_t(expert)];
  }
  firstRow[size_t(d.experts)] = row;
  if (row > d.rows)
    return "a token has more experts than it may have";
  for (int64_t token = 0; token < d.tokens; ++token)
    for (int64_t expert = 0; expert < d.experts; ++expert)
      if (mask[token * d.experts + expert] != 0)
        tokenOf[nextRow[size_t(expert)]++] = int32_t(token);
  return nullptr;
}

/// Rows [lo, hi) of x, from `to` on where they lie by token; else where they are.
const float *GroupedProducts::gather(int32_t lies, const float *x, int64_t width, float *to, int64_t lo, int64_t hi) {
  if (lies == PCRT_LIES_ROWS)
    return x;
  for (int64_t row = lo; row < hi; ++row)
    memcpy(to + row * width, x + tokenOf[row] * width, size_t(width) * sizeof(float));
  return to;
}

/// c = a b of `rows` rows, of the expert at `b`.
void GroupedProducts::multiply(int thread, const pcrt_gemm_desc &d, const float *a, const float *b, float *c,
                               int64_t rows) {
  bool transposed = d.b_n_stride != 1;
  int64_t stride =
      transposed ? std::max(d.b_n_stride, d.k) : std::max(d.b_k_stride, d.n); // one of an extent of 1 is any
  float *pad = pads + thread * padFloats, *padC = pad + fewestRows * d.k;
  bool pads = rows < fewestRows;
  if (pads) {
    memcpy(pad, a, size_t(rows * d.k) * sizeof(float));
    memset(pad + rows * d.k, 0, size_t((fewestRows - rows) * d.k) * sizeof(float));
  }
  LibraryCall library(firstRegion < 0 ? -1 : firstRegion + thread);
  pass(thread, dnnl_sgemm('N', transposed ? 'T' : 'N', std::max(rows, fewestRows), d.n, d.k, 1.0f, pads ? pad : a, d.k,
                          b, stride, 0.0f, pads ? padC : c, d.n));
  if (pads)
    memcpy(c, padC, size_t(rows * d.n) * sizeof(float));
}

void GroupedProducts::product(const pcrt_gemm_desc &d, const float *a, const float *b, float *c) {
  const int64_t rows = firstRow[size_t(d.experts)];
  bool sums = d.c_lies == PCRT_LIES_TOKENS;
  float *to = sums ? made : c;
  pool.ranges(rows, [&](int thread, int64_t lo, int64_t hi) {
    const float *from = gather(d.a_lies, a, d.k, gatheredA, lo, hi);
    for (int64_t expert = 0; expert < d.experts; ++expert) {
      int64_t first = std::max(lo, firstRow[size_t(expert)]), last = std::min(hi, firstRow[size_t(expert) + 1]);
      if (first < last)
        multiply(thread, d, from + first * d.k, b + expert * d.b_batch_stride, to + first * d.n, last - first);
    }
  });
  if (sums)
    toTokens(d, made, c);
}

void GroupedProducts::gradient(const pcrt_gemm_desc &d, const float *a, const float *b, float *c) {
  const int64_t rows = firstRow[size_t(d.experts)];
  const float *fromA = a, *fromB = b;
  if (d.a_lies == PCRT_LIES_TOKENS || d.b_lies == PCRT_LIES_TOKENS)
    pool.ranges(rows, [&](int, int64_t lo, int64_t hi) {
      gather(d.a_lies, a, d.m, gatheredA, lo, hi);
      gather(d.b_lies, b, d.n, gatheredB, lo, hi);
    });
  if (d.a_lies == PCRT_LIES_TOKENS)
    fromA = gatheredA;
  if (d.b_lies == PCRT_LIES_TOKENS)
    fromB = gatheredB;
  constexpr int64_t tile = 16;
  pool.ranges((d.m + tile - 1) / tile, [&](int thread, int64_t loTile, int64_t hiTile) {
    int64_t lo = loTile * tile, count = std::min(hiTile * tile, d.m) - lo;
    for (int64_t expert = 0; expert < d.experts; ++expert) {
      int64_t first = firstRow[size_t(expert)], depth = firstRow[size_t(expert) + 1] - first;
      float *to = c + expert * d.c_batch_stride + lo * d.c_m_stride;
      if (!depth) {
        for (int64_t row = 0; row < count; ++row)
          memset(to + row * d.c_m_stride, 0, size_t(d.n) * sizeof(float));
        continue;
      }
      LibraryCall library(firstRegion < 0 ? -1 : firstRegion + thread);
      pass(thread, dnnl_sgemm('T', 'N', count, d.n, depth, 1.0f, fromA + first * d.m + lo, d.m, fromB + first * d.n,
                              d.n, 0.0f, to, d.c_m_stride));
    }
  });
}

const char *GroupedProducts::run(const pcrt_gemm_desc &d, const float *a, const float *b, float *c, const float *mask) {
  if (const char *problem = findRows(d, mask))
    return problem;
  switch (d.grouped) {
  case PCRT_GROUPED_PRODUCT:
    product(d, a, b, c);
    break;
  case PCRT_GROUPED_GRADIENT:
    gradient(d, a, b, c);
    break;
  case PCRT_GROUPED_PACK:
    if (d.a_lies == PCRT_LIES_TOKENS) {
      toRows(d, a, c);
      break;
    }
    for (int64_t expert = 0; expert < d.experts; ++expert)
      for (int64_t row = firstRow[size_t(expert)]; row < firstRow[size_t(expert) + 1]; ++row)
        c[row] = a[tokenOf[row] * d.experts + expert];
    break;
  case PCRT_GROUPED_UNPACK:
    if (d.c_lies == PCRT_LIES_TOKENS) {
      toTokens(d, a, c);
      break;
    }
    // c may be the mask, which has been read
    memset(c, 0, size_t(d.tokens * d.experts) * sizeof(float));
    for (int64_t expert = 0; expert < d.experts; ++expert)
      for (int64_t row = firstRow[size_t(expert)]; row < firstRow[size_t(expert) + 1]; ++row)
        c[tokenOf[row] * d.experts + expert] = a[row];
    break;
  }
  for (int status : statuses)
    if (status != dnnl_success)
      return dnnl_status2str(static_cast<dnnl_status_t>(status));
  return nullptr;
}

void GroupedProducts::warmUp(const pcrt_gemm_desc &d, void *zeros, int64_t bytes) {
  int64_t rows = std::min<int64_t>(d.rows, 4 * fewestRows), most = std::max({d.m, d.n, d.k, rows});
  if (d.grouped > PCRT_GROUPED_GRADIENT || bytes < 4 * most * most)
    return;
  auto *x = static_cast<float *>(zeros);
  pool.onAll([&](int) {
    if (d.grouped == PCRT_GROUPED_PRODUCT)
      dnnl_sgemm('N', d.b_n_stride != 1 ? 'T' : 'N', fewestRows, d.n, d.k, 1.0f, x, d.k, x,
                 d.b_n_stride != 1 ? d.k : d.n, 0.0f, x, d.n);
    else
      dnnl_sgemm('T', 'N', std::min<int64_t>(d.m, fewestRows), d.n, rows, 1.0f, x, d.m, x, d.n, 0.0f, x, d.n);
  });
}
