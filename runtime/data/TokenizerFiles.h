//===- TokenizerFiles.h - The files that accompany a model's weights ------===//
// A run does not read these files, but programs that load its checkpoints do, so every checkpoint contains them.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_TOKENIZERFILES_H
#define PCRT_DATA_TOKENIZERFILES_H

#include "base/ModelFiles.h"

#include <map>
#include <string>

namespace pcrt {

/// The contents of files by name. A name may be that of a file in `templateDirectory`.
using TokenizerFiles = std::map<std::string, std::string>;

/// The files in `directory`; an empty map if `directory` is "". Throws PCRT_BAD_DATA if a file cannot be read or is a
/// pointer of Git LFS.
TokenizerFiles readTokenizerFiles(const std::string &directory);

} // namespace pcrt

#endif // PCRT_DATA_TOKENIZERFILES_H
