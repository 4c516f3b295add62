//===- Embedding.h - Common code of embeddings and their gradients -------------------===//
// In both kernels, operand 1 has the ids, and operand 2 the first row of this rank's block, if the table is split.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_EMBEDDING_H
#define PC_LIB_CODEGEN_KERNELS_EMBEDDING_H

#include "Kernels.h"

namespace pc::kernels {

/// The row of this rank's block of the table for the id at `i` (i64); it may be outside of the block.
Num localRow(Kernel &kernel, Num i, bool hasOffset);

/// Whether the id at `i` adds to the gradient: it is `inside` of the block and not the padding id.
Num counts(Kernel &kernel, EmbeddingGradOp op, Num i, Num inside);

/// Whether two buffers have different addresses.
Num areApart(Ptr a, Ptr b);

} // namespace pc::kernels
#endif
