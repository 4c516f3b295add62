//===- Accesses.h - Counts reads and writes of a GPU kernel from its code -----------------===//
// Walks a gpu.func for all of its threads at once. For this, every address, condition and loop bound is a linear form
// of the block's number, the thread's number and loop counters. The counts describe the code that runs, and do not rely
// on the code that generated it.
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

/// The bytes that all threads of a grid load from, or store to, one buffer. The key is the width of the access in
/// bytes.
using Access = std::map<int64_t, int64_t>;
int64_t bytesOf(const Access &access);

/// The loads and stores of a kernel on one buffer.
struct Accesses {
  Access loads, stores;
};

/// The accesses of a kernel with known sizes of grid and block to each of its buffers:
/// * An access to one address by several threads of a block, or in several iterations of a loop, counts once.
/// * An access that repeats an earlier one of the same thread does not count again, because its value is in a register
///   or the first-level cache.
/// * Blocks count separately. However, a buffer of at most `cachedBytes` stays in the second-level cache, so at most
///   its size counts.
/// * Accesses under a condition on data, or in a loop whose end depends on data, also count as at most the size of the
///   buffer.
/// Fails with an error at an op that accesses memory in a way that the emitters do not use.
constexpr int64_t cachedBytes = int64_t(4) << 20;
llvm::FailureOr<llvm::SmallVector<Accesses>> countAccesses(mlir::gpu::GPUFuncOp kernel,
                                                           llvm::ArrayRef<CountedBuffer> buffers,
                                                           struct TensorWork *products = nullptr);

/// The work of tensor cores in a kernel, and exponentials, for all of its threads.
struct TensorWork {
  int64_t flops = 0;         ///< two per multiplication
  int64_t sharedBytes = 0;   ///< read from shared memory by products or by loads of their operands (ldmatrix)
  int64_t exponentials = 0;  ///< by the units for special functions, while no product is in flight
  int64_t hidden = 0;        ///< exponentials while a product is in flight
  bool dependOnData = false; ///< the number of products depends on data; it is counted as one

  /// Adds the work of one thread in `op`, which may be a product, load its operands, or be an exponential. Sets
  /// `inFlight` if the op starts products without waiting for them, and clears it if the op waits for all.
  void addThread(mlir::Operation *op, bool &inFlight);

  /// Returns the share of the peak rate for which shared memory can supply operands.
  double share(double sharedBandwidth, double peak) const {
    return sharedBytes && sharedBandwidth > 0
               ? std::min(1.0, static_cast<double>(flops) / static_cast<double>(sharedBytes) * sharedBandwidth / peak)
               : 1;
  }
  /// Returns the time of the kernel if its products take `multiplying` seconds. A multiprocessor computes 16
  /// exponentials in the cycle in which its shared memory supplies 128 bytes (CUDA programming guide, "arithmetic
  /// instructions").
  double seconds(double multiplying, double sharedBandwidth) const {
    auto taking = [&](int64_t count) {
      return sharedBandwidth > 0 ? static_cast<double>(count) / (sharedBandwidth / 8) : 0;
    };
    return std::max(multiplying, taking(hidden)) + taking(exponentials);
  }
};

} // namespace pc

#endif
