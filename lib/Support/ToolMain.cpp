//===- ToolMain.cpp - The start of all command-line tools ---------------------------------===//
// The order matters: first InitLLVM, then the signal for files that get too large, then a check at exit that standard
// output could be written. A full disk ends in PCRT_RESOURCE instead of a crash.
//===-----------------------------------------------------------------------------===//
#include "pc/Support/ToolMain.h"
#include "pc/Support/Diagnostics.h"
#include "pcrt/pcrt.h"
#include "pcrt/version.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Debug.h"
#include <csignal>
#include <cstdlib>
#include <unistd.h>

static const char *name = "";

/// Runs at exit, before the destructor of llvm::outs(), which would end the process with exit code 1.
static void checkStandardOutput() {
  llvm::raw_fd_ostream &out = llvm::outs();
  out.flush();
  if (!out.has_error())
    return;
  pc::errs() << name << ": error: cannot write to standard output: " << out.error().message() << "\n";
  out.clear_error();
  _exit(PCRT_RESOURCE);
}

#ifndef NDEBUG
/// Turns on the traces of the types in PC_DEBUG, as -debug-only does. Debian's LLVM is built without that flag.
static void turnOnTraces() {
  llvm::SmallVector<llvm::StringRef> types;
  llvm::StringRef(std::getenv("PC_DEBUG") ? std::getenv("PC_DEBUG") : "").split(types, ',', -1, /*KeepEmpty=*/false);
  std::vector<std::string> texts(types.begin(), types.end());
  std::vector<const char *> names;
  for (const std::string &text : texts)
    names.push_back(text.c_str());
  llvm::DebugFlag |= !names.empty();
  llvm::setCurrentDebugTypes(names.data(), names.size());
}
#endif

pc::ToolMain::ToolMain(int &argc, const char **&argv, const char *tool) : init(argc, argv) {
  std::signal(SIGXFSZ, SIG_IGN); // after InitLLVM, which handles the signal as a crash
  name = tool;
  llvm::cl::SetVersionPrinter(
      [](llvm::raw_ostream &os) { os << name << " " << pcrt_version << " (LLVM " LLVM_VERSION_STRING ")\n"; });
#ifndef NDEBUG
  turnOnTraces();
#endif
  llvm::outs(), pc::errs(); // created before the check is registered, so destroyed after it
  std::atexit(checkStandardOutput);
}
