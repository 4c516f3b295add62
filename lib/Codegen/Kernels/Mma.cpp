//===- Mma.cpp - Pieces of products on tensor cores ----------------------------------===//
// Wraps ldmatrix and mma.m16n8k16 of NVIDIA GPUs from sm_80 on. Layouts of the pieces in threads are in Mma.h.
//===-----------------------------------------------------------------------------===//
#include "Mma.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace pc::kernels;

/// ldmatrix loads four 8 x 8 matrices at once.
SmallVector<Value, 4> pc::kernels::loadMatrices(SimtEmitter &e, Ptr at, bool transposed) {
  MLIRContext *context = e.b.getContext();
  auto type = LLVM::LLVMStructType::getLiteral(context, SmallVector<Type>(4, e.b.getI32Type()));
  Value all =
      NVVM::LdMatrixOp::create(e.b, e.loc, type, at.base, 4u, transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                               NVVM::LdStMatrixShapeAttr::get(context, 8, 8), NVVM::LdStMatrixEltType::B16);
  SmallVector<Value, 4> words;
  for (int64_t i = 0; i < 4; ++i)
    words.push_back(LLVM::ExtractValueOp::create(e.b, e.loc, all, i));
  return words;
}

/// One mma instruction: [16, 16] x [16, 8] in bf16, with sums in f32.
void pc::kernels::multiplyPieces(SimtEmitter &e, MutableArrayRef<Num> sums, ArrayRef<Value> a, ArrayRef<Value> b) {
  auto type = LLVM::LLVMStructType::getLiteral(e.b.getContext(), SmallVector<Type>(4, e.b.getF32Type()));
  auto before = llvm::map_to_vector(sums, [](Num sum) { return sum.v; });
  Value all = NVVM::MmaOp::create(e.b, e.loc, type, a, b, before, ArrayRef<int64_t>{16, 8, 16}, std::nullopt,
                                  std::nullopt, std::array{NVVM::MMATypes::bf16, NVVM::MMATypes::bf16},
                                  std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
  for (auto [i, sum] : llvm::enumerate(sums))
    sum = e.wrap(LLVM::ExtractValueOp::create(e.b, e.loc, all, i));
}
