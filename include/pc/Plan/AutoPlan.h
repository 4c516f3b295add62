//===- AutoPlan.h - Inputs of the plan search ---------------------------------------------===//
// The inputs of the plan search as flags give them. The search itself is in Search/.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_AUTOPLAN_H
#define PC_PLAN_AUTOPLAN_H

#include "pc/Plan/Tactics.h"

namespace pc {

/// The flags that --auto reads.
struct AutoOptions {
  bool isOn = false;
  bool isQuiet = false;     ///< no message about the plans that are found
  std::string free;         ///< comma-separated flags and axes to search; empty: all flags that are not given
  int64_t ranks = 0;        ///< number of ranks; 0: the number of ranks of the mesh
  int64_t compositions = 0; ///< limit on compiled programs; 0: 1000, or 10,000 programs of few layers
  int64_t threads = 0;      ///< threads that compile; 0: one per core. The result does not depend on it
  StrategyFlags pins;       ///< the strategy flags that were given; a size of the mesh may be `?`
};

} // namespace pc

#endif
