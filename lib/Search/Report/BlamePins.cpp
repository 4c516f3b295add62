//===- BlamePins.cpp - Finds the flag that prevents plans from fitting -------------------------===//
// Input: the flags of a search that found no plan that fits. A search without some of them is asked only for one plan
// that fits.
//===-------------------------------------------------------------------------------------------===//
#include "BlamePins.h"
#include "WhatLimits.h"

using namespace pc;

/// Searches once without each flag. Only if no single flag is to blame, it searches once without all of them.
std::string pc::blamePins(const AutoOptions &given,
                          llvm::function_ref<std::optional<SmallPlan>(const AutoOptions &)> fitting) {
  std::string blamed;
  auto blame = [&](const std::string &flag, const AutoOptions &without) {
    if (std::optional<SmallPlan> found = fitting(without))
      blamed += "; without " + flag + " a plan fits, with " + found->text();
    return !blamed.empty();
  };
  AutoOptions none = given;
  none.free.clear();
  size_t count = 0;
  for (const std::string &name : given.pins.names()) {
    AutoOptions without = given;
    without.pins.erase(name);
    none.pins.erase(name);
    blame(textOf(given.pins, name), without);
    ++count;
  }
  if (!given.free.empty()) {
    AutoOptions without = given;
    without.free.clear();
    blame("--auto=" + given.free, without);
    ++count;
  }
  if (count == 0)
    return "";
  if (blamed.empty() && count > 1)
    blame("these flags", none);
  return blamed.empty() ? "; no plan fits without these flags either" : blamed;
}
