//===- Solver.cpp - Dead-end elimination and variable elimination -----------------------===//
// Invariants, and why the result is exact:
//  1. Every step keeps the minimum of `base` + the sum of `tables` over the choices that are `alive`.
//  2. Dead end: choice d of a variable is removed if another choice c never costs more, that is, if the sum over tables
//     of the least difference d - c is more than 0 (or is 0 and c has the lower number). c must be legal wherever d is.
//     A choice without a legal entry in some table is also removed.
//  3. Elimination of v: one table over its neighbours replaces its tables. It has the price of v's best choice for each
//     combination of their choices; a record keeps this best choice. When no variable is left, the minimum is in
//     `base`.
//  4. Records are read in reverse order: at that point, the neighbours of v already have choices that were alive when v
//     was eliminated.
//  5. The algorithm ends: a dead end removes a choice, and each round of `run` eliminates a variable whose width is
//     within the cap, or gives up. Variables with wide tables wait, because dead ends may still narrow them.
// R. Desmet et al., "The dead-end elimination theorem", Nature 356 (1992); U. Bertele and F. Brioschi, "Nonserial
// dynamic programming" (1972).
//===-----------------------------------------------------------------------------===//
#include "Solver.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/Debug.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <numeric>
#include <set>

#define DEBUG_TYPE "pc-solver"

using namespace pc;
using llvm::ArrayRef;
using llvm::SmallVector;

namespace {

using Choices = SmallVector<unsigned, 4>;

/// Variables with larger tables are not searched for dead ends.
constexpr size_t largestForDeadEnds = 1 << 12;

/// Solves one problem. State: the choices that are not yet ruled out (`alive`), the remaining tables, and a record of
/// each eliminated variable, from which run() reads the assignment at the end.
class Solver {
public:
  /// At first every choice of every variable is alive.
  Solver(ArrayRef<unsigned> choices, std::vector<PriceTable> given, bool countIllegal, size_t limit)
      : countIllegal(countIllegal), limit(limit), alive(choices.size()), tablesOf(choices.size()),
        done(choices.size()) {
    for (auto [v, n] : llvm::enumerate(choices))
      alive[v] = llvm::to_vector<4>(llvm::seq<unsigned>(0, n));
    for (PriceTable &table : given)
      put(std::move(table));
  }

  std::optional<Assignment> run();

private:
  /// An eliminated variable, with its best choice for every combination of its neighbours' choices.
  struct Eliminated {
    unsigned variable;
    Choices choices;
    SmallVector<unsigned> neighbours;
    SmallVector<Choices> neighbourChoices;
    std::vector<unsigned> best;
  };

  /// A few entries of a choice. They are usually enough to show that the choice does not always cost more than another
  /// one.
  struct Sample {
    Price first, last;    ///< sums of the first and of the last entries of its tables
    uint64_t illegal = 0; ///< bit set of illegal entries of its tables, by their numbers modulo 64
    bool isNever = false; ///< some table has no legal entry
  };

  void put(PriceTable table);
  void removeTable(unsigned id);
  bool dominated(unsigned v, unsigned dear, unsigned cheap, ArrayRef<size_t> steps) const;
  SmallVector<Sample, 8> samplesOf(unsigned v, ArrayRef<size_t> steps) const;
  bool mayDominate(ArrayRef<Sample> samples, int dear, int cheap) const;
  bool isDead(unsigned v, int dear, ArrayRef<Sample> samples, ArrayRef<size_t> steps, ArrayRef<bool> gone) const;
  void removeChoices(unsigned v, ArrayRef<bool> gone);
  void eliminateDeadEnds(std::vector<unsigned> todo);
  void fix(unsigned v);
  SmallVector<unsigned> neighbours(unsigned v) const;
  double width(unsigned v) const;
  void eliminate(unsigned v);
  /// The distance in `table` between the entries of consecutive choices of `v`; 0 if the table does not depend on `v`.
  size_t stride(const PriceTable &table, unsigned v) const;

  bool countIllegal;
  size_t limit;
  std::vector<Choices> alive; ///< for each variable, the remaining choices
  std::vector<PriceTable> tables;
  std::vector<SmallVector<unsigned, 4>> tablesOf; ///< per variable
  std::vector<bool> done;
  std::vector<Eliminated> eliminated;
  Price base;
  size_t largest = 1;
};

/// A table without variables is a constant, so it is added to `base`.
void Solver::put(PriceTable table) {
  if (table.variables.empty()) {
    base += table.entries[0];
    return;
  }
  for (unsigned v : table.variables)
    tablesOf[v].push_back(tables.size());
  tables.push_back(std::move(table));
}

void Solver::removeTable(unsigned id) {
  for (unsigned v : tables[id].variables)
    llvm::erase(tablesOf[v], id);
  tables[id] = {};
}

/// Tables are row major: the stride of a variable is the product of the numbers of choices of the variables after it.
size_t Solver::stride(const PriceTable &table, unsigned v) const {
  size_t result = 1;
  for (unsigned other : llvm::reverse(table.variables)) {
    if (other == v)
      return result;
    result *= alive[other].size();
  }
  return 0;
}

/// Returns true if choice `dear` of `v` can be removed because `cheap` is at least as good for every choice of the
/// neighbours. `steps` are the strides of its tables.
bool Solver::dominated(unsigned v, unsigned dear, unsigned cheap, ArrayRef<size_t> steps) const {
  // Adds the differences of the first entries, if both are legal. The least difference of each table is not larger.
  Price atMost;
  bool isKnown = true;
  for (auto [id, step] : llvm::zip_equal(tablesOf[v], steps)) {
    const Price &x = tables[id].entries[dear * step], &y = tables[id].entries[cheap * step];
    isKnown &= countIllegal || (x.isLegal() && y.isLegal());
    atMost += x - y;
  }
  auto isNot = [&](const Price &most) { return most < Price() || (most == Price() && cheap > dear); };
  if (isKnown && isNot(atMost))
    return false;
  // `dear` is dominated if the sum of the smallest differences of all tables is not below 0.
  Price total;
  size_t n = alive[v].size();
  for (auto [id, step] : llvm::zip_equal(tablesOf[v], steps)) {
    const PriceTable &table = tables[id];
    bool first = true;
    Price least;
    for (size_t outer = 0; outer < table.entries.size(); outer += step * n)
      for (size_t inner = 0; inner < step; ++inner) {
        const Price &x = table.entries[outer + dear * step + inner], &y = table.entries[outer + cheap * step + inner];
        if (!countIllegal && !x.isLegal())
          continue;
        if (!countIllegal && !y.isLegal())
          return false;
        Price difference = x - y;
        if (!first && !(difference < least))
          continue;
        if (!first)
          atMost += difference - least;
        if (!first && isKnown && isNot(atMost))
          return false;
        least = difference;
        first = false;
      }
    if (first)
      return true; // `dear` is illegal throughout this table
    total += least;
  }
  return !isNot(total);
}

/// Returns true if some choice that is not `gone` is at least as good as `dear` for all neighbours.
bool Solver::isDead(unsigned v, int dear, ArrayRef<Sample> samples, ArrayRef<size_t> steps, ArrayRef<bool> gone) const {
  if (samples[dear].isNever)
    return true;
  for (int cheap = 0; cheap < static_cast<int>(samples.size()); ++cheap)
    if (cheap != dear && !gone[cheap] && mayDominate(samples, dear, cheap) && dominated(v, dear, cheap, steps))
      return true;
  return false;
}

/// Removes choices from `v` and from all its tables, in place.
void Solver::removeChoices(unsigned v, ArrayRef<bool> gone) {
  size_t n = alive[v].size();
  for (unsigned id : tablesOf[v]) {
    std::vector<Price> &entries = tables[id].entries;
    size_t step = stride(tables[id], v), to = 0;
    for (size_t outer = 0; outer < entries.size(); outer += step * n)
      for (size_t choice = 0; choice < n; ++choice)
        if (!gone[choice]) {
          std::copy_n(entries.begin() + outer + choice * step, step, entries.begin() + to);
          to += step;
        }
    entries.resize(to);
  }
  Choices left;
  for (auto [choice, isGone] : llvm::zip_equal(alive[v], gone))
    if (!isGone)
      left.push_back(choice);
  alive[v] = std::move(left);
}

/// Returns true if choice `cheap` may be at least as good as `dear` for all neighbours, judging by samples.
bool Solver::mayDominate(ArrayRef<Sample> samples, int dear, int cheap) const {
  const Sample &a = samples[dear], &b = samples[cheap];
  if (b.illegal & ~a.illegal)
    return false;
  if (a.illegal || b.illegal)
    return true;
  return cheap < dear ? !(a.first < b.first) && !(a.last < b.last) : b.first < a.first && b.last < a.last;
}

/// Some entries of each choice. For most pairs, they show that neither choice dominates the other, without reading all
/// entries.
SmallVector<Solver::Sample, 8> Solver::samplesOf(unsigned v, ArrayRef<size_t> steps) const {
  size_t n = alive[v].size();
  SmallVector<Sample, 8> samples(n);
  size_t bit = 0;
  for (auto [id, step] : llvm::zip_equal(tablesOf[v], steps)) {
    const std::vector<Price> &entries = tables[id].entries;
    for (size_t choice = 0; choice < n; ++choice) {
      Sample &sample = samples[choice];
      sample.first += entries[choice * step];
      sample.last += entries[entries.size() - 1 - (n - choice - 1) * step];
      size_t illegal = 0, at = bit;
      for (size_t outer = choice * step; !countIllegal && outer < entries.size(); outer += step * n)
        for (size_t inner = 0; inner < step; ++inner, ++at)
          if (!entries[outer + inner].isLegal()) {
            sample.illegal |= uint64_t(1) << at % 64;
            ++illegal;
          }
      sample.isNever |= illegal * n == entries.size();
    }
    bit += entries.size() / n;
  }
  return samples;
}

/// Removes dominated choices until there are none. If a variable loses a choice, its neighbours are examined again.
void Solver::eliminateDeadEnds(std::vector<unsigned> todo) {
  std::vector<bool> queued(alive.size());
  for (unsigned v : todo)
    queued[v] = true;
  while (!todo.empty()) {
    unsigned v = todo.back();
    todo.pop_back();
    queued[v] = false;
    if (llvm::any_of(tablesOf[v], [&](unsigned id) { return tables[id].entries.size() > largestForDeadEnds; }))
      continue; // the search for dead ends would take longer than it saves
    SmallVector<size_t> steps;
    for (unsigned id : tablesOf[v])
      steps.push_back(stride(tables[id], v));
    SmallVector<Sample, 8> samples = samplesOf(v, steps);
    SmallVector<bool> gone(samples.size());
    size_t left = samples.size();
    // Choices are examined from the last to the first, so that of equal choices the first one stays.
    for (int dear = static_cast<int>(samples.size()) - 1; dear >= 0 && left > 1; --dear)
      if (isDead(v, dear, samples, steps, gone)) {
        gone[dear] = true;
        --left;
      }
    if (left == samples.size())
      continue;
    LLVM_DEBUG(llvm::dbgs() << "variable " << v << ": " << samples.size() - left << " of " << samples.size()
                            << " choices are dead ends\n");
    removeChoices(v, gone);
    // Removing a choice can make choices of the neighbours dominated.
    for (unsigned id : tablesOf[v])
      for (unsigned other : tables[id].variables)
        if (!queued[other]) {
          queued[other] = true;
          todo.push_back(other);
        }
  }
}

/// Fixes a variable that has only one choice left: its tables lose a dimension of size one.
void Solver::fix(unsigned v) {
  for (unsigned id : tablesOf[v]) {
    PriceTable &table = tables[id];
    llvm::erase(table.variables, v);
    if (table.variables.empty()) {
      base += table.entries[0];
      table = {};
    }
  }
  tablesOf[v].clear();
  done[v] = true;
}

/// The variables that share a table with `v`, each once.
SmallVector<unsigned> Solver::neighbours(unsigned v) const {
  SmallVector<unsigned> result;
  for (unsigned id : tablesOf[v])
    for (unsigned other : tables[id].variables)
      if (other != v)
        result.push_back(other);
  llvm::sort(result);
  result.erase(llvm::unique(result), result.end());
  return result;
}

double Solver::width(unsigned v) const {
  double product = alive[v].size();
  for (unsigned other : neighbours(v))
    product *= alive[other].size();
  return product;
}

/// Replaces `v` and its tables by one table over the neighbours, which has the best choice of `v` for each entry.
void Solver::eliminate(unsigned v) {
  SmallVector<unsigned> order = neighbours(v);
  PriceTable sum;
  sum.variables.assign(order.begin(), order.end());
  Eliminated record{v, alive[v], order, {}, {}};
  size_t combinations = 1;
  for (unsigned other : order) {
    record.neighbourChoices.push_back(alive[other]);
    combinations *= alive[other].size();
  }
  order.push_back(v); // the fastest index
  size_t n = alive[v].size();
  // The sum of all tables of `v`, for every combination of choices of its neighbours and `v`.
  std::vector<Price> joint(combinations * n);
  largest = std::max(largest, joint.size());
  LLVM_DEBUG(llvm::dbgs() << "eliminate variable " << v << " of " << n << " choices: a table over " << order.size() - 1
                          << " neighbours with " << combinations << " entries\n");
  for (unsigned id : tablesOf[v]) {
    SmallVector<size_t> steps, counter(order.size());
    for (unsigned other : order)
      steps.push_back(stride(tables[id], other));
    size_t at = 0;
    for (Price &price : joint) {
      price += tables[id].entries[at];
      for (size_t i = order.size(); i-- > 0;) { // count up, the last index fastest
        at += steps[i];
        if (++counter[i] < alive[order[i]].size())
          break;
        at -= steps[i] * counter[i];
        counter[i] = 0;
      }
    }
  }
  while (!tablesOf[v].empty())
    removeTable(tablesOf[v].back());
  // `v` is the fastest index, so its choices are next to each other.
  for (size_t k = 0; k < combinations; ++k) {
    auto begin = joint.begin() + k * n, best = std::min_element(begin, begin + n);
    sum.entries.push_back(*best);
    record.best.push_back(best - begin);
  }
  done[v] = true;
  eliminated.push_back(std::move(record));
  put(std::move(sum));
}

/// Alternates both reductions. The next variable is the one with the smallest joint table. If even that exceeds the
/// limit, there is no result.
std::optional<Assignment> Solver::run() {
  std::vector<unsigned> todo(alive.size());
  std::iota(todo.begin(), todo.end(), 0);
  double cap = 64;
  while (true) {
    eliminateDeadEnds(std::move(todo));
    todo = {};
    std::set<std::pair<double, unsigned>> queue;
    std::vector<double> widthOf(alive.size());
    for (unsigned v = 0; v < alive.size(); ++v)
      if (!done[v] && alive[v].size() == 1)
        fix(v);
    for (unsigned v = 0; v < alive.size(); ++v)
      if (!done[v])
        queue.insert({widthOf[v] = width(v), v});
    if (queue.empty())
      break;
    // Wide variables wait: after their neighbours are eliminated, dead ends may make them narrower.
    cap = std::max(cap, queue.begin()->first);
    std::set<unsigned> touched;
    while (!queue.empty() && queue.begin()->first <= cap) {
      auto [w, v] = *queue.begin();
      if (w > limit) {
        LLVM_DEBUG(llvm::dbgs() << "give up: variable " << v << " needs " << w << " entries\n");
        return std::nullopt;
      }
      queue.erase(queue.begin());
      SmallVector<unsigned> around = neighbours(v);
      eliminate(v);
      touched.insert(around.begin(), around.end());
      for (unsigned other : around) {
        queue.erase({widthOf[other], other});
        queue.insert({widthOf[other] = width(other), other});
      }
    }
    for (unsigned v : touched)
      if (!done[v])
        todo.push_back(v);
  }
  Assignment result;
  result.price = base;
  result.largestTable = largest;
  for (const Choices &choices : alive)
    result.choice.push_back(choices[0]);
  // In reverse order, the choices of all neighbours are known when a variable is looked up.
  for (const Eliminated &record : llvm::reverse(eliminated)) {
    size_t at = 0;
    for (auto [other, choices] : llvm::zip(record.neighbours, record.neighbourChoices))
      at = at * choices.size() + (llvm::find(choices, result.choice[other]) - choices.begin());
    result.choice[record.variable] = record.choices[record.best[at]];
  }
  return result;
}

} // namespace

std::optional<Assignment> pc::minimize(ArrayRef<unsigned> choices, std::vector<PriceTable> tables, bool countIllegal,
                                       size_t limit) {
  return Solver(choices, std::move(tables), countIllegal, limit).run();
}
