//===- VerifyKernels.cpp - Verifies programs of phase kernels ----------------------------===//
// The constraints (K1) to (K4) are listed in Passes.td.
//===-----------------------------------------------------------------------------===//
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#define GEN_PASS_DEF_VERIFYKERNELS
#include "pc/Codegen/Passes.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace pc;

/// Calls of the runtime whose second argument is an index, and the table that it indexes.
static constexpr std::pair<StringRef, StringRef> indexed[] = {
    {"pcrt_launch", "pc_kernel_table"}, {"pcrt_gemm", "pc_gemms"},  {"pcrt_attention", "pc_attentions"},
    {"pcrt_move", "pc_moves"},          {"pcrt_start", "pc_moves"}, {"pcrt_send", "pc_flows"},
    {"pcrt_receive", "pc_flows"},
};

/// Returns true if `index` is a number below `size`, or a choice by microbatch between two such numbers.
static bool isBelow(Value index, uint64_t size) {
  if (auto select = index.getDefiningOp<LLVM::SelectOp>())
    return isBelow(select.getTrueValue(), size) && isBelow(select.getFalseValue(), size);
  APInt number;
  return matchPattern(index, m_ConstantInt(&number)) && number.ult(size);
}

namespace {
/// The pass pc-verify-kernels. It finds each program by its global @pc_program, whose suffix names the stage.
struct VerifyKernels : pc::impl::VerifyKernelsBase<VerifyKernels> {
  void runOnOperation() override {
    WalkResult walked = getOperation().walk([&](Operation *op) -> WalkResult {
      bool isLeft = isa_and_nonnull<PCDialect>(op->getDialect()) ||
                    llvm::any_of(op->getResultTypes(), [](Type type) { return isa<TensorType>(type); });
      return isLeft ? WalkResult(op->emitOpError() << "is not allowed in phase 'kernels' (K1)") : WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return signalPassFailure();
    int programs = 0;
    for (auto global : getOperation().getOps<LLVM::GlobalOp>()) {
      StringRef suffix = global.getSymName();
      if (suffix.consume_front("pc_device_kernels") && failed(verifyNames(global)))
        return signalPassFailure();
      if (!suffix.consume_front("pc_program"))
        continue;
      ++programs;
      if (failed(verifyStep(global, suffix)))
        return signalPassFailure();
    }
    if (programs)
      return;
    getOperation().emitError() << "the module has no program: it has no global @pc_program (K2)";
    signalPassFailure();
  }

private:
  /// Checks (K2): the program has a step. Also checks (K3) in the step, in the evaluation and in the end of a round.
  LogicalResult verifyStep(LLVM::GlobalOp program, StringRef suffix) {
    auto step = getOperation().lookupSymbol<LLVM::LLVMFuncOp>(("pc_step" + suffix).str());
    if (!step || step.isExternal())
      return program.emitOpError() << "has no step @pc_step" << suffix << " (K2)";
    llvm::StringMap<int64_t> sizes; // sizes of tables, by the calls that index them
    for (auto [call, table] : indexed) {
      auto global = getOperation().lookupSymbol<LLVM::GlobalOp>((table + suffix).str());
      auto type = global ? dyn_cast<LLVM::LLVMArrayType>(global.getGlobalType()) : LLVM::LLVMArrayType();
      sizes[call] = type ? type.getNumElements() : 0;
    }
    auto evaluation = getOperation().lookupSymbol<LLVM::LLVMFuncOp>(("pc_evaluate" + suffix).str());
    auto round = getOperation().lookupSymbol<LLVM::LLVMFuncOp>(("pc_round" + suffix).str());
    for (LLVM::LLVMFuncOp function : {step, evaluation, round})
      if (function && failed(verifyCalls(function, sizes)))
        return failure();
    return success();
  }

  /// Checks (K3): a call that indexes a table stays within it.
  LogicalResult verifyCalls(LLVM::LLVMFuncOp function, const llvm::StringMap<int64_t> &sizes) {
    WalkResult walked = function.walk([&](LLVM::CallOp call) -> WalkResult {
      auto it = call.getCallee() ? sizes.find(*call.getCallee()) : sizes.end();
      if (it == sizes.end())
        return WalkResult::advance();
      if (call.getNumOperands() > 1 && isBelow(call.getOperand(1), it->second))
        return WalkResult::advance();
      return call.emitOpError() << "calling @" << it->first() << " uses an index that its table of " << it->second
                                << " entries does not have (K3)";
    });
    return failure(walked.wasInterrupted());
  }

  /// Checks (K4): device kernels are found by name.
  LogicalResult verifyNames(LLVM::GlobalOp table) {
    auto kernels = getOperation().lookupSymbol<gpu::GPUModuleOp>("pc_kernels");
    for (auto address : table.getOps<LLVM::AddressOfOp>()) {
      auto text = getOperation().lookupSymbol<LLVM::GlobalOp>(address.getGlobalName());
      auto bytes = text ? dyn_cast_or_null<StringAttr>(text.getValueOrNull()) : StringAttr();
      StringRef name = bytes ? bytes.getValue().rtrim('\0') : "";
      auto kernel = kernels && !name.empty() ? kernels.lookupSymbol<gpu::GPUFuncOp>(name) : gpu::GPUFuncOp();
      if (!name.empty() && (!kernel || !kernel.isKernel()))
        return table.emitOpError() << "names '" << name << "', which is not a kernel of this module (K4)";
    }
    return success();
  }
};
} // namespace
