//===- Source.h - Files that a user names, and IR in them --------------------------------===//
// All files that users name are read here. MLIR's parser is meant for text that a compiler has written: one number in
// it can take all memory, and every level of nesting takes stack. Such text is refused before it is parsed.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_SOURCE_H
#define PC_SUPPORT_SOURCE_H

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
/// by one. Null after an error was printed with file and line. Ops that say of which module of the model they are
/// ("loc(...)") also get their line in the file, unless it is read in chunks.
std::unique_ptr<llvm::MemoryBuffer> readSource(llvm::StringRef path, llvm::StringRef splitMarker = "");

/// Takes the lines of files from locations in `op` that say a name; printed locations then contain only names.
void dropLines(mlir::Operation *op);

/// The text with spaces for the locations that ops say, so that they are where they stand.
std::string withoutLocations(llvm::StringRef text);

/// The module in a file (read by readSource; `sources` keeps the text); null after errors.
mlir::OwningOpRef<mlir::ModuleOp> parseProgram(llvm::StringRef path, llvm::SourceMgr &sources,
                                               mlir::MLIRContext *context);

} // namespace pc

#endif
