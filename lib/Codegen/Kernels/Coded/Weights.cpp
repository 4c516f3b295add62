//===- Weights.cpp - The matrix of a product, as numbers or as codes ------------------===//
// Codes of 8 bits are widened and multiplied by their scale. A byte may hold two codes of 4 bits. The wanted code is
// shifted to the upper half of the byte and then back, which extends its sign.
//===-----------------------------------------------------------------------------===//
#include "Weights.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pc::kernels;

/// A scale belongs to a group of codes along k, which is the innermost dim (`deep`) or is followed by n.
Num Weights::load(Num expert, Num k, Num n, int64_t width) const {
  if (!areCodes())
    return b.load(expert * d.b_batch_stride + k * d.b_k_stride + n * d.b_n_stride, width);
  Emitter &e = *b.e;
  auto typeOf = [&](Type element) { return width ? Type(VectorType::get(width, element)) : element; };
  auto all = [&](Num scalar) { return width ? e.splat(scalar, width) : scalar; };
  const bool deep = d.b_k_stride == 1, isPair = b.element.isInteger(4);
  const int64_t perByte = isPair ? 2 : 1, half = d.group / 2;
  Num group = d.group == d.k ? e.integer(0) : k / d.group, line = isPair ? group * half + k % e.integer(half) : k;
  Ptr bytes = b.as(e.b.getI8Type()) +
              (expert * (d.b_batch_stride / perByte) + line * d.b_k_stride + n * (deep ? d.b_n_stride / perByte : 1));
  const auto alignment = static_cast<unsigned>(aligned && width ? width : 1);
  Value codes = LLVM::LoadOp::create(e.b, e.loc, typeOf(bytes.element), bytes.base, alignment);
  if (isPair) {
    auto bits = [&](int64_t n) { return e.wrap(arith::ConstantIntOp::create(e.b, e.loc, n, 8)); };
    Num isLower = k / half % e.integer(2) < e.integer(1), shift = e.select(isLower, bits(4), bits(0));
    codes = arith::ShLIOp::create(e.b, e.loc, codes, all(shift).v);
    codes = arith::ShRSIOp::create(e.b, e.loc, codes, all(bits(4)).v);
  }
  Num numbers = e.wrap(arith::SIToFPOp::create(e.b, e.loc, typeOf(e.b.getF32Type()), codes));
  Num first = expert * (d.b_batch_stride / d.group);
  return numbers * (deep ? scales.load(first + n * (d.b_n_stride / d.group) + group)
                         : scales.load(first + group * d.b_k_stride + n, width));
}
