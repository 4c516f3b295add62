//===- Accesses.h - What a kernel of a GPU reads and writes, counted from its code --------===//
// Walks a gpu.func as its threads would, all of them at once: every address, condition and bound of a loop is a linear
// form of the block's and the thread's number and of loop counters. So the counts belong to the code that runs, not to
// the code that generated it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_COUNT_ACCESSES_H
#define PC_LIB_CODEGEN_COUNT_ACCESSES_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

#include <map>

namespace pc {

/// A buffer of a kernel.
struct CountedBuffer {
  int64_t bytes; ///< its size
  int64_t home;  ///< equal for buffers that are the same memory
};

/// Loads, or stores, of one buffer by all threads of a grid: bytes, by the width of the access in bytes.
using Access = std::map<int64_t, int64_t>;
int64_t bytesOf(const Access &access);

/// What a kernel reads of one buffer and writes to it.
struct Accesses {
  Access loads, stores;
};

/// The accesses of a kernel with known sizes of grid and block to each of its buffers. An access at one address for
/// several threads of a block, or in several iterations of a loop, counts once, and so does one that a thread has made
/// before: its value is in a register or the first-level cache. Blocks count one by one, but a buffer of at most
/// `cachedBytes` stays in the second-level cache: no more than its size counts. Nor does more than that of accesses
/// under a condition on data, or in a loop whose end depends on data. Fails, with an error, at an op that reaches
/// memory in another way than the emitters do.
constexpr int64_t cachedBytes = int64_t(4) << 20;
llvm::FailureOr<llvm::SmallVector<Accesses>> countAccesses(mlir::gpu::GPUFuncOp kernel,
                                                           llvm::ArrayRef<CountedBuffer> buffers,
                                                           struct TensorWork *products = nullptr);

/// What tensor cores do in a kernel, by all of its threads.
struct TensorWork {
  int64_t flops = 0;         ///< two a product of two numbers
  int64_t sharedBytes = 0;   ///< that they, or loads of their operands (ldmatrix), read from shared memory
  bool dependOnData = false; ///< how often they do so; then counted as if once

  /// The part of their rate at which shared memory can give them operands.
  double share(double sharedBandwidth, double peak) const {
    return sharedBytes && sharedBandwidth > 0
               ? std::min(1.0, static_cast<double>(flops) / static_cast<double>(sharedBytes) * sharedBandwidth / peak)
               : 1;
  }
};

} // namespace pc

#endif
