//===- VerifyStaged.cpp - Check the programs of all stages together ------------------------===//
#include "pc/Pipeline/Passes.h"

namespace pc {
#define GEN_PASS_DEF_VERIFYSTAGED
#include "pc/Pipeline/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

namespace {
struct VerifyStaged : pc::impl::VerifyStagedBase<VerifyStaged> {
  void runOnOperation() override {}
};
} // namespace
