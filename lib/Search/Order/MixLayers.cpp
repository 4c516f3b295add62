//===- MixLayers.cpp - Plans whose layers are recomputed differently ---------------------------===//
// A chain consists of one plan in all modes of recomputation. If one mode does not fit and the next mode leaves memory
// unused, some layers can use the first mode and the others the next one.
//===-------------------------------------------------------------------------------------------===//
#include "MixLayers.h"

#include "llvm/ADT/STLExtras.h"
#include <array>
#include <limits>
#include <map>

using namespace pc;

/// Modes of recomputation, by `PlanNode::level`.
static constexpr std::array<llvm::StringRef, 3> modes = {"none", "selective", "full"};
static constexpr double never = std::numeric_limits<double>::infinity();

namespace {
/// Plans that differ only in recomputation.
struct Chain {
  PlanNode node;                                  ///< one of the plans
  std::array<std::optional<PlanTrial>, 3> trials; ///< by level
  double least = never;                           ///< a lower bound on the seconds of mixtures
};
} // namespace

/// Returns the seconds of the fastest mixture of two plans of the chain that just fits.
static double mixedSeconds(const Chain &chain, int64_t limit) {
  double best = never;
  for (const std::optional<PlanTrial> &large : chain.trials)
    for (const std::optional<PlanTrial> &small : chain.trials)
      if (large && small && large->bytes > limit && small->bytes <= limit) {
        double share = static_cast<double>(limit - small->bytes) / static_cast<double>(large->bytes - small->bytes);
        best = std::min(best, small->seconds + (large->seconds - small->seconds) * share);
      }
  return best;
}

/// Returns the chains in which a mixture may fit and be faster than `best`, the most promising chains first.
static std::vector<Chain> chainsOf(const SearchResult &result, double best, int64_t limit) {
  std::map<std::string, Chain> chains;
  for (const std::vector<FoundPlan> *some : {&result.tooLarge, &result.fitting})
    for (const FoundPlan &plan : *some) {
      Chain &chain = chains.try_emplace(plan.node.chain, Chain{plan.node, {}}).first->second;
      chain.trials[plan.node.level] = plan.trial;
      // The seconds of plans that were not priced are at least their bounds.
      chain.least = std::min(chain.least, plan.node.bound);
    }
  std::vector<Chain> all;
  for (auto &[text, chain] : chains) {
    if (chain.trials[0])
      chain.least = chain.trials[0]->seconds;
    bool fitsNever = chain.trials[2] && chain.trials[2]->bytes > limit;
    if (chain.least < best && !fitsNever)
      all.push_back(std::move(chain));
  }
  llvm::sort(all, [](const Chain &a, const Chain &b) {
    return std::tie(a.least, a.node.text) < std::tie(b.least, b.node.text);
  });
  return all;
}

/// Prices the modes of chains that have no price yet.
static void priceRest(llvm::MutableArrayRef<Chain> chains, PriceModes price) {
  std::vector<AskedMode> asked;
  std::vector<std::optional<PlanTrial> *> answers;
  for (Chain &chain : chains)
    for (auto [trial, mode] : llvm::zip_equal(chain.trials, modes))
      if (!trial) {
        asked.push_back({&chain.node, mode});
        answers.push_back(&trial);
      }
  for (auto [answer, trial] : llvm::zip_equal(answers, price(asked)))
    *answer = trial;
}

/// Considers only chains whose plan without recomputation is too large, because other chains need no recomputation.
/// Computes missing prices of modes for a few chains at a time, and compiles the best mixtures whole.
void pc::addMixes(SearchResult &result, int64_t limit, bool all, PriceModes price,
                  llvm::function_ref<std::optional<FoundPlan>(const PlanNode &)> mix) {
  constexpr size_t mostChains = 24, atOnce = 4, mostMixes = 3;
  double best = result.fitting.empty() ? never : result.fitting.front().trial.seconds;
  std::vector<Chain> chains = chainsOf(result, best, limit);
  chains.resize(std::min(chains.size(), mostChains));
  llvm::erase_if(chains, [&](const Chain &chain) { return chain.trials[0] && chain.trials[0]->bytes <= limit; });
  std::vector<std::pair<double, const PlanNode *>> mixes;
  // Chains are tried a few at a time. If computing prices is slow, stop at the first few chains that gain nothing,
  // since later chains promise less.
  bool goesOn = true;
  for (llvm::MutableArrayRef<Chain> left(chains); goesOn && !left.empty();) {
    llvm::MutableArrayRef<Chain> some = left.take_front(atOnce);
    left = left.drop_front(some.size());
    priceRest(some, price);
    goesOn = all || best == never;
    for (const Chain &chain : some)
      if (double seconds = mixedSeconds(chain, limit); seconds < best) {
        mixes.push_back({seconds, &chain.node});
        goesOn = true;
      }
  }
  llvm::sort(mixes, [](const auto &a, const auto &b) {
    return std::tie(a.first, a.second->text) < std::tie(b.first, b.second->text);
  });
  mixes.resize(std::min(mixes.size(), mostMixes));
  for (const auto &[seconds, node] : mixes)
    if (seconds < best)
      if (std::optional<FoundPlan> found = mix(*node); found && found->trial.seconds < best) {
        best = found->trial.seconds;
        result.fitting.insert(result.fitting.begin(), std::move(*found));
      }
}
