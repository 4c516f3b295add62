//===- ToolMain.h - What all command-line tools do first ----------------------------------===//
// Installs LLVM's signal handlers, the flag --version and the check of standard output. A process has one such object.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_TOOLMAIN_H
#define PC_SUPPORT_TOOLMAIN_H

#include "llvm/Support/InitLLVM.h"

namespace pc {

/// The first object in a tool's main. It makes a write beyond the limit on file sizes fail as on a full disk, instead
/// of ending the process by SIGXFSZ. A tool that could not write all of its standard output, including --help, ends
/// with exit code 6. --version prints the commit and the version of LLVM.
class ToolMain {
public:
  /// `tool` is the name for --version. It must outlive this object.
  ToolMain(int &argc, const char **&argv, const char *tool);
  ToolMain(int &argc, char **&argv, const char *tool) : ToolMain(argc, const_cast<const char **&>(argv), tool) {}

private:
  llvm::InitLLVM init;
};

} // namespace pc

#endif
