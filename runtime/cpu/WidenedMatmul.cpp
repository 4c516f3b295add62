//===- WidenedMatmul.cpp - A product of bf16 matrices by f32 products -----===//
// Loops over blocks of c, then of k. It widens a block of a and of b to f32 (transposing it if that suits dnnl_sgemm),
// adds their product to a block of f32 sums, and rounds the sums to c at the end.
//===----------------------------------------------------------------------===//
#include "cpu/WidenedMatmul.h"
#include "base/Types.h"

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.h>

using namespace pcrt;

/// The extent of blocks if `extent` is cut into blocks of nearly equal size, at most `most`.
static int64_t blockExtent(int64_t extent, int64_t most) {
  const int64_t blocks = (extent + most - 1) / most;
  return blocks < 2 ? extent : ((extent + blocks - 1) / blocks + 15) / 16 * 16;
}

/// The distance in elements from a line of a block to the next: whole cache lines, and not a power of two, which would
/// put all lines into the same few sets of a cache.
static int64_t pitch(int64_t length) { return (length + 15) / 32 * 32 + 16; }

namespace {

/// A part of a matrix in f32.
struct Block {
  const float *at;
  int64_t stride;
  bool isTransposed;
};

/// Two elements of bf16 in each of four words.
using Words = uint32_t __attribute__((vector_size(16)));

} // namespace

/// Transposes 4 lines of 8 elements to 8 lines of 4 elements.
static void turn(const uint16_t *from, int64_t stride, float *to, int64_t toStride) {
  Words lines[4];
  for (int line = 0; line < 4; ++line)
    memcpy(&lines[line], from + line * stride, sizeof(Words));
  const Words first = __builtin_shufflevector(lines[0], lines[1], 0, 4, 1, 5),
              second = __builtin_shufflevector(lines[2], lines[3], 0, 4, 1, 5),
              third = __builtin_shufflevector(lines[0], lines[1], 2, 6, 3, 7),
              fourth = __builtin_shufflevector(lines[2], lines[3], 2, 6, 3, 7);
  const Words pairs[4] = {
      __builtin_shufflevector(first, second, 0, 1, 4, 5), __builtin_shufflevector(first, second, 2, 3, 6, 7),
      __builtin_shufflevector(third, fourth, 0, 1, 4, 5), __builtin_shufflevector(third, fourth, 2, 3, 6, 7)};
  for (int pair = 0; pair < 4; ++pair) {
    const Words even = pairs[pair] << 16, odd = pairs[pair] & 0xffff0000u;
    memcpy(to + 2 * pair * toStride, &even, sizeof even);
    memcpy(to + (2 * pair + 1) * toStride, &odd, sizeof odd);
  }
}

/// Transposes `lines` lines of `length` elements to `length` lines in f32, in pieces of whole cache lines of both.
static void turnAll(const uint16_t *from, int64_t stride, int64_t lines, int64_t length, float *to) {
  const int64_t toStride = pitch(lines);
  for (int64_t line = 0; line < lines; line += 16)
    for (int64_t at = 0; at < length; at += 32) {
      const int64_t lineEnd = std::min(line + 16, lines), end = std::min(at + 32, length);
      if (lineEnd - line < 16 || end - at < 32) {
        for (int64_t i = line; i < lineEnd; ++i)
          for (int64_t j = at; j < end; ++j)
            to[j * toStride + i] = bf16ToFloat(from[i * stride + j]);
        continue;
      }
      for (int64_t j = at; j < end; j += 8)
        for (int64_t i = line; i < lineEnd; i += 4)
          turn(from + i * stride + j, stride, to + j * toStride + i, toStride);
    }
}

/// Returns rows [row, row + rows) and the given columns of a matrix in f32: in place if they are f32, and converted at
/// `to` otherwise. With `turns`, the copy has contiguous rows, even if the matrix has contiguous columns.
static Block widen(const Matrix &matrix, const void *from, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   bool turns, float *to) {
  const int64_t stride = matrix.leadingStride(), offset = row * matrix.rowStride + column * matrix.columnStride;
  if (matrix.dtype == PCRT_F32)
    return {static_cast<const float *>(from) + offset, stride, matrix.isTransposed()};
  const auto *first = static_cast<const uint16_t *>(from) + offset;
  const int64_t lines = matrix.isTransposed() ? columns : rows, length = matrix.isTransposed() ? rows : columns;
  if (turns && matrix.isTransposed()) {
    turnAll(first, stride, lines, length, to);
    return {to, pitch(columns), false};
  }
  for (int64_t line = 0; line < lines; ++line)
    toFloats(first + line * stride, to + line * pitch(length), length);
  return {to, pitch(length), matrix.isTransposed()};
}

bool WidenedMatmul::takes(const Operands &of) {
  bool isHalf = of.a.dtype == PCRT_BF16 || of.b.dtype == PCRT_BF16 || of.c.dtype == PCRT_BF16;
  return isHalf && !of.c.isTransposed();
}

WidenedMatmul::WidenedMatmul(const pcrt_gemm_desc &d, const Operands &operands, bool keepB)
    : of(operands), givenB(operands.b), accumulates(d.accumulate), rows(blockExtent(d.m, 2048)),
      columns(blockExtent(d.n, std::clamp<int64_t>(d.m, 512, 1024))), depth(blockExtent(d.k, 1024)) {
  // A block of b is converted once for all rows of a block of c, so a block of c has many rows. If c has few rows, a
  // narrow block, which fits into a core's cache, is faster. If c has many rows, a wide block is faster, because a is
  // converted less often.

  // The number of floats of a block, whether or not the matrix is transposed.
  auto floats = [](const Matrix &matrix, int64_t rows, int64_t columns) {
    if (matrix.dtype == PCRT_F32)
      return int64_t(0);
    return std::max(columns * pitch(rows), rows * pitch(columns));
  };
  aFloats = floats(of.a, rows, depth);
  bFloats = keepB ? floats(of.b, d.k, d.n) : floats(of.b, depth, columns);
  sumFloats = floats(of.c, rows, columns);
  if (keepB && of.b.dtype == PCRT_BF16) {
    of.b.dtype = PCRT_F32;
    of.b.rowStride = pitch(d.n), of.b.columnStride = 1;
  }
}

void WidenedMatmul::setB(const void *at, void *scratch) {
  b = at;
  if (of.b.dtype != givenB.dtype)
    b = widen(givenB, at, 0, givenB.rows, 0, givenB.columns, /*turns=*/true, static_cast<float *>(scratch) + aFloats)
            .at;
}

/// Writes a block of c from its sums; the sums are in place if c is f32.
static void finish(const Matrix &c, void *to, const float *sums, int64_t stride, const float *bias, bool accumulates,
                   int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    const float *from = sums + row * stride;
    if (c.dtype == PCRT_F32) {
      float *line = static_cast<float *>(to) + row * c.rowStride;
      for (int64_t i = 0; bias && i < columns; ++i)
        line[i] += bias[i];
      continue;
    }
    uint16_t *line = static_cast<uint16_t *>(to) + row * c.rowStride;
    for (int64_t i = 0; i < columns; ++i) {
      float sum = bias ? from[i] + bias[i] : from[i];
      line[i] = floatToBf16(accumulates ? bf16ToFloat(line[i]) + sum : sum);
    }
  }
}

dnnl_status_t WidenedMatmul::run(const void *a, void *c, const void *bias, void *scratch) const {
  float *aAt = static_cast<float *>(scratch), *bAt = aAt + aFloats, *sumsAt = bAt + bFloats;
  const bool addsInPlace = of.c.dtype == PCRT_F32;
  Block aBlock{}, bBlock{};
  int64_t aHeld[2] = {-1, -1}, bHeld[2] = {-1, -1};
  for (int64_t row = 0; row < of.c.rows; row += rows)
    for (int64_t column = 0; column < of.c.columns; column += columns) {
      const int64_t m = std::min(rows, of.c.rows - row), n = std::min(columns, of.c.columns - column);
      char *to = static_cast<char *>(c) + (row * of.c.rowStride + column) * elementBytes(of.c.dtype);
      float *sums = addsInPlace ? reinterpret_cast<float *>(to) : sumsAt;
      const int64_t stride = addsInPlace ? of.c.rowStride : pitch(n);
      for (int64_t first = 0; first < of.a.columns; first += depth) {
        const int64_t k = std::min(depth, of.a.columns - first);
        if (row != aHeld[0] || first != aHeld[1])
          aBlock = widen(of.a, a, row, m, first, k, /*turns=*/false, aAt);
        if (first != bHeld[0] || column != bHeld[1])
          bBlock = widen(of.b, b, first, k, column, n, /*turns=*/true, bAt);
        aHeld[0] = row, aHeld[1] = bHeld[0] = first, bHeld[1] = column;
        dnnl_status_t status = dnnl_sgemm(aBlock.isTransposed ? 'T' : 'N', bBlock.isTransposed ? 'T' : 'N', m, n, k,
                                          1.0f, aBlock.at, aBlock.stride, bBlock.at, bBlock.stride,
                                          first || (addsInPlace && accumulates) ? 1.0f : 0.0f, sums, stride);
        if (status != dnnl_success)
          return status;
      }
      finish(of.c, to, sums, stride, bias ? static_cast<const float *>(bias) + column : nullptr, accumulates, m, n);
    }
  return dnnl_success;
}
