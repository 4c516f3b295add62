//===- MixLayers.h - Plans whose layers are recomputed differently -----------------------------===//
// If layers are equal, seconds and bytes depend only on the number of recomputed layers, and are linear in it. So the
// best mixture under a limit is between two uniform plans, one that is too large and one that fits.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_MIXLAYERS_H
#define PC_LIB_SEARCH_ORDER_MIXLAYERS_H

#include "pc/Search/Search.h"

namespace pc {

/// The node of a plan, and a mode of recomputation for all its layers.
using AskedMode = std::pair<const PlanNode *, llvm::StringRef>;
/// Prices the requested plans; a plan that is refused has no price.
using PriceModes = llvm::function_ref<std::vector<std::optional<PlanTrial>>(llvm::ArrayRef<AskedMode>)>;

/// Adds mixtures to the plans that fit, if the mixtures are faster. `mix` compiles a plan whole, with as little
/// recomputation as fits; it returns std::nullopt if the plan is refused. If `all` is true, tries all chains; otherwise
/// stops when the most promising chains gain nothing.
void addMixes(SearchResult &result, int64_t limit, bool all, PriceModes price,
              llvm::function_ref<std::optional<FoundPlan>(const PlanNode &)> mix);

} // namespace pc

#endif
