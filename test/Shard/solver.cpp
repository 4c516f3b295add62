//===- solver.cpp - Search and move trees compared with brute force -------===//
// Random instances from fixed seeds, compared with all combinations. Run by solver.test.
//===----------------------------------------------------------------------===//
#include "../../lib/Shard/Solver.h"
#include "../../lib/Shard/MoveTree.h"
#include "../Checks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

using namespace pc;

static std::mt19937_64 random_(11); // raw bits only: distributions differ between libraries
static unsigned below(unsigned n) { return random_() % n; }

/// Entries that are often equal in every field of the price, and sometimes illegal.
static Price randomPrice() {
  if (below(8) == 0)
    return Price::illegal();
  return Price::move(below(4)) + Price{0, static_cast<int64_t>(below(3)), static_cast<int64_t>(below(3))};
}

static Price priceOf(const std::vector<PriceTable> &tables, llvm::ArrayRef<unsigned> sizes,
                     llvm::ArrayRef<unsigned> choice) {
  Price total;
  for (const PriceTable &table : tables) {
    size_t at = 0;
    for (unsigned v : table.variables)
      at = at * sizes[v] + choice[v];
    total += table.entries[at];
  }
  return total;
}

/// Random tables over one to three of up to eight variables.
static void testSolver(bool countIllegal) {
  int legal = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<unsigned> sizes(1 + below(8));
    for (unsigned &size : sizes)
      size = 1 + below(3);
    std::vector<PriceTable> tables;
    for (unsigned t = 0, n = sizes.size() + below(6); t < n; ++t) {
      PriceTable table;
      size_t entries = 1;
      for (unsigned k = 0, arity = 1 + below(3); k < arity; ++k)
        if (unsigned v = below(sizes.size()); !llvm::is_contained(table.variables, v)) {
          table.variables.push_back(v);
          entries *= sizes[v];
        }
      for (size_t i = 0; i < entries; ++i)
        table.entries.push_back(randomPrice());
      tables.push_back(std::move(table));
    }
    std::optional<Assignment> found = minimize(sizes, tables, countIllegal);
    require(found.has_value(), "small instances fit");
    require(priceOf(tables, sizes, found->choice) == found->price, "the price is that of the choices");
    std::vector<unsigned> choice(sizes.size());
    Price best = priceOf(tables, sizes, choice);
    for (bool more = true; more;) {
      best = std::min(best, priceOf(tables, sizes, choice));
      more = false;
      for (size_t v = 0; v < sizes.size() && !more; ++v)
        if (++choice[v] < sizes[v])
          more = true;
        else
          choice[v] = 0;
    }
    legal += best.isLegal();
    if (countIllegal || best.isLegal())
      require(found->price == best, "no assignment is cheaper");
    else
      require(!found->price.isLegal(), "what has no legal assignment is found illegal");
  }
  std::printf("solver%s: 400 instances, %d of them legal\n", countIllegal ? ", counting illegal entries" : "", legal);
}

/// A chain as long as a large program stays narrow.
static void testChain() {
  unsigned n = 20000;
  std::vector<unsigned> sizes(n, 4);
  std::vector<PriceTable> tables;
  for (unsigned v = 0; v + 1 < n; ++v) {
    PriceTable table{{v, v + 1}, {}};
    for (int i = 0; i < 16; ++i)
      table.entries.push_back(Price::move(below(100)));
    tables.push_back(std::move(table));
  }
  std::optional<Assignment> found = minimize(sizes, tables);
  require(found && found->largestTable <= 64, "a chain needs tables of three variables at most");
  std::vector<Price> best(4);
  for (const PriceTable &table : tables) { // the textbook recurrence
    std::vector<Price> next;
    for (int b = 0; b < 4; ++b) {
      Price least = best[0] + table.entries[b];
      for (int a = 1; a < 4; ++a)
        least = std::min(least, best[a] + table.entries[a * 4 + b]);
      next.push_back(least);
    }
    best = next;
  }
  require(found->price == *std::min_element(best.begin(), best.end()), "a chain is solved exactly");
  std::printf("chain of %u: largest table %zu\n", n, found->largestTable);
}

/// A graph that needs a larger table than the limit has no answer. With a limit of that size it has the exact answer.
static void testLimit() {
  std::vector<unsigned> sizes(6, 3);
  std::vector<PriceTable> tables;
  for (unsigned a = 0; a < 6; ++a)
    for (unsigned b = a + 1; b < 6; ++b) {
      PriceTable table{{a, b}, {}};
      for (unsigned i = 0; i < 9; ++i)
        table.entries.push_back(Price::move(1 + below(100)));
      tables.push_back(std::move(table));
    }
  std::optional<Assignment> exact = minimize(sizes, tables);
  require(exact && exact->largestTable > 9, "all pairs need a larger table than a pair's");
  require(!minimize(sizes, tables, false, 9), "no table exceeds the limit");
  std::optional<Assignment> enough = minimize(sizes, tables, false, exact->largestTable);
  require(enough && enough->price == exact->price, "the largest table is within the limit");
  std::printf("limit: %zu entries\n", exact->largestTable);
}

/// Tries every way to make each needed state, and the whole state if it helps, from another state.
static Price cheapestTree(const Moves &moves, const MoveTerms &terms, AxisState from, StateSet needed) {
  std::vector<AxisState> nodes{from};
  StateSet others = needed;
  others.insert(AxisState::whole());
  for (AxisState state : others.states())
    if (state != from)
      nodes.push_back(state);
  Price best =
      Price::illegal() + Price::illegal() + Price::illegal() + Price::illegal() + Price::illegal() + Price::illegal();
  std::vector<size_t> parent(nodes.size());
  auto tryAll = [&](auto &&self, size_t node, Price price) -> void {
    if (node == nodes.size()) {
      for (size_t i = 1; i < nodes.size(); ++i) { // in a tree, every node has a path to the root
        size_t at = i, steps = 0;
        while (at && parent[at] != at && ++steps <= nodes.size())
          at = parent[at];
        if (at && parent[at] != at)
          return;
        if (at && (needed.contains(nodes[i]) || i != at))
          return; // depends on an omitted state, or is omitted although it is needed
      }
      best = std::min(best, price);
      return;
    }
    for (size_t p = 0; p < nodes.size(); ++p) {
      parent[node] = p; // p == node: omitted
      self(self, node + 1, p == node ? price : price + moves.price(terms, nodes[p], nodes[node]));
    }
  };
  tryAll(tryAll, 1, Price());
  return best;
}

static void testTrees() {
  Moves moves(4);
  int trees = 0;
  std::vector<AxisState> states{AxisState::max(),    AxisState::sum(),    AxisState::whole(),
                                AxisState::split(0), AxisState::split(1), AxisState::split(2)};
  for (int round = 0; round < 300; ++round) {
    MoveTerms terms;
    terms.bytes = 16 * (1 + below(8));
    terms.times = 1 + below(2);
    terms.dims = below(8);
    terms.sum = below(4) == 0;
    terms.max = !terms.sum && below(4) == 0;
    terms.fixed = below(6) == 0;
    AxisState from = states[below(6)];
    StateSet needed;
    for (unsigned i = 0, n = below(4); i < n; ++i)
      needed.insert(states[below(6)]);
    const MoveTree &tree = moves.tree(terms, from, needed);
    Price sum;
    StateSet made;
    made.insert(from);
    for (auto [state, parent] : tree.parents) {
      require(made.contains(parent), "parents come before children");
      made.insert(state);
      sum += moves.price(terms, parent, state);
    }
    require(sum == tree.price && made.contains(needed), "the tree makes what is needed at its price");
    require(tree.price == cheapestTree(moves, terms, from, needed), "no tree is cheaper");
    ++trees;
  }
  std::printf("move trees: %d\n", trees);
}

int main() {
  testSolver(false);
  testSolver(true);
  testChain();
  testLimit();
  testTrees();
  std::printf("passed\n");
  return 0;
}
