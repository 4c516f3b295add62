//===- Lanes.h - Vectors of numbers that products load from memory ---------===//
// Loads f32, bf16 and codes as vectors of f32. The callers are compiled for several kinds of vectors.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_LANES_H
#define PCRT_CPU_LANES_H

#include <algorithm>
#include <cstdint>
#include <cstring>

#define PCRT_ALWAYS __attribute__((always_inline))
#define PCRT_INLINE inline PCRT_ALWAYS

namespace pcrt {

/// Vectors of `lanes` numbers.
template <int lanes> struct Lanes {
  using Floats = float __attribute__((vector_size(lanes * 4)));
  using Words = uint32_t __attribute__((vector_size(lanes * 4)));
  using Integers = int32_t __attribute__((vector_size(lanes * 4)));
  using Halves = uint16_t __attribute__((vector_size(lanes * 2)));
  using Bytes = int8_t __attribute__((vector_size(lanes)));

  static PCRT_INLINE Floats load(const float *from) {
    Floats x;
    memcpy(&x, from, sizeof x);
    return x;
  }
  static PCRT_INLINE Floats load(const uint16_t *from) { // bf16
    Halves x;
    memcpy(&x, from, sizeof x);
    Words wide = __builtin_convertvector(x, Words) << 16;
    Floats result;
    memcpy(&result, &wide, sizeof result);
    return result;
  }
  static PCRT_INLINE Bytes loadBytes(const int8_t *from) {
    Bytes x;
    memcpy(&x, from, sizeof x);
    return x;
  }
  static PCRT_INLINE Floats load(const int8_t *from) { return __builtin_convertvector(loadBytes(from), Floats); }
  /// Returns the sum of the lanes. Halves are added first.
  static PCRT_INLINE float sum(Floats x) {
    if constexpr (lanes == 1) {
      return x[0];
    } else {
      using Half = Lanes<lanes / 2>;
      typename Half::Floats low, high;
      memcpy(&low, &x, sizeof low);
      memcpy(&high, reinterpret_cast<const char *>(&x) + sizeof low, sizeof high);
      return Half::sum(low + high);
    }
  }
};

template <typename T> PCRT_INLINE float numberAt(const T *from) { return Lanes<1>::load(from)[0]; }

/// Adds products to the rows of c, in columns [from, to): `depth` rows of b, each times an element of a. A task has a,
/// b and c as pointers to matrices [m, k], [k, n] and [m, n]. a and c are f32 without gaps, and rows of b are `stride`
/// numbers apart.
template <int lanes, int rows, int depth, typename Task>
PCRT_INLINE void addRows(const Task &task, int64_t stride, int64_t k, int64_t from, int64_t to) {
  using V = Lanes<lanes>;
  float factors[rows][depth];
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < depth; ++i)
      factors[row][i] = task.a[row * task.k + k + i];
  const auto *b = task.b + k * stride;
  int64_t column = from;
  for (; column + lanes <= to; column += lanes) {
    typename V::Floats weights[depth];
    const bool isNewLine = sizeof(*b) * lanes >= 64 || (column - from) * int64_t(sizeof(*b)) % 64 == 0;
    for (int i = 0; i < depth; ++i) {
      if (isNewLine) // the processor does not prefetch so many streams by itself
        __builtin_prefetch(b + (depth + i) * stride + column);
      weights[i] = V::load(b + i * stride + column);
    }
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
        task.c[row * task.n + column] += numberAt(b + i * stride + column) * factors[row][i];
}

/// Adds the product of a and b to c, `depth` rows of b at a time, in blocks of columns for which c stays in the first
/// cache.
template <int lanes, int rows, int depth, typename Task> PCRT_INLINE void addRowsOf(const Task &task, int64_t stride) {
  constexpr int64_t block = 4096 / rows; // the number of elements of c in 16 kB
  for (int64_t from = 0; from < task.n; from += block) {
    const int64_t to = std::min(task.n, from + block);
    int64_t k = 0;
    for (; k + depth <= task.k; k += depth)
      addRows<lanes, rows, depth>(task, stride, k, from, to);
    for (; k < task.k; ++k)
      addRows<lanes, rows, 1>(task, stride, k, from, to);
  }
}

/// Adds the products of the rows of a and the columns of b to the rows of c. The numbers of a column are contiguous.
/// Columns are `stride` numbers apart.
template <int lanes, int rows, typename Task> PCRT_INLINE void addColumnsOf(const Task &task, int64_t stride) {
  using V = Lanes<lanes>;
  // The number of partial sums of an element, enough to hide latencies.
  constexpr int parts = rows == 1 ? 4 : rows <= 2 ? 2 : 1;
  constexpr int64_t step = int64_t(lanes) * parts, ahead = 4096 / sizeof(*task.b);
  const int64_t whole = task.k / step * step;
  for (int64_t column = 0; column < task.n; ++column) {
    const auto *b = task.b + column * stride;
    typename V::Floats sums[rows][parts] = {};
    for (int64_t i = 0; i < whole; i += step) {
      for (int64_t line = 0; line < step * int64_t(sizeof(*b)); line += 64)
        __builtin_prefetch(reinterpret_cast<const char *>(b + i + ahead) + line);
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
        total += task.a[row * task.k + i] * numberAt(b + i);
      task.c[row * task.n + column] += total;
    }
  }
}

/// Calls f.operator()<m>() for an m from 1 to `most`.
template <int most, typename F> PCRT_INLINE void forRows(int64_t m, F f) {
  if constexpr (most > 1)
    if (m < most)
      return forRows<most - 1>(m, f);
  f.template operator()<most>();
}

} // namespace pcrt

#endif // PCRT_CPU_LANES_H
