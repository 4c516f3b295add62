//===- Precompiled.cpp - SentencePiece's normalization --------------------===//
// A character map consists of the size of a trie in bytes, the trie (a double array of Darts), and replacements, each
// of which ends with a zero. As in the package `tokenizers`, only the shortest text in the trie with which a grapheme
// begins counts, and its replacement replaces the whole grapheme.
//===----------------------------------------------------------------------===//
#include "tokenizer/Normalizer.h"
#include "tokenizer/Unicode.h"

#include <cstring>
#include <utf8proc.h>

using namespace pcrt;

namespace {

class Precompiled : public Normalizer {
public:
  Precompiled(std::vector<uint32_t> trie, std::string replacements)
      : trie(std::move(trie)), replacements(std::move(replacements)) {}

  void normalize(std::string &text, bool &) const override {
    std::string result;
    result.reserve(text.size());
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
      end = endOfGrapheme(text, begin);
      std::string_view grapheme = std::string_view(text).substr(begin, end - begin), other;
      constexpr size_t longest = 5; // length of a grapheme that is replaced as a whole
      if (grapheme.size() <= longest && find(grapheme, other)) {
        result += other;
        continue;
      }
      for (size_t at = 0; at < grapheme.size();) {
        std::string_view one = grapheme.substr(at, utf8Length(grapheme[at]));
        result += find(one, other) ? other : one;
        at += one.size();
      }
    }
    text = std::move(result);
  }

private:
  static size_t endOfGrapheme(std::string_view text, size_t at) {
    CodePoint before = nextCharacter(text, at);
    utf8proc_int32_t state = 0;
    while (at < text.size()) {
      if (before < 0x80 && uint8_t(text[at]) < 0x80 && before != '\r')
        break;
      size_t next = at;
      CodePoint c = nextCharacter(text, next);
      bool isControl = before == 0x2028 || before == 0x2029 || before < 0x20 || (before >= 0x7f && before < 0xa0);
      if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(before), utf8proc_int32_t(c), &state) &&
          (isControl || !isExtending(c)))
        break;
      before = c, at = next;
    }
    return at;
  }

  /// Sets `to` to the replacement of the shortest text in the trie with which `key` begins. Returns false if there is
  /// none.
  bool find(std::string_view key, std::string_view &to) const {
    auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
    uint32_t node = offset(trie[0]);
    for (char c : key) {
      auto byte = uint8_t(c);
      node ^= byte;
      if (byte == 0 || node >= trie.size())
        return false;
      uint32_t unit = trie[node];
      if ((unit & (1u << 31 | 0xff)) != byte)
        return false;
      node ^= offset(unit);
      if (node >= trie.size())
        return false;
      if (unit >> 8 & 1) {
        uint32_t index = trie[node] & ~(1u << 31);
        if (index >= replacements.size())
          return false;
        to = replacements.c_str() + index;
        return true;
      }
    }
    return false;
  }

  std::vector<uint32_t> trie;
  std::string replacements;
};

/// Decodes base64 (RFC 4648). Returns nothing if it is malformed.
std::optional<std::string> fromBase64(const std::string &text) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  uint32_t bits = 0, count = 0;
  size_t end = text.find_last_not_of('=') + 1;
  if (text.size() % 4 || text.size() - end > 2)
    return std::nullopt;
  for (size_t i = 0; i < end; ++i) {
    const char *digit = strchr(digits, text[i]);
    if (!digit || !*digit)
      return std::nullopt;
    bits = bits << 6 | uint32_t(digit - digits);
    if ((count += 6) >= 8)
      result += char(bits >> (count -= 8));
  }
  return result;
}

} // namespace

std::unique_ptr<Normalizer> pcrt::readPrecompiled(Component &component) {
  std::optional<std::string> map = fromBase64(component.text("precompiled_charsmap"));
  uint32_t size = 0;
  if (!map || map->size() < sizeof size)
    component.malformed("\"precompiled_charsmap\" is not base64 of a character map");
  memcpy(&size, map->data(), sizeof size);
  if (size == 0 || size % sizeof(uint32_t) || size > map->size() - sizeof size)
    component.malformed("\"precompiled_charsmap\" has a trie of " + std::to_string(size) + " bytes, but only " +
                        std::to_string(map->size()) + " bytes in all");
  std::vector<uint32_t> trie(size / sizeof(uint32_t));
  memcpy(trie.data(), map->data() + sizeof size, size);
  std::string replacements = map->substr(sizeof size + size);
  if (invalidUtf8(replacements) != std::string::npos)
    component.malformed("\"precompiled_charsmap\" has replacements that are not UTF-8");
  return std::make_unique<Precompiled>(std::move(trie), std::move(replacements));
}
