//===- Matmul.h - A product of two matrices by oneDNN ---------------------===//
// oneDNN's primitives have sizes that are fixed when they are created, and work on memory that is set before every
// call. WidenedMatmul replaces them in bf16 if the CPU has no instructions for bf16, or slow ones.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_MATMUL_H
#define PCRT_CPU_MATMUL_H

#include "cpu/WidenedMatmul.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <vector>

namespace pcrt {

/// Tells oneDNN's OpenMP library that the calling thread works alone. A primitive keeps the number of threads with
/// which it was created. oneDNN loads the OpenMP library; programs are not linked with it.
void workAlone();

/// Computes c = a b, or c += a b if the product accumulates, plus a bias if it has one. Calls after the first allocate
/// nothing from the heap. Calls return oneDNN's status. One thread uses an object at a time.
class Matmul {
public:
  /// If `packB` is true, setB converts b to the layout that the primitive prefers, once for all runs that follow. If
  /// `nativeBf16` is true, products in bf16 also use oneDNN's primitives (Bf16.h). Throws dnnl::error if oneDNN does
  /// not support the product on this CPU.
  Matmul(const pcrt_gemm_desc &desc, const Operands &operands, bool packB, bool nativeBf16, const dnnl::engine &engine);

  /// Memory that setB and run need, aligned to 64 bytes.
  int64_t scratchBytes() const;
  /// Sets the b of the runs that follow with the same scratch memory.
  dnnl_status_t setB(const void *b, void *scratch, const dnnl::stream &stream);
  dnnl_status_t run(const void *a, void *c, const void *bias, void *scratch, const dnnl::stream &stream);

private:
  /// Packed b lies after the product's own memory.
  int64_t packedOffset() const { return (int64_t(scratch.get_desc().get_size()) + 63) / 64 * 64; }

  std::optional<WidenedMatmul> widened; ///< If set, all that follows is unused.
  dnnl::matmul product;
  dnnl::reorder pack; ///< Used with `packB`.
  dnnl::memory a, b, packedB, c, bias, scratch;
  std::vector<dnnl_exec_arg_t> args;
};

} // namespace pcrt

#endif // PCRT_CPU_MATMUL_H
