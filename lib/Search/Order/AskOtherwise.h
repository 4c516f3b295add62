//===- AskOtherwise.h - The plans that a search would choose on other machines -----------------===//
#ifndef PC_LIB_SEARCH_ORDER_ASKOTHERWISE_H
#define PC_LIB_SEARCH_ORDER_ASKOTHERWISE_H

#include "../Report/WhatLimits.h"
#include "OpenPlans.h"

namespace pc {

/// Asks what limits the plan that a search chose, and what would change the choice.
///
/// Input: the parts of a search that has ended, and its result. If `isOfBytes` is true, the search minimized bytes, and
/// there is no result for other machines. Result: the plans that would be chosen on other machines and with other
/// limits of memory, among the plans that the search has priced and a few more. Returns std::nullopt if the search has
/// to end. This takes about a second, because it is not a second search.
std::optional<WhatLimits> askOtherwise(OpenPlans &search, const SearchResult &result, bool isOfBytes);

} // namespace pc

#endif
