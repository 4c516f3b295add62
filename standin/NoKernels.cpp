//===- NoKernels.cpp - A stand-in without kernel/ -------------------------===//
// Replaces kernel/ in builds without it: every image is refused, and no access is checked.
//===----------------------------------------------------------------------===//
#include "standin/kernel/AccessChecker.h"
#include "standin/kernel/Kernel.h"

using namespace pc::standin;

struct AccessChecker::State {};
AccessChecker::AccessChecker() = default;
AccessChecker::~AccessChecker() = default;
void AccessChecker::addRegion(const void *, size_t) {}
void AccessChecker::removeRegion(const void *) {}
void AccessChecker::setState(const void *, size_t, ByteState) {}
std::vector<AccessRange> AccessChecker::accesses() const { return {}; }

const pcrt_host_kernel *KernelImage::find(const std::string &) const { return nullptr; }
std::string pc::standin::loadKernelImage(const void *, size_t, KernelImage &) {
  return "this stand-in was built without kernel/: it runs library calls and copies only";
}
void pc::standin::unloadKernelImage(KernelImage &) {}
std::string pc::standin::pc_run_kernel(const KernelLaunch &) { return "it has no kernels"; }
