//===- Jit.h - Compiles one op to its special kernels, in this process ----===//
// For the tests and the benchmark of lib/Codegen/Host/KernelOf: op text in, C functions out. Kernels run as in the
// runtime: disjoint ranges of items, scratch memory per thread.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_CODEGEN_KERNELS_JIT_H
#define PC_TEST_CODEGEN_KERNELS_JIT_H

#include "pcrt/pcrt.h"
#include <memory>
#include <string>
#include <vector>

/// A kernel of the op. The status of a run is 0, or 1 + the index of the first bad element.
struct JitKernel {
  pcrt_kernel_fn fn = nullptr;
  int64_t items = 0, scratchBytes = 0;
  std::string kind;
  std::shared_ptr<void> code; ///< what `fn` lies in

  /// Runs all items in ranges of `range` (0: one range), the last range first, with scratch full of NaN; checks that
  /// nothing is written beyond the scratch.
  int64_t run(const std::vector<void *> &args, int64_t range = 0) const;
};

/// Compiles a function's body that holds one op, for vectors of `lanes` f32. If that fails, the process ends with a
/// message. Kernel arguments are the op's operands, then its results. `roundsToBf16` and `multipliesPairs` use the
/// CPU's instructions for that.
std::vector<JitKernel> jitOp(const std::string &function, int64_t lanes, bool roundsToBf16 = false,
                             bool multipliesPairs = false);

/// The f32 elements of a full vector on this machine: 16 with AVX-512, otherwise 8.
int64_t hostLanes();
/// Returns true if this machine has AVX512-BF16.
bool hostRoundsToBf16();

#endif
