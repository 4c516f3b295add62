//===- FoundPlans.h - The text and JSON about a search's result -----------------------------===//
// Input: the result of a search, and how many plans it enumerated, dropped and compiled. Result: text for users, and
// JSON members of the report. Nothing is computed here.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_REPORT_FOUNDPLANS_H
#define PC_LIB_SEARCH_REPORT_FOUNDPLANS_H

#include "WhatLimits.h"
#include "pc/Search/Search.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// The result of a search, with all figures for the text about it.
struct FoundPlans {
  const SearchResult &result;
  int64_t ranks = 0;
  llvm::StringRef machine;
  int64_t plans = 0;    ///< plans that were enumerated
  int64_t dropped = 0;  ///< the plans that are too large by a bound
  int64_t compiled = 0; ///< whole compiles, if plans are composed
  bool composes = false;
  bool isEstimate = false; ///< the chosen plan was composed, not compiled whole
  int64_t limit = 0;       ///< bytes per rank; 0: no limit
  double gap = 0;
  const WhatLimits *limits = nullptr; ///< or null

  /// "141 plans of 2 ranks on cpu: 50 compiled, 12 refused, 0 too large"
  std::string text() const;
  /// Prints the chosen plan, and the best plans of other forms.
  void tell(llvm::raw_ostream &os) const;
  /// The compiled plans: the chosen one first, those that are too large last.
  llvm::json::Object json() const;
};

} // namespace pc

#endif
