//===- Unicode.cpp - UTF-8 and properties of characters -------------------===//
// UnicodeTables.inc lists the differences between the package `tokenizers` and Unicode 15 (utf8proc 2.8) and Unicode 14
// (PCRE2 10.42). The package uses Unicode 16 in regular expressions, Unicode 9 in normal forms, and Unicode 8 in
// BertNormalizer. Entries state the result and not a difference, so that they also hold with newer versions of both
// libraries.
//===----------------------------------------------------------------------===//
#include "tokenizer/Unicode.h"
#include "base/Failure.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utf8proc.h>

using namespace pcrt;

namespace {

struct Range {
  CodePoint first, last;
};
struct Category {
  CodePoint first, last;
  const char *name;
};
struct Distance {
  CodePoint first, last;
  int32_t distance;
};

#include "tokenizer/UnicodeTables.inc"

/// The entry that contains `c`, or null.
template <typename Entry, size_t n> const Entry *find(const Entry (&table)[n], CodePoint c) {
  const Entry *entry = std::lower_bound(std::begin(table), std::end(table), c,
                                        [](const Entry &one, CodePoint point) { return one.last < point; });
  return entry != std::end(table) && entry->first <= c ? entry : nullptr;
}

std::string_view category(CodePoint c) {
  const Category *found = find(newer, c);
  return found ? found->name : utf8proc_category_string(utf8proc_int32_t(c));
}

/// For each block of 256 characters, whether it has characters that are newer than PCRE2's tables.
const std::array<bool, 0x1100> &newerBlocks() {
  static const std::array<bool, 0x1100> blocks = [] {
    std::array<bool, 0x1100> result{};
    for (const Category &entry : newer)
      for (CodePoint block = entry.first >> 8; block <= entry.last >> 8; ++block)
        result[block] = true;
    return result;
  }();
  return blocks;
}

/// Returns an older character of a category whose UTF-8 has `length` bytes.
CodePoint standIn(std::string_view name, size_t length) {
  struct Row {
    const char *name;
    CodePoint two, three, four;
  };
  static constexpr Row rows[] = {
      {"Lu", 0xc0, 0x1e00, 0x10400},  {"Ll", 0xe0, 0x1e01, 0x10428},  {"Lt", 0x1c5, 0x1f88, 0},
      {"Lm", 0x2b0, 0x1d2c, 0x16b40}, {"Lo", 0x5d0, 0x3042, 0x10000}, {"Nd", 0x660, 0x966, 0x104a0},
      {"Nl", 0, 0x2160, 0x10140},     {"No", 0xb2, 0x2070, 0x10107},  {"Mn", 0x300, 0x1ab0, 0x101fd},
      {"Mc", 0, 0x903, 0x11000},      {"Me", 0x488, 0x20dd, 0},       {"Pd", 0, 0x2010, 0x10ead},
      {"Po", 0xa1, 0x2016, 0x10100},  {"Sm", 0xac, 0x2044, 0x1d6c1},  {"Sc", 0xa2, 0x20a0, 0x11fdd},
      {"Sk", 0xa8, 0x1fbd, 0x1f3fb},  {"So", 0xa6, 0x2100, 0x10137},  {"Cf", 0xad, 0x200b, 0x110bd},
  };
  for (const Row &row : rows)
    if (name == row.name)
      return length == 2 ? row.two : length == 3 ? row.three : row.four;
  return 0;
}

} // namespace

CodePoint pcrt::nextCharacter(std::string_view text, size_t &at) {
  auto byte = [&](size_t i) { return CodePoint(uint8_t(text[at + i])); };
  size_t length = utf8Length(text[at]);
  CodePoint c = length == 1   ? byte(0)
                : length == 2 ? (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f)
                : length == 3
                    ? (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f)
                    : (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  at += length;
  return c;
}

void pcrt::appendUtf8(std::string &text, CodePoint c) {
  if (c < 0x80) {
    text += char(c);
    return;
  }
  int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  text += char((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | c >> (6 * more));
  while (more-- > 0)
    text += char(0x80 | (c >> (6 * more) & 0x3f));
}

/// Returns the length of the valid character at `at`, or 0. If it is 0, `bad` is the number of bytes of the maximal
/// invalid sequence, and `cut` says whether the text ends within it.
static size_t validLength(std::string_view text, size_t at, size_t &bad, bool &cut) {
  auto first = uint8_t(text[at]);
  bad = 1;
  cut = false;
  if (first < 0x80)
    return 1;
  size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                  : (first & 0xf0) == 0xe0         ? 3
                  : first >= 0xf0 && first <= 0xf4 ? 4
                                                   : 0;
  // These bounds exclude overlong encodings, surrogates and characters above U+10FFFF.
  uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i, low = 0x80, high = 0xbf) {
    if (at + i == text.size()) {
      cut = true;
      return 0;
    }
    if (uint8_t(text[at + i]) < low || uint8_t(text[at + i]) > high)
      return 0;
    bad = i + 1;
  }
  return length;
}

size_t pcrt::invalidUtf8(std::string_view text, bool *cut) {
  size_t at = 0, bad;
  bool ends = false;
  while (at < text.size()) {
    uint64_t eight;
    while (at + sizeof eight <= text.size() && (memcpy(&eight, &text[at], sizeof eight), !(eight & 0x8080808080808080)))
      at += sizeof eight;
    if (at == text.size())
      break;
    size_t length = validLength(text, at, bad, ends);
    if (!length) {
      if (cut)
        *cut = ends;
      return at;
    }
    at += length;
  }
  return std::string_view::npos;
}

size_t pcrt::appendLossy(std::string &to, std::string_view text, bool last) {
  size_t at = 0, bad;
  bool cut;
  while (at < text.size()) {
    if (size_t length = validLength(text, at, bad, cut)) {
      to.append(text, at, length);
      at += length;
      continue;
    }
    if (cut && !last)
      return at;
    to += "\xef\xbf\xbd";
    at += bad;
  }
  return at;
}

bool pcrt::isSpace(CodePoint c) {
  if (c < 0x80)
    return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool pcrt::isNumeric(CodePoint c) {
  return c < 0x80 ? c >= '0' && c <= '9' : category(c)[0] == 'N' || find(alsoNumeric, c);
}

bool pcrt::isPunctuation(CodePoint c) {
  if (c < 0x80)
    return c > ' ' && c < 0x7f && !isalnum(int(c));
  return (category(c)[0] == 'P' && !find(notPunctuation, c)) || find(alsoPunctuation, c);
}

bool pcrt::isMark(CodePoint c) {
  return c >= 0x300 && ((category(c)[0] == 'M' && !find(inert, c)) || find(alsoMark, c));
}

bool pcrt::isNonspacing(CodePoint c) {
  return c >= 0x300 && ((category(c) == "Mn" && !find(notNonspacing, c)) || find(alsoNonspacing, c));
}

bool pcrt::isControl(CodePoint c) {
  if (c < 0x80)
    return (c < ' ' || c == 0x7f) && c != '\t' && c != '\n' && c != '\r';
  std::string_view name = category(c);
  return (name == "Cc" || name == "Cf" || name == "Co") && !find(notControl, c);
}

bool pcrt::isWord(CodePoint c) {
  if (c < 0x80)
    return isalnum(int(c)) || c == '_';
  std::string_view name = category(c);
  return name[0] == 'L' || name[0] == 'M' || name == "Nd" || name == "Nl" || name == "Pc" || find(alsoWord, c);
}

bool pcrt::isExtending(CodePoint c) {
  const Category *found = c >= 0x300 ? find(newer, c) : nullptr;
  return found && found->name[0] == 'M';
}

bool pcrt::hasNewer(std::string_view text) {
  const auto &blocks = newerBlocks();
  for (size_t at = 0; at < text.size();) {
    if (uint8_t(text[at]) < 0xe0) {
      ++at;
      continue;
    }
    CodePoint c = nextCharacter(text, at);
    if (blocks[c >> 8] && find(newer, c))
      return true;
  }
  return false;
}

void pcrt::replaceNewer(std::string &text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t begin = at;
    CodePoint c = nextCharacter(text, at);
    const Category *found = c >= 0x800 ? find(newer, c) : nullptr;
    CodePoint other = found ? standIn(found->name, at - begin) : 0;
    if (other)
      appendUtf8(result, other);
    else
      result.append(text, begin, at - begin);
  }
  text = std::move(result);
}

void pcrt::appendLower(std::string &to, CodePoint c) {
  if (c < 0x80) {
    to += char(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return;
  }
  if (c == 0x130) {
    to += "i\xcc\x87";
    return;
  }
  const Distance *found = find(lower, c);
  appendUtf8(to, found ? c + CodePoint(found->distance) : CodePoint(utf8proc_tolower(utf8proc_int32_t(c))));
}

/// Appends the normal form of a text that has no `inert` and no `newer` characters.
static void appendForm(std::string &to, std::string_view text, NormalForm form) {
  if (text.empty())
    return;
  int options =
      UTF8PROC_STABLE | (form == NormalForm::C || form == NormalForm::KC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == NormalForm::KC || form == NormalForm::KD)
    options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t *result = nullptr;
  auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t *>(text.data()), utf8proc_ssize_t(text.size()),
                             &result, utf8proc_option_t(options));
  if (length < 0)
    fail(PCRT_RESOURCE, std::string("cannot normalize a text: ") + utf8proc_errmsg(length));
  to.append(reinterpret_cast<const char *>(result), size_t(length));
  free(result);
}

std::string pcrt::normalForm(std::string_view text, NormalForm form) {
  std::string result;
  result.reserve(text.size());
  // Characters below U+0300 are their own NFC, and ASCII characters have no other form.
  CodePoint first = form == NormalForm::C ? 0x300 : 0x80;
  size_t begin = 0; // the beginning of the text that is not normalized yet
  bool needed = false;
  for (size_t at = 0; at < text.size();) {
    size_t from = at;
    CodePoint c = nextCharacter(text, at);
    needed |= c >= first;
    if (c < 0x300 || (!find(inert, c) && !find(newer, c)))
      continue;
    appendForm(result, text.substr(begin, from - begin), form);
    result.append(text, from, at - from);
    begin = at;
  }
  if (!needed)
    return std::string(text);
  appendForm(result, text.substr(begin), form);
  return result;
}
