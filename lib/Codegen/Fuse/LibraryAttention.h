//===- LibraryAttention.h - Descriptions of attention for cuDNN -----------------------===//
// The functions need ops for which CudaLibraries::takes returns true (Cost/CudaWorkspace.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_LIBRARYATTENTION_H
#define PC_LIB_CODEGEN_FUSE_LIBRARYATTENTION_H

#include "pc/IR/PC.h"
#include "pcrt/pcrt.h"

namespace pc {

/// Describes an attention or its gradient. The description's name is null.
pcrt_attention_desc describeAttention(mlir::Operation *op, int64_t workspaceBytes);

} // namespace pc

#endif
