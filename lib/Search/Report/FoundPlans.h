//===- FoundPlans.h - What a search has found, in words -------------------------------------===//
// Input: the result of a search and its counts. Result: lines for people and members of a report; nothing is computed.
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
  int64_t plans = 0;    ///< that were looked at
  int64_t dropped = 0;  ///< of these, are too large by a bound
  int64_t compiled = 0; ///< whole, where plans are composed
  bool composes = false;
  bool isEstimate = false; ///< the chosen plan was composed, and not compiled whole
  int64_t limit = 0;       ///< bytes of a rank; 0: any number
  double gap = 0;
  const WhatLimits *limits = nullptr; ///< or null

  /// "141 plans of 2 ranks on cpu: 50 compiled, 12 refused, 0 too large"
  std::string text() const;
  /// The chosen plan, and the next best of other forms.
  void tell(llvm::raw_ostream &os) const;
  /// The plans that were compiled, the chosen one first, those that are too large last.
  llvm::json::Object json() const;
};

} // namespace pc

#endif
