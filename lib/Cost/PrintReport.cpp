//===- PrintReport.cpp - Print the report of a planned program as JSON ---------------------------===//
// This pass is for tests and for pc-opt; pc-compile writes the same JSON without it. The module is not changed.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_PRINTREPORT
#include "pc/Cost/Passes.h"

#include "pc/Cost/Report.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace {
struct PrintReport : pc::impl::PrintReportBase<PrintReport> {
  using PrintReportBase::PrintReportBase;

  void runOnOperation() override {
    FailureOr<llvm::json::Value> report = pc::buildReport(getOperation(), plan);
    if (failed(report))
      return signalPassFailure();
    llvm::outs() << llvm::formatv("{0:2}\n", *report);
  }
};
} // namespace
