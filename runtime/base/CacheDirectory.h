//===- CacheDirectory.h - The directory of files that outlive a run -------===//
#ifndef PCRT_BASE_CACHEDIRECTORY_H
#define PCRT_BASE_CACHEDIRECTORY_H

#include <string>

namespace pcrt {

/// Returns PCRT_CACHE_DIR, otherwise $XDG_CACHE_HOME/pc, otherwise $HOME/.cache/pc. If PCRT_CACHE_DIR is empty, or none
/// of the variables is set, returns an empty text, and nothing is cached. The directory may not exist yet.
std::string cacheDirectory();

} // namespace pcrt

#endif // PCRT_BASE_CACHEDIRECTORY_H
