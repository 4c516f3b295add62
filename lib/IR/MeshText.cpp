//===- MeshText.cpp - A mesh as users write it ---------------------------------------------===//
// The only parser of mesh texts. An entry is `axis=N`, `axis=?` (a search chooses the size) or `axis=open` (ranks may
// join or leave). An empty text is a mesh without axes. Errors name the entry.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/MeshText.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace pc;
using llvm::StringRef;

static bool isName(StringRef name) {
  return llvm::isAlpha(name[0]) && llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

/// Sizes are limited, so that the product of all sizes does not overflow.
std::optional<llvm::SmallVector<MeshAxisText>> pc::parseMesh(StringRef text, std::string &error) {
  llvm::SmallVector<MeshAxisText> axes;
  if (text.trim().empty())
    return axes;
  auto refuse = [&](const llvm::Twine &why) {
    error = why.str();
    return std::nullopt;
  };
  constexpr int64_t mostRanks = 1 << 20;
  for (StringRef part : llvm::split(text, ',')) {
    auto [name, size] = part.split('=');
    name = name.trim(), size = size.trim();
    MeshAxisText axis{name.str()};
    axis.isSearched = size == "?";
    axis.isOpen = size == "open";
    bool isNumber = !size.getAsInteger(10, axis.size) && axis.size >= 1 && axis.size <= mostRanks;
    if (name.empty() || !(isNumber || axis.isSearched || axis.isOpen))
      return refuse("bad mesh entry '" + part + "'; expected axis=size, as in dp=2,tp=2");
    if (!isName(name))
      return refuse(
          "'" + name +
          "' is not a valid name for a mesh axis; use a letter followed by letters, digits and '_', as in dp=2,tp=2");
    if (llvm::any_of(axes, [&](const MeshAxisText &other) { return name == other.name; }))
      return refuse("mesh axis '" + name + "' is named twice");
    if (!isNumber)
      axis.size = 1;
    axes.push_back(std::move(axis));
  }
  return axes;
}
