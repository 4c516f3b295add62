//===- Programs.cpp - Runs small local programs ---------------------------===//
#include "Programs.h"
#include "InProcess.h"
#include "pc/IR/PC.h"
#include "pc/Reference/Interpreter.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace {
constexpr double tolerance = 5e-6;
/// Values that differ in f32 are rounded to bf16 twice (2^-9 each), and an op or two increase the difference.
constexpr double narrowTolerance = 0.02;

/// Makes every result bf16 that neither its op nor its readers need in f32. Returns whether there is one.
bool narrow(ModuleOp module) {
  bool any = false;
  ScopedDiagnosticHandler silent(module.getContext(), [](Diagnostic &) { return success(); });
  module.walk([&](pc::FactorOpInterface op) {
    for (Value result : op->getResults()) {
      auto type = cast<RankedTensorType>(result.getType());
      if (!type.getElementType().isF32() || type.getRank() == 0)
        continue;
      result.setType(
          RankedTensorType::get(type.getShape(), BFloat16Type::get(module.getContext()), type.getEncoding()));
      bool legal =
          succeeded(pc::detail::verifyElementTypes(op)) && llvm::all_of(result.getUsers(), [](Operation *user) {
            return isa<pc::OutputOp>(user) ||
                   (isa<pc::FactorOpInterface>(user) && succeeded(pc::detail::verifyElementTypes(user)));
          });
      if (!legal)
        result.setType(type);
      any |= legal;
    }
  });
  return any;
}

} // namespace

void check(MLIRContext &context, const std::string &name, const std::string &text, bool isFile, double scale) {
  ParserConfig config(&context);
  OwningOpRef<ModuleOp> module =
      isFile ? parseSourceFile<ModuleOp>(text, config) : parseSourceString<ModuleOp>(text, config);
  if (!module) {
    expect(false, name + ": does not parse\n" + (isFile ? "" : text));
    return;
  }
  auto run = [&](bool fuse, double limit, const char *how) {
    Comparison c = compareWithInterpreter(*module, fuse);
    bool ok = c.error.empty() && c.difference <= limit;
    if (!ok || isFile)
      llvm::outs() << (ok ? "ok   " : "FAIL ") << name << how << (fuse ? " fused: " : ": ")
                   << (c.error.empty() ? c.where + " differs by " : c.error + " ") << llvm::format("%.2e", c.difference)
                   << "\n";
    if (!ok && !isFile && failures < 3)
      llvm::outs() << *module << "\n";
    expect(ok, name);
  };
  // A file holds a whole model, which may be in bf16.
  double limit = pc::hasBf16(*module) ? narrowTolerance : tolerance * scale;
  for (bool fuse : {false, true})
    if (fuse || !isFile)
      run(fuse, limit, "");
  if (scale == 1 && !isFile && narrow(*module))
    for (bool fuse : {false, true})
      run(fuse, narrowTolerance, " bf16");
}
