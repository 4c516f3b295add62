//===- AutoPlan.h - A plan that is searched ------------------------------------------------===//
// The inputs of the plan search, as flags give them. The search itself is in Search/.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_AUTOPLAN_H
#define PC_PLAN_AUTOPLAN_H

#include "pc/Plan/Tactics.h"

namespace pc {

/// What --auto was given.
struct AutoOptions {
  bool isOn = false;
  bool isQuiet = false;     ///< no message about the plans that are found
  std::string free;         ///< flags and axes that are searched, with commas between; empty: all that are not given
  int64_t ranks = 0;        ///< 0: those of the mesh
  int64_t compositions = 0; ///< programs that are compiled, at most; 0: 1000, or 10,000 of few layers
  int64_t threads = 0;      ///< that compile; 0: one a core. What is found does not depend on it
  StrategyFlags pins;       ///< the strategy flags that were given; sizes of the mesh may be `?`
};

} // namespace pc

#endif
