//===- Cudnn.h - The part of cuDNN's backend ABI that the stand-in has ----===//
// Our own declarations, as in Driver.h; a test compares them with <cudnn.h>.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_ABI_CUDNN_H
#define PC_STANDIN_ABI_CUDNN_H

#include "standin/abi/Driver.h"

#define PC_CUDNN_CONSTANTS(X)                                                                                          \
  X(CUDNN_STATUS_SUCCESS, 0)                                                                                           \
  X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                                                                                \
  X(CUDNN_STATUS_BAD_PARAM, 2000)                                                                                      \
  X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                                                  \
  X(CUDNN_STATUS_EXECUTION_FAILED, 5000)                                                                               \
  X(CUDNN_DATA_FLOAT, 0)                                                                                               \
  X(CUDNN_DATA_INT32, 4)                                                                                               \
  X(CUDNN_DATA_BFLOAT16, 9)                                                                                            \
  X(CUDNN_DATA_BOOLEAN, 11)                                                                                            \
  X(CUDNN_TYPE_HANDLE, 0)                                                                                              \
  X(CUDNN_TYPE_DATA_TYPE, 1)                                                                                           \
  X(CUDNN_TYPE_BOOLEAN, 2)                                                                                             \
  X(CUDNN_TYPE_INT64, 3)                                                                                               \
  X(CUDNN_TYPE_FLOAT, 4)                                                                                               \
  X(CUDNN_TYPE_DOUBLE, 5)                                                                                              \
  X(CUDNN_TYPE_VOID_PTR, 6)                                                                                            \
  X(CUDNN_TYPE_HEUR_MODE, 8)                                                                                           \
  X(CUDNN_TYPE_POINTWISE_MODE, 14)                                                                                     \
  X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                                                                 \
  X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                                                                            \
  X(CUDNN_TYPE_CHAR, 24)                                                                                               \
  X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                                                                             \
  X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                                             \
  X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                                            \
  X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                                        \
  X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                                                  \
  X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                                       \
  X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                                         \
  X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                                                               \
  X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                                                                               \
  X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                                                                     \
  X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                                                                            \
  X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                                                                  \
  X(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)                                                                    \
  X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                                           \
  X(CUDNN_ATTR_POINTWISE_MODE, 0)                                                                                      \
  X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                                                                                 \
  X(CUDNN_ATTR_POINTWISE_AXIS, 9)                                                                                      \
  X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                                                                   \
  X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                                                        \
  X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                                                                \
  X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                                      \
  X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                                                     \
  X(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, 405)                                                                \
  X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                                                 \
  X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                                                                         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                                                                         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                                                                         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)                                                                         \
  X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                                                                \
  X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                                             \
  X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                                                                  \
  X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                                                                 \
  X(CUDNN_ATTR_TENSOR_STRIDES, 903)                                                                                    \
  X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                                                                  \
  X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                                                                                 \
  X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                                                                                \
  X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                                                          \
  X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                                                       \
  X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                                                                           \
  X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                                                                           \
  X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                                                                           \
  X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                                                                           \
  X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                                                                            \
  X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                                                                               \
  X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)                                                                        \
  X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)                                                                        \
  X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                                                                         \
  X(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)                                                                          \
  X(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)                                                                          \
  X(CUDNN_POINTWISE_ADD, 0)                                                                                            \
  X(CUDNN_POINTWISE_MUL, 1)                                                                                            \
  X(CUDNN_POINTWISE_DIV, 6)                                                                                            \
  X(CUDNN_POINTWISE_SUB, 9)                                                                                            \
  X(CUDNN_POINTWISE_EXP, 13)                                                                                           \
  X(CUDNN_POINTWISE_LOG, 15)                                                                                           \
  X(CUDNN_POINTWISE_IDENTITY, 21)                                                                                      \
  X(CUDNN_POINTWISE_CMP_GE, 303)                                                                                       \
  X(CUDNN_POINTWISE_GEN_INDEX, 501)                                                                                    \
  X(CUDNN_POINTWISE_BINARY_SELECT, 601)                                                                                \
  X(CUDNN_REDUCE_TENSOR_ADD, 0)                                                                                        \
  X(CUDNN_REDUCE_TENSOR_MAX, 3)

#ifdef PC_STANDIN_REAL_HEADERS
#include <cudnn.h>
#else
#define PC_CUDNN_DECLARE(name, value) name = value,
enum { PC_CUDNN_CONSTANTS(PC_CUDNN_DECLARE) };
#undef PC_CUDNN_DECLARE

extern "C" {
// Enumerations are 32-bit integers.
typedef int cudnnStatus_t;
typedef int cudnnBackendDescriptorType_t;
typedef int cudnnBackendAttributeName_t;
typedef int cudnnBackendAttributeType_t;
typedef CUstream cudaStream_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;
}
#endif

#endif // PC_STANDIN_ABI_CUDNN_H
