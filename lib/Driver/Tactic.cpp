//===- Tactic.cpp - A pass of a plan, with its options -------------------------------------===//
#include "pc/Driver/Tactic.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace pc;

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

StringRef Tactic::option(StringRef key, StringRef otherwise) const {
  const auto *it = find_if(options, [&](const Option &option) { return option.key == key; });
  return it == options.end() ? otherwise : StringRef(it->value);
}

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
