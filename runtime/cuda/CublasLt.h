//===- CublasLt.h - Functions, types and values of cuBLASLt ---------------===//
// The part of libcublasLt that the runtime uses; test/Runtime/cuda/Headers.cpp compares it with NVIDIA's header.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_CUBLASLT_H
#define PCRT_CUDA_CUBLASLT_H

#include "cuda/Driver.h"

namespace pcrt::cuda {

using BlasStatus = int; ///< cublasStatus_t; 0 is success.
using BlasHandle = struct BlasHandleObject *;
using MatmulDesc = struct MatmulDescObject *;
using MatrixLayout = struct MatrixLayoutObject *;
using MatmulPreference = struct MatmulPreferenceObject *;

/// The layout of cublasLtMatmulAlgo_t.
struct MatmulAlgorithm {
  uint64_t data[8];
};

/// The layout of cublasLtMatmulHeuristicResult_t.
struct MatmulHeuristic {
  MatmulAlgorithm algorithm;
  size_t workspaceBytes;
  BlasStatus state;
  float waves;
  int reserved[4];
};

enum : int { Real32F = 0, RealBF16 = 14, RealE4M3 = 28, RealE5M2 = 29 };
enum : int { Compute32F = 68 };
enum : int { OperationN = 0, OperationT = 1 };
enum : int {
  DescTransposeA = 3,
  DescTransposeB = 4,
  DescEpilogue = 7,
  DescBiasPointer = 8,
  DescAuxPointer = 11,
  DescAuxLeading = 12,
  DescMultiprocessors = 15,
  DescScalesOfA = 17,
  DescScalesOfB = 18,
  DescAuxType = 22,
  DescBiasType = 26,
  DescScaleModeOfA = 31,
  DescScaleModeOfB = 32,
};
enum : int { ScaleOne = 0, ScaleVector128 = 4, ScaleBlock128 = 5 };
enum : int { LayoutBatchCount = 5, LayoutBatchStride = 6 };
enum : int {
  PreferenceWorkspaceBytes = 1,
  PreferenceReductionMask = 3,
  PreferenceAlignmentA = 5,
  PreferenceAlignmentB = 6,
  PreferenceAlignmentC = 7,
  PreferenceAlignmentD = 8,
};
enum : int {
  EpilogueDefault = 1,
  EpilogueBias = 4,
  EpilogueGeluAuxBias = 164,
  EpilogueDGelu = 192,
  EpilogueBiasGradientA = 256,
};
enum : int { ReductionComputeType = 2 };

// clang-format off
#define PCRT_CUBLASLT_SYMBOLS(X) \
  X(size_t, cublasLtGetVersion, ) \
  X(size_t, cublasLtGetCudartVersion, ) \
  X(const char *, cublasLtGetStatusString, BlasStatus status) \
  X(BlasStatus, cublasLtCreate, BlasHandle *handle) \
  X(BlasStatus, cublasLtDestroy, BlasHandle handle) \
  X(BlasStatus, cublasLtMatmul, BlasHandle handle, MatmulDesc desc, const void *alpha, const void *a, MatrixLayout aLayout, const void *b, MatrixLayout bLayout, const void *beta, const void *c, MatrixLayout cLayout, void *d, MatrixLayout dLayout, const MatmulAlgorithm *algorithm, void *workspace, size_t workspaceBytes, Stream stream) \
  X(BlasStatus, cublasLtMatmulDescCreate, MatmulDesc *desc, int compute, int scale) \
  X(BlasStatus, cublasLtMatmulDescDestroy, MatmulDesc desc) \
  X(BlasStatus, cublasLtMatmulDescSetAttribute, MatmulDesc desc, int attribute, const void *value, size_t bytes) \
  X(BlasStatus, cublasLtMatrixLayoutCreate, MatrixLayout *layout, int type, uint64_t rows, uint64_t columns, int64_t leading) \
  X(BlasStatus, cublasLtMatrixLayoutDestroy, MatrixLayout layout) \
  X(BlasStatus, cublasLtMatrixLayoutSetAttribute, MatrixLayout layout, int attribute, const void *value, size_t bytes) \
  X(BlasStatus, cublasLtMatmulPreferenceCreate, MatmulPreference *preference) \
  X(BlasStatus, cublasLtMatmulPreferenceDestroy, MatmulPreference preference) \
  X(BlasStatus, cublasLtMatmulPreferenceSetAttribute, MatmulPreference preference, int attribute, const void *value, size_t bytes) \
  X(BlasStatus, cublasLtMatmulAlgoGetHeuristic, BlasHandle handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d, MatmulPreference preference, int wanted, MatmulHeuristic *results, int *count) \
  X(BlasStatus, cublasLtMatmulAlgoCheck, BlasHandle handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d, const MatmulAlgorithm *algorithm, MatmulHeuristic *result)
// clang-format on

/// The functions of cuBLASLt that the runtime calls, as loaded at run time.
struct CublasLt {
  PCRT_CUBLASLT_SYMBOLS(PCRT_SYMBOL_MEMBER)
  std::vector<Symbol> symbols() { return {PCRT_CUBLASLT_SYMBOLS(PCRT_SYMBOL_REQUIRED)}; }
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_CUBLASLT_H
