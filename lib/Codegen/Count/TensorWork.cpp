//===- TensorWork.cpp - The work of one thread in products on tensor cores ----------------===//
// Reads mma.sync, ldmatrix, exponentials, and the inline PTX of wgmma.
//===-----------------------------------------------------------------------------===//
#include "../Gpu/WarpgroupAsm.h"
#include "Accesses.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace pc;

void TensorWork::addThread(Operation *op, bool &inFlight) {
  if (auto load = dyn_cast<NVVM::LdMatrixOp>(op))
    sharedBytes += 4 * load.getNum();
  if (auto product = dyn_cast<NVVM::MmaOp>(op)) {
    auto shape = product.getShape();
    flops += 2 * shape.getM() * shape.getN() * shape.getK() / 32;
  }
  if (auto intrinsic = dyn_cast<LLVM::CallIntrinsicOp>(op);
      intrinsic && intrinsic.getIntrin().starts_with("llvm.nvvm.ex2."))
    ++(inFlight ? hidden : exponentials);
  auto assembly = dyn_cast<LLVM::InlineAsmOp>(op);
  auto steps = assembly ? toolchain::parseWarpgroupAsm(assembly.getAsmString()) : std::nullopt;
  using Step = toolchain::WarpgroupInstruction;
  for (const Step &step : steps.value_or(SmallVector<Step>())) {
    if (step.kind == Step::Wait)
      inFlight = step.left > 0;
    if (step.kind != Step::Product)
      continue;
    constexpr int64_t rows = 64, depth = 16, threads = 128;
    const bool both = step.ab.size() == 2; // descriptors
    flops += 2 * rows * depth * step.n / threads;
    sharedBytes += 2 * depth * (step.n + (both ? rows : 0)) / threads;
    inFlight = true;
  }
}
