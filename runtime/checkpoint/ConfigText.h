//===- ConfigText.h - The text of config.json -----------------------------===//
// A checkpoint contains the config.json with which the model was imported, character by character: a JSON library might
// write 7.0 as 7 or 1e6 as 1000000.0, and transformers refuses some of these changes. Only the keys that name the dtype
// of the weights are edited.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_CONFIGTEXT_H
#define PCRT_CHECKPOINT_CONFIGTEXT_H

#include <string>

namespace pcrt {

/// Returns `config` for weights that are stored as `dtype` ("float32"). Sets "dtype" and, if it exists, "torch_dtype"
/// (transformers 4), also in an object "text_config". Returns a text that is not a JSON object unchanged.
std::string configWithDtype(const std::string &config, const std::string &dtype);

} // namespace pcrt

#endif // PCRT_CHECKPOINT_CONFIGTEXT_H
