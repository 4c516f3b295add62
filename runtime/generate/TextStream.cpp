//===- TextStream.cpp - The text of an answer, token by token -------------===//
// A stop string that has begun is always held back as a whole, because the longest suffix of the text that begins any
// of them is held back.
//===----------------------------------------------------------------------===//
#include "generate/TextStream.h"
#include "tokenizer/Unicode.h"

#include <utility>

using namespace pcrt;

/// The number of bytes at the end of `text` that begin the string `stop`, but are not all of it.
static size_t begun(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (text.substr(text.size() - length) == stop.substr(0, length))
      return length;
  return 0;
}

/// The number of bytes at the end of `text` that a later byte may complete to a character.
static size_t cutCharacter(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(3, text.size()); ++length) {
    char first = text[text.size() - length];
    if ((first & 0xc0) != 0x80)
      return utf8Length(first) > length ? length : 0;
  }
  return 0;
}

std::string StopStrings::push(std::string_view bytes) {
  if (isFound)
    return "";
  held += bytes;
  std::pair<size_t, size_t> first(held.npos, 0); // the end and the begin of the first stop string
  size_t keep = cutCharacter(held);
  for (const std::string &stop : strings) {
    if (size_t at = held.find(stop); at != held.npos)
      first = std::min(first, {at + stop.size(), at});
    keep = std::max(keep, begun(held, stop));
  }
  isFound = first.first != held.npos;
  std::string text = held.substr(0, isFound ? first.second : held.size() - keep);
  held.erase(0, isFound ? held.npos : text.size());
  return text;
}

std::string StopStrings::finish() { return std::exchange(held, ""); }
