//===- Codes.h - Values that are stored in 8 or 4 bits ------------------------------------===//
// Values of a step that trains may be codes with a scale per block (pc/IR/BlockCodes.h). A program that generates text
// may store a matrix as integers, the codes, and f32 scales. A scale belongs to all codes of a row, or to the codes of
// a group within a row. Where a product reads the matrix, an einsum multiplies codes by scales.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_CODES_H
#define PC_IR_CODES_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether elements of this type are floats of 8 bits: E4M3 or E5M2.
inline bool isFloat8(mlir::Type element) { return llvm::isa<mlir::Float8E4M3FNType, mlir::Float8E5M2Type>(element); }

/// Whether elements of this type are codes: i8, i4 or floats of 8 bits.
inline bool isCode(mlir::Type element) { return element.isInteger(8) || element.isInteger(4) || isFloat8(element); }

/// The name of the dim within a group, in a parameter whose codes are in groups. All codes along this dim share one
/// scale. No plan splits the dim. In memory, codes i and i + half of a group of 4 bits share a byte.
inline constexpr llvm::StringRef nameOfCodes = "code";

/// Returns the dim called `nameOfCodes` in a parameter of codes, or in a value that moves compute from it; -1 if there
/// is none.
int64_t dimOfCodes(mlir::Value codes);

/// Whether `op` is the product of codes and their scales: "f e, f -> f e".
bool isDecoding(EinsumOp op);

/// The op that computes `value`, directly or through a view, from codes and scales; null if there is none.
EinsumOp decodingOf(mlir::Value value);

/// The scales that belong to a parameter of codes, in the same function; null if there are none.
StateOp scalesOf(ParameterOp parameter);

} // namespace pc

#endif
