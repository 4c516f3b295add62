//===- ModelFiles.cpp - The files of a Hugging Face directory -------------===//
// The names are those that transformers 5.24 gives to the files that it saves. A new name there is a new row of
// `names`. filesOfModel (pcrt/outputs.h) lists what a run reads of a directory.
//===----------------------------------------------------------------------===//
#include "base/ModelFiles.h"
#include "pcrt/outputs.h"

#include <algorithm>
#include <dirent.h>
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

/// Returns true if `name` ends with `with` and is longer.
static bool ends(const std::string &name, const char *with) { return name.ends_with(with) && name != with; }

bool pcrt::isTokenizerFile(const std::string &name) {
  if (fs::path path = name; path.has_parent_path())
    return path.parent_path() == templateDirectory && path.extension() == ".jinja";
  // Matches "tokenizer.json", "tokenizer.4.0.0.json" and "tokenizer.model.v3", and files of SentencePiece and tiktoken
  // that have the names of model families.
  return std::find(std::begin(names), std::end(names), name) != std::end(names) || name.starts_with("tokenizer.") ||
         ends(name, ".model") || ends(name, ".spm") || ends(name, ".tiktoken");
}

std::vector<NamedPath> pcrt::filesOfModel(const std::string &flag, const std::string &path) {
  DIR *directory = path.empty() ? nullptr : opendir(path.c_str());
  if (!directory)
    return {{flag, path}};
  std::vector<NamedPath> files;
  while (dirent *entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (isTokenizerFile(name) || ends(name, ".safetensors") || ends(name, ".safetensors.index.json") ||
        name == "config.json" || name == "adapter_config.json" || name == "trajectory.json")
      files.push_back({flag, path + "/" + name});
  }
  closedir(directory);
  return files;
}
