//===- ConfigText.h - config.json as a text --------------------------------===//
//
// A checkpoint has the config.json that the model was imported with, character
// by character: a JSON library writes 7.0 as 7 or 1e6 as 1000000.0, and
// transformers refuses some of that. Only what says how weights are stored is
// edited.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_CONFIGTEXT_H
#define PCRT_CHECKPOINT_CONFIGTEXT_H

#include <string>

namespace pcrt {

/// `config` for weights that are stored as `dtype` ("float32"): "dtype" says so, and "torch_dtype" (transformers 4)
/// where it is there; both also in an object "text_config". A text that is no JSON object is returned as it is.
std::string configWithDtype(const std::string &config, const std::string &dtype);

} // namespace pcrt

#endif // PCRT_CHECKPOINT_CONFIGTEXT_H
