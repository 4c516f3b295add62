//===- Data.h - tokens to train on ----------------------------------------===//
//
// A token file is llm.c's .bin format, a NumPy array, raw little-endian
// numbers, or any file's bytes. Sample g, a row of a batch, reads tokens
// [g*T, (g+1)*T), targets one further; positions count modulo the tokens of the
// file.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_DATA_H
#define PCRT_CORE_DATA_H

#include "base/InputFile.h"
#include "base/Program.h"

namespace pcrt {

/// Little-endian integers, one for each token.
struct TokenFormat {
  int64_t start = 0; ///< Bytes before the first token.
  int bytes = 2;     ///< Of a token: 1, 2, 4 or 8.
  bool isSigned = false;
};

class TokenFile {
public:
  /// Opens "FILE" (llm.c's .bin, .npy, else raw uint16), "u32:FILE" (raw uint32) or "text:FILE" (bytes). Throws
  /// PCRT_BAD_DATA if it is malformed, has fewer than two tokens, or looks like wider numbers than it is read as.
  explicit TokenFile(const std::string &spec);

  int64_t count() const { return tokens; }
  const std::string &path() const { return file.path(); }

  /// Reads `n` tokens from `position` on, modulo count(). Throws PCRT_BAD_DATA, naming file, position, token and
  /// vocabulary, if one is not in [0, vocabulary). Allocates nothing otherwise.
  void read(int64_t position, int64_t n, int64_t vocabulary, int32_t *out) const;

private:
  InputFile file;
  TokenFormat format;
  int64_t tokens = 0;
};

/// Fills the tokens and targets of one rank for a step. Allocates nothing unless it fails.
class BatchLoader {
public:
  BatchLoader(const Program &program, const TokenFile &file, int rank);

  /// Checks the batch whose first row is sample `sample` (all of it, so that every rank finds the same error) and
  /// writes this rank's part to `inputs`, one address for each input of the program. Throws as TokenFile::read.
  void fill(int64_t sample, char *const *inputs);

private:
  const Program &program;
  const TokenFile &file;
  std::vector<Block> blocks;   ///< By input.
  std::vector<int32_t> window; ///< The batch's tokens, and the target of its last one.
};

} // namespace pcrt

#endif // PCRT_CORE_DATA_H
