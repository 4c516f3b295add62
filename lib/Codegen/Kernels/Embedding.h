//===- Embedding.h - Common code of embeddings and their gradients -------------------===//
// In both kernels, operand 1 has the ids. Operand 2 has the first row of this rank's block, if the table is split.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_EMBEDDING_H
#define PC_LIB_CODEGEN_KERNELS_EMBEDDING_H

#include "Kernels.h"

namespace pc::kernels {

/// The row (i64) for an id, counted through all tables one after another, and whether this rank's block contains the
/// row.
struct LocalRow {
  Num row, inside;
};
/// Returns the row for id number `i`.
template <typename Op> LocalRow localRow(Kernel &kernel, Op op, Num i) {
  Emitter &e = kernel.e;
  const int64_t rows = op.getRows();
  Num row = e.extend(kernel.operands[1].load(i));
  if (op.getOffset())
    row = row - e.extend(kernel.operands[2].load(e.integer(0)));
  Num inside = e.inRange(row, e.integer(rows));
  return {op.getTables() > 1 ? i / op.getIdsPerTable() * rows + row : row, inside};
}

/// Whether the id at `i` adds to the gradient: its row is in the block (`inside`), and it is not the padding id.
Num counts(Kernel &kernel, EmbeddingGradOp op, Num i, Num inside);

/// Whether two buffers have different addresses.
Num areApart(Ptr a, Ptr b);

} // namespace pc::kernels
#endif
