//===- CodedKernels.cpp - Loops over codes of weights ----------------------===//
// If codes of a column are contiguous, an element of c is the product of two rows. Otherwise rows of codes, times
// elements of a, are added to rows of c, in blocks of columns. Scales of groups are applied to their codes. The code is
// compiled for AVX2, for AVX-512 and for other CPUs.
//===----------------------------------------------------------------------===//
#include "cpu/CodedKernels.h"
#include "cpu/Lanes.h"

#include <algorithm>

using namespace pcrt;
using Task = CodedTask;

namespace {

/// The codes in the low and in the high bits of bytes.
template <int lanes> struct Pair {
  using V = Lanes<lanes>;
  V::Floats low, high;
  PCRT_INLINE explicit Pair(const int8_t *from) {
    typename V::Integers both = __builtin_convertvector(V::loadBytes(from), typename V::Integers);
    low = __builtin_convertvector((both << 28) >> 28, typename V::Floats);
    high = __builtin_convertvector(both >> 4, typename V::Floats);
  }
};

/// The numbers of a column of codes that is contiguous; without scales in 8 bits.
template <int lanes> PCRT_INLINE void expandColumn(const Task &task, bool isWide, int64_t column, float *to) {
  using V = Lanes<lanes>;
  const int8_t *b = task.b + column * task.stride;
  auto put = [&](V::Floats x, int64_t at) PCRT_ALWAYS { memcpy(to + at, &x, sizeof x); };
  if (isWide) {
    int64_t i = 0;
    for (; i + lanes <= task.k; i += lanes)
      put(V::load(b + i), i);
    for (; i < task.k; ++i)
      to[i] = float(b[i]);
    return;
  }
  const float *scale = task.scales + column * task.scaleStride;
  const int64_t half = task.group / 2;
  for (int64_t group = 0; group < task.k; group += task.group, b += half, ++scale)
    for (int64_t i = 0; i < half; i += lanes) {
      const Pair<lanes> codes(b + i);
      put(codes.low * *scale, group + i);
      put(codes.high * *scale, group + half + i);
    }
}

/// Writes the numbers of `n` columns as [k, n], where the codes of a row are contiguous; without scales in 8 bits.
template <int lanes> PCRT_INLINE void expandRows(const Task &task, bool isWide, float *to) {
  using V = Lanes<lanes>;
  const int64_t half = task.group / 2;
  for (int64_t row = 0; row < (isWide ? task.k : task.k / 2); ++row) {
    const int8_t *b = task.b + row * task.stride;
    const int64_t group = isWide ? 0 : row / half, k = isWide ? row : group * task.group + row % half;
    const float *scale = task.scales + group * task.scaleStride;
    float *low = to + k * task.n, *high = low + half * task.n;
    int64_t column = 0;
    for (; column + lanes <= task.n; column += lanes)
      if (isWide) {
        typename V::Floats x = V::load(b + column);
        memcpy(low + column, &x, sizeof x);
      } else {
        const Pair<lanes> codes(b + column);
        typename V::Floats scales = V::load(scale + column), first = codes.low * scales, second = codes.high * scales;
        memcpy(low + column, &first, sizeof first);
        memcpy(high + column, &second, sizeof second);
      }
    for (; column < task.n; ++column)
      if (isWide) {
        low[column] = float(b[column]);
      } else {
        low[column] = float(int8_t(b[column] << 4) >> 4) * scale[column];
        high[column] = float(b[column] >> 4) * scale[column];
      }
  }
}

/// Adds to c the rows of a times columns of 4-bit codes and their scales, in groups of 2 * `half` codes.
template <int lanes, int rows, int half> PCRT_INLINE void multiplyColumns4(const Task &task) {
  using V = Lanes<lanes>;
  constexpr int parts = rows <= 2 ? 2 : 1; // the number of partial sums of an element, to hide latencies
  for (int64_t column = 0; column < task.n; ++column) {
    const int8_t *b = task.b + column * task.stride;
    const float *scale = task.scales + column * task.scaleStride, *a = task.a;
    typename V::Floats sums[rows][parts] = {};
    for (int64_t group = 0; group < task.k; group += int64_t(2) * half, b += half, ++scale) {
      __builtin_prefetch(b + 2048);
      for (int i = 0; i < half; i += lanes) {
        const Pair<lanes> codes(b + i);
        typename V::Floats first = codes.low * *scale, second = codes.high * *scale;
        for (int row = 0; row < rows; ++row)
          sums[row][0] += V::load(a + row * task.k + group + i) * first;
        for (int row = 0; row < rows; ++row)
          sums[row][parts - 1] += V::load(a + row * task.k + group + half + i) * second;
      }
    }
    for (int row = 0; row < rows; ++row)
      task.c[row * task.n + column] += V::sum(parts == 1 ? sums[row][0] : sums[row][0] + sums[row][parts - 1]);
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

template <int lanes> PCRT_INLINE void compute(const Task &task, bool isWide, bool byColumns) {
  if (!task.a && byColumns)
    for (int64_t column = 0; column < task.n; ++column)
      expandColumn<lanes>(task, isWide, column, task.c + column * task.k);
  else if (!task.a)
    expandRows<lanes>(task, isWide, task.c);
  else
    forRows<Task::mostRows>(task.m, [&]<int rows>() PCRT_ALWAYS {
      if (isWide)
        byColumns ? addColumnsOf<lanes, rows>(task, task.stride) : addRowsOf<lanes, rows, 8>(task, task.stride);
      else
        byColumns ? task.group == 32 ? multiplyColumns4<lanes, rows, 16>(task) : multiplyColumns4<lanes, rows, 32>(task)
                  : multiplyRows4<lanes, rows>(task);
    });
}

} // namespace

__attribute__((target("avx512f,avx512bw,avx512vl,fma"))) static void onAvx512(const Task &task, bool isWide,
                                                                              bool byColumns) {
  compute<16>(task, isWide, byColumns);
}
__attribute__((target("avx2,fma"))) static void onAvx2(const Task &task, bool isWide, bool byColumns) {
  compute<8>(task, isWide, byColumns);
}
static void onAny(const Task &task, bool isWide, bool byColumns) { compute<4>(task, isWide, byColumns); }

void pcrt::computeCoded(const CodedTask &task, bool isWide, bool byColumns) {
  static const auto function = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
      return onAvx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? onAvx2 : onAny;
  }();
  function(task, isWide, byColumns);
}
