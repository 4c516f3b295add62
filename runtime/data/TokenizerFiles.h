//===- TokenizerFiles.h - What goes with a model's weights ----------------===//
// Files of the directory that a model comes from which a run does not read, but whoever loads what it saves does: they
// go into every checkpoint.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_TOKENIZERFILES_H
#define PCRT_DATA_TOKENIZERFILES_H

#include "base/ModelFiles.h"

#include <map>
#include <string>

namespace pcrt {

/// Contents by name, which may be that of a file in `templateDirectory`.
using TokenizerFiles = std::map<std::string, std::string>;

/// Those in `directory`; none where that is empty. Throws PCRT_BAD_DATA where one cannot be read or is a pointer of
/// Git LFS.
TokenizerFiles readTokenizerFiles(const std::string &directory);

} // namespace pcrt

#endif // PCRT_DATA_TOKENIZERFILES_H
