//===- WhatLimits.cpp - What limits the chosen plan, and what would change the choice ---------===//
// Input: the choices on other machines and with other limits of memory (AskOtherwise). Result: a few lines for the
// terminal, and the same facts with all figures for the report.
//===------------------------------------------------------------------------------------------===//
#include "WhatLimits.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <set>

using namespace pc;
using llvm::StringRef;

/// Plans that differ by less than this share count as equal, because composed seconds are not more exact.
static constexpr double same = 0.01;

/// Large numbers are shown in GiB, smaller ones in MiB or KiB.
std::string pc::bytesText(double bytes) {
  int unit = bytes >= 1e9 ? 2 : bytes >= 1e6 ? 1 : 0;
  const char *units[] = {"KiB", "MiB", "GiB"};
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.4g %s", bytes / (1 << (10 * (unit + 1))), units[unit]);
  return text;
}

std::string pc::textOf(const StrategyFlags &flags, const std::string &name) {
  std::string value = flags.text(name);
  return "--" + name + (value.empty() || value == "true" ? "" : "=" + value);
}

//===---------------------------------------------------------------------------===//
// Choices on other machines
//===---------------------------------------------------------------------------===//

/// Returns a first-order estimate: the part that depends on the figure gets longer or shorter. It ignores hidden moves.
static double expected(const PlanTrial &trial, const OtherMachine &other) {
  double part = other.figure == "products" ? trial.products - trial.waits
                : other.figure == "memory" ? trial.seconds - trial.products - trial.moves
                                           : trial.moves;
  return trial.seconds + part * (1 / other.times - 1);
}

/// Returns the plans with the best estimates on each machine, at most three per machine and of different forms. The
/// chosen plan is always among them.
std::vector<const FoundPlan *> pc::worthPricing(llvm::ArrayRef<FoundPlan> fitting,
                                                llvm::ArrayRef<OtherMachine> machines) {
  constexpr size_t ofEach = 3; // plans per machine
  std::vector<const FoundPlan *> worth{&fitting.front()};
  for (const OtherMachine &machine : machines) {
    std::vector<std::pair<double, const FoundPlan *>> plans;
    for (const FoundPlan &plan : fitting)
      plans.push_back({expected(plan.trial, machine), &plan});
    llvm::sort(plans, [](const auto &a, const auto &b) {
      return std::tie(a.first, a.second->node.text) < std::tie(b.first, b.second->node.text);
    });
    std::set<StringRef> forms; // plans that differ only in numbers are similar
    for (const auto &[seconds, plan] : plans) {
      if (forms.size() == ofEach)
        break;
      if (forms.insert(plan->node.form).second && !llvm::is_contained(worth, plan))
        worth.push_back(plan);
    }
  }
  return worth;
}

/// Compares the plans on each machine. A change is reported only if another plan is faster there by more than `same`.
std::vector<WhatLimits::OnOther> pc::changesOn(llvm::ArrayRef<OtherMachine> machines,
                                               llvm::ArrayRef<const FoundPlan *> plans,
                                               llvm::ArrayRef<std::vector<double>> seconds) {
  std::vector<WhatLimits::OnOther> changes;
  if (seconds.empty() || seconds.front().empty())
    return changes;
  for (auto [i, machine] : llvm::enumerate(machines)) {
    // Seconds of whole compiles are exact on this machine, so composed seconds are used only for the difference between
    // machines.
    auto there = [&, i = i](size_t plan) {
      return plans[plan]->trial.seconds * seconds[plan][i + 1] / seconds[plan].front();
    };
    double chosen = there(0), least = chosen;
    size_t best = 0;
    for (size_t plan = 1; plan < plans.size(); ++plan)
      if (!seconds[plan].empty() && there(plan) < least) {
        best = plan;
        least = there(plan);
      }
    if (least < (1 - same) * chosen)
      changes.push_back({machine.figure, machine.words, machine.times, *plans[best], least, chosen});
  }
  return changes;
}

/// Each entry is the fastest plan that needs less memory than the entry before.
std::vector<WhatLimits::WithMemory> pc::withLess(const FoundPlan &chosen, llvm::ArrayRef<FoundPlan> others) {
  constexpr size_t most = 3;
  std::vector<WhatLimits::WithMemory> steps;
  for (int64_t bytes = chosen.trial.bytes; steps.size() < most;) {
    const FoundPlan *next = nullptr;
    for (const FoundPlan &plan : others)
      if (plan.trial.bytes < bytes && (!next || std::tie(plan.trial.seconds, plan.trial.bytes, plan.node.text) <
                                                    std::tie(next->trial.seconds, next->trial.bytes, next->node.text)))
        next = &plan;
    if (!next)
      break;
    steps.push_back({bytes, *next});
    bytes = next->trial.bytes;
  }
  return steps;
}

//===---------------------------------------------------------------------------===//
// Text
//===---------------------------------------------------------------------------===//

/// The parts of a step, the longest first.
static std::vector<std::pair<double, StringRef>> partsOf(const PlanTrial &trial) {
  std::vector<std::pair<double, StringRef>> parts = {{trial.products - trial.waits, "products"},
                                                     {trial.moves, "exposed moves"},
                                                     {trial.seconds - trial.products - trial.moves, "memory traffic"},
                                                     {trial.waits, "waits for stages"}};
  llvm::sort(parts,
             [](const auto &a, const auto &b) { return std::tie(b.first, a.second) < std::tie(a.first, b.second); });
  return parts;
}

static StringRef fast(double times) { return times < 1 ? " half as fast" : " twice as fast"; }

/// Names the parts that take at least a fifth of the step, then what would change with more or less memory and on other
/// machines.
void WhatLimits::tell(llvm::raw_ostream &os, const FoundPlan &chosen,
                      llvm::function_ref<std::string(const FoundPlan &)> nameOf) const {
  const PlanTrial &trial = chosen.trial;
  constexpr double much = 0.2; // share of a step
  os << "limits   ";
  llvm::ListSeparator comma;
  for (auto [i, part] : llvm::enumerate(partsOf(trial)))
    if (i == 0 || part.first >= much * trial.seconds)
      os << comma << part.second;
  if (withMore)
    os << "; with " << bytesText(static_cast<double>(withMore->bytes)) << " per rank " << nameOf(withMore->plan)
       << llvm::format(", %.1f %% faster", 100 * (1 - withMore->plan.trial.seconds / trial.seconds));
  os << "\n";
  for (const OnOther &other : onOthers)
    os << "changes  " << other.words << fast(other.times) << ": " << nameOf(other.plan)
       << llvm::format(", %.1f %% faster there\n", 100 * (1 - other.seconds / other.chosenSeconds));
  if (onOthers.empty() && !words.empty())
    os << "changes  " << llvm::join(words, ", ") << " half or twice as fast: the same plan\n";
  for (const WithMemory &step : below)
    os << "changes  below " << bytesText(static_cast<double>(step.bytes)) << " per rank: " << nameOf(step.plan)
       << llvm::format(", %+.1f %%\n", 100 * (step.plan.trial.seconds / trial.seconds - 1));
  os << "pinned   " << (pins.empty() ? "nothing" : llvm::join(pins, " "))
     << "; free: " << (free.empty() ? "everything else" : free) << "\n";
}

/// Writes the same facts as `tell` into the report, with all figures.
void WhatLimits::addTo(llvm::json::Object &search, const FoundPlan &chosen) const {
  auto planOf = [](const FoundPlan &plan) {
    return llvm::json::Object{{"plan", plan.node.text}, {"arena_bytes", plan.trial.bytes}};
  };
  llvm::json::Object parts;
  for (auto [seconds, name] : partsOf(chosen.trial))
    parts[name] = seconds;
  search["step_parts"] = std::move(parts);
  llvm::json::Array machines, memory;
  for (const OnOther &other : onOthers) {
    llvm::json::Object entry = planOf(other.plan);
    entry["figure"] = other.words;
    entry["times"] = other.times;
    entry["step_seconds"] = other.seconds;
    entry["chosen_step_seconds"] = other.chosenSeconds;
    machines.push_back(std::move(entry));
  }
  for (const WithMemory &step : below) {
    llvm::json::Object entry = planOf(step.plan);
    entry["below_bytes"] = step.bytes;
    entry["step_seconds"] = step.plan.trial.seconds;
    memory.push_back(std::move(entry));
  }
  search["figures_tried"] = llvm::json::Array(words);
  search["on_other_machines"] = std::move(machines);
  search["with_less_memory"] = std::move(memory);
  if (withMore) {
    llvm::json::Object entry = planOf(withMore->plan);
    entry["step_seconds"] = withMore->plan.trial.seconds;
    search["with_more_memory"] = std::move(entry);
  }
  search["pinned"] = llvm::json::Array(pins);
  search["free"] = free;
}
