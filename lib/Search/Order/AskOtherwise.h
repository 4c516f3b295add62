//===- AskOtherwise.h - What a search would have chosen otherwise ------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_ASKOTHERWISE_H
#define PC_LIB_SEARCH_ORDER_ASKOTHERWISE_H

#include "../Report/WhatLimits.h"
#include "OpenPlans.h"

namespace pc {

/// Asks what limits the plan that a search chose, and what would change the choice.
///
/// Input: the parts of a search that has ended, and its result. `isOfBytes`: the plan was found by a search of bytes,
/// so that nothing is known of other machines. Result: what other machines and limits of memory would choose, of the
/// plans that the search has priced and a few more; nothing, if the search is to end. It takes a second, and is no
/// second search.
std::optional<WhatLimits> askOtherwise(OpenPlans &search, const SearchResult &result, bool isOfBytes);

} // namespace pc

#endif
