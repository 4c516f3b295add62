//===- WhatLimits.h - What limits the chosen plan, and what would change the choice -----------===//
// Input: plans that were priced, here and on other machines. Result: what limits the chosen plan, and which plan would
// be chosen on another machine or with another memory limit. Invariant: the result names only plans that were priced.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_REPORT_WHATLIMITS_H
#define PC_LIB_SEARCH_REPORT_WHATLIMITS_H

#include "OtherMachines.h"
#include "pc/Plan/AutoPlan.h"
#include "pc/Search/Search.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// The priced plans that would be chosen under other conditions.
struct WhatLimits {
  /// The choice on a machine with another figure.
  struct OnOther {
    llvm::StringRef figure, words;
    double times;
    FoundPlan plan;
    double seconds, chosenSeconds; ///< on that machine: seconds of that plan and of the chosen plan
  };
  /// The choice if a rank has this much memory, or less.
  struct WithMemory {
    int64_t bytes;
    FoundPlan plan;
  };
  std::vector<OnOther> onOthers;
  std::vector<llvm::StringRef> words; ///< names of the figures that were halved and doubled
  std::vector<WithMemory> below;      ///< the most memory first
  std::optional<WithMemory> withMore; ///< the fastest plan that the limit excludes
  std::vector<std::string> pins;      ///< flags as they were given
  std::string free;                   ///< the list of --auto=; empty: everything else is free

  /// Prints lines for people. `nameOf` returns the name of a plan in the lines above.
  void tell(llvm::raw_ostream &os, const FoundPlan &chosen,
            llvm::function_ref<std::string(const FoundPlan &)> nameOf) const;
  /// Members of the report's `search`.
  void addTo(llvm::json::Object &search, const FoundPlan &chosen) const;
};

/// A flag as it was given: "--zero=1".
std::string textOf(const StrategyFlags &flags, const std::string &name);

/// Returns the plans that are worth pricing on other machines. Estimates of the seconds of their parts on these
/// machines decide. The chosen plan comes first.
std::vector<const FoundPlan *> worthPricing(llvm::ArrayRef<FoundPlan> fitting, llvm::ArrayRef<OtherMachine> machines);

/// Returns, for each machine on which another plan than the chosen one is the fastest, that plan. `seconds` has, for
/// each of `plans`, the seconds on this machine and on each of `machines`; a list is empty if they are not known.
std::vector<WhatLimits::OnOther> changesOn(llvm::ArrayRef<OtherMachine> machines,
                                           llvm::ArrayRef<const FoundPlan *> plans,
                                           llvm::ArrayRef<std::vector<double>> seconds);

/// Returns the choices for less memory than the chosen plan needs, from more memory to less.
std::vector<WhatLimits::WithMemory> withLess(const FoundPlan &chosen, llvm::ArrayRef<FoundPlan> others);

/// "58.2 GiB"
std::string bytesText(double bytes);

} // namespace pc

#endif
