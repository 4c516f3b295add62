//===- MoveTree.cpp - Moves along one axis and the cheapest tree of them ----------------===//
// Input: the state in which a value is produced and the states in which readers need it, on one axis. Result: the
// cheapest set of moves that produces all of them, as a tree (a directed Steiner tree over at most a few states, by
// dynamic programming over subsets). Prices are bytes or, with a machine, seconds. Results are cached by terms and
// states.
//===-----------------------------------------------------------------------------===//
#include "MoveTree.h"

#include "llvm/ADT/STLExtras.h"

using namespace pc;
using llvm::SmallVector;

SmallVector<AxisState, 6> StateSet::states() const {
  SmallVector<AxisState, 6> result;
  for (int code = -4; code < 60; ++code)
    if (contains(AxisState{static_cast<int8_t>(code)}))
      result.push_back(AxisState{static_cast<int8_t>(code)});
  return result;
}

/// Translates two states to the kind of move between them. Not every pair has one: a partial value can only be reduced.
std::optional<MoveKind> Moves::kind(const MoveTerms &terms, AxisState from, AxisState to) const {
  for (AxisState state : {from, to})
    if (state.isSplit() && !(terms.dims >> state.dim() & 1))
      return std::nullopt;
  // A value is never both a partial sum and a partial maximum: the maximum of sums is not the sum of maxima.
  if (from == to || to.isMax() || (to.isSum() && (terms.max || from.isMax())))
    return std::nullopt;
  auto stateOf = [](AxisState state) {
    return state.isRoot()      ? PCRT_STATE_ROOT
           : state.isPartial() ? PCRT_STATE_PARTIAL
           : state.isSplit()   ? PCRT_STATE_SPLIT
                               : PCRT_STATE_WHOLE;
  };
  for (int32_t kind = 0; kind < PCRT_NUM_MOVE_KINDS; ++kind)
    if (const pcrt_move_facts *facts = pcrt_facts_of_move(kind);
        facts->needs == stateOf(from) && facts->makes == stateOf(to) && facts->way != PCRT_WAY_LINK &&
        !(facts->flags & PCRT_MOVE_UNPLACED))
      return static_cast<MoveKind>(kind);
  return std::nullopt;
}

/// Without a machine the price is traffic. With a machine, it is seconds, multiplied by the exposed share.
Price Moves::priceOf(MoveKind kind, __int128 units, const MoveTerms &terms) const {
  if (!machine)
    return Price::move(units * terms.times);
  double wire = static_cast<double>(units) / static_cast<double>(size), share = terms.exposed / 1024.0;
  double seconds = moveSeconds(kind, wire, mesh, axis, *machine) * static_cast<double>(terms.times) * share;
  return Price::seconds(seconds) + Price{1 << 20, 0, 0};
}

/// Bytes on the wire under the bandwidth-optimal algorithms. A move that sends nothing costs only its count.
Price Moves::price(const MoveTerms &terms, AxisState from, AxisState to) const {
  std::optional<MoveKind> move = kind(terms, from, to);
  if (!move || (terms.fixed && hasTraffic(*move)))
    return Price::illegal();
  if (!hasTraffic(*move))
    return Price::move(0);
  // The bytes that a rank sends, times n, which is always an integer.
  __int128 once = static_cast<__int128>(terms.bytes) * (size - 1);
  if (takesBlocks(*move) && makesBlocks(*move)) {
    // Moves between tokens and experts send only routed tokens (pc-store-rows).
    if (terms.experts >= 0 && (from.dim() == terms.experts || to.dim() == terms.experts))
      once = static_cast<__int128>(terms.rowBytes) * (size - 1);
    return priceOf(*move, once / size, terms);
  }
  // The bytes that the root sends or receives, if there is a root.
  if (takesBlocks(*move) || makesBlocks(*move))
    return priceOf(*move, once, terms);
  // The price is the sum of two moves with blocks in between (reduce_scatter and all_gather, scatter and gather). The
  // root of a broadcast or reduce sends or receives n times `once`, but with that price, a tree's price would depend on
  // which other states it passes through.
  return priceOf(*move, 2 * once, terms);
}

const MoveTree &Moves::tree(const MoveTerms &terms, AxisState from, StateSet needed) {
  auto [it, inserted] = known.try_emplace({terms, from.code, needed.mask()});
  if (inserted)
    it->second = search(terms, from, needed);
  return it->second;
}

/// A tree can be built by adding one state at a time, each by a move from the existing state with the cheapest move. So
/// the best tree over a set of states is the best tree over the set without one state, plus this state.
MoveTree Moves::search(const MoveTerms &terms, AxisState from, StateSet needed) const {
  StateSet others = needed;
  others.insert(AxisState::whole()); // reduce to the whole value, then slice
  SmallVector<AxisState, 6> nodes{from};
  for (AxisState state : others.states())
    if (state != from)
      nodes.push_back(state);
  unsigned n = nodes.size(), all = 1u << n, goal = 1;
  for (unsigned i = 1; i < n; ++i)
    if (needed.contains(nodes[i]))
      goal |= 1u << i;
  // best[set]: the cheapest tree that produces exactly the states in `set`, as bits over `nodes`.
  std::vector<MoveTree> best(all);
  std::vector<bool> reached(all);
  reached[1] = true;
  for (unsigned set = 1; set < all; ++set) {
    if (!reached[set])
      continue;
    for (unsigned to = 1; to < n; ++to) {
      if (set >> to & 1)
        continue;
      int via = -1;
      Price cheapest;
      for (unsigned s = 0; s < n; ++s)
        if (set >> s & 1) {
          Price price = this->price(terms, nodes[s], nodes[to]);
          if (via < 0 || price < cheapest)
            via = s, cheapest = price;
        }
      unsigned bigger = set | 1u << to;
      Price price = best[set].price + cheapest;
      if (reached[bigger] && !(price < best[bigger].price))
        continue;
      best[bigger] = best[set];
      best[bigger].price = price;
      best[bigger].parents.push_back({nodes[to], nodes[via]});
      reached[bigger] = true;
    }
  }
  // The cheapest tree that has all needed states; it may have others on the way.
  MoveTree *result = nullptr;
  for (unsigned set = 1; set < all; ++set)
    if (reached[set] && (set & goal) == goal && (!result || best[set].price < result->price))
      result = &best[set];
  return *result;
}
