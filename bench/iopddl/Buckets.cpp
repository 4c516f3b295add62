//===- Buckets.cpp - Variable elimination in buckets of bounded size ------===//
#include "Buckets.h"

#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <set>

using namespace iopddl;
using pc::Price;
using pc::PriceTable;

namespace {

class Buckets {
public:
  Buckets(llvm::ArrayRef<unsigned> choices, std::vector<PriceTable> given, size_t limit)
      : choices(choices), limit(limit), tablesOf(choices.size()) {
    for (PriceTable &table : given)
      put(std::move(table));
  }
  Bounded run();

private:
  void put(PriceTable table);
  double width(unsigned v) const;
  void eliminate(unsigned v);
  PriceTable minimum(unsigned v, llvm::ArrayRef<unsigned> ids, const std::vector<unsigned> &around) const;

  llvm::ArrayRef<unsigned> choices;
  size_t limit;
  std::vector<PriceTable> tables;
  std::vector<std::vector<unsigned>> tablesOf; ///< of a variable that is left, those that are left
  std::vector<std::pair<unsigned, std::vector<unsigned>>> eliminated; ///< with the tables that it had
  Price base;
};

} // namespace

static std::vector<unsigned> others(const PriceTable &table, unsigned v) {
  std::vector<unsigned> result;
  llvm::copy_if(table.variables, std::back_inserter(result), [&](unsigned other) { return other != v; });
  return result;
}

void Buckets::put(PriceTable table) {
  if (table.variables.empty()) {
    base += table.entries[0];
    return;
  }
  for (unsigned v : table.variables)
    tablesOf[v].push_back(tables.size());
  tables.push_back(std::move(table));
}

double Buckets::width(unsigned v) const {
  std::set<unsigned> around;
  for (unsigned id : tablesOf[v])
    around.insert(tables[id].variables.begin(), tables[id].variables.end());
  double product = 1;
  for (unsigned other : around)
    product *= choices[other];
  return product;
}

/// Of the sum of some tables, the least over v for each combination of the variables around it.
PriceTable Buckets::minimum(unsigned v, llvm::ArrayRef<unsigned> ids, const std::vector<unsigned> &around) const {
  std::vector<unsigned> order(around);
  order.push_back(v); // the fastest index
  size_t size = 1;
  for (unsigned other : order)
    size *= choices[other];
  std::vector<Price> joint(size);
  for (unsigned id : ids) {
    const PriceTable &table = tables[id];
    std::vector<size_t> steps(order.size()), counter(order.size());
    size_t step = 1;
    for (unsigned other : llvm::reverse(table.variables)) {
      steps[llvm::find(order, other) - order.begin()] = step;
      step *= choices[other];
    }
    size_t at = 0;
    for (Price &price : joint) {
      price += table.entries[at];
      for (size_t i = order.size(); i-- > 0;) { // count up, the last index fastest
        at += steps[i];
        if (++counter[i] < choices[order[i]])
          break;
        at -= steps[i] * counter[i];
        counter[i] = 0;
      }
    }
  }
  PriceTable least;
  least.variables.assign(around.begin(), around.end());
  for (auto it = joint.begin(); it != joint.end(); it += choices[v])
    least.entries.push_back(*std::min_element(it, it + choices[v]));
  return least;
}

void Buckets::eliminate(unsigned v) {
  std::vector<unsigned> todo = tablesOf[v];
  eliminated.emplace_back(v, todo);
  // Large tables first: small ones find room beside them.
  llvm::sort(todo, [&](unsigned a, unsigned b) {
    return std::pair(tables[b].entries.size(), a) < std::pair(tables[a].entries.size(), b);
  });
  while (!todo.empty()) {
    std::vector<unsigned> together, rest;
    std::vector<unsigned> around;
    for (unsigned id : todo) {
      std::vector<unsigned> wider = around;
      for (unsigned other : others(tables[id], v))
        if (!llvm::is_contained(wider, other))
          wider.push_back(other);
      double size = choices[v];
      for (unsigned other : wider)
        size *= choices[other];
      if (!together.empty() && size > limit) {
        rest.push_back(id);
        continue;
      }
      together.push_back(id);
      around = std::move(wider);
    }
    put(minimum(v, together, around));
    todo = std::move(rest);
  }
  for (unsigned id : eliminated.back().second)
    for (unsigned other : tables[id].variables)
      llvm::erase(tablesOf[other], id);
}

Bounded Buckets::run() {
  std::set<std::pair<double, unsigned>> queue;
  std::vector<double> widthOf(choices.size());
  for (unsigned v = 0; v < choices.size(); ++v)
    queue.insert({widthOf[v] = width(v), v});
  while (!queue.empty()) {
    unsigned v = queue.begin()->second;
    queue.erase(queue.begin());
    std::set<unsigned> around;
    for (unsigned id : tablesOf[v])
      around.insert(tables[id].variables.begin(), tables[id].variables.end());
    around.erase(v);
    eliminate(v);
    for (unsigned other : around) {
      queue.erase({widthOf[other], other});
      queue.insert({widthOf[other] = width(other), other});
    }
  }
  Bounded result{base, Choice(choices.size())};
  for (const auto &[v, ids] : llvm::reverse(eliminated)) {
    std::vector<Price> prices(choices[v]);
    for (unsigned id : ids)
      for (unsigned choice = 0; choice < choices[v]; ++choice) {
        result.choice[v] = choice;
        size_t at = 0;
        for (unsigned other : tables[id].variables)
          at = at * choices[other] + result.choice[other];
        prices[choice] += tables[id].entries[at];
      }
    result.choice[v] = std::min_element(prices.begin(), prices.end()) - prices.begin();
  }
  return result;
}

Bounded iopddl::boundedMinimum(llvm::ArrayRef<unsigned> choices, std::vector<PriceTable> tables, size_t limit) {
  return Buckets(choices, std::move(tables), limit).run();
}
