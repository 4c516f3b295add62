//===- CompareKernels.h - Compiled kernels beside the interpreter ---------------------------===//
#ifndef PC_LIB_DRIVER_COMPAREKERNELS_H
#define PC_LIB_DRIVER_COMPAREKERNELS_H

#include "pc/Codegen/CompiledKernels.h"
#include "pcrt/pcrt.h"

namespace pc {

/// Runs every kernel of an object file on sampled operands, and compares what it makes with what the interpreter says
/// that its op makes. Kernels that would take the interpreter more than `mostSteps` are left out; `leftOut` counts
/// them. Fails with an error at the op of a kernel that ends by a signal or does not end, or whose results differ by
/// more than rounding can explain.
pcrt_status compareKernels(llvm::ArrayRef<WrittenKernel> kernels, llvm::StringRef object, double mostSteps,
                           int64_t &leftOut);

} // namespace pc

#endif
