//===- CodeProduct.h - Products of codes, and the kernels that write these ----------------===//
// Recognizes the fusions that pc-multiply-codes makes: a product of cuBLASLt whose operands are floats of 8 bits, and
// the kernel that encodes a value in the orders that such products read.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_CODEPRODUCT_H
#define PC_LIB_CODEGEN_FUSE_CODEPRODUCT_H

#include "pc/IR/BlockCodes.h"

namespace pc {

/// A value as a matrix: the product of its leading dims, and that of the others. A block is a run of elements of each.
struct CodeTile {
  static constexpr int64_t side = 128; ///< of the squares on which kernels work; divides both sizes if it has blocks
  static constexpr int64_t unit = 16;  ///< divides both sizes if it has one scale
  int64_t rows = 1, columns = 1;
  int64_t blockRows = 1, blockColumns = 1; ///< 1 x 128, 128 x 1 or 128 x 128; the matrix, if it has one scale
};
/// Returns the matrix of a value with scales of this shape, or std::nullopt if it is none. A scalar is one scale.
std::optional<CodeTile> codeTile(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> scales, size_t leading);

/// Returns the number of leading dims that a transposition moves to the end; 0 if it does something else.
size_t turnedDims(EinsumOp transposition);

/// A product of codes. Its values are those outside of the fusion, by the number of the einsum's operand.
struct CodeProduct {
  struct Operand {
    mlir::Value codes;  ///< a matrix with the contracted dims last
    mlir::Value scales; ///< in the order that pcrt_scales describes
    int32_t kind;       ///< pcrt_scales
  };
  EinsumOp product;
  Operand operands[2];
};
std::optional<CodeProduct> asCodeProduct(FusionOp fusion);

/// Whether `op` computes each element from the elements of its operands at the same index, and kernels that encode a
/// value by squares can compute it.
bool isByElement(mlir::Operation *op);

/// The op that encodes a value as floats of 8 bits, with scales of blocks or a given scale. Operand 0 is the value, and
/// result 0 has the codes.
inline bool isFloat8Encoding(mlir::Operation *op) {
  auto blocks = llvm::dyn_cast<EncodeOp>(op);
  return blocks ? blocks.getIsFloat8() : llvm::isa<EncodeScaledOp>(op);
}

/// A kernel that encodes one value, as a matrix of squares, in one or several ways.
struct TiledCodes {
  /// A result of the fusion: codes or scales, transposed if `turned`.
  struct Stored {
    bool isScales, turned;
    unsigned number; ///< of the result
  };
  struct Encoding {
    mlir::Operation *encode; ///< see isFloat8Encoding
    CodeTile tile;
    llvm::SmallVector<Stored, 4> stored;
  };
  llvm::SmallVector<Encoding, 2> encodings;
  mlir::Value value;                                ///< the value that is encoded, in the fusion
  llvm::SmallVector<mlir::Operation *, 4> computed; ///< the ops by element that compute it from inputs, in order
  llvm::SmallVector<std::pair<mlir::Value, unsigned>, 2> kept; ///< their results that are results of the fusion
};
std::optional<TiledCodes> asTiledCodes(FusionOp fusion);

} // namespace pc

#endif
