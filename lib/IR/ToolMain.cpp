//===- ToolMain.cpp - What all command-line tools do first --------------------------------===//
#include "pc/IR/ToolMain.h"
#include "pc/IR/Diagnostics.h"
#include "pcrt/pcrt.h"

#include <csignal>
#include <cstdlib>
#include <unistd.h>

static const char *name = "";

/// Runs behind everything that prints, and in front of the destructor of llvm::outs(), which would end with 1.
static void checkStandardOutput() {
  llvm::raw_fd_ostream &out = llvm::outs();
  out.flush();
  if (!out.has_error())
    return;
  pc::errs() << name << ": error: cannot write to standard output: " << out.error().message() << "\n";
  out.clear_error();
  _exit(PCRT_RESOURCE);
}

pc::ToolMain::ToolMain(int &argc, const char **&argv, const char *tool) : init(argc, argv) {
  std::signal(SIGXFSZ, SIG_IGN); // behind InitLLVM, which takes it for a crash
  name = tool;
  llvm::outs(), pc::errs(); // made before the check is registered, so destroyed after it
  std::atexit(checkStandardOutput);
}
