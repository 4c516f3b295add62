//===- Search.cpp - Prices of moments, and parts of a graph solved exactly -===//
// Costs are scaled, so that prices of moments may be small whole numbers: usage is counted in units that are not those
// of costs. What is minimized is scale * cost + sum of price(moment) * usage(moment).
//===----------------------------------------------------------------------===//
#include "Search.h"
#include "Buckets.h"

#include "llvm/ADT/STLExtras.h"
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <set>

using namespace iopddl;
using llvm::SmallVector;
using pc::Price;
using pc::PriceTable;

namespace {

class Search {
public:
  Search(const Graph &graph, const Effort &effort)
      : graph(graph), effort(effort), alive(graph.limit ? moments(graph) : std::vector<std::vector<unsigned>>()),
        prices(alive.size()), momentsOf(graph.nodes.size()), edgesOf(graph.nodes.size()) {}
  Found run();

private:
  using Weights = std::vector<double>; ///< of moments: of a unit used, in units of cost

  void prepare();
  void setPrices(const Weights &weights);
  PriceTable ofNode(unsigned node) const;
  PriceTable ofEdges(const PriceTable &table, const std::vector<int> &indexOf) const;
  /// Everything, at the prices of now. Its bound is one on costs within the limit. `counts`: where each choice has
  /// combinations that are forbidden, one with the fewest.
  Bounded whole(bool counts = false);
  __int128 boundOf(Price least) const;
  bool take(const Choice &choice);
  std::vector<__int128> overuse(const Choice &choice) const;
  void followMultipliers(Weights &weights);
  bool branch(unsigned rounds);
  bool hasRoom() const;
  unsigned nodeToDecide(const Choice &choice) const;
  void assignParts(Weights &weights);
  std::vector<unsigned> part(unsigned size, bool followsTight, const std::vector<__int128> &over);
  bool assignPart(llvm::ArrayRef<unsigned> nodes, Choice &now);
  bool isOver() const;

  const Graph &graph;
  const Effort &effort;
  std::vector<std::vector<unsigned>> alive;
  std::vector<__int128> prices; ///< of moments
  std::vector<std::vector<unsigned>> momentsOf, edgesOf;
  std::vector<unsigned> sizes;
  std::vector<int> decided;      ///< of nodes: the one strategy that is looked at, or -1
  std::vector<PriceTable> edges; ///< of different nodes each
  std::vector<double> tightness; ///< of edges: the share of combinations that are forbidden
  __int128 scale = 1;
  Found found;
  std::mt19937_64 dice{1};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

} // namespace

/// What is forbidden counts before all else, as it does in sums of costs.
static Price price(__int128 cost, __int128 scale) {
  return cost >= forbidden ? Price::illegal() + Price{(cost - forbidden) * scale, 0, 0} : Price{cost * scale, 0, 0};
}

/// One table for all edges of the same nodes; node strategies that meet themselves in an edge have its diagonal.
static std::vector<PriceTable> tablesOf(const Graph &graph, __int128 scale) {
  std::map<std::vector<unsigned>, PriceTable> joined;
  for (const Edge &edge : graph.edges) {
    std::vector<unsigned> nodes = edge.nodes;
    llvm::sort(nodes);
    nodes.erase(llvm::unique(nodes), nodes.end());
    PriceTable &table = joined[nodes];
    size_t size = 1;
    for (unsigned node : nodes)
      size *= graph.nodes[node].costs.size();
    table.variables.assign(nodes.begin(), nodes.end());
    table.entries.resize(size);
    std::vector<unsigned> choice(nodes.size());
    for (Price &entry : table.entries) {
      size_t at = 0;
      for (unsigned node : edge.nodes)
        at = at * graph.nodes[node].costs.size() + choice[llvm::find(nodes, node) - nodes.begin()];
      entry += price(edge.costs[at], scale);
      for (size_t i = nodes.size(); i-- > 0;) {
        if (++choice[i] < graph.nodes[nodes[i]].costs.size())
          break;
        choice[i] = 0;
      }
    }
  }
  std::vector<PriceTable> tables;
  for (auto &[nodes, table] : joined)
    tables.push_back(std::move(table));
  return tables;
}

void Search::prepare() {
  // As fine as sums of costs leave room for, without what is counted of those that are forbidden.
  __int128 most = 1;
  auto add = [&](llvm::ArrayRef<int64_t> costs) {
    int64_t largest = 0;
    for (int64_t cost : costs)
      largest = std::max(largest, cost < forbidden ? cost : cost - forbidden);
    most += largest;
  };
  for (const Node &node : graph.nodes) {
    sizes.push_back(node.costs.size());
    decided.push_back(-1);
    add(node.costs);
  }
  for (const Edge &edge : graph.edges)
    add(edge.costs);
  if (graph.limit)
    for (scale = __int128(1) << 32; scale > 1 && most * scale > (__int128(1) << 96);)
      scale >>= 1;
  edges = tablesOf(graph, scale);
  for (const PriceTable &table : edges)
    tightness.push_back(
        static_cast<double>(llvm::count_if(table.entries, [](const Price &p) { return !p.isLegal(); })) /
        static_cast<double>(table.entries.size()));
  for (auto [i, table] : llvm::enumerate(edges))
    for (unsigned node : table.variables)
      edgesOf[node].push_back(i);
  for (auto [t, nodes] : llvm::enumerate(alive))
    for (unsigned node : nodes)
      momentsOf[node].push_back(t);
}

void Search::setPrices(const Weights &weights) {
  for (auto [price, weight] : llvm::zip_equal(prices, weights))
    price = static_cast<__int128>(weight * static_cast<double>(scale));
}

PriceTable Search::ofNode(unsigned node) const {
  __int128 unit = 0;
  for (unsigned t : momentsOf[node])
    unit += prices[t];
  PriceTable table;
  table.variables.push_back(node);
  for (auto [cost, usage] : llvm::zip_equal(graph.nodes[node].costs, graph.nodes[node].usages))
    table.entries.push_back(price(cost, scale) + Price{unit * usage, 0, 0});
  for (unsigned i = 0; i < sizes[node] && decided[node] >= 0; ++i)
    if (decided[node] != static_cast<int>(i))
      table.entries[i] += Price::illegal();
  return table;
}

Bounded Search::whole(bool counts) {
  std::vector<PriceTable> tables = edges;
  for (unsigned node = 0; node < sizes.size(); ++node)
    tables.push_back(ofNode(node));
  if (std::optional<pc::Assignment> exact = pc::minimize(sizes, tables, counts, effort.table)) {
    found.isExact = true;
    return {exact->price, exact->choice};
  }
  return boundedMinimum(sizes, std::move(tables), effort.table / 16);
}

__int128 Search::boundOf(Price least) const {
  __int128 one = Price::illegal().traffic, count = (least.traffic + one / 2) / one;
  __int128 bound = least.traffic - count * one;
  for (__int128 price : prices)
    bound -= price * *graph.limit;
  return count * forbidden + (bound <= 0 ? 0 : (bound + scale - 1) / scale);
}

std::vector<__int128> Search::overuse(const Choice &choice) const {
  std::vector<__int128> over;
  for (const std::vector<unsigned> &nodes : alive) {
    __int128 used = 0;
    for (unsigned node : nodes)
      used += graph.nodes[node].usages[choice[node]];
    over.push_back(used - *graph.limit);
  }
  return over;
}

/// Keeps a choice that is within the limit and the best so far; whether it is within the limit.
bool Search::take(const Choice &choice) {
  if (llvm::any_of(overuse(choice), [](__int128 over) { return over > 0; }))
    return false;
  __int128 cost = costOf(graph, choice);
  if (!found.choice || cost < found.cost) {
    found.choice = choice;
    found.cost = cost;
  }
  return true;
}

bool Search::isOver() const {
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return found.rounds >= effort.rounds || (effort.seconds && took.count() > effort.seconds) ||
         (found.choice && found.cost <= found.bound);
}

/// Where the whole is solved exactly: prices by B. Polyak's steps, the length of which the best choice so far says.
void Search::followMultipliers(Weights &weights) {
  Weights now = weights;
  double length = 1;
  for (int step = 0; step < 60 && !isOver(); ++step, ++found.rounds) {
    setPrices(now);
    Bounded answer = whole();
    take(answer.choice);
    if (__int128 bound = boundOf(answer.bound); bound > found.bound || step == 0) {
      found.bound = std::max(found.bound, bound);
      weights = now;
    } else {
      length *= 0.9;
    }
    std::vector<__int128> over = overuse(answer.choice);
    double norm = 0, above = static_cast<double>(found.choice ? found.cost : found.bound + found.bound / 10 + 1);
    for (__int128 each : over)
      norm += std::pow(static_cast<double>(each), 2);
    if (norm == 0)
      break;
    double by = length * std::max(above - static_cast<double>(boundOf(answer.bound)), 1.0) / norm;
    for (auto [weight, each] : llvm::zip_equal(now, over))
      weight = std::max(0.0, weight + by * static_cast<double>(each));
  }
}

/// Whether the thriftiest choices that are left are within the limit.
bool Search::hasRoom() const {
  return llvm::all_of(alive, [&](const std::vector<unsigned> &nodes) {
    __int128 used = 0;
    for (unsigned node : nodes) {
      const std::vector<int64_t> &usages = graph.nodes[node].usages;
      used += decided[node] >= 0 ? usages[decided[node]] : *llvm::min_element(usages);
    }
    return used <= *graph.limit;
  });
}

/// Of the nodes that are not decided, alive at the moment that is used most, the one whose strategies differ most in
/// what they use.
unsigned Search::nodeToDecide(const Choice &choice) const {
  unsigned best = sizes.size();
  __int128 most = 0;
  for (auto [nodes, over] : llvm::zip_equal(alive, overuse(choice)))
    for (unsigned node : nodes) {
      auto [least, largest] = std::minmax_element(graph.nodes[node].usages.begin(), graph.nodes[node].usages.end());
      __int128 matters = (*largest - *least) * (over + *graph.limit + 1);
      if (decided[node] < 0 && matters > most)
        std::tie(best, most) = std::pair(node, matters);
    }
  return best;
}

/// Looks at all choices with the strategies that are decided, but for those that cannot be cheaper than the best, and
/// for ones with combinations that are forbidden; false where the rounds did not suffice.
bool Search::branch(unsigned rounds) {
  if (found.rounds >= rounds || isOver())
    return false;
  if (!hasRoom())
    return true;
  ++found.rounds;
  Bounded answer = whole();
  if (!answer.bound.isLegal() || (found.choice && boundOf(answer.bound) >= found.cost))
    return true;
  take(answer.choice);
  if (found.choice && boundOf(answer.bound) >= found.cost)
    return true;
  unsigned node = nodeToDecide(answer.choice);
  if (node == sizes.size()) { // what is left uses the same, and so costs alone count
    std::vector<__int128> held(prices.size());
    std::swap(prices, held);
    take(whole().choice);
    std::swap(prices, held);
    return true;
  }
  bool isComplete = true;
  for (unsigned i = 0; i < sizes[node] && isComplete; ++i) {
    // The strategy of the answer first: what is found early cuts more.
    decided[node] = (answer.choice[node] + i) % sizes[node];
    isComplete = branch(rounds);
  }
  decided[node] = -1;
  return isComplete;
}

/// A table with the variables that are not of the part held at their choice; empty `variables` where none is of it.
PriceTable Search::ofEdges(const PriceTable &table, const std::vector<int> &indexOf) const {
  // Negative: held at -1 - choice.
  PriceTable result;
  SmallVector<size_t> steps, counts;
  size_t at = 0, step = 1, size = 1;
  for (unsigned node : llvm::reverse(table.variables)) {
    if (indexOf[node] >= 0) {
      result.variables.insert(result.variables.begin(), indexOf[node]);
      steps.insert(steps.begin(), step);
      counts.insert(counts.begin(), sizes[node]);
      size *= sizes[node];
    } else {
      at += step * (-1 - indexOf[node]);
    }
    step *= sizes[node];
  }
  SmallVector<size_t> counter(steps.size());
  for (size_t k = 0; k < size; ++k) {
    result.entries.push_back(table.entries[at]);
    for (size_t i = steps.size(); i-- > 0;) {
      at += steps[i];
      if (++counter[i] < counts[i])
        break;
      at -= steps[i] * counts[i];
      counter[i] = 0;
    }
  }
  return result;
}

/// Nodes that edges connect, from one at random on; where the limit is exceeded, from one that is alive then. Every
/// other part follows edges that forbid most first: nodes that determine each other can only change together.
std::vector<unsigned> Search::part(unsigned size, bool followsTight, const std::vector<__int128> &over) {
  unsigned seed = dice() % sizes.size();
  std::vector<unsigned> wrong;
  for (auto [t, each] : llvm::enumerate(over))
    if (each > 0)
      wrong.push_back(t);
  if (!wrong.empty() && dice() % 2) {
    const std::vector<unsigned> &nodes = alive[wrong[dice() % wrong.size()]];
    seed = nodes[dice() % nodes.size()];
  }
  std::vector<unsigned> nodes;
  std::vector<bool> known(sizes.size());
  std::set<std::pair<double, unsigned>> next{{0, seed}};
  std::vector<double> place(sizes.size(), 1e9);
  while (!next.empty() && nodes.size() < size) {
    unsigned node = next.begin()->second;
    next.erase(next.begin());
    known[node] = true;
    nodes.push_back(node);
    for (unsigned id : edgesOf[node])
      for (unsigned other : edges[id].variables) {
        double random = static_cast<double>(dice() % 1024) / 1024;
        double at = followsTight ? random * 0.1 - tightness[id] : static_cast<double>(nodes.size()) + random;
        if (known[other] || at >= place[other])
          continue;
        next.erase({place[other], other});
        next.insert({place[other] = at, other});
      }
  }
  return nodes;
}

/// The best choices of these nodes while others keep theirs; false where tables would be too large.
bool Search::assignPart(llvm::ArrayRef<unsigned> nodes, Choice &now) {
  std::vector<int> indexOf(sizes.size());
  for (unsigned node = 0; node < sizes.size(); ++node)
    indexOf[node] = -1 - static_cast<int>(now[node]);
  std::vector<unsigned> counts;
  for (unsigned node : nodes) {
    indexOf[node] = counts.size();
    counts.push_back(sizes[node]);
  }
  std::vector<PriceTable> tables;
  std::vector<bool> known(edges.size());
  for (unsigned node : nodes) {
    tables.push_back(ofNode(node));
    tables.back().variables[0] = indexOf[node];
    for (unsigned id : edgesOf[node])
      if (!known[id]) {
        known[id] = true;
        tables.push_back(ofEdges(edges[id], indexOf));
      }
  }
  std::optional<pc::Assignment> best = pc::minimize(counts, std::move(tables), true, effort.table / 8);
  if (!best)
    return false;
  for (auto [node, choice] : llvm::zip_equal(nodes, best->choice))
    now[node] = choice;
  return true;
}

void Search::assignParts(Weights &weights) {
  setPrices(weights);
  Choice now = found.choice ? *found.choice : whole().choice;
  std::array<unsigned, 2> sizes{16, 16}; // of both kinds of parts: as many as tables have room for
  // What the limit is worth at first: all of the cost, if one moment had to pay for it.
  double unit =
      graph.limit ? static_cast<double>(costOf(graph, now) % forbidden) / (static_cast<double>(*graph.limit) + 1) : 0;
  for (; !isOver(); ++found.rounds) {
    std::vector<__int128> over = overuse(now);
    unsigned &size = sizes[found.rounds % 2];
    size = assignPart(part(size, found.rounds % 2, over), now) ? size + 2 : std::max(4U, size * 7 / 8);
    bool fits = take(now);
    if (!graph.limit || found.rounds % 8)
      continue;
    over = overuse(now);
    for (auto [weight, each] : llvm::zip_equal(weights, over)) {
      double share = static_cast<double>(each) / (static_cast<double>(*graph.limit) + 1);
      if (each > 0)
        weight = weight * 1.05 + unit * 0.02 * std::min(share, 0.5);
      else if (fits)
        weight *= 0.98;
    }
    setPrices(weights);
  }
}

Found Search::run() {
  prepare();
  Weights weights(alive.size());
  setPrices(weights);
  Bounded first = whole();
  ++found.rounds;
  if (found.isExact && !first.bound.isLegal())
    first = whole(/*counts=*/true);
  found.bound = boundOf(first.bound);
  bool fits = take(first.choice);
  if (found.isExact && !fits) {
    followMultipliers(weights);
    setPrices(weights);
    bool isComplete = branch(found.rounds + effort.rounds / 2);
    if (isComplete)
      found.bound = found.choice && found.cost < forbidden ? found.cost : std::max<__int128>(found.bound, forbidden);
  }
  if (!isOver())
    assignParts(weights);
  return found;
}

Found iopddl::search(const Graph &graph, const Effort &effort) { return Search(graph, effort).run(); }
