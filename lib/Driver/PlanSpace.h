//===- PlanSpace.h - The plans that --auto may choose from -----------------------------------===//
#ifndef PC_LIB_DRIVER_PLANSPACE_H
#define PC_LIB_DRIVER_PLANSPACE_H

#include "pc/Driver/AutoPlan.h"
#include "pc/Driver/Plan.h"

namespace pc {

/// Plans as flags: those that were given, and all values that the rows of the tactics name for the others.
class PlanSpace {
public:
  PlanSpace(const AutoOptions &search, int64_t batch) : search(search), batch(batch) {}

  /// Reads which axes there may be; why that is impossible, or nothing.
  std::optional<Refusal> read();

  /// Sets of plans: a mesh, and of the flags that say how layers are split one choice each.
  std::vector<StrategyFlags> sets() const;
  /// The plans of a set, each once. Flags that do not go together are no plan; `refusal`, if empty, gets why.
  std::vector<Plan> plansOf(const StrategyFlags &set, std::string &refusal) const;

  int64_t ranks = 0;

private:
  /// Axes of a mesh, some of them with sizes, and the flag that they need.
  struct MeshForm {
    std::vector<std::pair<std::string, int64_t>> axes; ///< 0: to be searched
    std::string flag, form;
  };

  bool isFree(llvm::StringRef name) const;
  void addForms();
  void addSets(const MeshForm &form, std::vector<StrategyFlags> &all) const;
  void vary(std::vector<StrategyFlags> &ways, llvm::StringRef flag, llvm::ArrayRef<std::string> values) const;

  const AutoOptions &search;
  int64_t batch;
  std::vector<MeshForm> forms;
};

/// "dp=2,tp=2 pc-zero{...} microbatches 2", without numbers, or without what says a layer's recomputation.
std::string textOf(const Plan &plan, bool withNumbers = true, bool withRecompute = true);

} // namespace pc

#endif
