//===- Matmul.h - a product of two matrices by oneDNN's primitive ---------===//
//
// oneDNN's primitives have sizes that are fixed when they are made, and work
// on memory that is set before every call.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_MATMUL_H
#define PCRT_CPU_MATMUL_H

#include "pcrt/pcrt.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <vector>

namespace pcrt {

/// A matrix as oneDNN takes it: rows or columns are contiguous. Strides are in elements.
struct Matrix {
  int64_t rows, columns, rowStride, columnStride;
  int32_t dtype;

  bool isTransposed() const { return columnStride != 1; }
  int64_t leadingStride() const { return isTransposed() ? columnStride : rowStride; }
  dnnl::memory::desc desc() const;
};

/// The operands of one batch entry of a product.
struct Operands {
  Matrix a, b, c;
};

/// None if oneDNN does not take the strides of one of them.
std::optional<Operands> operandsOf(const pcrt_gemm_desc &desc);

/// c = a b, or c += a b where the product accumulates, with a bias where it has one. Calls allocate nothing from the
/// heap after the first, and say what oneDNN says.
class Matmul {
public:
  /// `packB`: b is brought into the form that the primitive likes best by setB, once for all runs that follow.
  /// Throws dnnl::error on a CPU that lacks what it needs.
  Matmul(const pcrt_gemm_desc &desc, const Operands &operands, bool packB, const dnnl::engine &engine);

  /// Memory that setB and run need, aligned to 64 bytes.
  int64_t scratchBytes() const;
  /// The b of the runs that follow with the same scratch memory.
  dnnl_status_t setB(const void *b, void *scratch, const dnnl::stream &stream);
  dnnl_status_t run(const void *a, void *c, const void *bias, void *scratch, const dnnl::stream &stream);

private:
  /// Packed b lies behind the product's own memory.
  int64_t packedOffset() const { return (int64_t(scratch.get_desc().get_size()) + 63) / 64 * 64; }

  dnnl::matmul product;
  dnnl::reorder pack; ///< Where b is packed.
  dnnl::memory a, b, packedB, c, bias, scratch;
  std::vector<dnnl_exec_arg_t> args;
};

} // namespace pcrt

#endif // PCRT_CPU_MATMUL_H
