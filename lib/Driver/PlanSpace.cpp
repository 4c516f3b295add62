//===- PlanSpace.cpp - The plans that --auto may choose from ---------------------------------===//
#include "PlanSpace.h"

#include "pc/Search/Search.h"
#include <set>

using namespace mlir;
using namespace pc;

bool PlanSpace::isFree(StringRef name) const {
  SmallVector<StringRef> names;
  StringRef(search.free).split(names, ',', -1, /*KeepEmpty=*/false);
  return names.empty() || llvm::is_contained(names, name);
}

std::optional<Refusal> PlanSpace::read() {
  MeshForm given;
  SmallVector<StringRef> parts;
  std::string mesh = search.pins.text("mesh");
  StringRef(mesh).split(parts, ',', -1, /*KeepEmpty=*/false);
  int64_t fixed = 1;
  bool isOpen = false;
  for (StringRef part : parts) {
    auto [axis, size] = part.split('=');
    int64_t n = 0;
    if (axis.empty() || (size != "?" && (size.getAsInteger(10, n) || n < 1 || n > (1 << 20))))
      return Refusal{PCRT_USAGE,
                     "bad mesh entry '" + part.str() + "'; expected axis=size or axis=?, as in --mesh dp=2,tp=?"};
    isOpen |= n == 0;
    fixed *= std::max<int64_t>(n, 1);
    given.axes.push_back({axis.str(), n});
  }
  ranks = search.ranks ? search.ranks : fixed;
  if (search.ranks < 0 || (!search.ranks && (isOpen || parts.empty())))
    return Refusal{PCRT_USAGE, "--auto needs the number of ranks: --ranks=N, or a --mesh without '?'"};
  if (ranks % fixed != 0 || (!parts.empty() && !isOpen && ranks != fixed))
    return Refusal{PCRT_INFEASIBLE, "--mesh=" + mesh + " does not divide --ranks=" + std::to_string(ranks)};
  if (parts.empty())
    addForms();
  else
    forms.push_back(std::move(given));
  return std::nullopt;
}

/// Meshes of the axes that the tactics have by default, outermost first, and those with the axes of a grid in place of
/// one of them.
void PlanSpace::addForms() {
  SmallVector<std::string> axes;
  for (const TacticInfo &row : tactics())
    if (std::string axis = Tactic(row.pass).option("axis").str(); row.fromFlags && !axis.empty())
      if (!llvm::is_contained(axes, axis) && isFree(axis))
        axes.insert(axes.begin(), axis);
  auto add = [&](StringRef instead, StringRef grid, StringRef flag, StringRef name) {
    MeshForm form{{}, flag.str(), name.str()};
    for (const std::string &axis : axes) {
      SmallVector<StringRef> parts{axis};
      if (axis == instead) {
        parts.clear();
        grid.split(parts, ',');
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
        add(Tactic(row.pass).option("axis"), form.axes, row.flags.front().name, form.name);
}

void PlanSpace::vary(std::vector<StrategyFlags> &ways, StringRef flag, ArrayRef<std::string> values) const {
  if (ways[0].given(flag) || !isFree(flag))
    return;
  for (size_t i = 0, e = ways.size(); i < e; ++i)
    for (const std::string &value : values) {
      ways.push_back(ways[i]);
      ways.back().set(flag, value);
    }
}

/// Whether a tactic says how ranks split a layer, and not only how many layers, or sequences, they have.
static bool splitsLayers(const TacticInfo &row) {
  return row.phase == Phase::Placed && !row.shardsParameters && !row.splitsBatch;
}

void PlanSpace::addSets(const MeshForm &form, std::vector<StrategyFlags> &all) const {
  int64_t fixed = 1;
  size_t open = 0;
  for (const auto &[axis, size] : form.axes) {
    fixed *= std::max<int64_t>(size, 1);
    open += size == 0;
  }
  for (const SmallVector<int64_t> &sizes : factorizations(ranks / fixed, open)) {
    std::string mesh;
    size_t next = 0;
    bool isGrid = true; // all of its axes are there
    for (const auto &[axis, size] : form.axes) {
      int64_t n = size ? size : sizes[next++];
      isGrid &= form.flag.empty() || n > 1 || axis.size() == 2;
      if (n > 1 || size)
        mesh += (mesh.empty() ? "" : ",") + axis + "=" + std::to_string(n);
    }
    if (!isGrid)
      continue;
    std::vector<StrategyFlags> ways{search.pins};
    ways[0].set("mesh", mesh);
    if (!form.flag.empty())
      ways[0].set(form.flag, form.form);
    for (const TacticInfo &row : tactics())
      for (const TacticFlag &flag : row.flags)
        if (splitsLayers(row))
          vary(ways, flag.name, flag.searched);
    // What goes with none of the other flags.
    auto isRefused = [](const StrategyFlags &flags) {
      std::string why;
      pcrt_status status = PCRT_OK;
      return !planFromFlags(flags, why, status);
    };
    if (!isRefused(ways[0]))
      llvm::erase_if(ways, isRefused);
    llvm::append_range(all, ways);
  }
}

std::vector<StrategyFlags> PlanSpace::sets() const {
  std::vector<StrategyFlags> all;
  for (const MeshForm &form : forms)
    addSets(form, all);
  return all;
}

std::vector<Plan> PlanSpace::plansOf(const StrategyFlags &set, std::string &refusal) const {
  std::vector<StrategyFlags> ways{set};
  for (const TacticInfo &row : tactics())
    for (const TacticFlag &flag : row.flags)
      if (!splitsLayers(row))
        vary(ways, flag.name, flag.searched);
  std::vector<std::string> microbatches;
  for (int64_t n = 2; n <= std::min<int64_t>(batch, 1024); ++n)
    if (batch % n == 0)
      microbatches.push_back(std::to_string(n));
  vary(ways, "microbatches", microbatches);
  std::vector<Plan> plans;
  std::set<std::string> known;
  for (const StrategyFlags &flags : ways) {
    std::string why;
    pcrt_status status = PCRT_OK;
    std::optional<Plan> plan = planFromFlags(flags, why, status);
    if (!plan && refusal.empty())
      refusal = why;
    // With one microbatch and no stages ZeRO-2 is ZeRO-1.
    bool isSame = plan && plan->microbatches == 1 && !plan->pipeline() && !search.pins.given("zero") &&
                  llvm::any_of(plan->tactics, [](const Tactic &tactic) {
                    return tactic.pass() == "pc-zero" && tactic.option("stage") == "2";
                  });
    if (plan && !isSame && known.insert(textOf(*plan)).second)
      plans.push_back(std::move(*plan));
  }
  return plans;
}

std::string pc::textOf(const Plan &plan, bool withNumbers, bool withRecompute) {
  std::string text = plan.mesh.empty() ? "one rank" : plan.meshText();
  for (const Tactic &tactic : plan.tactics)
    if (withRecompute || tactic.pass() != "pc-recompute")
      text += " " + tactic.text();
  if (withNumbers && plan.microbatches > 1)
    text += " microbatches " + std::to_string(plan.microbatches);
  return text;
}
