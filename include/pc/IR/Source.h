//===- Source.h - Files that a user names, and IR in them --------------------------------===//
// All files that users name are read here. MLIR's parser is meant for text that a compiler has written: one number in
// it can take all memory, and every level of nesting takes stack. Such text is refused before it is parsed.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_SOURCE_H
#define PC_IR_SOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

namespace pc {

/// The bytes of a regular file (not zero-terminated), or null with the reason in `error`. Refuses FIFOs, sockets and
/// devices, for which a tool might wait, or which might never end.
std::unique_ptr<llvm::MemoryBuffer> readFile(llvm::StringRef path, std::string &error);

/// The bytes of a file of IR; "-" is standard input. Refuses text that MLIR's parser cannot take: deep nesting, huge
/// numbers of results, widths or digits, and control characters. Checks the chunks between lines with `splitMarker` one
/// by one. Null after an error was printed with file and line.
std::unique_ptr<llvm::MemoryBuffer> readSource(llvm::StringRef path, llvm::StringRef splitMarker = "");

/// The module in a file (read by readSource; `sources` keeps the text); null after errors.
mlir::OwningOpRef<mlir::ModuleOp> parseProgram(llvm::StringRef path, llvm::SourceMgr &sources,
                                               mlir::MLIRContext *context);

} // namespace pc

#endif
