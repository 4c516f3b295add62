//===- Diagnostics.h - How the command-line tools print errors ------------------------===//
// Every tool prints errors in one form, `place: error: text`, whatever the text contains.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_DIAGNOSTICS_H
#define PC_SUPPORT_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/Support/SourceMgr.h"

namespace pc {

/// `text` with control characters and bytes that are no UTF-8 written as `\1B`: names and values from files must not
/// control the terminal, nor look like another message.
std::string escaped(llvm::StringRef text);

/// Standard error for messages; escapes what is written as `escaped` does, except newlines and tabs.
llvm::raw_ostream &errs();

/// Prints diagnostics for users: with the line and a caret if the location is in a source file, with the file's name if
/// it has no line, else after the tool's name. Never prints ops or raw locations.
class ToolDiagnostics {
public:
  ToolDiagnostics(llvm::StringRef tool, llvm::SourceMgr &sources, mlir::MLIRContext *context);

private:
  mlir::SourceMgrDiagnosticHandler inSource;
  mlir::ScopedDiagnosticHandler plain;
};

/// Escapes messages about programs of the pc dialect before any handler prints them, also MlirOptMain's own.
void escapeDiagnostics(mlir::DialectRegistry &registry);

} // namespace pc

#endif
