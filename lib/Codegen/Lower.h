//===- Lower.h - Kernels to the LLVM dialect -----------------------------------------------===//
#ifndef PC_LIB_CODEGEN_LOWER_H
#define PC_LIB_CODEGEN_LOWER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace pc {
/// scf, vector, math and arith inside llvm.func become the LLVM dialect, in place.
llvm::LogicalResult lowerToLLVM(mlir::ModuleOp module);
} // namespace pc

#endif
