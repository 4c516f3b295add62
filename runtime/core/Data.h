//===- Data.h - tokens to train on ----------------------------------------===//
//
// A token file is llm.c's .bin format, raw little-endian uint16, or any file's
// bytes (text:FILE). Sample g, a row of a batch, reads tokens [g*T, (g+1)*T),
// targets one further; positions count modulo the tokens of the file.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_DATA_H
#define PCRT_CORE_DATA_H

#include "core/MappedFile.h"
#include "core/Program.h"

namespace pcrt {

class TokenFile {
public:
  /// Opens "FILE" or "text:FILE". Throws PCRT_BAD_DATA if it is malformed or has fewer than two tokens.
  explicit TokenFile(const std::string &spec);

  int64_t count() const { return tokens; }
  /// The token at a position modulo count().
  int32_t at(int64_t position) const {
    const unsigned char *token = data + position % tokens * bytesPerToken;
    return bytesPerToken == 1 ? token[0] : token[0] | token[1] << 8;
  }
  const std::string &path() const { return file.path(); }

private:
  MappedFile file;
  const unsigned char *data = nullptr;
  int64_t tokens = 0;
  int bytesPerToken = 2;
};

/// Fills the tokens and targets of one rank for a step. Allocates nothing unless it fails.
class BatchLoader {
public:
  BatchLoader(const Program &program, const TokenFile &file, int rank);

  /// Checks the batch whose first row is sample `sample` (all of it, so that every rank finds the same error) and
  /// writes this rank's part to `inputs`, one address for each input of the program. Throws PCRT_BAD_DATA naming file,
  /// position, token and vocabulary.
  void fill(int64_t sample, char *const *inputs) const;

private:
  const Program &program;
  const TokenFile &file;
  std::vector<Block> blocks; ///< By input.
};

} // namespace pcrt

#endif // PCRT_CORE_DATA_H
