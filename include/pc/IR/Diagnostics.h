//===- Diagnostics.h - How the command-line tools print errors ------------------------===//
#ifndef PC_IR_DIAGNOSTICS_H
#define PC_IR_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/SourceMgr.h"

namespace pc {

/// Prints diagnostics as users expect them: with the line and a caret where the location is in a source file, with the file alone where it
/// has no line, else after the tool's name (messages name ops and tensors themselves). Never an op dump or a raw location.
class ToolDiagnostics {
public:
  ToolDiagnostics(llvm::StringRef tool, llvm::SourceMgr &sources, mlir::MLIRContext *context);

private:
  mlir::SourceMgrDiagnosticHandler inSource;
  mlir::ScopedDiagnosticHandler plain;
};

} // namespace pc

#endif
