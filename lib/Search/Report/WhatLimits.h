//===- WhatLimits.h - What limits a plan that was chosen, and what would change the choice ----===//
// Input: plans that were priced, here and on other machines. Result: what limits the chosen plan, and which plan
// another machine or limit of memory would choose. Invariant: only plans that were priced are named.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_REPORT_WHATLIMITS_H
#define PC_LIB_SEARCH_REPORT_WHATLIMITS_H

#include "OtherMachines.h"
#include "pc/Plan/AutoPlan.h"
#include "pc/Search/Search.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// Which of the plans that were priced would have been chosen, were something else.
struct WhatLimits {
  /// On a machine with another figure.
  struct OnOther {
    llvm::StringRef figure, words;
    double times;
    FoundPlan plan;
    double seconds, chosenSeconds; ///< there: of that plan, and of the chosen one
  };
  /// With so much memory of a rank, or with less than that.
  struct WithMemory {
    int64_t bytes;
    FoundPlan plan;
  };
  std::vector<OnOther> onOthers;
  std::vector<llvm::StringRef> words; ///< of the figures that were halved and doubled
  std::vector<WithMemory> below;      ///< the most memory first
  std::optional<WithMemory> withMore; ///< the fastest that the limit excludes
  std::vector<std::string> pins;      ///< flags as they were given
  std::string free;                   ///< of --auto=; empty: everything else

  /// Lines for people; `nameOf` is what a plan is called in those above.
  void tell(llvm::raw_ostream &os, const FoundPlan &chosen,
            llvm::function_ref<std::string(const FoundPlan &)> nameOf) const;
  /// Members of the report's `search`.
  void addTo(llvm::json::Object &search, const FoundPlan &chosen) const;
};

/// A flag as it was given: "--zero=1".
std::string textOf(const StrategyFlags &flags, const std::string &name);

/// Plans that are worth to be priced on another machine, by what their parts would take there; the chosen one first.
std::vector<const FoundPlan *> worthPricing(llvm::ArrayRef<FoundPlan> fitting, llvm::ArrayRef<OtherMachine> machines);

/// The plan that is fastest on each machine, where that is not the chosen one. `seconds`: of each of `plans` here, and
/// on each machine; empty: not known.
std::vector<WhatLimits::OnOther> changesOn(llvm::ArrayRef<OtherMachine> machines,
                                           llvm::ArrayRef<const FoundPlan *> plans,
                                           llvm::ArrayRef<std::vector<double>> seconds);

/// What is chosen with less memory than the chosen plan takes, step by step.
std::vector<WhatLimits::WithMemory> withLess(const FoundPlan &chosen, llvm::ArrayRef<FoundPlan> others);

/// "58.2 GiB"
std::string bytesText(double bytes);

} // namespace pc

#endif
