//===- Diagnostics.cpp - How the command-line tools print errors ------------------------===//
#include "pc/IR/Diagnostics.h"

#include "mlir/IR/Location.h"
#include "mlir/IR/MLIRContext.h"

using namespace mlir;

static StringRef severityName(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Error:
    return "error";
  case DiagnosticSeverity::Warning:
    return "warning";
  case DiagnosticSeverity::Note:
    return "note";
  case DiagnosticSeverity::Remark:
    return "remark";
  }
  return "error";
}

pc::ToolDiagnostics::ToolDiagnostics(StringRef tool, llvm::SourceMgr &sources, MLIRContext *context)
    : inSource(sources, context), plain(context, [tool = tool.str()](Diagnostic &diagnostic) -> LogicalResult {
        auto place = diagnostic.getLocation()->findInstanceOf<FileLineColLoc>();
        if (place && place.getLine())
          return failure(); // the handler below shows the line
        auto print = [&](Diagnostic &d) {
          llvm::errs() << (place ? place.getFilename().getValue() : StringRef(tool)) << ": " << severityName(d.getSeverity())
                       << ": " << d.str() << "\n";
        };
        print(diagnostic);
        for (Diagnostic &note : diagnostic.getNotes())
          print(note);
        return success();
      }) {
  context->printOpOnDiagnostic(false);
}
