//===- Matmul.h - A product of two matrices by oneDNN ---------------------===//
// oneDNN's primitives have sizes that are fixed when they are made, and work on memory that is set before every call.
// WidenedMatmul replaces them in bf16 where the CPU has none, or slow ones.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_MATMUL_H
#define PCRT_CPU_MATMUL_H

#include "cpu/WidenedMatmul.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <vector>

namespace pcrt {

/// Tells oneDNN's OpenMP library that the calling thread works alone. A primitive keeps the number of threads of its
/// creation. The library comes with oneDNN; programs are not linked with it.
void workAlone();

/// c = a b, or c += a b where the product accumulates, with a bias where it has one. Calls allocate nothing from the
/// heap after the first, and say what oneDNN says.
class Matmul {
public:
  /// `packB`: b is brought into the form that the primitive likes best by setB, once for all runs that follow.
  /// `nativeBf16`: by oneDNN's primitives in bf16, too (Bf16.h). Throws dnnl::error on a CPU that lacks what it needs.
  Matmul(const pcrt_gemm_desc &desc, const Operands &operands, bool packB, bool nativeBf16, const dnnl::engine &engine);

  /// Memory that setB and run need, aligned to 64 bytes.
  int64_t scratchBytes() const;
  /// The b of the runs that follow with the same scratch memory.
  dnnl_status_t setB(const void *b, void *scratch, const dnnl::stream &stream);
  dnnl_status_t run(const void *a, void *c, const void *bias, void *scratch, const dnnl::stream &stream);

private:
  /// Packed b lies after the product's own memory.
  int64_t packedOffset() const { return (int64_t(scratch.get_desc().get_size()) + 63) / 64 * 64; }

  std::optional<WidenedMatmul> widened; ///< If set, all that follows is unused.
  dnnl::matmul product;
  dnnl::reorder pack; ///< Where b is packed.
  dnnl::memory a, b, packedB, c, bias, scratch;
  std::vector<dnnl_exec_arg_t> args;
};

} // namespace pcrt

#endif // PCRT_CPU_MATMUL_H
