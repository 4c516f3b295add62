//===- EndTokens.h - The tokens that end an answer ------------------------===//
// Models with several end tokens list them in generation_config.json; config.json often has only one of them.
//===----------------------------------------------------------------------===//
#ifndef PCRT_GENERATE_ENDTOKENS_H
#define PCRT_GENERATE_ENDTOKENS_H

#include <cstdint>
#include <string>
#include <vector>

namespace pcrt {

/// The ids in `eos_token_id` of a directory's generation_config.json, or of its config.json if the former has none; no
/// ids if both have none. Throws PCRT_BAD_DATA if a file cannot be read, or if an id is not in the vocabulary.
std::vector<int32_t> readEndTokens(const std::string &directory, int32_t vocabulary);

} // namespace pcrt

#endif // PCRT_GENERATE_ENDTOKENS_H
