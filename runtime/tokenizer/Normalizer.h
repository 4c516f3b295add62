//===- Normalizer.h - Text to normalized text -----------------------------===//
// A normalizer rewrites the text between added tokens before it is cut into words.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_NORMALIZER_H
#define PCRT_TOKENIZER_NORMALIZER_H

#include "tokenizer/Component.h"

#include <memory>
#include <string>
#include <vector>

namespace pcrt {

/// One step of a normalizer. Any number of threads may use it.
class Normalizer {
public:
  virtual ~Normalizer() = default;
  /// Rewrites valid UTF-8. `lostBegin` becomes true if the first character is removed.
  virtual void normalize(std::string &text, bool &lostBegin) const = 0;
};

/// The steps of a normalizer, in order.
struct Normalizers {
  std::vector<std::unique_ptr<Normalizer>> steps;

  void run(std::string &text, bool &lostBegin) const {
    for (const auto &step : steps)
      step->normalize(text, lostBegin);
  }
};

/// Reads a normalizer. Throws like Component.
Normalizers readNormalizer(Component component);

/// SentencePiece's normalization, compiled to a trie of texts and their replacements (spm_precompiled 0.1.4).
std::unique_ptr<Normalizer> readPrecompiled(Component &component);

} // namespace pcrt

#endif // PCRT_TOKENIZER_NORMALIZER_H
