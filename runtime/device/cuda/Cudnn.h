//===- Cudnn.h - the functions of cuDNN's backend API ---------------------===//
//
// Attention is all the runtime asks of cuDNN; its backend API is ten functions
// on descriptors with attributes. AttentionPlan.cpp has the values it sets.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_CUDA_CUDNN_H
#define PCRT_DEVICE_CUDA_CUDNN_H

#include "device/cuda/Driver.h"

namespace pcrt::cuda {

using DnnStatus = int; ///< cudnnStatus_t; 0 is success.
using DnnHandle = struct DnnHandleObject *;
using DnnDescriptor = void *;

// clang-format off
#define PCRT_CUDNN_SYMBOLS(X) \
  X(size_t, getVersion, cudnnGetVersion, ) \
  X(size_t, getCudartVersion, cudnnGetCudartVersion, ) \
  X(const char *, getErrorString, cudnnGetErrorString, DnnStatus status) \
  X(void, getLastErrorString, cudnnGetLastErrorString, char *text, size_t bytes) \
  X(DnnStatus, create, cudnnCreate, DnnHandle *handle) \
  X(DnnStatus, destroy, cudnnDestroy, DnnHandle handle) \
  X(DnnStatus, setStream, cudnnSetStream, DnnHandle handle, Stream stream) \
  X(DnnStatus, createDescriptor, cudnnBackendCreateDescriptor, int type, DnnDescriptor *descriptor) \
  X(DnnStatus, destroyDescriptor, cudnnBackendDestroyDescriptor, DnnDescriptor descriptor) \
  X(DnnStatus, setAttribute, cudnnBackendSetAttribute, DnnDescriptor descriptor, int attribute, int type, int64_t count, const void *elements) \
  X(DnnStatus, getAttribute, cudnnBackendGetAttribute, DnnDescriptor descriptor, int attribute, int type, int64_t wanted, int64_t *count, void *elements) \
  X(DnnStatus, finalize, cudnnBackendFinalize, DnnDescriptor descriptor) \
  X(DnnStatus, execute, cudnnBackendExecute, DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack)
// clang-format on

struct Cudnn {
  PCRT_CUDNN_SYMBOLS(PCRT_SYMBOL_MEMBER)
  std::vector<Symbol> symbols() { return {PCRT_CUDNN_SYMBOLS(PCRT_SYMBOL_REQUIRED)}; }
};

} // namespace pcrt::cuda

#endif // PCRT_DEVICE_CUDA_CUDNN_H
