//===- RowMath.h - Operations of row kernels that the Emitter lacks -------------------===//
// Input: numbers of the Emitter (scalars or vectors). Result: numbers. Accuracy is a few units in the last place of
// f32.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_EMIT_ROWMATH_H
#define PC_LIB_CODEGEN_EMIT_ROWMATH_H

#include "Emit.h"
#include <functional>

namespace pc::kernels {

/// A function that computes an element of the result of a pointwise op from the elements of its operands. Elements are
/// f32; those of a cast may be i32.
using PointwiseMath = std::function<Num(Emitter &, llvm::ArrayRef<Num>)>;
/// Returns the function that computes the pointwise op `op`; null if the op has no kernel.
PointwiseMath pointwiseMath(mlir::Operation *op);

/// Returns an i32 constant.
Num integer32(Emitter &e, int64_t value);
/// Returns the i32 vector of the positions of a vector's `width` elements: first, first + 1, ... `first` is i64.
Num indices(Emitter &e, Num first, int64_t width);
/// Compares integers element by element.
Num equal(Num a, Num b);
/// Returns the position in the sequence of `index`, an i64 or a vector of i64, if the sequence is in the zigzag order
/// of `ranks` ranks. The sequence has `length` tokens.
Num positionOf(Emitter &e, Num index, int64_t length, int64_t ranks);
/// The error function.
Num erf(Emitter &e, Num x);
/// e^x for any x: infinity where f32 overflows, NaN for NaN. (Emitter::exp is correct up to 88 only.)
Num expAny(Emitter &e, Num x);
/// The hyperbolic tangent, to a few units in the last place.
Num tanh(Emitter &e, Num x);
/// x / (1 + e^-z), for any z.
Num gate(Emitter &e, Num x, Num z);

} // namespace pc::kernels

#endif
