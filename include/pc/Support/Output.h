//===- Output.h - Files that a tool writes ------------------------------------------------===//
// Every file that a flag of a tool names is written through this class. So a run that fails or is interrupted leaves
// the old file in place, and no output replaces an input.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_OUTPUT_H
#define PC_SUPPORT_OUTPUT_H

#include "mlir/Support/LLVM.h"
#include "pcrt/outputs.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace pc {

/// Prints an error of `tool` and fails if an output is also an input, or if two outputs are one file. Call it before
/// anything is written.
mlir::LogicalResult checkOutputs(const char *tool, const std::vector<pcrt::NamedPath> &inputs,
                                 const std::vector<pcrt::NamedPath> &outputs);

/// A file that replaces the one at `path` when it is kept. Otherwise it is removed, also if a signal ends the tool.
class Output {
public:
  /// Sets `error` to the reason if `path` cannot be written, else to "".
  Output(llvm::StringRef path, std::string &error);
  ~Output();

  /// The file to write, until keep().
  const std::string &temporary() const { return file.temporary(); }
  int descriptor() const { return file.descriptor(); }
  /// Moves the file to its place. Returns "", or the reason for a failure.
  std::string keep();

private:
  std::string path, onSignal;
  pcrt::OutputFile file;
};

/// Writes a whole file; "-" is standard output. If `write` returns false, the file stays as it was, and the caller
/// reports why. Returns "", or why the file could not be written.
std::string writeOutput(llvm::StringRef path, llvm::function_ref<bool(llvm::raw_ostream &)> write);

} // namespace pc

#endif
