//===- Output.cpp - Files that a tool writes ----------------------------------------------===//
// A file is written under a temporary name and renamed when it is complete (pcrt::OutputFile), so a failure or a signal
// leaves the old file as it was. "-" is standard output.
//===-----------------------------------------------------------------------------===//
#include "pc/Support/Output.h"
#include "pc/Support/Diagnostics.h"

#include "llvm/Support/Signals.h"
#include <cerrno>
#include <system_error>

using namespace mlir;

static std::string cannotWrite(StringRef path, std::error_code why) {
  return ("cannot write " + (path == "-" ? "to standard output" : path) + ": " + why.message()).str();
}

static std::error_code lastError() { return {errno, std::generic_category()}; }

LogicalResult pc::checkOutputs(const char *tool, const std::vector<pcrt::NamedPath> &inputs,
                               const std::vector<pcrt::NamedPath> &outputs) {
  std::string why = pcrt::clashOfOutputs(inputs, outputs);
  if (why.empty())
    return success();
  pc::errs() << tool << ": error: " << why << "\n";
  return failure();
}

pc::Output::Output(StringRef path, std::string &error) : path(path) {
  error = file.open(this->path) ? "" : cannotWrite(path, lastError());
  onSignal = file.temporary();
  if (!onSignal.empty())
    llvm::sys::RemoveFileOnSignal(onSignal);
}

pc::Output::~Output() {
  file.discard();
  if (!onSignal.empty())
    llvm::sys::DontRemoveFileOnSignal(onSignal);
}

std::string pc::Output::keep() { return file.commit() ? "" : cannotWrite(path, lastError()); }

/// A write to standard output goes there directly. Any other file is written under its temporary name, and kept only if
/// it is complete.
std::string pc::writeOutput(StringRef path, llvm::function_ref<bool(llvm::raw_ostream &)> write) {
  bool whole = false;
  auto writeAll = [&](llvm::raw_fd_ostream &os) -> std::string {
    whole = write(os);
    os.flush();
    std::string error = os.has_error() ? cannotWrite(path, os.error()) : "";
    os.clear_error();
    return error;
  };
  if (path == "-")
    return writeAll(llvm::outs());
  std::string error;
  Output output(path, error);
  if (!error.empty())
    return error;
  {
    llvm::raw_fd_ostream os(output.descriptor(), /*shouldClose=*/false);
    error = writeAll(os);
  }
  return error.empty() && whole ? output.keep() : error;
}
