//===- ToolMain.h - What all command-line tools do first ----------------------------------===//
#ifndef PC_IR_TOOLMAIN_H
#define PC_IR_TOOLMAIN_H

#include "llvm/Support/InitLLVM.h"

namespace pc {

/// The first object in a tool's main. A file that reaches the limit on sizes fails to be written, as on a full disk,
/// instead of ending the process by SIGXFSZ; and a tool whose standard output cannot be written ends with exit code 6,
/// whoever wrote to it (also --help).
class ToolMain {
public:
  ToolMain(int &argc, const char **&argv, const char *tool);
  ToolMain(int &argc, char **&argv, const char *tool) : ToolMain(argc, const_cast<const char **&>(argv), tool) {}

private:
  llvm::InitLLVM init;
};

} // namespace pc

#endif
