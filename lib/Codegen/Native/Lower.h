//===- Lower.h - Kernels to the LLVM dialect -----------------------------------------------===//
// The last step before translation to LLVM IR.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_NATIVE_LOWER_H
#define PC_LIB_CODEGEN_NATIVE_LOWER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace pc {
/// Whether a function is a step, which only calls the runtime, and not a kernel.
inline bool isStep(llvm::StringRef function) { return function.starts_with("pc_step"); }
/// Lowers scf, vector, math and arith ops in llvm.funcs to the LLVM dialect, in place.
llvm::LogicalResult lowerToLLVM(mlir::ModuleOp module);
} // namespace pc

#endif
