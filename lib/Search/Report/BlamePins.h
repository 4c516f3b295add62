//===- BlamePins.h - Which flag keeps plans from fitting ---------------------------------------===//
// Input: the flags of a search in which no plan fits, and a search to ask. Result: the flags without which one fits.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_REPORT_BLAMEPINS_H
#define PC_LIB_SEARCH_REPORT_BLAMEPINS_H

#include "pc/Plan/AutoPlan.h"
#include "pc/Plan/Plan.h"
#include "pc/Search/Search.h"

namespace pc {

/// A plan that takes little memory.
struct SmallPlan {
  FoundPlan found;
  Plan plan;
  bool isEstimate = false; ///< it was composed, and not compiled whole

  /// "1024 bytes: dp=2 ..."
  std::string text() const { return std::to_string(found.trial.bytes) + " bytes: " + found.node.text; }
};

/// Which of the flags that were given keeps all plans from fitting: without it `fitting` finds one. If no flag does so
/// alone, whether all together do.
std::string blamePins(const AutoOptions &given,
                      llvm::function_ref<std::optional<SmallPlan>(const AutoOptions &pins)> fitting);

} // namespace pc

#endif
