//===- Source.h - Files that a user names, and IR in them --------------------------------===//
// All files that users name are read here. MLIR's parser is meant for text that a compiler has written: one huge number
// can make it use all memory, and every level of nesting uses stack. Such text is refused before it is parsed.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_SOURCE_H
#define PC_SUPPORT_SOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

namespace pc {

/// The bytes of a regular file (not zero-terminated), or null with the reason in `error`. Refuses FIFOs, sockets and
/// devices, because reading them might block or never end.
std::unique_ptr<llvm::MemoryBuffer> readFile(llvm::StringRef path, std::string &error);

/// Returns the bytes of a file of IR; "-" is standard input. Refuses text that MLIR's parser cannot handle: deep
/// nesting, huge numbers of results, huge widths, numbers of many digits, and control characters. If `splitMarker` is
/// not empty, chunks between lines with this text are checked separately. Returns null after printing an error with
/// file and line. An op whose location names a module of the model ("loc(...)") also gets its line in the file, unless
/// the file is read in chunks.
std::unique_ptr<llvm::MemoryBuffer> readSource(llvm::StringRef path, llvm::StringRef splitMarker = "");

/// Removes file lines from those locations in `op` that also have a name, so that printed locations contain only names.
void dropLines(mlir::Operation *op);

/// The text with spaces in place of the locations that ops give, so that all other characters keep their positions.
std::string withoutLocations(llvm::StringRef text);

/// The module in a file, or null after errors. Reads the file by readSource; `sources` keeps the text.
mlir::OwningOpRef<mlir::ModuleOp> parseProgram(llvm::StringRef path, llvm::SourceMgr &sources,
                                               mlir::MLIRContext *context);

} // namespace pc

#endif
