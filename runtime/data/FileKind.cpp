//===- FileKind.cpp - Recognizes files that are not raw tokens ------------===//
// A table of magic numbers, a table of structures for formats with short magic numbers (each function cites what it
// checks), and tests for text in UTF-8, UTF-16 and 8-bit encodings.
//===----------------------------------------------------------------------===//
#include "data/FileKind.h"
#include "base/Failure.h"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <string_view>
#include <vector>

using namespace pcrt;
using namespace std::string_view_literals;

namespace {

constexpr int64_t looksAt = 1 << 16; // bytes

constexpr const char
    *decompress = "decompress it first",
    *wrongFile = "give the file that contains the tokens",
    *saveTokens = "save its tokens as one .npy array of integers, or as raw numbers",
    *tokenize = "tokenize it with pc-tokenize",
    *besideIndex =
        "use the .bin file next to it, which contains the tokens as raw numbers of the type that the index names";

/// The first bytes of a file, its last byte and its size.
struct Ends {
  std::string_view head;
  char last;
  int64_t size;

  bool has(std::string_view bytes, size_t at = 0) const {
    return at <= head.size() && head.substr(at, bytes.size()) == bytes;
  }
  /// The byte at `at`; 0 after the end.
  uint8_t byte(size_t at) const { return at < head.size() ? uint8_t(head[at]) : 0; }
  /// The little-endian number of T's width at `at`; 0 after the end.
  template <typename T> T number(size_t at) const {
    T value = 0;
    if (at + sizeof value <= head.size())
      memcpy(&value, head.data() + at, sizeof value);
    return value;
  }
};

/// A format that is recognized by at least 4 bytes (two tokens) at one place.
struct Magic {
  std::string_view bytes;
  const char *what, *todo;
  size_t at = 0;
};

constexpr Magic magics[] = {
    {"\x28\xb5\x2f\xfd"sv, "a zstd archive", decompress},
    {"\x04\x22\x4d\x18"sv, "an lz4 archive", decompress},
    {"\xff\x06\0\0sNaPpY"sv, "a snappy archive", decompress},
    {"\xfd\x37zXZ\0"sv, "an xz archive", decompress},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive", decompress},
    {"Rar!\x1a\x07"sv, "a rar archive", decompress},
    {"ustar"sv, "a tar archive", "unpack it first", 257},
    {"PK\x03\x04"sv, "a zip archive, such as NumPy's .npz or PyTorch's .pt", saveTokens},
    {"PK\x05\x06"sv, "an empty zip archive", wrongFile},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file", saveTokens},
    {"MMIDIDX\0"sv, "an index of Megatron", besideIndex},
    {"TNTIDX\0\0"sv, "an index of fairseq", besideIndex},
    {"PAR1"sv, "a Parquet file", tokenize},
    {"ARROW1\0"sv, "an Arrow file", tokenize},
    {"FEA1"sv, "a Feather file", tokenize},
    {"Obj\x01"sv, "an Avro file", tokenize},
    {"SQLite format 3\0"sv, "an SQLite database", tokenize},
    {"%PDF-"sv, "a PDF document", tokenize},
    {"GGUF"sv, "a GGUF file of weights", wrongFile},
    {"\xc6\xd7\x34\x01"sv, "a model of llm.c", wrongFile},
    {"\x8a\xd8\x34\x01"sv, "an evaluation of llm.c", wrongFile},
    {"\x89PNG\r\n\x1a\n"sv, "a PNG image", wrongFile},
    {"GIF87a"sv, "a GIF image", wrongFile},
    {"GIF89a"sv, "a GIF image", wrongFile},
    {"II*\0"sv, "a TIFF image", wrongFile},
    {"MM\0*"sv, "a TIFF image", wrongFile},
    {"\x7f\x45LF"sv, "an ELF program or library", wrongFile},
};

/// A format whose magic number is too short, so that more of its structure is checked.
struct Structure {
  bool (*fits)(const Ends &file);
  const char *what, *todo;
};

bool isGzip(const Ends &file) { // RFC 1952: the method, reserved flags, extra flags and the system
  uint8_t extra = file.byte(8), system = file.byte(9);
  return file.has("\x1f\x8b\x08"sv) && file.byte(3) < 32 && extra <= 4 && extra % 2 == 0 &&
         (system <= 13 || system == 255);
}

bool isBzip2(const Ends &file) {
  return file.has("BZh"sv) && file.byte(3) >= '1' && file.byte(3) <= '9' &&
         (file.has("\x31\x41\x59\x26\x53\x59"sv, 4) || file.has("\x17\x72\x45\x38\x50\x90"sv, 4));
}

/// The length of a JSON header, and its first character.
bool isSafetensors(const Ends &file) {
  auto length = file.number<uint64_t>(0);
  return length >= 2 && length + 8 <= uint64_t(file.size) && file.byte(8) == '{' &&
         (file.byte(9) == '"' || file.byte(9) == '}' || file.byte(9) == ' ') &&
         (length + 7 >= file.head.size() || file.byte(size_t(length) + 7) == '}' ||
          file.byte(size_t(length) + 7) == ' ');
}

/// The stream format that the library `datasets` writes: a mark, then the length of the first message.
bool isArrowStream(const Ends &file) {
  auto length = file.number<int32_t>(4);
  return file.has("\xff\xff\xff\xff"sv) && length > 0 && length % 8 == 0 && length + 8 <= file.size;
}

/// Protocols 2 to 5, which end with the STOP instruction; from 4 on there are frames with a length.
bool isPickle(const Ends &file) {
  uint8_t protocol = file.byte(1);
  if (file.byte(0) != 0x80 || protocol < 2 || protocol > 5)
    return false;
  if (protocol >= 4 && file.byte(2) == 0x95)
    return file.number<uint64_t>(3) + 11 <= uint64_t(file.size);
  bool isTorch = file.has("\x8a\x0al\xfc\x9c\x46\xf9"sv, 2); // torch.save before version 1.6: data lie after it
  return isTorch || (file.last == '.' && strchr("]})(cXKMJN\x8a\x8c", file.byte(2)) && file.byte(2));
}

bool isJpeg(const Ends &file) {
  return file.has("\xff\xd8\xff"sv) && (file.has("JFIF"sv, 6) || file.has("Exif"sv, 6) || file.last == '\xd9');
}

bool isBmp(const Ends &file) { return file.has("BM"sv) && file.number<uint32_t>(2) == uint64_t(file.size); }

bool isRiff(const Ends &file) {
  return file.has("RIFF"sv) && (file.has("WEBP"sv, 8) || file.has("WAVE"sv, 8) || file.has("AVI "sv, 8));
}

/// The first piece of a SentencePiece model: field 1, with a text like "<unk>" in field 1 and a score in field 2.
bool isSentencePiece(const Ends &file) {
  size_t length = file.byte(3);
  return file.byte(0) == 0x0a && file.byte(2) == 0x0a && length + 2 < file.byte(1) && file.byte(4) == '<' &&
         file.byte(3 + length) == '>' && file.byte(4 + length) == 0x15;
}

constexpr Structure structures[] = {
    {isGzip, "a gzip archive", decompress},
    {isBzip2, "a bzip2 archive", decompress},
    {isSafetensors, "a safetensors file", saveTokens},
    {isArrowStream, "an Arrow stream", tokenize},
    {isPickle, "a pickle of Python", saveTokens},
    {isJpeg, "a JPEG image", wrongFile},
    {isBmp, "a BMP image", wrongFile},
    {isRiff, "a file of sound or images (RIFF)", wrongFile},
    {isSentencePiece, "a model of SentencePiece", wrongFile},
};

bool isSpace(uint8_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }
bool isControl(uint8_t byte) { return (byte < 0x20 && !isSpace(byte) && byte != 0x1b) || byte == 0x7f; }

/// Returns true if there are several different bytes both at even and at odd places. In files of few different tokens,
/// all odd bytes (the upper ones) are equal, and that does not make the file text.
bool hasVariety(const std::string &head) {
  constexpr size_t fewest = 4;
  for (size_t first : {0, 1}) {
    std::bitset<256> seen;
    for (size_t at = first; at < head.size(); at += 2)
      seen.set(uint8_t(head[at]));
    if (seen.count() < fewest)
      return false;
  }
  return true;
}

/// Returns true if the bytes are UTF-8 without control characters. A random token of 16 bits passes with a probability
/// of one in five, and 16 tokens must pass.
bool isUtf8(const std::string &head) {
  constexpr size_t fewest = 32,
                   longest = 4; // `longest` is for a character, which the end of the sample of the file may cut
  if (head.size() < fewest || !hasVariety(head))
    return false;
  for (size_t at = 0; at < head.size();) {
    size_t length = isSpace(uint8_t(head[at])) ? 1 : plainCharacter(head, at);
    if (length == 0)
      return head.size() == looksAt && head.size() - at < longest && uint8_t(head[at]) >= 0xc0;
    at += length;
  }
  return true;
}

/// Returns true if the bytes are words in another 8-bit encoding, possibly with some other bytes between them. One in
/// five random tokens of 16 bits has a byte of a control character.
bool isOtherText(const std::string &head) {
  constexpr size_t fewest = 512, longestWord = 128;
  auto count = [&](auto is) { return size_t(std::count_if(head.begin(), head.end(), is)); };
  return head.size() >= fewest && hasVariety(head) && count(isControl) * (fewest / 2) <= head.size() &&
         count(isSpace) * longestWord >= head.size();
}

/// Returns true if the bytes are UTF-16: a byte order mark, then no control characters, private-use or unassigned
/// units.
bool isUtf16(const std::string &head) {
  constexpr size_t fewest = 64;
  bool little = head.compare(0, 2, "\xff\xfe") == 0;
  if (head.size() < 2 * fewest || (!little && head.compare(0, 2, "\xfe\xff") != 0))
    return false;
  for (size_t at = 2; at + 1 < head.size(); at += 2) {
    auto high = uint8_t(head[at + little]), low = uint8_t(head[at + !little]);
    bool isPrivate = high >= 0xe0 && high < 0xf9, isNone = high >= 0xfd;
    if ((high == 0 && isControl(low)) || isPrivate || isNone)
      return false;
  }
  return true;
}

std::string describeText(const std::string &head, const std::string &path) {
  if (head.compare(0, 42, "version https://git-lfs.github.com/spec/v1") == 0)
    return "is a Git LFS pointer instead of the file itself; fetch the file with 'git lfs pull'";
  size_t first = head.find_first_not_of(" \t\r\n");
  bool isJson = first != std::string::npos && (head[first] == '{' || head[first] == '[');
  return std::string(isJson ? "is JSON" : "is text") + ", not tokens; " + tokenize + ", or use text:" + path +
         ", which uses its bytes as tokens";
}

} // namespace

std::string pcrt::whyNotTokens(const InputFile &file) {
  std::string head = file.read(0, std::min(file.size(), looksAt));
  if (head.empty())
    return "";
  Ends ends{head, file.read(file.size() - 1, 1)[0], file.size()};
  auto describe = [](const char *what, const char *todo) {
    return std::string("is ") + what + ", not tokens; " + todo;
  };
  for (const Magic &magic : magics)
    if (ends.has(magic.bytes, magic.at))
      return describe(magic.what, magic.todo);
  for (const Structure &structure : structures)
    if (structure.fits(ends))
      return describe(structure.what, structure.todo);
  return isUtf8(head) || isOtherText(head) || isUtf16(head) ? describeText(head, file.path()) : "";
}

std::optional<uint64_t> pcrt::mostInHalves(const InputFile &file, int bytes, Half second) {
  std::string head = file.read(0, std::min<int64_t>(file.size(), 1 << 20));
  uint64_t ones = bytes == 2 ? UINT16_MAX : UINT32_MAX;
  const uint64_t mostHigh = bytes == 2 && second == Half::High ? 15 : 0; // tokens below 2^20
  auto number = [&](int64_t index) {
    uint64_t value = 0;
    memcpy(&value, head.data() + index * bytes, size_t(bytes));
    return value;
  };
  int64_t pairs = int64_t(head.size()) / (2 * bytes), isHigh = second == Half::High;
  uint64_t largest = 0;
  std::vector<uint64_t> lows;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    uint64_t high = number(2 * pair + isHigh), low = number(2 * pair + 1 - isHigh);
    if (high == ones && low > ones / 2)
      continue; // a negative number
    if (largest = std::max(largest, high); largest > mostHigh)
      return std::nullopt;
    lows.push_back(low);
  }
  int64_t larger = std::count_if(lows.begin(), lows.end(), [&](uint64_t low) { return low > largest; });
  if (larger < (largest ? 32 : 16))
    return std::nullopt;
  return largest;
}
