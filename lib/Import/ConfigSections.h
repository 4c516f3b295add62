//===- ConfigSections.h - Groups of keys with files of their own ------------------------===//
// parseConfig calls these readers in turn. Each reads its keys through the ConfigReader and fills its fields of the
// ModelConfig. Errors are reported through the reader; callers check `reader.failed`.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_CONFIGSECTIONS_H
#define PC_LIB_IMPORT_CONFIGSECTIONS_H

#include "Config.h"
#include "ConfigReader.h"

namespace pc {

/// A limit beyond which a head is taken to be a mistake.
constexpr int64_t mostHeadDim = 1 << 16;

/// The activation that `key` names.
void readActivation(ConfigReader &reader, ConfigKey key, llvm::StringRef absent, ModelConfig &config);
/// The probability of dropout, in 65536ths. `instead`: that of the flag, if it is given.
int64_t readDropout(ConfigReader &reader, ConfigKey key, double absent, std::optional<double> instead);
/// All of a T5: an encoder and a decoder.
void readT5(ConfigReader &reader, ModelConfig &config, const ImportOptions &options);
/// Which layers have a sliding window, and of how many tokens. One that no sequence of `sequence` tokens leaves changes
/// nothing.
void readWindows(ConfigReader &reader, const Family &family, ModelConfig &config, int64_t sequence);
/// All of a mixture of experts. Needs `config.ffn` and `config.layers`.
void readExperts(ConfigReader &reader, const Family &family, ModelConfig &config);
/// A key that can have two names.
ConfigKey keyOf(llvm::StringRef name, llvm::StringRef other);
/// Inverse frequencies of rotary embeddings, in f32 as transformers computes them. Needs `config.headDim`.
void readRopes(ConfigReader &reader, const Family &family, ModelConfig &config);

} // namespace pc

#endif
