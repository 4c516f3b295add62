//===- Mma.h - Pieces of products on tensor cores ------------------------------------===//
// What MmaAttention.h says of threads and places holds for all products by mma.sync m16n8k16.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_MMA_H
#define PC_LIB_CODEGEN_KERNELS_MMA_H

#include "../Emit/Simt.h"

namespace pc::kernels {

/// Four 8 x 8 matrices of bf16 from shared memory (ldmatrix): this thread's words of them. Each eight threads give the
/// addresses of one's rows.
llvm::SmallVector<mlir::Value, 4> loadMatrices(SimtEmitter &e, Ptr at, bool transposed);

/// Four sums += a b, of 16 x 16 (four words) and 16 x 8 (two).
void multiplyPieces(SimtEmitter &e, llvm::MutableArrayRef<Num> sums, llvm::ArrayRef<mlir::Value> a,
                    llvm::ArrayRef<mlir::Value> b);

} // namespace pc::kernels
#endif
