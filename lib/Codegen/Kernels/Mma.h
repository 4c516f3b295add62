//===- Mma.h - Pieces of products on tensor cores ------------------------------------===//
// The layouts in MmaAttention.h apply to all products with mma.sync m16n8k16.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_MMA_H
#define PC_LIB_CODEGEN_KERNELS_MMA_H

#include "../Emit/Simt.h"

namespace pc::kernels {

/// Loads four 8 x 8 matrices of bf16 from shared memory (ldmatrix) and returns this thread's words. Each group of eight
/// threads supplies the addresses of one matrix's rows.
llvm::SmallVector<mlir::Value, 4> loadMatrices(SimtEmitter &e, Ptr at, bool transposed);

/// Four sums += a b, with a of 16 x 16 (four words) and b of 16 x 8 (two words).
void multiplyPieces(SimtEmitter &e, llvm::MutableArrayRef<Num> sums, llvm::ArrayRef<mlir::Value> a,
                    llvm::ArrayRef<mlir::Value> b);

} // namespace pc::kernels
#endif
