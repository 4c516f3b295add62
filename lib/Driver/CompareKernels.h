//===- CompareKernels.h - Compares compiled kernels with the interpreter ---------------------------===//
// Input: a planned program and the object file of its kernels. Result: errors at the ops whose kernels differ from the
// interpreter by more than rounding can explain. Limits of work keep the comparison short.
//===-----------------------------------------------------------------------------------------------===//
#ifndef PC_LIB_DRIVER_COMPAREKERNELS_H
#define PC_LIB_DRIVER_COMPAREKERNELS_H

#include "pc/Codegen/CompiledKernels.h"
#include "pcrt/pcrt.h"

namespace pc {

/// Runs kernels of an object file on sampled operands, and compares their results with the interpreter's results for
/// the same ops. Begins with the cheapest kernels, as long as the interpreter needs at most `mostSteps` for each, and
/// at most `mostInAll` in total. `leftOut` receives the number of kernels that were not run. Fails with an error at the
/// op of a kernel that ends by a signal or does not end, or whose results differ by more than rounding can explain.
pcrt_status compareKernels(llvm::ArrayRef<WrittenKernel> kernels, llvm::StringRef object, double mostSteps,
                           double mostInAll, int64_t &leftOut);

} // namespace pc

#endif
