//===- CodedProduct.cpp - A product with a matrix of codes -----------------===//
// If codes of a column are contiguous, an element of c is the product of two rows. Otherwise rows of codes, times
// elements of a, are added to rows of c, in blocks of columns. A scale for all of k is applied to the sum, others to
// the codes of their group. The code is compiled for AVX2, for AVX-512 and for other CPUs.
//===----------------------------------------------------------------------===//
#include "cpu/CodedProduct.h"
#include "base/Types.h"
#include "cpu/Lanes.h"

#include <algorithm>

using namespace pcrt;

namespace {

/// The most rows that read b together.
constexpr int mostRows = 8;

/// A product whose a and c are in f32, row by row. Its b begins at the first column, and so do its scales. `stride` is
/// that of columns if the codes of a column are contiguous, otherwise that of k. It counts bytes, as `b` does.
struct Task {
  const float *a;
  const int8_t *b;
  const float *scales;
  float *c;
  int64_t m, n, k, group, stride, scaleStride;
};

/// Adds to c the rows of a times columns of 8-bit codes, without scales.
template <int lanes, int rows> PCRT_INLINE void multiplyColumns8(const Task &task) {
  using V = Lanes<lanes>;
  constexpr int parts = rows == 1 ? 4 : rows <= 2 ? 2 : 1;
  constexpr int64_t step = int64_t(lanes) * parts, ahead = 4096;
  const int64_t whole = task.k / step * step;
  for (int64_t column = 0; column < task.n; ++column) {
    const int8_t *b = task.b + column * task.stride;
    typename V::Floats sums[rows][parts] = {};
    for (int64_t i = 0; i < whole; i += step) {
      __builtin_prefetch(b + i + ahead);
      for (int part = 0; part < parts; ++part) {
        typename V::Floats weights = V::load(b + i + part * lanes);
        for (int row = 0; row < rows; ++row)
          sums[row][part] += V::load(task.a + row * task.k + i + part * lanes) * weights;
      }
    }
    for (int row = 0; row < rows; ++row) {
      typename V::Floats all = sums[row][0];
      for (int part = 1; part < parts; ++part)
        all += sums[row][part];
      float total = V::sum(all);
      for (int64_t i = whole; i < task.k; ++i)
        total += task.a[row * task.k + i] * float(b[i]);
      task.c[row * task.n + column] += total;
    }
  }
}

/// The codes in the low and in the high bits of bytes.
template <int lanes> struct Pair {
  using V = Lanes<lanes>;
  typename V::Floats low, high;
  PCRT_INLINE explicit Pair(const int8_t *from) {
    typename V::Bytes both = V::loadBytes(from);
    low = __builtin_convertvector((both << 4) >> 4, typename V::Floats);
    high = __builtin_convertvector(both >> 4, typename V::Floats);
  }
};

/// Adds to c the rows of a times columns of 4-bit codes and their scales.
template <int lanes, int rows> PCRT_INLINE void multiplyColumns4(const Task &task) {
  using V = Lanes<lanes>;
  const int64_t half = task.group / 2;
  for (int64_t column = 0; column < task.n; ++column) {
    const int8_t *b = task.b + column * task.stride;
    const float *scale = task.scales + column * task.scaleStride, *a = task.a;
    typename V::Floats low[rows] = {}, high[rows] = {};
    for (int64_t group = 0; group < task.k; group += task.group, b += half, ++scale) {
      __builtin_prefetch(b + 2048);
      for (int64_t i = 0; i < half; i += lanes) {
        const Pair<lanes> codes(b + i);
        typename V::Floats first = codes.low * *scale, second = codes.high * *scale;
        for (int row = 0; row < rows; ++row) {
          low[row] += V::load(a + row * task.k + group + i) * first;
          high[row] += V::load(a + row * task.k + group + half + i) * second;
        }
      }
    }
    for (int row = 0; row < rows; ++row)
      task.c[row * task.n + column] += V::sum(low[row] + high[row]);
  }
}

/// Adds to c, in columns [from, to), the codes of `depth` rows of b times elements of a.
template <int lanes, int rows, int depth>
PCRT_INLINE void addRows8(const Task &task, int64_t k, int64_t from, int64_t to) {
  using V = Lanes<lanes>;
  float factors[rows][depth];
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < depth; ++i)
      factors[row][i] = task.a[row * task.k + k + i];
  const int8_t *b = task.b + k * task.stride;
  int64_t column = from;
  for (; column + lanes <= to; column += lanes) {
    typename V::Floats weights[depth];
    for (int i = 0; i < depth; ++i)
      weights[i] = V::load(b + i * task.stride + column);
    for (int row = 0; row < rows; ++row) {
      typename V::Floats sum = V::load(task.c + row * task.n + column);
      for (int i = 0; i < depth; ++i)
        sum += weights[i] * factors[row][i];
      memcpy(task.c + row * task.n + column, &sum, sizeof sum);
    }
  }
  for (; column < to; ++column)
    for (int row = 0; row < rows; ++row)
      for (int i = 0; i < depth; ++i)
        task.c[row * task.n + column] += float(b[i * task.stride + column]) * factors[row][i];
}

template <int lanes, int rows> PCRT_INLINE void multiplyRows8(const Task &task) {
  constexpr int64_t block = 512;
  for (int64_t from = 0; from < task.n; from += block) {
    const int64_t to = std::min(task.n, from + block);
    int64_t k = 0;
    for (; k + 8 <= task.k; k += 8)
      addRows8<lanes, rows, 8>(task, k, from, to);
    for (; k < task.k; ++k)
      addRows8<lanes, rows, 1>(task, k, from, to);
  }
}

/// Adds to `lanes` columns of c the codes of a group of rows of b, times their scales and elements of a.
template <int lanes, int rows> PCRT_INLINE void addGroup4(const Task &task, int64_t group, int64_t column) {
  using V = Lanes<lanes>;
  const int64_t half = task.group / 2;
  const int8_t *b = task.b + group * half * task.stride + column;
  const float *a = task.a + group * task.group;
  typename V::Floats sums[rows] = {};
  for (int64_t i = 0; i < half; ++i) {
    const Pair<lanes> codes(b + i * task.stride);
    for (int row = 0; row < rows; ++row)
      sums[row] += codes.low * a[row * task.k + i] + codes.high * a[row * task.k + half + i];
  }
  typename V::Floats scale = V::load(task.scales + group * task.scaleStride + column);
  for (int row = 0; row < rows; ++row) {
    typename V::Floats sum = V::load(task.c + row * task.n + column) + sums[row] * scale;
    memcpy(task.c + row * task.n + column, &sum, sizeof sum);
  }
}

template <int lanes, int rows> PCRT_INLINE void multiplyRows4(const Task &task) {
  constexpr int64_t block = 1024;
  const int64_t half = task.group / 2;
  for (int64_t from = 0; from < task.n; from += block)
    for (int64_t group = 0; group < task.k / task.group; ++group) {
      const int64_t to = std::min(task.n, from + block);
      int64_t column = from;
      for (; column + lanes <= to; column += lanes)
        addGroup4<lanes, rows>(task, group, column);
      for (; column < to; ++column)
        for (int row = 0; row < rows; ++row) {
          float sum = 0;
          const float *a = task.a + row * task.k + group * task.group;
          for (int64_t i = 0; i < half; ++i) {
            const int8_t both = task.b[(group * half + i) * task.stride + column];
            sum += float(int8_t(both << 4) >> 4) * a[i] + float(both >> 4) * a[half + i];
          }
          task.c[row * task.n + column] += sum * task.scales[group * task.scaleStride + column];
        }
    }
}

template <int lanes> PCRT_INLINE void multiply(const Task &task, bool isWide, bool byColumns) {
  forRows<mostRows>(task.m, [&]<int rows>() PCRT_ALWAYS {
    if (isWide)
      byColumns ? multiplyColumns8<lanes, rows>(task) : multiplyRows8<lanes, rows>(task);
    else
      byColumns ? multiplyColumns4<lanes, rows>(task) : multiplyRows4<lanes, rows>(task);
  });
}

} // namespace

__attribute__((target("avx512f,avx512bw,avx512vl,fma"))) static void onAvx512(const Task &task, bool isWide,
                                                                              bool byColumns) {
  multiply<16>(task, isWide, byColumns);
}
__attribute__((target("avx2,fma"))) static void onAvx2(const Task &task, bool isWide, bool byColumns) {
  multiply<8>(task, isWide, byColumns);
}
static void onAny(const Task &task, bool isWide, bool byColumns) { multiply<4>(task, isWide, byColumns); }

using Function = void (*)(const Task &task, bool isWide, bool byColumns);

static Function chosenFunction() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return onAvx512;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? onAvx2 : onAny;
}

/// Whether the codes of a column are contiguous.
static bool isByColumns(const pcrt_gemm_desc &d) { return d.b_k_stride == 1; }

const char *pcrt::checkCodes(const pcrt_gemm_desc &d) {
  if (!isCode(d.b_dtype))
    return d.group ? "scales of numbers that are no codes" : nullptr;
  if (isCode(d.a_dtype) || isCode(d.c_dtype))
    return "codes that are not in b";
  if (d.batch != 1 || d.group < 1 || d.k % d.group || (d.b_dtype == PCRT_I4 && d.group % 32))
    return "codes in groups of a size that is not supported";
  if (d.a_k_stride != 1 || (d.c_n_stride != 1 && d.n != 1) || (d.b_k_stride != 1 && d.b_n_stride != 1))
    return "codes and rows that are not contiguous";
  return nullptr;
}

CodedProduct::CodedProduct(const pcrt_gemm_desc &share, int64_t column)
    : desc(share), firstColumn(column), rows(size_t(std::min<int64_t>(share.m, mostRows) * share.k)),
      sums(size_t(std::min<int64_t>(share.m, mostRows) * share.n)) {}

/// Reads `count` numbers.
static void load(const char *from, int32_t dtype, int64_t count, float *to) {
  if (dtype == PCRT_F32)
    memcpy(to, from, size_t(count) * sizeof(float));
  else
    toFloats(reinterpret_cast<const uint16_t *>(from), to, count);
}

void CodedProduct::runRows(int64_t m, const char *a, const void *b, char *c, const float *bias, const float *scales) {
  static const Function function = chosenFunction();
  const pcrt_gemm_desc &d = desc;
  for (int64_t row = 0; row < m; ++row)
    load(a + row * d.a_m_stride * elementBytes(d.a_dtype), d.a_dtype, d.k, &rows[size_t(row * d.k)]);
  std::fill_n(sums.begin(), m * d.n, 0.0f);
  const bool isWide = d.b_dtype == PCRT_I8, byColumns = isByColumns(d);
  const int64_t scaleStride = byColumns ? d.k / d.group : d.b_k_stride;
  const int64_t stride = byColumns ? (isWide ? d.b_n_stride : d.b_n_stride / 2) : d.b_k_stride;
  const float *ownScales = scales + firstColumn * (byColumns ? scaleStride : 1);
  function({rows.data(), static_cast<const int8_t *>(b) + firstColumn * (byColumns ? stride : 1), ownScales,
            sums.data(), m, d.n, d.k, d.group, stride, scaleStride},
           isWide, byColumns);
  const bool scalesSums = isWide && d.group == d.k;
  for (int64_t row = 0; row < m; ++row) {
    float *sum = &sums[size_t(row * d.n)];
    char *at = c + row * d.c_m_stride * elementBytes(d.c_dtype);
    for (int64_t n = 0; scalesSums && n < d.n; ++n)
      sum[n] *= ownScales[n];
    for (int64_t n = 0; bias && n < d.n; ++n)
      sum[n] += bias[n];
    if (d.c_dtype == PCRT_F32) {
      auto *out = reinterpret_cast<float *>(at);
      for (int64_t n = 0; d.accumulate && n < d.n; ++n)
        sum[n] += out[n];
      memcpy(out, sum, size_t(d.n) * sizeof(float));
    } else {
      auto *out = reinterpret_cast<uint16_t *>(at);
      for (int64_t n = 0; d.accumulate && n < d.n; ++n)
        sum[n] += bf16ToFloat(out[n]);
      toBf16(sum, out, d.n);
    }
  }
}

/// Rows are computed in calls of nearly equal numbers of rows. Calls of three rows and more add in the same order.
void CodedProduct::run(const void *a, const void *b, void *c, const float *bias, const float *scales) {
  const int64_t calls = (desc.m + mostRows - 1) / mostRows;
  for (int64_t call = 0, row = 0; call < calls; ++call) {
    const int64_t end = desc.m / calls * (call + 1) + std::min(desc.m % calls, call + 1);
    runRows(end - row, static_cast<const char *>(a) + row * desc.a_m_stride * elementBytes(desc.a_dtype), b,
            static_cast<char *>(c) + row * desc.c_m_stride * elementBytes(desc.c_dtype), bias, scales);
    row = end;
  }
}
