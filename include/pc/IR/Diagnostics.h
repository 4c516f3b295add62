//===- Diagnostics.h - How the command-line tools print errors ------------------------===//
#ifndef PC_IR_DIAGNOSTICS_H
#define PC_IR_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/Support/SourceMgr.h"

namespace pc {

/// `text` with control characters and bytes that are no UTF-8 written as `\1B`: names and values of somebody's file
/// must not act on a terminal, nor look like another message.
std::string escaped(llvm::StringRef text);

/// Standard error for messages: the same, but lines and tabs are kept.
llvm::raw_ostream &errs();

/// Prints diagnostics as users expect them: with the line and a caret where the location is in a source file, with the
/// file alone where it has no line, else after the tool's name (messages name ops and tensors themselves). Never an op
/// dump or a raw location.
class ToolDiagnostics {
public:
  ToolDiagnostics(llvm::StringRef tool, llvm::SourceMgr &sources, mlir::MLIRContext *context);

private:
  mlir::SourceMgrDiagnosticHandler inSource;
  mlir::ScopedDiagnosticHandler plain;
};

/// Messages about programs of the pc dialect are escaped whoever prints them (MlirOptMain has a handler of its own).
void escapeDiagnostics(mlir::DialectRegistry &registry);

} // namespace pc

#endif
