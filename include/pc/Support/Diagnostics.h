//===- Diagnostics.h - How the command-line tools print errors ------------------------===//
// Every tool prints errors in one form, `place: error: text`, whatever the text contains.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_DIAGNOSTICS_H
#define PC_SUPPORT_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/Support/SourceMgr.h"

namespace pc {

/// `text` in which control characters and bytes that are not UTF-8 are written as `\1B`. So names and values from files
/// cannot control the terminal or imitate another message.
std::string escaped(llvm::StringRef text);

/// Standard error for messages. Escapes all text like `escaped`, except newlines and tabs.
llvm::raw_ostream &errs();

/// Prints diagnostics for users: with the line and a caret if the location is in a source file, with the file's name if
/// the location has no line, else after the tool's name. Never prints ops or raw locations.
class ToolDiagnostics {
public:
  ToolDiagnostics(llvm::StringRef tool, llvm::SourceMgr &sources, mlir::MLIRContext *context);

private:
  mlir::SourceMgrDiagnosticHandler inSource;
  mlir::ScopedDiagnosticHandler plain;
};

/// Escapes messages about programs of the pc dialect before any handler prints them, including MlirOptMain's handler.
void escapeDiagnostics(mlir::DialectRegistry &registry);

} // namespace pc

#endif
