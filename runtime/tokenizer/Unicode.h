//===- Unicode.h - UTF-8 and properties of characters ---------------------===//
// Properties come from utf8proc. They are corrected to those that the package `tokenizers` uses, which mixes several
// versions of Unicode, because models were trained with that package.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_UNICODE_H
#define PCRT_TOKENIZER_UNICODE_H

#include <cstdint>
#include <string>
#include <string_view>

namespace pcrt {

using CodePoint = uint32_t;

/// The number of bytes of the UTF-8 character that begins with `first`, in valid UTF-8.
inline size_t utf8Length(char first) {
  auto byte = uint8_t(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/// Returns the character at `at` of valid UTF-8, and moves `at` past it.
CodePoint nextCharacter(std::string_view text, size_t &at);

void appendUtf8(std::string &text, CodePoint character);

/// Returns the index of the first byte that is not part of valid UTF-8, or npos. A sequence that is cut by the end of
/// the text is invalid. If that is the only reason, `cut` (if not null) is set.
size_t invalidUtf8(std::string_view text, bool *cut = nullptr);

/// Appends `text` with U+FFFD instead of each maximal invalid sequence, as WHATWG and Rust define them. Unless `last`
/// is set, an incomplete sequence at the end is not appended, because later bytes may complete it. Returns the number
/// of bytes that were read.
size_t appendLossy(std::string &to, std::string_view text, bool last);

bool isSpace(CodePoint c);            ///< White_Space of Unicode.
bool isNumeric(CodePoint c);          ///< Category N.
bool isPunctuation(CodePoint c);      ///< ASCII punctuation, or category P of Unicode 8.
bool isMark(CodePoint c);             ///< Category M of Unicode 9.
bool isNonspacing(CodePoint c);       ///< Category Mn of Unicode 8.
bool isControl(CodePoint c);          ///< Cc, Cf or Co of Unicode 8; not tab, line feed or carriage return.
bool isWord(CodePoint c);             ///< \w of Unicode's regular expressions.
bool isExtending(CodePoint c);        ///< A mark that continues a grapheme and is newer than utf8proc's tables.
bool hasNewer(std::string_view text); ///< Whether a character is newer than PCRE2's tables.

/// Replaces characters that are newer than PCRE2's tables by older ones of the same category and length.
void replaceNewer(std::string &text);

void appendLower(std::string &to, CodePoint c);

/// A normal form of Unicode.
enum class NormalForm { C, D, KC, KD };
std::string normalForm(std::string_view text, NormalForm form);

} // namespace pcrt

#endif // PCRT_TOKENIZER_UNICODE_H
