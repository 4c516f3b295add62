//===- SignStep.cpp - Adds pc.step to a step program ----------------------------------------===//
// A later compile of the program finds here the options of the compile that wrote it, and can tell whether the step was
// changed since.
//===----------------------------------------------------------------------------------------===//
#define GEN_PASS_DEF_SIGNSTEP
#include "pc/Driver/Origin.h"
#include "pc/Proof/Proof.h"

using namespace mlir;
using namespace pc;

namespace {
/// The pass pc-sign-step. It records where the step comes from (mesh, tactics, target) and the fingerprint of the step.
/// If there is no fingerprint, it removes an old one.
struct SignStep : pc::impl::SignStepBase<SignStep> {
  using SignStepBase::SignStepBase;

  void runOnOperation() override {
    SignStepOptions options;
    options.mesh = mesh;
    options.tactics.assign(tactics.begin(), tactics.end());
    options.target = target;
    options.attention = attention;
    options.archs.assign(archs.begin(), archs.end());
    writeOrigin(getOperation(), options);
    if (std::string fingerprint = Proof::fingerprint(getOperation()); !fingerprint.empty())
      getOperation()->setAttr(stepAttribute, StringAttr::get(&getContext(), fingerprint));
    else
      getOperation()->removeAttr(stepAttribute);
  }
};
} // namespace
