//===- Source.h - Files that a user names, and IR in them --------------------------------===//
// Everything that reads a file of somebody else comes through here. MLIR's parser is meant for text that a compiler has
// written: a number in it can take all memory, and every level of nesting takes stack. Such text is refused before.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_SOURCE_H
#define PC_IR_SOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

namespace pc {

/// The bytes of a regular file (no zero behind them), or null with the reason in `error`. FIFOs, sockets and devices
/// are refused: a tool would wait for them, or never reach their end.
std::unique_ptr<llvm::MemoryBuffer> readFile(llvm::StringRef path, std::string &error);

/// The same for IR, where "-" is standard input, and where text is refused that MLIR's parser cannot take: deep
/// nesting, numbers of results, widths and digits beyond reason, and control characters. Chunks that lines with
/// `splitMarker` separate are looked at one by one. Null after an error was printed with file and line.
std::unique_ptr<llvm::MemoryBuffer> readSource(llvm::StringRef path, llvm::StringRef splitMarker = "");

/// The module in a file (readSource), which `sources` holds from then on; null after errors.
mlir::OwningOpRef<mlir::ModuleOp> parseProgram(llvm::StringRef path, llvm::SourceMgr &sources,
                                               mlir::MLIRContext *context);

} // namespace pc

#endif
