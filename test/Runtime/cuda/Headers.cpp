//===- Headers.cpp - Our declarations compared with NVIDIA's headers ------===//
// Compiles only if every function in our tables has the parameters of the real function (integers and enums are
// compared by size, pointers only as pointers) and every value equals the real one. It needs the headers, not the
// libraries.
//===----------------------------------------------------------------------===//
#include "cuda/CublasLt.h"
#include "cuda/Cudnn.h"
#include "cuda/Driver.h"
#include "cuda/Nccl.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <nccl.h>

#include <type_traits>

namespace ours = pcrt::cuda;

template <typename A, typename B> constexpr bool sameValue() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>)
    return std::is_void_v<A> == std::is_void_v<B>;
  else if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>)
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  else if constexpr (std::is_class_v<A> || std::is_class_v<B>)
    return sizeof(A) == sizeof(B) && alignof(A) == alignof(B) && std::is_trivially_copyable_v<A>;
  else
    return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}

template <typename Ours, typename Theirs> struct SameFunction : std::false_type {};
template <typename R, typename... A, typename S, typename... B> struct SameFunction<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B))
      return sameValue<R, S>() && (sameValue<A, B>() && ...);
    else
      return false;
  }();
};

#define CHECK(result, symbol, ...)                                                                                     \
  static_assert(SameFunction<decltype(Table::symbol), decltype(&::symbol)>::value, #symbol);
namespace driverTable {
using Table = ours::Driver;
PCRT_DRIVER_SYMBOLS(CHECK)
static_assert(SameFunction<decltype(Table::cuGraphDebugDotPrint), decltype(&::cuGraphDebugDotPrint)>::value);
} // namespace driverTable
namespace blasTable {
using Table = ours::CublasLt;
PCRT_CUBLASLT_SYMBOLS(CHECK)
} // namespace blasTable
namespace dnnTable {
using Table = ours::Cudnn;
PCRT_CUDNN_SYMBOLS(CHECK)
} // namespace dnnTable
namespace ncclTable {
using Table = ours::Nccl;
PCRT_NCCL_SYMBOLS(CHECK)
PCRT_NCCL_OPTIONAL_SYMBOLS(CHECK)
} // namespace ncclTable

#define VALUE(mine, real) static_assert(int64_t(ours::mine) == int64_t(real), #real);
VALUE(ErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY)
VALUE(ErrorNoDevice, CUDA_ERROR_NO_DEVICE)
VALUE(ErrorNoBinaryForDevice, CUDA_ERROR_NO_BINARY_FOR_GPU)
VALUE(ErrorNotReady, CUDA_ERROR_NOT_READY)
VALUE(AttributeMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
VALUE(AttributeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
VALUE(AttributeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
VALUE(AttributeSharedMemoryOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
VALUE(AttributeVirtualMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
VALUE(AttributeDirectRdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)
VALUE(JitErrorLog, CU_JIT_ERROR_LOG_BUFFER)
VALUE(JitErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
VALUE(FunctionSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
VALUE(FunctionLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
VALUE(FunctionRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS)
VALUE(FunctionMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
VALUE(StreamNonBlocking, CU_STREAM_NON_BLOCKING)
VALUE(EventDisableTiming, CU_EVENT_DISABLE_TIMING)
VALUE(CaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
VALUE(GraphUseNodePriority, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
VALUE(AllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED)
VALUE(LocationDevice, CU_MEM_LOCATION_TYPE_DEVICE)
VALUE(HandlePosixFile, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
VALUE(AccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
VALUE(GranularityRecommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
VALUE(MemoryHost, CU_MEMORYTYPE_HOST)
VALUE(MemoryDevice, CU_MEMORYTYPE_DEVICE)
VALUE(Real32F, CUDA_R_32F)
VALUE(RealBF16, CUDA_R_16BF)
VALUE(RealE4M3, CUDA_R_8F_E4M3)
VALUE(RealE5M2, CUDA_R_8F_E5M2)
VALUE(Compute32F, CUBLAS_COMPUTE_32F)
VALUE(OperationN, CUBLAS_OP_N)
VALUE(OperationT, CUBLAS_OP_T)
VALUE(DescTransposeA, CUBLASLT_MATMUL_DESC_TRANSA)
VALUE(DescTransposeB, CUBLASLT_MATMUL_DESC_TRANSB)
VALUE(DescEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE)
VALUE(DescBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
VALUE(DescAuxPointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
VALUE(DescAuxLeading, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
VALUE(DescAuxType, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE)
VALUE(DescBiasType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE)
VALUE(DescScalesOfA, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER)
VALUE(DescScalesOfB, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER)
VALUE(DescScaleModeOfA, CUBLASLT_MATMUL_DESC_A_SCALE_MODE)
VALUE(DescScaleModeOfB, CUBLASLT_MATMUL_DESC_B_SCALE_MODE)
VALUE(ScaleOne, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F)
VALUE(ScaleVector128, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F)
VALUE(ScaleBlock128, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
VALUE(LayoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
VALUE(LayoutBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
VALUE(PreferenceWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
VALUE(PreferenceReductionMask, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
VALUE(PreferenceAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
VALUE(PreferenceAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
VALUE(PreferenceAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
VALUE(PreferenceAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
VALUE(EpilogueDefault, CUBLASLT_EPILOGUE_DEFAULT)
VALUE(EpilogueBias, CUBLASLT_EPILOGUE_BIAS)
VALUE(EpilogueGeluAuxBias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
VALUE(EpilogueDGelu, CUBLASLT_EPILOGUE_DGELU)
VALUE(EpilogueBiasGradientA, CUBLASLT_EPILOGUE_BGRADA)
VALUE(ReductionComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
#define DNN_VALUE(name, real, value) static_assert(int(ours::dnn::name) == int(real), #real);
PCRT_CUDNN_VALUES(DNN_VALUE)
VALUE(NcclSuccess, ncclSuccess)
VALUE(NcclRemoteError, ncclRemoteError)
VALUE(NcclInProgress, ncclInProgress)
VALUE(NcclInt32, ncclInt32)
VALUE(NcclFloat32, ncclFloat32)
VALUE(NcclBfloat16, ncclBfloat16)
VALUE(NcclSum, ncclSum)
VALUE(NcclMax, ncclMax)
VALUE(NcclSplitNoColor, NCCL_SPLIT_NOCOLOR)
VALUE(NcclWindowSymmetric, NCCL_WIN_COLL_SYMMETRIC)

#define FIELD(type, mine, real, theirs)                                                                                \
  static_assert(offsetof(ours::type, mine) == offsetof(real, theirs) &&                                                \
                    sizeof(ours::type::mine) == sizeof(real::theirs),                                                  \
                #theirs);
static_assert(sizeof(ours::AllocationProperties) == sizeof(CUmemAllocationProp));
FIELD(AllocationProperties, handleTypes, CUmemAllocationProp, requestedHandleTypes)
FIELD(AllocationProperties, location, CUmemAllocationProp, location)
FIELD(AllocationProperties, directRdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
static_assert(sizeof(ours::AccessDescription) == sizeof(CUmemAccessDesc));
FIELD(AccessDescription, flags, CUmemAccessDesc, flags)
static_assert(sizeof(ours::Copy2D) == sizeof(CUDA_MEMCPY2D));
FIELD(Copy2D, fromType, CUDA_MEMCPY2D, srcMemoryType)
FIELD(Copy2D, fromDevice, CUDA_MEMCPY2D, srcDevice)
FIELD(Copy2D, fromPitch, CUDA_MEMCPY2D, srcPitch)
FIELD(Copy2D, toType, CUDA_MEMCPY2D, dstMemoryType)
FIELD(Copy2D, toDevice, CUDA_MEMCPY2D, dstDevice)
FIELD(Copy2D, toPitch, CUDA_MEMCPY2D, dstPitch)
FIELD(Copy2D, height, CUDA_MEMCPY2D, Height)
static_assert(sizeof(ours::MatmulAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(ours::MatmulHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
FIELD(MatmulHeuristic, workspaceBytes, cublasLtMatmulHeuristicResult_t, workspaceSize)
FIELD(MatmulHeuristic, state, cublasLtMatmulHeuristicResult_t, state)
FIELD(MatmulHeuristic, waves, cublasLtMatmulHeuristicResult_t, wavesCount)
static_assert(sizeof(ours::NcclConfig) == sizeof(ncclConfig_t));
FIELD(NcclConfig, version, ncclConfig_t, version)
FIELD(NcclConfig, blocking, ncclConfig_t, blocking)
FIELD(NcclConfig, netName, ncclConfig_t, netName)
FIELD(NcclConfig, splitShare, ncclConfig_t, splitShare)
FIELD(NcclConfig, commName, ncclConfig_t, commName)
FIELD(NcclConfig, ctaPolicy, ncclConfig_t, CTAPolicy)
FIELD(NcclConfig, nvlinkCentric, ncclConfig_t, nvlinkCentricSched)

int main() { return 0; }
