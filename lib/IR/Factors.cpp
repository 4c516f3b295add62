//===- Factors.cpp - Parsing rules and generating legal placements ---------------===//
// Input: a rule as text ("b s e, v e -> b s v"). Result: the rows that are legal for one mesh axis. In such a row, all
// values are whole; or one factor is split everywhere, and values that lack it are partial; or operands in which the op
// is linear are sums; or all values are at the root. The numbers of operands and results are the rule's.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Factors.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace pc;
using llvm::SmallVector;
using llvm::StringRef;

int FactorRule::find(StringRef name) const {
  for (auto [i, factor] : llvm::enumerate(factors))
    if (factor.name == name)
      return i;
  return -1;
}

FactorRule &FactorRule::keepWhole(std::initializer_list<StringRef> names) {
  for (StringRef name : names)
    if (int i = find(name); i >= 0)
      factors[i].whole = true;
  return *this;
}

/// One value's dims: names separated by blanks.
static bool parseDims(StringRef text, FactorRule &rule, SmallVector<int, 6> &dims) {
  SmallVector<StringRef> words;
  llvm::SplitString(text, words);
  for (StringRef word : words) {
    if (!llvm::all_of(word, [](char c) { return llvm::isAlnum(c) || c == '_'; }))
      return false;
    int i = rule.find(word);
    if (i < 0) {
      i = rule.factors.size();
      rule.factors.push_back({word.str(), 0, false});
    }
    dims.push_back(i);
  }
  return true;
}

/// Splits at the only "->", then at commas.
bool FactorRule::parse(StringRef spec, FactorRule &rule) {
  rule = FactorRule();
  size_t arrow = spec.find("->");
  if (arrow == StringRef::npos || spec.find("->", arrow + 2) != StringRef::npos)
    return false;
  StringRef left = spec.take_front(arrow), right = spec.drop_front(arrow + 2);
  SmallVector<StringRef> parts;
  if (!left.trim().empty())
    left.split(parts, ',');
  for (StringRef part : parts)
    if (!parseDims(part, rule, rule.operands.emplace_back()))
      return false;
  parts.clear();
  right.split(parts, ',');
  for (StringRef part : parts)
    if (!parseDims(part, rule, rule.results.emplace_back()))
      return false;
  return true;
}

/// The dim of `factor` in a value with `dims`: -1 if absent, -2 if it occurs twice (a diagonal cannot be split).
static int positionOf(llvm::ArrayRef<int> dims, int factor) {
  int at = -1;
  for (auto [d, f] : llvm::enumerate(dims))
    if (f == factor) {
      if (at >= 0)
        return -2;
      at = d;
    }
  return at;
}

/// The row in which all values are whole comes first, because searches prefer earlier rows. Factors that must stay
/// whole and diagonals give no rows.
SmallVector<Row, 8> pc::legalRows(const FactorRule &rule) {
  SmallVector<Row, 8> rows;
  Row whole;
  whole.operands.resize(rule.operands.size());
  whole.results.resize(rule.results.size());
  rows.push_back(whole);
  AxisState partial = rule.reduction == PartialKind::Max ? AxisState::max() : AxisState::sum();
  for (auto [f, factor] : llvm::enumerate(rule.factors)) {
    if (factor.whole)
      continue;
    Row row = whole;
    row.factor = f;
    bool diagonal = false, occurs = false;
    auto stateOf = [&, f = f](llvm::ArrayRef<int> dims, AxisState otherwise) {
      int at = positionOf(dims, f);
      diagonal |= at == -2;
      occurs |= at >= 0;
      return at >= 0 ? AxisState::split(at) : otherwise;
    };
    for (auto [state, dims] : llvm::zip_equal(row.operands, rule.operands))
      state = stateOf(dims, AxisState::whole());
    for (auto [state, dims] : llvm::zip_equal(row.results, rule.results))
      state = stateOf(dims, partial);
    // A factor that occurs in no value splits nothing, and a diagonal has no blocks that a rank could have alone.
    if (!diagonal && occurs)
      rows.push_back(row);
  }
  // A sum passes through an op that is linear in these operands together.
  for (const auto &group : rule.linear) {
    Row row = whole;
    for (unsigned i : group)
      row.operands[i] = AxisState::sum();
    llvm::fill(row.results, AxisState::sum());
    rows.push_back(row);
  }
  auto addUniform = [&](AxisState state) {
    Row row = whole;
    llvm::fill(row.operands, state);
    llvm::fill(row.results, state);
    rows.push_back(row);
  };
  if (rule.maxTransparent)
    addUniform(AxisState::max());
  addUniform(AxisState::root());
  return rows;
}
