//===- LibraryAttention.h - Attention as the runtime asks cuDNN for it ----------------===//
// `op` must be one that CudaLibraries::takes (Cost/CudaWorkspace.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_LIBRARYATTENTION_H
#define PC_LIB_CODEGEN_FUSE_LIBRARYATTENTION_H

#include "pc/IR/PC.h"
#include "pcrt/pcrt.h"

namespace pc {

/// What an attention or its gradient is; its name is null.
pcrt_attention_desc describeAttention(mlir::Operation *op, int64_t workspaceBytes);

} // namespace pc

#endif
