//===- Lower.h - Kernels to the LLVM dialect -----------------------------------------------===//
#ifndef PC_LIB_CODEGEN_LOWER_H
#define PC_LIB_CODEGEN_LOWER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace pc {
/// Lowers scf, vector, math and arith ops in llvm.funcs to the LLVM dialect, in place.
llvm::LogicalResult lowerToLLVM(mlir::ModuleOp module);
} // namespace pc

#endif
