//===- HostImage.cpp - NVPTX LLVM IR -> a shared object for this machine ----------------------===//
#include "Compile.h"

using namespace mlir;

FailureOr<std::string> pc::toolchain::emitHostImage(Operation *op, std::unique_ptr<llvm::Module> module) {
  return op->emitError() << "host images are not supported yet";
}
