//===- NoKernels.cpp - a stand-in without kernel/ -------------------------===//
#include "standin/Image.h"

std::string pc::standin::runKernel(const KernelLaunch &, bool, std::vector<pc_standin_access> *) {
  return "this stand-in was built without kernel/: it runs library calls and copies only";
}
