//===- WidenedMatmul.h - A product of bf16 matrices by f32 products -------===//
// CPUs without AVX512_BF16 multiply bf16 in oneDNN's primitives at a quarter of the rate of f32, or not at all. Some
// CPUs with AVX512_BF16 are slower with it (Bf16.h). This product converts operands to f32, block by block, which is
// exact, and adds up f32 products.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_WIDENEDMATMUL_H
#define PCRT_CPU_WIDENEDMATMUL_H

#include "cpu/Matrix.h"

#include <oneapi/dnnl/dnnl_types.h>

namespace pcrt {

/// Computes c = a b, or c += a b if the product accumulates, plus a bias if it has one. c is rounded once. The object
/// allocates nothing, and one thread uses it at a time. run returns the status of dnnl_sgemm.
class WidenedMatmul {
public:
  /// Whether this class can multiply these operands, one of which is bf16.
  static bool takes(const Operands &operands);

  /// If `keepB` is true, setB converts all of b to f32 once, for all runs that follow. Otherwise each run converts b
  /// block by block.
  WidenedMatmul(const pcrt_gemm_desc &desc, const Operands &operands, bool keepB);

  /// Memory that setB and run need, aligned to 64 bytes.
  int64_t scratchBytes() const { return (aFloats + bFloats + sumFloats) * int64_t(sizeof(float)); }
  void setB(const void *b, void *scratch);
  dnnl_status_t run(const void *a, void *c, const void *bias, void *scratch) const;

private:
  Operands of;   ///< The operands; b is f32 if it is kept.
  Matrix givenB; ///< The b that setB gets.
  bool accumulates;
  int64_t rows, columns, depth; ///< The sizes of a block.
  int64_t aFloats, bFloats,
      sumFloats; ///< Scratch memory for a block of a, for b or a block of it, and for a block of c.
  const void *b = nullptr;
};

} // namespace pcrt

#endif // PCRT_CPU_WIDENEDMATMUL_H
