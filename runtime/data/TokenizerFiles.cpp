//===- TokenizerFiles.cpp - what goes with a model's weights ---------------===//
#include "data/TokenizerFiles.h"
#include "base/Failure.h"
#include "base/InputFile.h"
#include "pcrt/weights.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

using namespace pcrt;
namespace fs = std::filesystem;

// transformers 5.24: the vocab_files_names of its tokenizers, and what tokenizers, processors and GenerationConfig
// save.
static constexpr const char *names[] = {"added_tokens.json",
                                        "audio_tokenizer_config.json",
                                        "bpe.codes",
                                        "byte_maps.json",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "dict.txt",
                                        "emoji.json",
                                        "entity_vocab.json",
                                        "generation_config.json",
                                        "merges.txt",
                                        "normalizer.json",
                                        "preprocessor_config.json",
                                        "processor_config.json",
                                        "prophetnet.tokenizer",
                                        "special_tokens_map.json",
                                        "target_vocab.json",
                                        "tekken.json",
                                        "tokenizer_config.json",
                                        "video_preprocessor_config.json",
                                        "vocab-src.json",
                                        "vocab-tgt.json",
                                        "vocab.json",
                                        "vocab.txt",
                                        "word_pronunciation.json",
                                        "word_shape.json"};

/// Whether a name ends so, with something in front of it.
static bool ends(const std::string &name, const char *with) { return name.ends_with(with) && name != with; }

bool pcrt::isTokenizerFile(const std::string &name) {
  if (fs::path path = name; path.has_parent_path())
    return path.parent_path() == templateDirectory && path.extension() == ".jinja";
  // "tokenizer.json", "tokenizer.4.0.0.json", "tokenizer.model.v3"; SentencePiece and tiktoken under families' names.
  return std::find(std::begin(names), std::end(names), name) != std::end(names) || name.starts_with("tokenizer.") ||
         ends(name, ".model") || ends(name, ".spm") || ends(name, ".tiktoken");
}

TokenizerFiles pcrt::readTokenizerFiles(const std::string &directory) {
  TokenizerFiles files;
  if (directory.empty())
    return files;
  for (const std::string within : {"", templateDirectory}) {
    std::error_code error, ignored;
    for (fs::directory_iterator entry(directory + "/" + within, error), end; entry != end && !error;
         entry.increment(error)) {
      std::string name = (within.empty() ? "" : within + "/") + entry->path().filename().string();
      if (!isTokenizerFile(name) || entry->is_directory(ignored))
        continue;
      std::string text = InputFile(entry->path()).text();
      if (isLfsPointer(text))
        fail(PCRT_BAD_DATA, entry->path().string() + " " + lfsPointerMessage);
      files[name] = std::move(text);
    }
  }
  return files;
}
