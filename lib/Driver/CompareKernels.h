//===- CompareKernels.h - Compares compiled kernels with the interpreter ---------------------------===//
// Input: a planned program. It reports the kernels whose results differ more than rounding can explain. A limit of work
// keeps the comparison short.
//===-----------------------------------------------------------------------------------------------===//
#ifndef PC_LIB_DRIVER_COMPAREKERNELS_H
#define PC_LIB_DRIVER_COMPAREKERNELS_H

#include "pc/Codegen/CompiledKernels.h"
#include "pcrt/pcrt.h"

namespace pc {

/// Runs kernels of an object file on sampled operands, and compares their results with the interpreter's results for
/// their ops: the cheapest first, as long as the interpreter needs at most `mostSteps` for each, and at most
/// `mostInAll` in total. `leftOut` is the number of the others. Fails with an error at the op of a kernel that ends by
/// a signal or does not end, or whose results differ by more than rounding can explain.
pcrt_status compareKernels(llvm::ArrayRef<WrittenKernel> kernels, llvm::StringRef object, double mostSteps,
                           double mostInAll, int64_t &leftOut);

} // namespace pc

#endif
