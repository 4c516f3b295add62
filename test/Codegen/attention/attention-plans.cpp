//===- attention-plans.cpp - A plan of cuDNN for every attention of programs -===//
// usage: pc-attention-plans IDLE_DRIVER FILE...
// Plans every attention of programs of the phase planned with the real cuDNN, for the architectures for which we
// compile, in the workspace that the compiler gives it. Exit code 77 if cuDNN is missing.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "Fuse/LibraryAttention.h"
#include "cuda/PlanWithoutDevice.h"
#include "pc/Cost/CudaWorkspace.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include <cstdio>
#include <set>

using namespace mlir;
using namespace pc;

namespace {
struct Planner {
  int arch;
  CudaLibraries libraries;
  std::unique_ptr<pcrt::cuda::PlanWithoutDevice> cudnn;
};
std::set<std::string> seen;

void plan(const Planner &planner, Operation *op) {
  if (!planner.libraries.takes(op))
    return;
  int64_t given = attentionScratchBytes(op, planner.libraries), taken = -1;
  pcrt_attention_desc desc = describeAttention(op, given);
  std::string text = std::to_string(desc.batch) + " x " + std::to_string(desc.q_heads) + "/" +
                     std::to_string(desc.kv_heads) + " heads of " + std::to_string(desc.head_dim) + ", " +
                     std::to_string(desc.q_length) + " positions" + (desc.causal ? "" : ", all") +
                     (desc.k[1] > desc.head_dim ? ", packed" : "") + (desc.backward ? ", backward" : ", forward");
  if (!seen.insert(std::to_string(planner.arch) + text).second)
    return;
  desc.name = text.c_str();
  std::string problem = planner.cudnn->plan(desc, /*deterministic=*/false, &taken);
  if (problem.empty() && taken > given)
    problem = "takes more";
  expect(problem.empty(), problem);
  std::printf("%s  sm_%d  %s: %lld of %lld bytes%s%s\n", problem.empty() ? "ok    " : "FAILED", planner.arch,
              text.c_str(), static_cast<long long>(taken), static_cast<long long>(given), problem.empty() ? "" : ": ",
              problem.c_str());
}
} // namespace

int main(int argc, char **argv) {
  std::vector<Planner> planners;
  for (int arch : {80, 90, 100}) {
    std::string error;
    planners.push_back({arch, CudaLibraries("library", "sm_" + std::to_string(arch)),
                        pcrt::cuda::PlanWithoutDevice::open(arch, argv[1], &error)});
    if (!planners.back().cudnn) {
      std::printf("skipped: %s\n", error.c_str());
      return 77;
    }
  }
  DialectRegistry registry;
  registry.insert<PCDialect, func::FuncDialect>();
  MLIRContext context(registry);
  for (int i = 2; i < argc; ++i) {
    OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[i], &context);
    if (!module)
      return 1;
    module->walk([&](Operation *op) {
      for (const Planner &planner : planners)
        plan(planner, op);
    });
  }
  return finishChecks();
}
