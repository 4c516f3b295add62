//===- Diagnostics.h - How the command-line tools print errors ------------------------===//
// Every tool prints errors in one form, `place: error: text`, whatever the text contains.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_DIAGNOSTICS_H
#define PC_SUPPORT_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/Support/SourceMgr.h"

namespace pc {

/// Returns `text` with control characters and bytes that are not UTF-8 written as `\1B`. So names and values from files
/// cannot control the terminal or imitate another message.
std::string escaped(llvm::StringRef text);

/// Standard error for messages. Escapes all text like `escaped`, except newlines and tabs.
llvm::raw_ostream &errs();

/// Prints diagnostics for users. If the location is in a source file, prints the line and a caret. If the location is a
/// file without a line, the message follows the file's name, otherwise the tool's name. Never prints ops or raw
/// locations.
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
