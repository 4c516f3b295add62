//===- Gemm.h - Einsums that are matrix products ------------------------------------------===//
#ifndef PC_LIB_CODEGEN_GEMM_H
#define PC_LIB_CODEGEN_GEMM_H

#include "pc/IR/PC.h"
#include <optional>

namespace pc {

/// c[batch, m, n] = sum_k a[batch, m, k] b[batch, k, n], strides in elements. `swapped`: a is the einsum's second
/// operand.
struct Gemm {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t aBatch = 0, aM = 0, aK = 0, bBatch = 0, bK = 0, bN = 0, cBatch = 0, cM = 0, cN = 0;
  bool swapped = false;
};

/// The matrix product that `op` is, if its factors collapse into batch, m, n and k with one stride each and the
/// result's rows or columns are contiguous.
std::optional<Gemm> asGemm(EinsumOp op);

/// A matrix product plus a bias per column: add(product, broadcast of the bias).
struct BiasedGemm {
  EinsumOp product, broadcast;
};
std::optional<BiasedGemm> asBiasedGemm(AddOp sum);
/// Whether the library adds a bias of this type: f32 on CPUs, the result's on CUDA devices.
bool takesBias(BiasedGemm biased, bool cuda);

/// A sum of a product and `base`, f32 both, as the product itself can make it in the bytes of `base`. Of two products the
/// later one adds.
struct SummedGemm {
  EinsumOp product;
  mlir::Value base;
};
std::optional<SummedGemm> asSummedGemm(AddOp sum);

/// cuBLASLt's further epilogues. Each finds the product that `op` can join, or null.
///
/// gelu_tanh of a biased product: the sum, which the backward pass reads, is stored, too.
AddOp biasedGeluOf(ActivationOp op);
/// A product times the derivative of gelu_tanh.
EinsumOp geluGradOf(ActivationGradOp op);
/// "b s f -> f" of what a product in the same block reads as its matrix b, that is, sums over k.
EinsumOp biasGradOf(EinsumOp sum);

/// A fusion that is one matrix product with an epilogue, with the values outside that it works on.
struct FusedProduct {
  EinsumOp product;
  int32_t epilogue; ///< pcrt_epilogue
  mlir::Value a, b, c, bias, aux;
  mlir::Operation *rest = nullptr; ///< What is left of it where the library has no such epilogue; null for a bias.
  AddOp sum = nullptr;             ///< It adds to `base`, in place where both have one home.
  mlir::Value base = nullptr;
};
std::optional<FusedProduct> asFusedProduct(FusionOp fusion, bool cuda);

} // namespace pc

#endif
