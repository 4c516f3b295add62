//===- PlanSpace.cpp - The plans that --auto may choose from ---------------------------------===//
// Meshes come from the axes of tactics or from --mesh, and flags from the tables of the tactics. Each combination is
// read like flags of a user, so illegal ones are refused by the same rules.
//===-----------------------------------------------------------------------------------------===//
#include "PlanSpace.h"

#include "pc/IR/MeshText.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

using namespace mlir;
using namespace pc;

/// The most ranks that a mesh, or an axis of it, may have.
static constexpr int64_t mostRanks = 1 << 20;

bool PlanSpace::isFree(StringRef name) const {
  SmallVector<StringRef> names;
  StringRef(search.free).split(names, ',', -1, /*KeepEmpty=*/false);
  return names.empty() || llvm::is_contained(names, name);
}

/// The default axes of the tactics, and the axes of their forms.
static SmallVector<std::string> knownAxes() {
  SmallVector<std::string> axes;
  auto add = [&](StringRef list) {
    SmallVector<StringRef> parts;
    list.split(parts, ',', -1, /*KeepEmpty=*/false);
    for (StringRef axis : parts)
      if (!llvm::is_contained(axes, axis))
        axes.push_back(axis.str());
  };
  for (const TacticInfo &row : tactics()) {
    if (row.fromFlags)
      add(Tactic(row.pass).axis());
    for (const TacticForm &form : row.forms)
      add(form.axes);
  }
  return axes;
}

/// The flags that are searched if they are not given.
static SmallVector<std::string> searchedFlags() {
  SmallVector<std::string> flags;
  for (const TacticInfo &row : tactics())
    for (const TacticFlag &flag : row.flags)
      if (!flag.searched.empty() || !flag.searchedUnknown.empty() ||
          (&flag == &row.flags.front() && !row.forms.empty()))
        flags.push_back(flag.name);
  flags.push_back("microbatches");
  return flags;
}

/// A name in --auto=LIST must be an axis that a tactic or the mesh knows, or a flag that can be searched.
std::optional<Refusal> PlanSpace::checkFree(const MeshForm &given) const {
  SmallVector<std::string> axes = knownAxes(), flags = searchedFlags();
  for (const auto &axis : given.axes)
    if (!llvm::is_contained(axes, axis.first))
      axes.push_back(axis.first);
  SmallVector<StringRef> names;
  StringRef(search.free).split(names, ',', -1, /*KeepEmpty=*/false);
  for (StringRef name : names)
    if (!llvm::is_contained(axes, name) && !llvm::is_contained(flags, name))
      return Refusal{PCRT_USAGE, "--auto=" + search.free + ": there is no axis or flag to search with the name '" +
                                     name.str() + "'; axes: " + llvm::join(axes, ", ") +
                                     "; flags: " + llvm::join(flags, ", ")};
  return std::nullopt;
}

/// Reads --mesh and --auto. Without --mesh, the forms of meshes follow from the tactics' axes; with it, the given mesh
/// is the only form. An axis `?` gets its size from the search.
std::optional<Refusal> PlanSpace::read() {
  MeshForm given;
  std::string mesh = search.pins.text("mesh"), why;
  auto axes = parseMesh(mesh, why);
  if (!axes)
    return Refusal{PCRT_USAGE, why};
  int64_t fixed = 1;
  bool isOpen = false;
  for (const MeshAxisText &axis : *axes) {
    if (axis.isOpen || axis.size > mostRanks)
      return Refusal{PCRT_USAGE, "--mesh=" + mesh + ": --auto searches plans for at most " + std::to_string(mostRanks) +
                                     " ranks, and supports no open axis"};
    isOpen |= axis.isSearched;
    fixed *= axis.size;
    given.axes.push_back({axis.name, axis.isSearched ? 0 : axis.size});
  }
  if (std::optional<Refusal> refused = checkFree(given))
    return refused;
  if (search.ranks > mostRanks)
    return Refusal{PCRT_USAGE, "--ranks=" + std::to_string(search.ranks) + ": --auto searches plans for at most " +
                                   std::to_string(mostRanks) + " ranks"};
  ranks = search.ranks ? search.ranks : fixed;
  if (search.ranks < 0 || (!search.ranks && (isOpen || axes->empty())))
    return Refusal{PCRT_USAGE, "--auto needs the number of ranks; give --ranks=N, or a --mesh without '?'"};
  if (ranks % fixed != 0 || (!axes->empty() && !isOpen && ranks != fixed))
    return Refusal{PCRT_INFEASIBLE, "--mesh=" + mesh + " does not divide --ranks=" + std::to_string(ranks)};
  if (axes->empty())
    addForms();
  else
    forms.push_back(std::move(given));
  return std::nullopt;
}

/// Returns true if an axis of this name implies a tactic, without a flag.
static bool isImplied(StringRef axis) {
  StrategyFlags flags;
  flags.set("mesh", (axis + "=2").str());
  std::string why;
  pcrt_status status = PCRT_OK;
  return planFromFlags(flags, why, status).has_value();
}

/// Adds the meshes of the tactics' default axes, outermost first, and the meshes in which the axes of a grid replace
/// one of these axes.
void PlanSpace::addForms() {
  SmallVector<std::string> axes;
  for (const TacticInfo &row : tactics())
    if (std::string axis = Tactic(row.pass).axis().str();
        row.fromFlags && !axis.empty() && (hasExperts || !row.ofExperts))
      if (!llvm::is_contained(axes, axis) && isFree(axis) && isImplied(axis))
        axes.insert(axes.begin(), axis);
  auto add = [&](StringRef instead, StringRef grid, StringRef flag, StringRef name) {
    MeshForm form{{}, {}, flag.str(), name.str()};
    for (const std::string &axis : axes) {
      SmallVector<StringRef> parts{axis};
      if (axis == instead) {
        parts.clear();
        grid.split(parts, ',');
        llvm::append_range(form.grid, llvm::map_range(parts, [](StringRef part) { return part.str(); }));
      }
      for (StringRef part : parts)
        form.axes.push_back({part.str(), 0});
    }
    forms.push_back(std::move(form));
  };
  add("", "", "", "");
  for (const TacticInfo &row : tactics())
    for (const TacticForm &form : row.forms)
      if (!form.axes.empty() && isFree(row.flags.front().name) && !search.pins.given(row.flags.front().name))
        add(Tactic(row.pass).axis(), form.axes, row.flags.front().name, form.name);
}

/// Multiplies the list of flag settings by the values of one more flag, if the flag is searched.
void PlanSpace::vary(std::vector<StrategyFlags> &ways, const TacticFlag &flag) const {
  if (ways[0].given(flag.name) || !isFree(flag.name))
    return;
  std::vector<std::string> values = flag.searched;
  if (!knowsDims)
    llvm::append_range(values, flag.searchedUnknown);
  for (size_t i = 0, e = ways.size(); i < e; ++i)
    for (const std::string &value : values) {
      ways.push_back(ways[i]);
      ways.back().set(flag.name, value);
    }
}

/// Returns true if a tactic determines how ranks split a layer. Other tactics only determine how many layers or
/// sequences a rank has.
static bool splitsLayers(const TacticInfo &row) {
  return row.phase == Phase::Placed && !row.shardsParameters && !row.splitsBatch;
}

/// Returns the mesh as text, such as "dp=2,tp=4". A size that the family leaves open comes from `sizes`, or is 2 if
/// `sizes` is empty.
static std::string meshText(const PlanFamily &family, ArrayRef<int64_t> sizes = {}) {
  std::string mesh;
  for (auto [i, axis] : llvm::enumerate(family.axes)) {
    int64_t size = !sizes.empty() ? sizes[i] : axis.second ? axis.second : 2;
    mesh += (mesh.empty() ? "" : ",") + axis.first + "=" + std::to_string(size);
  }
  return mesh;
}

/// Builds the flags of one plan and lets the plan's own rules refuse them.
std::optional<Plan> PlanSpace::planOf(const PlanFamily &family, ArrayRef<int64_t> sizes, int64_t microbatches,
                                      std::string &refusal) const {
  StrategyFlags flags = family.flags;
  flags.set("mesh", meshText(family, sizes));
  flags.set("microbatches", std::to_string(microbatches));
  std::string why;
  pcrt_status status = PCRT_OK;
  std::optional<Plan> plan = planFromFlags(flags, why, status);
  if (!plan && refusal.empty())
    refusal = why;
  return plan;
}

/// Returns true if n is a product of `count` factors above 1.
static bool isProduct(int64_t n, size_t count) {
  size_t primes = 0;
  for (int64_t p = 2; p * p <= n; ++p)
    for (; n % p == 0; n /= p)
      ++primes;
  primes += n > 1;
  return count == 0 ? primes == 0 : primes >= count;
}

/// The axes of the tactics that determine how ranks split a layer.
static std::set<std::string> innerAxes(const Plan &plan) {
  std::set<std::string> inner;
  for (const Tactic &tactic : plan.tactics)
    if (const TacticInfo *row = tactic.info(); row && row->fromFlags && splitsLayers(*row))
      for (StringRef axis : tactic.axes())
        inner.insert(axis.str());
  return inner;
}

/// Adds the sets of a form for one choice of its axes: those whose bits are set in `present`, and those with sizes.
void PlanSpace::addSets(const MeshForm &form, uint32_t present, std::vector<PlanSet> &all, std::string &refusal) const {
  PlanFamily base;
  int64_t fixed = 1;
  size_t open = 0, next = 0;
  for (const auto &[axis, size] : form.axes) {
    bool isThere = size || (present >> next & 1);
    next += size == 0;
    if (!isThere && llvm::is_contained(form.grid, axis))
      return;
    if (isThere)
      base.axes.push_back({axis, size});
    open += isThere && !size;
    fixed *= std::max<int64_t>(size, 1);
  }
  if (!isProduct(ranks / fixed, open))
    return;
  std::vector<StrategyFlags> ways{search.pins};
  ways[0].set("mesh", meshText(base));
  if (!form.flag.empty())
    ways[0].set(form.flag, form.form);
  for (const TacticInfo &row : tactics())
    for (const TacticFlag &flag : row.flags)
      if (splitsLayers(row) && (hasExperts || !row.ofExperts))
        vary(ways, flag);
  // The plan of these flags without any of the searched flags.
  auto planOfFlags = [](const StrategyFlags &flags) {
    std::string why;
    pcrt_status status = PCRT_OK;
    return planFromFlags(flags, why, status);
  };
  // If the given flags alone make a plan, combinations that make none are dropped. Otherwise, they are kept for the
  // error in the message.
  if (planOfFlags(ways[0]))
    llvm::erase_if(ways, [&](const StrategyFlags &flags) { return !planOfFlags(flags); });
  for (const StrategyFlags &flags : ways) {
    PlanSet set{base, false, {}, {}};
    set.base.flags = flags;
    if (std::optional<Plan> plan = planOfFlags(flags)) {
      set.isPlan = true;
      set.base.plan = std::move(*plan);
      std::set<std::string> inner = innerAxes(set.base.plan);
      llvm::copy_if(base.axes, std::back_inserter(set.inner),
                    [&](const auto &axis) { return inner.count(axis.first); });
    }
    // Sets with equal keys split layers in the same way, and differ in other axes.
    auto keyOf = [](const PlanSet &one) {
      std::string key;
      for (const auto &[axis, size] : one.inner)
        key += axis + "=" + std::to_string(size) + " ";
      for (const Tactic &tactic : one.base.plan.tactics)
        if (const TacticInfo *row = tactic.info(); row && splitsLayers(*row))
          key += tactic.text() + " ";
      return key;
    };
    auto it = llvm::find_if(
        all, [&](const PlanSet &other) { return set.isPlan && other.isPlan && keyOf(other) == keyOf(set); });
    PlanSet &known = it == all.end() ? all.emplace_back(std::move(set)) : *it;
    addFamilies(known, flags, base, refusal);
  }
}

/// Varies the flags that do not decide how layers are split. If several settings of a flag give the same plans, they
/// count once.
void PlanSpace::addFamilies(PlanSet &set, const StrategyFlags &flags, const PlanFamily &base,
                            std::string &refusal) const {
  std::vector<StrategyFlags> ways{flags};
  for (const TacticInfo &row : tactics())
    for (const TacticFlag &flag : row.flags)
      if (!splitsLayers(row))
        vary(ways, flag);
  std::set<std::string> known;
  for (StrategyFlags &one : ways) {
    PlanFamily family = base;
    std::string why;
    pcrt_status status = PCRT_OK;
    std::optional<Plan> plan = planFromFlags(one, why, status);
    if (!plan && refusal.empty())
      refusal = why;
    if (!plan || !known.insert(textOf(*plan)).second)
      continue;
    family.flags = std::move(one);
    family.plan = std::move(*plan);
    set.families.push_back(std::move(family));
  }
}

/// Every subset of the open axes of a form may be present in a mesh.
std::vector<PlanSet> PlanSpace::sets(std::string &refusal) const {
  std::vector<PlanSet> all;
  for (const MeshForm &form : forms) {
    size_t open = llvm::count_if(form.axes, [](const auto &axis) { return axis.second == 0; });
    for (uint32_t present = 0; present < 1U << open; ++present)
      addSets(form, present, all, refusal);
  }
  return all;
}

/// Returns all ways to write `n` as a product of `count` factors, in lexical order. `isGood` must hold for all factors
/// but the last.
static std::vector<SmallVector<int64_t>>
/// Recursion over the first factor, whose candidates are the divisors of `n`.
factorizations(int64_t n, size_t count, llvm::function_ref<bool(int64_t)> isGood = [](int64_t) { return true; }) {
  if (count == 0)
    return n == 1 ? std::vector<SmallVector<int64_t>>{{}} : std::vector<SmallVector<int64_t>>{};
  if (count == 1)
    return {{n}};
  std::vector<SmallVector<int64_t>> all;
  SmallVector<int64_t> divisors;
  for (int64_t small = 1; small * small <= n; ++small)
    if (n % small == 0)
      divisors.append({small, n / small});
  llvm::erase_if(divisors, [&](int64_t divisor) { return !isGood(divisor); });
  llvm::sort(divisors);
  divisors.erase(llvm::unique(divisors), divisors.end());
  for (int64_t first : divisors)
    for (SmallVector<int64_t> &rest : factorizations(n / first, count - 1, isGood)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  return all;
}

/// Chooses sizes for the open axes so that each divides some dim of the model, and their product divides the number of
/// ranks.
std::vector<AxisSizes> PlanSpace::innerSizes(const PlanSet &set) const {
  // The last factor is the number of ranks for the other axes.
  size_t open = llvm::count_if(set.inner, [](const auto &axis) { return axis.second == 0; });
  int64_t fixed = 1;
  for (const auto &axis : set.inner)
    fixed *= std::max<int64_t>(axis.second, 1);
  auto dividesDim = [&](int64_t size) {
    return size > 1 && llvm::any_of(dims, [&](int64_t dim) { return dim % size == 0; });
  };
  std::vector<AxisSizes> all;
  if (ranks % fixed == 0)
    for (const SmallVector<int64_t> &found : factorizations(ranks / fixed, open + 1, dividesDim)) {
      AxisSizes &sizes = all.emplace_back();
      size_t next = 0;
      for (const auto &axis : set.inner)
        sizes.push_back(axis.second ? axis.second : found[next++]);
    }
  return all;
}

/// The sizes of a set's axes are given. Divides the remaining ranks among the family's other axes in all possible ways.
std::vector<AxisSizes> PlanSpace::sizes(const PlanFamily &family, const PlanSet &set, ArrayRef<int64_t> inner) const {
  AxisSizes sizes;
  int64_t known = 1;
  size_t open = 0;
  for (const auto &[axis, size] : family.axes) {
    const auto *it = llvm::find_if(set.inner, [&](const auto &one) { return one.first == axis; });
    sizes.push_back(it == set.inner.end() ? size : inner[it - set.inner.begin()]);
    known *= std::max<int64_t>(sizes.back(), 1);
    open += sizes.back() == 0;
  }
  std::vector<AxisSizes> all;
  if (ranks % known == 0)
    for (const SmallVector<int64_t> &found : factorizations(ranks / known, open)) {
      if (llvm::is_contained(found, 1))
        continue;
      AxisSizes &one = all.emplace_back(sizes);
      size_t next = 0;
      for (int64_t &size : one)
        size = size ? size : found[next++];
    }
  return all;
}

/// Returns all divisors of the batch up to 1024, if the number of microbatches is searched.
SmallVector<int64_t> PlanSpace::microbatches() const {
  SmallVector<int64_t> all{search.pins.number("microbatches", Plan().microbatches)};
  if (search.pins.given("microbatches") || !isFree("microbatches") || mixesSequences)
    return all;
  for (int64_t n = 2; n <= std::min<int64_t>(batch, 1024); ++n)
    if (batch % n == 0)
      all.push_back(n);
  return all;
}

/// Returns true if another family has the same program for these numbers.
bool PlanSpace::isRepeated(const PlanFamily &family, int64_t microbatches) const {
  // With one microbatch and no stages, ZeRO-2 is the same as ZeRO-1.
  return microbatches == 1 && !family.plan.pipeline() && !search.pins.given("zero") &&
         llvm::any_of(family.plan.tactics, [](const Tactic &tactic) {
           auto zero = tactic.as<ZeroTactic>();
           return zero && zero->stage() == 2;
         });
}

/// Returns the plan as in a plan file, but on one line.
std::string pc::textOf(const Plan &plan, bool withNumbers, bool withRecompute) {
  std::string text = plan.mesh.empty() ? "one rank" : plan.meshText();
  for (const Tactic &tactic : plan.tactics)
    if (withRecompute || !tactic.as<RecomputeTactic>())
      text += " " + tactic.text();
  if (withNumbers && plan.microbatches > 1)
    text += " microbatches " + std::to_string(plan.microbatches);
  return text;
}
