//===- TokenWriter.h - Writes files of tokens -----------------------------===//
// Writes what TokenFile (Data.h) reads: llm.c's .bin format, or a NumPy array.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_TOKENWRITER_H
#define PCRT_DATA_TOKENWRITER_H

#include "pcrt/outputs.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pcrt {

/// Writes a file of tokens of 16 or 32 bits. The file appears when it is complete.
class TokenWriter {
public:
  /// Opens a file for tokens below `vocabulary`. The path must end in .bin or .npy. Throws PCRT_USAGE for another path,
  /// and PCRT_RESOURCE if the file cannot be written.
  TokenWriter(const std::string &path, uint32_t vocabulary);

  /// Throws PCRT_RESOURCE, or PCRT_USAGE if a .bin file would have more tokens than its header can say (2^31 - 1).
  void write(const std::vector<uint32_t> &tokens);
  /// Completes the file, which then appears under its name. Throws PCRT_RESOURCE.
  void finish();

  int64_t count() const { return tokens; }
  int bytes() const { return width; } ///< The bytes of a token.

private:
  void flush();
  [[noreturn]] void failToWrite() const;

  std::string path;
  bool isNpy;
  int width;
  OutputFile file;
  std::string buffer;
  int64_t offset, tokens = 0;
};

} // namespace pcrt

#endif // PCRT_DATA_TOKENWRITER_H
