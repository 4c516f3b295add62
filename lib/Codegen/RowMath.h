//===- RowMath.h - What row kernels need beside the Emitter ---------------------------===//
#ifndef PC_LIB_CODEGEN_ROWMATH_H
#define PC_LIB_CODEGEN_ROWMATH_H

#include "Kernels/Emit.h"

namespace pc::kernels {

/// An i32 constant.
Num integer32(Emitter &e, int64_t value);
/// i32 vector first, first + 1, ... of `width` elements; `first` is an i64.
Num indices(Emitter &e, Num first, int64_t width);
/// Elementwise equality of integers.
Num equal(Num a, Num b);
/// The error function.
Num erf(Emitter &e, Num x);
/// e^x for any x: infinite where f32 overflows, NaN for NaN. (Emitter::exp is right up to 88 only.)
Num expAny(Emitter &e, Num x);
/// x / (1 + e^-z), for any z.
Num gate(Emitter &e, Num x, Num z);

} // namespace pc::kernels

#endif
