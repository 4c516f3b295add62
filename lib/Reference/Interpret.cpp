//===- Interpret.cpp - Runs a program and prints a digest of its results ----------------------===//
// This pass is for tests. It prints a digest (largest, sum, weighted sum) per output, or per value with print=values.
// The module is not changed.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_INTERPRET
#include "pc/Reference/Passes.h"

#include "pc/Reference/Feeds.h"
#include "pc/Reference/Interpreter.h"

#include "llvm/Support/Format.h"

using namespace mlir;
using namespace pc;

namespace {

/// `2x3 max .. sum .. mix ..`
void printDigest(llvm::raw_ostream &os, const Tensor &tensor) {
  double largest = 0, sum = 0, mixed = 0;
  uint32_t weight = 1;
  for (double x : tensor.data) {
    largest = std::max(largest, std::abs(x));
    sum += x;
    weight = weight * 1664525u + 1013904223u;
    mixed += x * (weight * 0x1p-32);
  }
  if (tensor.shape.empty())
    os << "scalar";
  llvm::interleave(tensor.shape, os, "x");
  os << " max " << llvm::format("%.9e", largest) << " sum " << llvm::format("%.9e", sum) << " mix "
     << llvm::format("%.9e", mixed) << "\n";
}

struct Interpret : pc::impl::InterpretBase<Interpret> {
  using InterpretBase::InterpretBase;

  void runOnOperation() override {
    if (print != "outputs" && print != "values" && print != "none") {
      getOperation().emitError() << "pc-interpret: unknown print '" << print << "' (outputs, values, none)";
      return signalPassFailure();
    }
    RunOptions options;
    options.seed = seed;
    options.exact = exact;
    if (print == "values")
      options.observe = [](Value value, const Tensor &tensor) {
        llvm::outs() << sourceName(value.getDefiningOp()) << " = " << value.getDefiningOp()->getName() << ": ";
        printDigest(llvm::outs(), tensor);
      };
    auto results = interpret(getOperation(), options);
    if (failed(results))
      return signalPassFailure();
    if (print != "none")
      for (const auto &[name, tensor] : *results) {
        llvm::outs() << name << ": ";
        printDigest(llvm::outs(), tensor);
      }
    markAllAnalysesPreserved();
  }
};

} // namespace
