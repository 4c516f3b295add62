//===- FileKind.h - What a file is that has no token header ---------------===//
// Raw tokens have no header, so any file could be read as such. One that is known by its first bytes to be something
// else, or that is text, is refused. Every test is strict enough that a file of real tokens does not pass it by chance:
// what it requires has a probability of less than 2^-24 in random tokens.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_FILEKIND_H
#define PCRT_DATA_FILEKIND_H

#include "base/InputFile.h"

#include <optional>

namespace pcrt {

/// Why `file` is no file of raw tokens and what to do about it, as "is a gzip archive, not tokens; decompress it
/// first". Empty if it may be one. Throws as InputFile::read.
std::string whyNotTokens(const InputFile &file);

/// The half of an integer that every second number of a file is.
enum class Half { Low, High };

/// Where the numbers of `bytes` bytes (2 or 4) in a file are probably halves of integers twice as wide, of which every
/// second one is `second` (High in little-endian files): the largest high half, which is zero but for 16-bit halves of
/// little-endian tokens, where it is less than 16. Negative numbers, whose high halves are all ones, are left out. Of
/// the low halves at least 16 are larger, or 32 where the high ones are not all zero: by chance these numbers would all
/// be at even places once in 2^16 or 2^32 files. Looks at the first MiB. Throws as InputFile::read.
std::optional<uint64_t> mostInHalves(const InputFile &file, int bytes, Half second);

} // namespace pcrt

#endif // PCRT_DATA_FILEKIND_H
