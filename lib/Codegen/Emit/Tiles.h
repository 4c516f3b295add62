//===- Tiles.h - Small matrix products and copies inside one kernel -----------------===//
// These are building blocks of attention. Matrices are in a thread's scratch memory, or are read with strides from a
// tensor. Scratch matrices are padded with zeros to whole vectors and tiles, so products have no tails.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_EMIT_TILES_H
#define PC_LIB_CODEGEN_EMIT_TILES_H

#include "Emit.h"

namespace pc::kernels {

/// A matrix with its strides, in elements.
struct Matrix {
  Ptr data;
  int64_t rowStride, columnStride = 1;
};

/// The factors of a product: numbers, or words of two bf16, which are multiplied in pairs. Sizes and strides of
/// matrices of words are in words. A word holds two adjacent elements of a row in `a`, and of a column in `b`.
enum class Factors { numbers, words };

/// Rows of a register tile; its columns are two full vectors.
inline int64_t tileRows(int64_t lanes) { return lanes >= 16 ? 8 : 4; }
inline int64_t tileColumns(int64_t lanes) { return 2 * lanes; }
inline int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// c[m, n] (+)= a[m, k] b[k, n]. `m` is a multiple of tileRows. `n` is a multiple of tileColumns, plus one vector if
/// `oddVector`. Columns of b and c are contiguous; a has any strides. c holds f32.
void product(Emitter &e, Factors factors, Num m, Num n, bool oddVector, Num k, Matrix a, Matrix b, Matrix c,
             bool accumulate);

/// to[0..paddedRows, 0..paddedColumns] = from[0..rows, 0..columns] and zeros.
void copyPadded(Emitter &e, Num rows, Num paddedRows, int64_t columns, int64_t paddedColumns, Matrix from, Matrix to);

/// Like copyPadded, for the right operand of a product. With words, row i of `to` has the words of rows 2i and 2i + 1.
/// `paddedRows` is even.
void packPadded(Emitter &e, Factors factors, Num rows, Num paddedRows, int64_t columns, int64_t paddedColumns,
                Matrix from, Matrix to);

/// to[columns, rows] = transposed from[rows, columns]; the rest of each row of `to`, whose stride is a multiple of full
/// vectors, is filled with zeros.
void transposePadded(Emitter &e, int64_t rows, int64_t columns, Matrix from, Matrix to);

/// x[0..n] = 0 for a multiple `n` of full vectors.
void zeroFill(Emitter &e, Ptr x, int64_t n);

} // namespace pc::kernels
#endif
