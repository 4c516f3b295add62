//===- Npy.cpp - Reads the headers of NumPy's files ------------------------===//
#include "base/Npy.h"
#include "base/Failure.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

using namespace pcrt;

static constexpr char magic[] = "\x93NUMPY";

bool pcrt::isNpy(const InputFile &file) {
  char start[sizeof magic - 1] = {};
  file.read(0, std::min<int64_t>(sizeof start, file.size()), start);
  return memcmp(start, magic, sizeof start) == 0;
}

/// The value that belongs to a key of the dictionary in a header, as Python writes it; a string without its quotes.
static std::string fieldOf(const std::string &header, const std::string &key) {
  size_t at = header.find("'" + key + "'");
  if (at == std::string::npos)
    return "";
  at = header.find_first_not_of(" :", at + key.size() + 2);
  if (at == std::string::npos)
    return "";
  char first = header[at];
  if (first == '\'' || first == '(')
    return header.substr(at + 1, header.find(first == '(' ? ')' : '\'', at + 1) - at - 1);
  return header.substr(at, header.find_first_of(",}", at) - at);
}

/// Reads the numbers of a text such as "100, 3". Returns false if the text is not of this form.
static bool parseShape(const std::string &text, Dims &dims) {
  for (const char *at = text.c_str(); *at;) {
    char *end = nullptr;
    errno = 0;
    int64_t size = strtoll(at, &end, 10);
    if (end == at || errno || size < 0 || dims.size() == size_t(kMaxRank))
      return false;
    dims.push_back(size);
    at = end + strspn(end, " ");
    if (*at && *at++ != ',')
      return false;
    at += strspn(at, " ");
  }
  return true;
}

NpyArray pcrt::readNpy(const InputFile &file, const std::string &what) {
  auto refuse = [&](const std::string &why) { fail(PCRT_BAD_DATA, file.path() + ": " + why); };
  unsigned char start[12] = {};
  file.read(0, std::min<int64_t>(sizeof start, file.size()), start);
  int64_t version = start[6], prefix = version == 1 ? 10 : 12, length = start[8] | start[9] << 8;
  if (version < 1 || version > 3)
    refuse("version " + std::to_string(version) + " of the .npy format is not supported, only 1 to 3");
  if (version > 1)
    length |= int64_t(start[10]) << 16 | int64_t(start[11]) << 24;
  if (length > file.size() - prefix)
    refuse("the .npy header is longer than the file (" + std::to_string(file.size()) + " bytes)");
  if (constexpr int64_t most = 1 << 20; length > most)
    refuse("the .npy header of " + std::to_string(length) + " bytes is longer than " + std::to_string(most));
  std::string header = file.read(prefix, length);
  NpyArray array{fieldOf(header, "descr"), fieldOf(header, "shape"), {}, prefix + length};
  const std::string &dtype = array.dtype;
  if (dtype.size() == 3 && dtype[0] == '>' && dtype[2] != '1')
    refuse("the array is big-endian ('" + dtype + "'); save it after .astype('<" + dtype.substr(1) + "')");
  if (dtype.size() != 3 || !strchr("<|>", dtype[0]) || !strchr("biuf", dtype[1]) || !strchr("1248", dtype[2]))
    refuse("the array has elements of '" + dtype + "', which are not plain numbers");
  if (fieldOf(header, "fortran_order") != "False")
    refuse("the array is in Fortran order; save numpy.ascontiguousarray of it");
  if (!parseShape(array.shape, array.dims))
    refuse("the array has the shape (" + array.shape + "); expected at most " + std::to_string(kMaxRank) +
           " sizes, none of them negative");
  int64_t count = 1, data = file.size() - array.start;
  bool fits = true;
  for (int64_t size : array.dims)
    fits &= !__builtin_mul_overflow(count, size, &count);
  if (!fits || count != data / array.bytes() || data % array.bytes())
    refuse("the header says " + (fits ? std::to_string(count) : "(" + array.shape + ")") + " " + what + " of " +
           std::to_string(array.bytes()) + " bytes, but the file has " + std::to_string(data) + " bytes of them");
  return array;
}
