//===- FileKind.h - Recognizes files that are not raw tokens --------------===//
// Raw tokens have no header, so any file could be read as tokens. A file whose first bytes show that it is something
// else, or that is text, is refused. Every test is strict enough that a file of real tokens does not pass it by chance:
// its requirements have a probability of less than 2^-24 in random tokens.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_FILEKIND_H
#define PCRT_DATA_FILEKIND_H

#include "base/InputFile.h"

#include <optional>

namespace pcrt {

/// Returns the reason why `file` does not hold raw tokens, and what to do: "is a gzip archive, not tokens; decompress
/// it first". Returns an empty text if the file may hold tokens. Throws like InputFile::read.
std::string whyNotTokens(const InputFile &file);

/// Says which half of a wider integer every second number of a file is.
enum class Half { Low, High };

/// Tests whether the numbers of `bytes` bytes (2 or 4) in a file are probably halves of integers that are twice as
/// wide. Then every second number is the half `second` (High in little-endian files). If so, returns the largest high
/// half. It is zero, except that 16-bit halves of little-endian tokens may be less than 16. Negative numbers, whose
/// high halves are all ones, are ignored. At least 16 of the low halves must be larger, or 32 if the high ones are not
/// all zero. By chance, these would all be at even places in one of 2^16 or 2^32 files. Looks at the first MiB. Throws
/// like InputFile::read.
std::optional<uint64_t> mostInHalves(const InputFile &file, int bytes, Half second);

} // namespace pcrt

#endif // PCRT_DATA_FILEKIND_H
