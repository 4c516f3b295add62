//===- BlamePins.h - Finds the flag that prevents plans from fitting ---------------------------===//
// Input: the flags of a search in which no plan fits, and a function that searches again. Result: the flags without
// which a plan fits.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_REPORT_BLAMEPINS_H
#define PC_LIB_SEARCH_REPORT_BLAMEPINS_H

#include "pc/Plan/AutoPlan.h"
#include "pc/Plan/Plan.h"
#include "pc/Search/Search.h"

namespace pc {

/// A plan that needs little memory.
struct SmallPlan {
  FoundPlan found;
  Plan plan;
  bool isEstimate = false; ///< it was composed, not compiled whole

  /// "1024 bytes: dp=2 ..."
  std::string text() const { return std::to_string(found.trial.bytes) + " bytes: " + found.node.text; }
};

/// Finds each given flag without which `fitting` finds a plan that fits. If there is no such flag, finds out whether a
/// plan fits if all given flags are left out.
std::string blamePins(const AutoOptions &given,
                      llvm::function_ref<std::optional<SmallPlan>(const AutoOptions &pins)> fitting);

} // namespace pc

#endif
