//===- each.cpp - The proof's verdict on each of many programs ------------===//
// usage: pc-proof-each STEP.mlir BEFORE.mlir < FILES
// Prints a line per file: "proved"; "refused LINE OTHER MESSAGE", where LINE is the line of the named op, and OTHER the
// line of an op that may be the wrong one instead (0 if there is none); or "malformed MESSAGE" if the text is not a
// program whose ops verify. BEFORE is the program of the phase before; it may be STEP itself.
//===----------------------------------------------------------------------===//
#include "pc/Proof/Proof.h"
#include "pc/Support/Source.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/raw_ostream.h"
#include <iostream>

using namespace mlir;

int main(int argc, char **argv) {
  DialectRegistry registry;
  registry.insert<pc::PCDialect, func::FuncDialect>();
  MLIRContext context(registry);
  llvm::SourceMgr sources, others;
  OwningOpRef<ModuleOp> step = argc == 3 ? pc::parseProgram(argv[1], sources, &context) : nullptr;
  OwningOpRef<ModuleOp> before = step ? pc::parseProgram(argv[2], others, &context) : nullptr;
  if (!before)
    return 1;
  std::string message;
  unsigned line = 0, other = 0;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (!message.empty() || diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return success();
    auto lineOf = [](Diagnostic &one) {
      auto place = one.getLocation()->findInstanceOf<FileLineColLoc>();
      return place ? place.getLine() : 0;
    };
    message = diagnostic.str();
    line = lineOf(diagnostic);
    for (Diagnostic &note : diagnostic.getNotes())
      if (StringRef(note.str()).starts_with("or '"))
        other = lineOf(note);
    return success();
  });
  for (std::string path; std::getline(std::cin, path);) {
    message.clear();
    line = other = 0;
    llvm::SourceMgr own;
    OwningOpRef<ModuleOp> program = pc::parseProgram(path, own, &context);
    if (!program) {
      llvm::outs() << "malformed " << StringRef(message).substr(0, 200) << "\n";
      continue;
    }
    pc::Proof proof;
    bool known =
        succeeded(proof.begin(*step)) && (StringRef(argv[1]) == argv[2] || succeeded(proof.prove(*before, "before")));
    if (!known)
      return 1;
    if (succeeded(proof.prove(*program, "given")))
      llvm::outs() << "proved\n";
    else
      llvm::outs() << "refused " << line << " " << other << " " << message << "\n";
    llvm::outs().flush();
  }
}
