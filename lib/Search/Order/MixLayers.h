//===- MixLayers.h - Plans whose layers are recomputed differently -----------------------------===//
// For like layers only the number that is recomputed matters, in seconds and in bytes, and both are sums. So the best
// mixture under a limit is between two uniform plans, one that is too large and one that fits.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_MIXLAYERS_H
#define PC_LIB_SEARCH_ORDER_MIXLAYERS_H

#include "pc/Search/Search.h"

namespace pc {

/// A plan's node, with a mode of recomputation for all layers.
using AskedMode = std::pair<const PlanNode *, llvm::StringRef>;
/// Prices the plans that are asked for; nothing for plans that are refused.
using PriceModes = llvm::function_ref<std::vector<std::optional<PlanTrial>>(llvm::ArrayRef<AskedMode>)>;

/// Adds mixtures to the plans that fit, if they are faster. `mix`: compiles a plan whole with as little recomputed as
/// fits; nothing if that is refused. `all`: looks at all chains, and not only until the most promising ones gain
/// nothing.
void addMixes(SearchResult &result, int64_t limit, bool all, PriceModes price,
              llvm::function_ref<std::optional<FoundPlan>(const PlanNode &)> mix);

} // namespace pc

#endif
