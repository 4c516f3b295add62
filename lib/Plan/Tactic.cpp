//===- Tactic.cpp - A pass of a plan, with its options -------------------------------------===//
// A tactic keeps its text. Options that the text does not contain come from the registered pass, so defaults are
// written only in Passes.td.
//===---------------------------------------------------------------------------------------===//
#include "pc/Plan/TypedTactics.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/STLExtras.h"
#include <map>
#include <mutex>

using namespace llvm;
using namespace pc;

/// Parses the name of the pass and its options. Text after the closing brace is not checked here (whyNoTactic does
/// that).
Tactic::Tactic(std::string text) : written(std::move(text)) {
  auto [head, tail] = StringRef(written).split('{');
  name = head.trim().str();
  tail = tail.rtrim();
  tail.consume_back("}");
  // A space ends an option, but not in braces.
  while (!(tail = tail.ltrim()).empty()) {
    int depth = 0;
    StringRef one = tail.take_while([&](char c) {
      depth += (c == '{') - (c == '}');
      return c != ' ' || depth > 0;
    });
    tail = tail.drop_front(one.size());
    auto [key, value] = one.split('=');
    options.push_back({key.str(), value.str()});
  }
}

const Tactic::Option *Tactic::find(StringRef key) const {
  const auto *it = find_if(options, [&](const Option &option) { return option.key == key; });
  return it == options.end() ? nullptr : it;
}

/// Asks the registered pass to print its options. Results are kept, because searches ask millions of times; several
/// threads may call this.
const Tactic &Tactic::defaultsOf(StringRef pass) {
  static std::mutex mutex;
  static std::map<std::string, Tactic> known;
  std::lock_guard<std::mutex> lock(mutex);
  if (auto it = known.find(pass.str()); it != known.end())
    return it->second;
  std::string text = pass.str();
  mlir::OpPassManager passes;
  if (const auto *info = mlir::PassInfo::lookup(pass))
    if (succeeded(info->addToPipeline(passes, "", [](const Twine &) { return failure(); }))) {
      raw_string_ostream os(text);
      text.clear();
      passes.begin()->printAsTextualPipeline(os);
    }
  return known.emplace(pass.str(), Tactic(text)).first->second;
}

StringRef Tactic::option(StringRef key) const {
  if (const Option *given = find(key))
    return given->value;
  const Option *otherwise = defaultsOf(name).find(key);
  return otherwise ? StringRef(otherwise->value) : "";
}

SmallVector<StringRef> Tactic::list(StringRef key) const {
  SmallVector<StringRef> values;
  option(key).split(values, ',', -1, /*KeepEmpty=*/false);
  return values;
}

std::optional<int64_t> Tactic::number(StringRef key) const {
  int64_t number = 0;
  return option(key).getAsInteger(10, number) ? std::nullopt : std::optional(number);
}

bool Tactic::splitsExperts() const { return name == ExpertParallelTactic::pass || option("experts") == "true"; }

Tactic Tactic::onMachine(StringRef machine) const {
  return option("machine").empty() || says("machine") ? *this : with("machine", machine);
}

/// Replaces the option in its place, or adds it at the end, and writes the text again.
Tactic Tactic::with(StringRef key, StringRef value) const {
  auto all = options;
  auto *it = find_if(all, [&](const Option &option) { return option.key == key; });
  if (it == all.end())
    all.push_back({key.str(), value.str()});
  else
    it->value = value.str();
  std::string text = name;
  for (const Option &option : all)
    text += (text == name ? "{" : " ") + option.key + (option.value.empty() ? "" : "=" + option.value);
  return text + "}";
}
