//===- Failure.cpp - Text that is safe to print ---------------------------===//
// Makes names from files fit for a terminal: valid UTF-8 stays, every other byte is escaped, and the length is bounded.
// withErrno is in Program.cpp.
//===----------------------------------------------------------------------===//
#include "base/Failure.h"

#include <cstdio>

using namespace pcrt;

size_t pcrt::plainCharacter(const std::string &text, size_t at) {
  auto byte = [&](size_t i) -> unsigned { return at + i < text.size() ? uint8_t(text[at + i]) : 0; };
  unsigned first = byte(0);
  if (first < 0x80)
    return first >= 0x20 && first != 0x7f;
  size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  // Overlong encodings and surrogates are invalid; U+0080 to U+009F are control characters of 8-bit terminals.
  unsigned least = length == 2 ? 0xa0 : length == 3 ? 0x800 : 0x10000;
  bool surrogate = code >= 0xd800 && code < 0xe000;
  return first < 0xc0 || first > 0xf4 || code < least || code > 0x10ffff || surrogate ? 0 : length;
}

std::string pcrt::printable(const std::string &text) {
  constexpr size_t most = 4000;
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (result.size() >= most)
      return result + "...";
    if (size_t length = plainCharacter(text, at)) {
      result.append(text, at, length);
      at += length;
      continue;
    }
    char escaped[8];
    snprintf(escaped, sizeof escaped, "\\x%02x", uint8_t(text[at++]));
    result += escaped;
  }
  return result;
}
