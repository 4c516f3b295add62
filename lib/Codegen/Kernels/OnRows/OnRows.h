//===- OnRows.h - Routed einsums on rows, on a GPU -----------------------------------===//
// Two kernels find the rows from the mask and write them to the workspace (RowTables). Each block of a product has rows
// of one expert. The grid has as many blocks as can be needed; blocks without rows return at once.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_ONROWS_ONROWS_H
#define PC_LIB_CODEGEN_KERNELS_ONROWS_ONROWS_H

#include "../../Fuse/Grouped.h"
#include "../Kernels.h"
#include "pc/Cost/CudaWorkspace.h"

namespace pc::kernels {

/// A routed einsum and its buffers.
class OnRows {
public:
  using Carried = Emitter::Carried;

  OnRows(EinsumOp op, Kernel &kernel, const Grouped &grouped)
      : k(kernel), e(*kernel.simt), d(grouped.desc), at(op), a(kernel.operands[grouped.a]),
        b(kernel.operands[grouped.b]), mask(kernel.operands.back()), c(kernel.results[0]) {}

  Kernel &k;
  SimtEmitter &e;
  const pcrt_gemm_desc d;
  const RowTables at;
  const Ptr a, b, mask, c;

  /// A table of the workspace.
  Ptr table(int64_t offset) {
    Ptr words{&e, k.workspace.base, e.b.getI32Type()};
    return words + e.integer(offset);
  }
  Num entry(int64_t offset, Num index) { return e.extend(table(offset).load(index)); }
  Ptr made() { return table(at.made).as(e.b.getF32Type()); }

  /// The offset of the existing row `row` in an operand whose rows have `width` elements.
  Num rowAt(int32_t lies, Num row, int64_t width) {
    return (lies == PCRT_LIES_TOKENS ? entry(at.tokenOf, row) : row) * width;
  }
};

/// A block of a product: rows [first, end) of `expert`, and columns from `column` on.
struct RowBlock {
  Num expert, first, end, column;
};
/// Runs `body` for each block of up to `rows` rows (a divisor of a tile) and `columns` columns of n, in an order in
/// which neighbouring blocks share rows or columns.
void forRowBlocks(OnRows &on, int64_t threads, int64_t rows, int64_t columns,
                  llvm::function_ref<void(const RowBlock &)> body);

/// Emit products of any type, number by number in f32.
void emitProductByNumbers(OnRows &on);
void emitGradientByNumbers(OnRows &on);
/// Emit products of bf16 with mma.sync; lines must be whole vectors (`suitsTensorCores`).
bool suitsTensorCores(const OnRows &on);
void emitProductByTensorCores(OnRows &on);
void emitGradientByTensorCores(OnRows &on);

} // namespace pc::kernels
#endif
