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

/// The factors of a product. They are numbers, or words of two bf16, which are multiplied in pairs. Sizes and strides
/// of matrices of words are in words. A word of `a` holds two adjacent elements of a row; a word of `b`, of a column.
enum class Factors { numbers, words };

/// Returns the number of rows of a register tile. Its columns are two full vectors.
inline int64_t tileRows(int64_t lanes) { return lanes >= 16 ? 8 : 4; }
inline int64_t tileColumns(int64_t lanes) { return 2 * lanes; }
inline int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// Computes c[m, n] = a[m, k] b[k, n], or adds the product to c. `m` is a multiple of tileRows. `n` is a multiple of
/// tileColumns, plus one vector if `oddVector`. Columns of b and c are contiguous; a has any strides. c holds f32.
void product(Emitter &e, Factors factors, Num m, Num n, bool oddVector, Num k, Matrix a, Matrix b, Matrix c,
             bool accumulate);

/// Copies from[0..rows, 0..columns] to the beginning of to[0..paddedRows, 0..paddedColumns], and fills the rest with
/// zeros.
void copyPadded(Emitter &e, Num rows, Num paddedRows, int64_t columns, int64_t paddedColumns, Matrix from, Matrix to);

/// Like copyPadded, for the right operand of a product. With words, row i of `to` has the words of rows 2i and 2i + 1.
/// `paddedRows` is even.
void packPadded(Emitter &e, Factors factors, Num rows, Num paddedRows, int64_t columns, int64_t paddedColumns,
                Matrix from, Matrix to);

/// Writes the transposed from[rows, columns] to to[columns, rows]. The stride of `to` is a multiple of full vectors;
/// the rest of each of its rows is filled with zeros.
void transposePadded(Emitter &e, int64_t rows, int64_t columns, Matrix from, Matrix to);

/// Sets x[0..n] to 0. `n` is a multiple of full vectors.
void zeroFill(Emitter &e, Ptr x, int64_t n);

} // namespace pc::kernels
#endif
