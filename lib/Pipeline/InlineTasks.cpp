//===- InlineTasks.cpp - The ops of tasks in place of their calls --------------------------===//
#include "pc/IR/Calls.h"
#include "pc/IR/Stages.h"
#include "pc/Pipeline/Passes.h"

namespace pc {
#define GEN_PASS_DEF_INLINETASKS
#include "pc/Pipeline/Passes.h.inc"
} // namespace pc

namespace {
struct InlineTasks : pc::impl::InlineTasksBase<InlineTasks> {
  void runOnOperation() override {
    for (mlir::ModuleOp program : pc::programsOf(getOperation()))
      pc::inlineCalls(program);
  }
};
} // namespace
