//===- InlineTasks.cpp - Inlines the functions of tasks ------------------------------------===//
// Undoes the outlining of tasks (IR/Calls.h), for human readers and for passes that look at only one function.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_INLINETASKS
#include "pc/Pipeline/Passes.h"

#include "pc/IR/Calls.h"
#include "pc/IR/Stages.h"

namespace {
struct InlineTasks : pc::impl::InlineTasksBase<InlineTasks> {
  void runOnOperation() override {
    for (mlir::ModuleOp program : pc::programsOf(getOperation()))
      pc::inlineCalls(program);
  }
};
} // namespace
