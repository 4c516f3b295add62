//===- ModelFiles.h - the files of a Hugging Face directory ---------------===//
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
