//===- AddedTokens.cpp - Tokens that are cut out of a text ----------------===//
// A token within a word is not found if it is a single word (isSingleWord). As in the package `tokenizers`, no other
// token is then found in its characters.
//===----------------------------------------------------------------------===//
#include "tokenizer/AddedTokens.h"
#include "tokenizer/Unicode.h"

#include <algorithm>

using namespace pcrt;

void AddedTokens::add(std::string text, const AddedToken &token) {
  std::vector<uint32_t> &of = lengths[uint8_t(text[0])];
  auto place = std::lower_bound(of.begin(), of.end(), text.size(), std::greater<>());
  if (place == of.end() || *place != text.size())
    of.insert(place, uint32_t(text.size()));
  tokens[std::move(text)] = token;
}

const AddedToken *AddedTokens::at(std::string_view text, size_t begin, size_t &length) const {
  for (uint32_t candidate : lengths[uint8_t(text[begin])]) {
    if (begin + candidate > text.size())
      continue;
    auto found = tokens.find(text.substr(begin, candidate));
    if (found != tokens.end()) {
      length = candidate;
      return &found->second;
    }
  }
  return nullptr;
}

/// The character before `at`.
static CodePoint characterBefore(std::string_view text, size_t at, size_t &begin) {
  begin = at - 1;
  while ((uint8_t(text[begin]) & 0xc0) == 0x80)
    --begin;
  size_t next = begin;
  return nextCharacter(text, next);
}

void AddedTokens::cut(std::string_view text, std::vector<Part> &to) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0, other;
    const AddedToken *token = lengths[uint8_t(text[at])].empty() ? nullptr : this->at(text, at, length);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    if (token->isSingleWord) {
      size_t next = end;
      if ((begin > 0 && isWord(characterBefore(text, begin, other))) ||
          (end < text.size() && isWord(nextCharacter(text, next))))
        continue;
    }
    if (token->strips[0])
      while (begin > done && isSpace(characterBefore(text, begin, other)))
        begin = other;
    if (token->strips[1])
      for (size_t next = end; next < text.size() && isSpace(nextCharacter(text, next));)
        end = next;
    begin = std::max(begin, done);
    if (begin > done)
      to.push_back({text.substr(done, begin - done), nullptr});
    to.push_back({text.substr(begin, std::max(end, begin) - begin), token});
    done = end;
  }
  if (done < text.size())
    to.push_back({text.substr(done), nullptr});
}
