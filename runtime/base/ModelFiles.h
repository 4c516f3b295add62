//===- ModelFiles.h - The files of a Hugging Face directory ---------------===//
// Tells which files of a Hugging Face directory belong to the tokenizer or processor, by name only. Checkpoints contain
// copies of them, and a run must not overwrite them. `templateDirectory` is the folder of further chat templates.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_MODELFILES_H
#define PCRT_BASE_MODELFILES_H

#include <string>

namespace pcrt {

constexpr const char *templateDirectory = "additional_chat_templates";

/// Whether transformers gives this name to a file of a tokenizer or a processor, or to the settings of generation. The
/// name may be that of a file in `templateDirectory`.
bool isTokenizerFile(const std::string &name);

} // namespace pcrt

#endif // PCRT_BASE_MODELFILES_H
