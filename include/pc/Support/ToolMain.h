//===- ToolMain.h - What all command-line tools do first ----------------------------------===//
// Puts LLVM's signal handlers, --version and the check of standard output in place. One object per process.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_TOOLMAIN_H
#define PC_SUPPORT_TOOLMAIN_H

#include "llvm/Support/InitLLVM.h"

namespace pc {

/// The first object in a tool's main. With it, a write beyond the limit on file sizes fails as on a full disk, and does
/// not end the process by SIGXFSZ; and a tool that could not write all of its standard output, including --help, ends
/// with exit code 6. --version says the commit and the version of LLVM.
class ToolMain {
public:
  /// `tool`: its name, for --version. Constraint: it outlives this object.
  ToolMain(int &argc, const char **&argv, const char *tool);
  ToolMain(int &argc, char **&argv, const char *tool) : ToolMain(argc, const_cast<const char **&>(argv), tool) {}

private:
  llvm::InitLLVM init;
};

} // namespace pc

#endif
