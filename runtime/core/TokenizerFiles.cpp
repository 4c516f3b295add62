//===- TokenizerFiles.cpp - what goes with a model's weights ---------------===//
#include "core/TokenizerFiles.h"
#include "base/InputFile.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

using namespace pcrt;

// transformers 5: the vocab_files_names of its tokenizers, and what PreTrainedTokenizerBase and GenerationConfig save.
static constexpr const char *names[] = {"added_tokens.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "merges.txt",
                                        "sentencepiece.bpe.model",
                                        "special_tokens_map.json",
                                        "spiece.model",
                                        "tekken.json",
                                        "tokenizer.json",
                                        "tokenizer.model",
                                        "tokenizer_config.json",
                                        "vocab.json",
                                        "vocab.txt"};

bool pcrt::isTokenizerFile(const std::string &name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

TokenizerFiles pcrt::readTokenizerFiles(const std::string &directory) {
  TokenizerFiles files;
  std::error_code ignored;
  for (std::string name : names)
    if (std::string path = directory + "/" + name;
        !directory.empty() && std::filesystem::is_regular_file(path, ignored))
      files[name] = InputFile(path).text();
  return files;
}
