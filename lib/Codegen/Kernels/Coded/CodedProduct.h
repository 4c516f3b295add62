//===- CodedProduct.h - Products with a matrix of codes --------------------------------===//
// A coded product is a fusion of a product with the ops that compute its matrix from codes. On a GPU it is a kernel.
// Programs for CPUs call the runtime instead; the kernel for CPUs is only the reference of --check-kernels.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_CODED_CODEDPRODUCT_H
#define PC_LIB_CODEGEN_KERNELS_CODED_CODEDPRODUCT_H

#include "../Kernels.h"

namespace pc::kernels {

/// Whether `fusion` is one product with codes, and computes nothing else. It may be routed.
bool isCodedProduct(FusionOp fusion);
llvm::LogicalResult emitCodedProduct(FusionOp fusion, Kernel &kernel);

} // namespace pc::kernels
#endif
