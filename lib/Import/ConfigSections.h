//===- ConfigSections.h - Groups of keys with separate files ----------------------------===//
// parseConfig calls these readers in turn. Each reads its keys through the ConfigReader and fills its fields of the
// ModelConfig. Errors are reported through the reader; callers check `reader.failed`.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_IMPORT_CONFIGSECTIONS_H
#define PC_LIB_IMPORT_CONFIGSECTIONS_H

#include "Config.h"
#include "ConfigReader.h"

namespace pc {

/// A larger head is considered a mistake.
constexpr int64_t mostHeadDim = 1 << 16;

/// The activation that `key` names.
void readActivation(ConfigReader &reader, ConfigKey key, llvm::StringRef absent, ModelConfig &config);
/// The probability of dropout, in units of 1/65536. `instead` is the probability from the flag, if it is given.
int64_t readDropout(ConfigReader &reader, ConfigKey key, double absent, std::optional<double> instead);
/// Reads all keys of a T5, which has an encoder and a decoder.
void readT5(ConfigReader &reader, ModelConfig &config, const ImportOptions &options);
/// Reads which layers have a sliding window, and its length. A window of at least `sequence` tokens has no effect.
void readWindows(ConfigReader &reader, const Family &family, ModelConfig &config, int64_t sequence);
/// Reads all keys of a mixture of experts. Needs `config.ffn` and `config.layers`.
void readExperts(ConfigReader &reader, const Family &family, ModelConfig &config);
/// A key that can have two names.
ConfigKey keyOf(llvm::StringRef name, llvm::StringRef other);
/// Inverse frequencies of rotary embeddings, in f32 as transformers computes them. Needs `config.headDim`.
void readRopes(ConfigReader &reader, const Family &family, ModelConfig &config);

} // namespace pc

#endif
