//===- CublasLt.h - The part of cuBLASLt's ABI that the stand-in has ------===//
// Our own declarations, as in Driver.h; a test compares them with <cublasLt.h>.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_ABI_CUBLASLT_H
#define PC_STANDIN_ABI_CUBLASLT_H

#include "standin/abi/Driver.h"

#define PC_CUBLASLT_CONSTANTS(X)                                                                                       \
  X(CUBLAS_STATUS_SUCCESS, 0)                                                                                          \
  X(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                                                  \
  X(CUBLAS_STATUS_INVALID_VALUE, 7)                                                                                    \
  X(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                                                \
  X(CUBLAS_STATUS_NOT_SUPPORTED, 15)                                                                                   \
  X(CUDA_R_32F, 0)                                                                                                     \
  X(CUDA_R_16BF, 14)                                                                                                   \
  X(CUDA_R_8F_E4M3, 28)                                                                                                \
  X(CUDA_R_8F_E5M2, 29)                                                                                                \
  X(CUBLAS_COMPUTE_32F, 68)                                                                                            \
  X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                                                                  \
  X(CUBLAS_OP_N, 0)                                                                                                    \
  X(CUBLAS_OP_T, 1)                                                                                                    \
  X(CUBLASLT_ORDER_COL, 0)                                                                                             \
  X(CUBLASLT_MATRIX_LAYOUT_ORDER, 1)                                                                                   \
  X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                                             \
  X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                                                                    \
  X(CUBLASLT_MATMUL_DESC_POINTER_MODE, 2)                                                                              \
  X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                                                    \
  X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                                                    \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                                                  \
  X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                                              \
  X(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 10)                                                                        \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)                                                                     \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)                                                                          \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, 13)                                                                \
  X(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 15)                                                                          \
  X(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 17)                                                                          \
  X(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 18)                                                                          \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, 22)                                                                   \
  X(CUBLASLT_MATMUL_DESC_FAST_ACCUM, 25)                                                                               \
  X(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)                                                                           \
  X(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 31)                                                                             \
  X(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 32)                                                                             \
  X(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, 0)                                                                        \
  X(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, 4)                                                                        \
  X(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, 5)                                                                    \
  X(CUBLASLT_MATMUL_PREF_SEARCH_MODE, 0)                                                                               \
  X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                                       \
  X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                                                     \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                                                     \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                                                     \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                                                     \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                                                                     \
  X(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                                                      \
  X(CUBLASLT_EPILOGUE_BIAS, 4)                                                                                         \
  X(CUBLASLT_EPILOGUE_GELU, 32)                                                                                        \
  X(CUBLASLT_EPILOGUE_GELU_AUX, 160)                                                                                   \
  X(CUBLASLT_EPILOGUE_GELU_BIAS, 36)                                                                                   \
  X(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164)                                                                              \
  X(CUBLASLT_EPILOGUE_DGELU, 192)                                                                                      \
  X(CUBLASLT_EPILOGUE_DGELU_BGRAD, 208)                                                                                \
  X(CUBLASLT_EPILOGUE_BGRADA, 256)                                                                                     \
  X(CUBLASLT_EPILOGUE_BGRADB, 512)

#ifdef PC_STANDIN_REAL_HEADERS
#include <cublasLt.h>
#else
#define PC_CUBLASLT_DECLARE(name, value) name = value,
enum { PC_CUBLASLT_CONSTANTS(PC_CUBLASLT_DECLARE) };
#undef PC_CUBLASLT_DECLARE

extern "C" {
// Enumerations are 32-bit integers.
typedef int cublasStatus_t;
typedef int cudaDataType;
typedef int cudaDataType_t;
typedef int cublasComputeType_t;
typedef int cublasLtMatmulDescAttributes_t;
typedef int cublasLtMatrixLayoutAttribute_t;
typedef int cublasLtMatmulPreferenceAttributes_t;
typedef CUstream cudaStream_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;

typedef struct {
  uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
} cublasLtMatmulHeuristicResult_t;
}
#endif

#endif // PC_STANDIN_ABI_CUBLASLT_H
