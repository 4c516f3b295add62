//===- Cudnn.h - The functions of cuDNN's backend API ---------------------===//
// The runtime uses cuDNN only for attention; its backend API consists of functions on descriptors with attributes.
// test/Runtime/cuda/Headers.cpp compares the values with NVIDIA's header.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_CUDNN_H
#define PCRT_CUDA_CUDNN_H

#include "cuda/Driver.h"

namespace pcrt::cuda {

using DnnStatus = int; ///< cudnnStatus_t; 0 is success.
using DnnHandle = struct DnnHandleObject *;
using DnnDescriptor = void *;

// clang-format off
#define PCRT_CUDNN_VALUES(X) \
  X(Tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17) \
  X(Pointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0) \
  X(PointwiseOp, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13) \
  X(Matmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18) \
  X(MatmulOp, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19) \
  X(Reduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21) \
  X(ReductionOp, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22) \
  X(ReshapeOp, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31) \
  X(OperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15) \
  X(EngineHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4) \
  X(EngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3) \
  X(ExecutionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5) \
  X(VariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16) \
  X(DeviceProperties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38) \
  X(TensorType, CUDNN_ATTR_TENSOR_DATA_TYPE, 901) \
  X(TensorDims, CUDNN_ATTR_TENSOR_DIMENSIONS, 902) \
  X(TensorStrides, CUDNN_ATTR_TENSOR_STRIDES, 903) \
  X(TensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID, 906) \
  X(TensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900) \
  X(TensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907) \
  X(TensorIsByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908) \
  X(PointwiseMode, CUDNN_ATTR_POINTWISE_MODE, 0) \
  X(PointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC, 1) \
  X(PointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS, 9) \
  X(PointwiseOpDesc, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750) \
  X(PointwiseOpX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751) \
  X(PointwiseOpB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752) \
  X(PointwiseOpT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758) \
  X(PointwiseOpY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753) \
  X(MatmulCompute, CUDNN_ATTR_MATMUL_COMP_TYPE, 1500) \
  X(MatmulOpA, CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520) \
  X(MatmulOpB, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521) \
  X(MatmulOpC, CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522) \
  X(MatmulOpDesc, CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523) \
  X(ReductionCompute, CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601) \
  X(ReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR, 1600) \
  X(ReductionOpDesc, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612) \
  X(ReductionOpX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610) \
  X(ReductionOpY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611) \
  X(ReshapeOpX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200) \
  X(ReshapeOpY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201) \
  X(GraphOps, CUDNN_ATTR_OPERATIONGRAPH_OPS, 801) \
  X(GraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800) \
  X(HeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201) \
  X(HeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE, 200) \
  X(HeuristicDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204) \
  X(HeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS, 202) \
  X(PlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401) \
  X(PlanDevice, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407) \
  X(PlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400) \
  X(PlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402) \
  X(PackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000) \
  X(PackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001) \
  X(PackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003) \
  X(DeviceJson, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702) \
  X(TypeHandle, CUDNN_TYPE_HANDLE, 0) \
  X(TypeDataType, CUDNN_TYPE_DATA_TYPE, 1) \
  X(TypeBoolean, CUDNN_TYPE_BOOLEAN, 2) \
  X(TypeInt64, CUDNN_TYPE_INT64, 3) \
  X(TypePointer, CUDNN_TYPE_VOID_PTR, 6) \
  X(TypePointwiseMode, CUDNN_TYPE_POINTWISE_MODE, 14) \
  X(TypeReduction, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18) \
  X(TypeHeuristicMode, CUDNN_TYPE_HEUR_MODE, 8) \
  X(TypeDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR, 15) \
  X(TypeChar, CUDNN_TYPE_CHAR, 24) \
  X(F32, CUDNN_DATA_FLOAT, 0) \
  X(Bf16, CUDNN_DATA_BFLOAT16, 9) \
  X(I32, CUDNN_DATA_INT32, 4) \
  X(Bool, CUDNN_DATA_BOOLEAN, 11) \
  X(HeuristicA, CUDNN_HEUR_MODE_A, 3) \
  X(GenIndex, CUDNN_POINTWISE_GEN_INDEX, 501) \
  X(CmpGe, CUDNN_POINTWISE_CMP_GE, 303) \
  X(Select, CUDNN_POINTWISE_BINARY_SELECT, 601) \
  X(Mul, CUDNN_POINTWISE_MUL, 1) \
  X(Sub, CUDNN_POINTWISE_SUB, 9) \
  X(Add, CUDNN_POINTWISE_ADD, 0) \
  X(Div, CUDNN_POINTWISE_DIV, 6) \
  X(Exp, CUDNN_POINTWISE_EXP, 13) \
  X(Log, CUDNN_POINTWISE_LOG, 15) \
  X(Identity, CUDNN_POINTWISE_IDENTITY, 21) \
  X(ReduceMax, CUDNN_REDUCE_TENSOR_MAX, 3) \
  X(ReduceAdd, CUDNN_REDUCE_TENSOR_ADD, 0)

#define PCRT_CUDNN_SYMBOLS(X) \
  X(size_t, cudnnGetVersion, ) \
  X(size_t, cudnnGetCudartVersion, ) \
  X(const char *, cudnnGetErrorString, DnnStatus status) \
  X(void, cudnnGetLastErrorString, char *text, size_t bytes) \
  X(DnnStatus, cudnnCreate, DnnHandle *handle) \
  X(DnnStatus, cudnnDestroy, DnnHandle handle) \
  X(DnnStatus, cudnnSetStream, DnnHandle handle, Stream stream) \
  X(DnnStatus, cudnnBackendCreateDescriptor, int type, DnnDescriptor *descriptor) \
  X(DnnStatus, cudnnBackendDestroyDescriptor, DnnDescriptor descriptor) \
  X(DnnStatus, cudnnBackendSetAttribute, DnnDescriptor descriptor, int attribute, int type, int64_t count, const void *elements) \
  X(DnnStatus, cudnnBackendGetAttribute, DnnDescriptor descriptor, int attribute, int type, int64_t wanted, int64_t *count, void *elements) \
  X(DnnStatus, cudnnBackendFinalize, DnnDescriptor descriptor) \
  X(DnnStatus, cudnnBackendExecute, DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack)
// clang-format on

/// The values of enumerations, attributes and types of the backend API, as dnn::Tensor and so on.
namespace dnn {
#define PCRT_CUDNN_VALUE(name, real, value) name = value,
enum Value : int { PCRT_CUDNN_VALUES(PCRT_CUDNN_VALUE) };
} // namespace dnn

/// The functions of cuDNN that the runtime calls, as loaded at run time.
struct Cudnn {
  PCRT_CUDNN_SYMBOLS(PCRT_SYMBOL_MEMBER)
  std::vector<Symbol> symbols() { return {PCRT_CUDNN_SYMBOLS(PCRT_SYMBOL_REQUIRED)}; }
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_CUDNN_H
