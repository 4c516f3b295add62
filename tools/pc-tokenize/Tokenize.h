//===- Tokenize.h - Files of text to files of tokens, and back -------------===//
// Threads tokenize blocks of text; the output keeps the order of the documents.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_TOKENIZE_TOKENIZE_H
#define PC_TOOLS_TOKENIZE_TOKENIZE_H

#include "Documents.h"

#include <optional>

namespace pcrt {

struct TokenizeOptions {
  std::string tokenizer, output, field = "text", end;
  std::vector<std::string> inputs;
  std::optional<Format> format; ///< If empty, the name of the file decides.
  int threads = 0;              ///< 0: one per core.
  bool usesTemplate = false;    ///< Whether documents get the tokens of the tokenizer's template.
};

/// Writes the tokens of all documents. Throws Failure.
void tokenize(const TokenizeOptions &options);

/// Writes the text of files of tokens. Throws Failure.
void decode(const TokenizeOptions &options);

/// A handler of signals, which ends the work with a Failure and removes what was written.
void stopTokenizing(int signal);
/// The signal that ended the work, or 0.
int stopSignal();

} // namespace pcrt

#endif // PC_TOOLS_TOKENIZE_TOKENIZE_H
