//===- OnRows.h - Routed einsums on rows, on a GPU -----------------------------------===//
// Two kernels find the rows from the mask and write them to the workspace (RowTables). Each block of a product has rows
// of one expert. The grid has the maximum number of blocks that can be needed; blocks without rows return at once.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_ONROWS_ONROWS_H
#define PC_LIB_CODEGEN_KERNELS_ONROWS_ONROWS_H

#include "../../Fuse/Grouped.h"
#include "../Coded/Weights.h"
#include "../Kernels.h"
#include "pc/Cost/CudaWorkspace.h"
#include "llvm/Support/MathExtras.h"

namespace pc::kernels {

/// A routed einsum, alone or as the product of a fusion with codes, and the buffers of the einsum's operands.
struct RoutedBuffers {
  EinsumOp einsum;
  Grouped grouped;
  llvm::SmallVector<Ptr, 3> operands;
  Ptr scales;
};
/// Returns std::nullopt if no kernel computes the einsum.
std::optional<RoutedBuffers> routedBuffers(mlir::Operation *op, const Kernel &kernel);
/// Emit a routed einsum: for GPUs like emitGrouped, and for CPUs like emitPlainGrouped (Kernels.h).
void emitRouted(const RoutedBuffers &routed, Kernel &kernel);
void emitPlainRouted(const RoutedBuffers &routed, Kernel &kernel);

/// A routed einsum and its buffers. It may also stand for a plain product, as one expert that has all rows.
class OnRows {
public:
  using Carried = Emitter::Carried;

  OnRows(const RoutedBuffers &routed, Kernel &kernel)
      : k(kernel), e(*kernel.simt), d(routed.grouped.desc), at(routed.einsum), tile(at->tile), tiles(at->tiles),
        a(routed.operands[routed.grouped.a]), b(routed.operands[routed.grouped.b]), mask(routed.operands.back()),
        c(kernel.results[0]), weights(d, /*aligned=*/true, b, routed.scales) {}
  OnRows(const pcrt_gemm_desc &d, Kernel &kernel, Ptr a, Ptr b, Ptr scales)
      : k(kernel), e(*kernel.simt), d(d), tile(a.element.isBF16() && d.m >= 128 ? 128 : 64),
        tiles(llvm::divideCeil(d.m, tile)), a(a), b(b), c(kernel.results[0]), weights(d, /*aligned=*/true, b, scales) {}

  Kernel &k;
  SimtEmitter &e;
  const pcrt_gemm_desc d;
  const std::optional<RowTables> at = {}; ///< of a routed einsum
  const int64_t tile, tiles;              ///< rows of a block, and blocks of rows, at most
  const Ptr a, b, mask = {}, c;
  const Weights weights; ///< b of a product with experts' matrices

  /// A table of the workspace.
  Ptr table(int64_t offset) {
    Ptr words{&e, k.workspace.base, e.b.getI32Type()};
    return words + e.integer(offset);
  }
  Num entry(int64_t offset, Num index) { return e.extend(table(offset).load(index)); }
  Ptr made() { return table(at->made).as(e.b.getF32Type()); }

  /// The offset of the existing row `row` in an operand whose rows have `width` elements.
  Num rowAt(int32_t lies, Num row, int64_t width) {
    return (lies == PCRT_LIES_TOKENS ? entry(at->tokenOf, row) : row) * width;
  }
};

/// A block of a product: rows [first, end) of `expert`, and columns from `column` on.
struct RowBlock {
  Num expert, first, end, column;
};
/// Runs `body` for each block of up to `rows` rows (a divisor of a tile) and `columns` columns of n. The order is one
/// in which neighbouring blocks share rows or columns.
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
