//===- Gemm.h - Einsums that are matrix products ------------------------------------------===//
// Describes a product in the library's terms (oneDNN on CPUs, cuBLASLt on CUDA devices), and the epilogues that the
// library can compute. Every function returns std::nullopt or null if the op does not have the required form.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_GEMM_H
#define PC_LIB_CODEGEN_FUSE_GEMM_H

#include "pc/IR/PC.h"
#include <optional>

namespace pc {

/// A matrix product c[batch, m, n] = sum_k a[batch, m, k] b[batch, k, n]. Strides are in elements. If `swapped`, a is
/// the einsum's second operand.
struct Gemm {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t aBatch = 0, aM = 0, aK = 0, bBatch = 0, bK = 0, bN = 0, cBatch = 0, cM = 0, cN = 0;
  bool swapped = false;
};

/// Returns `op` as a matrix product. The factors of `op` must collapse into batch, m, n and k with one stride each, and
/// the rows or the columns of its result must be contiguous.
std::optional<Gemm> asGemm(EinsumOp op);

/// A matrix product plus a bias per column, as in add(product, broadcast of the bias).
struct BiasedGemm {
  EinsumOp product, broadcast;
};
std::optional<BiasedGemm> asBiasedGemm(AddOp sum);
/// Whether the library adds a bias of this type: f32 on CPUs, the type of the result on CUDA devices.
bool takesBias(BiasedGemm biased, bool cuda);

/// The sum of a product and `base`, both f32. The product can compute it by accumulating into the buffer of `base`. If
/// both addends are products, the later one accumulates.
struct SummedGemm {
  EinsumOp product;
  mlir::Value base;
};
std::optional<SummedGemm> asSummedGemm(AddOp sum);

/// The following functions recognize further epilogues of cuBLASLt. Each returns the op of the product for which `op`
/// can be an epilogue, or null.
/// Recognizes gelu_tanh of a product with bias. The sum is also stored, because the backward pass reads it.
AddOp biasedGeluOf(ActivationOp op);
/// Recognizes a product times the derivative of gelu_tanh.
EinsumOp geluGradOf(ActivationGradOp op);
/// Recognizes the gradient of a bias, "b s f -> f". It is the sum over k of the matrix b of a product in the same
/// block.
EinsumOp biasGradOf(EinsumOp sum);

/// Returns the ops that compute matrix b of `product` from codes, in order. The list is empty if b is not computed from
/// codes.
llvm::SmallVector<mlir::Operation *> decodingOps(EinsumOp product);

/// A fusion that is one matrix product with an epilogue. The values here are those outside of the fusion. If b has
/// codes, `aux` has their scales.
struct FusedProduct {
  EinsumOp product;
  int32_t epilogue; ///< pcrt_epilogue
  mlir::Value a, b, c, bias, aux;
  mlir::Operation *rest = nullptr; ///< The op to run separately if the library lacks the epilogue; null for a bias.
  AddOp sum = nullptr;             ///< Accumulates into `base`, in place if both have the same home.
  mlir::Value base = nullptr;
  int64_t group = 0; ///< The codes along k that share a scale.
  /// The pcrt_scales of a product of codes, whose `bias` has the scales of a, and `aux` those of b.
  int32_t aScales = 0, bScales = 0;
};
std::optional<FusedProduct> asFusedProduct(FusionOp fusion, bool cuda);

} // namespace pc

#endif
