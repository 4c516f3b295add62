//===- CacheDirectory.h - The directory of files that outlive a run -------===//
#ifndef PCRT_BASE_CACHEDIRECTORY_H
#define PCRT_BASE_CACHEDIRECTORY_H

#include <string>

namespace pcrt {

/// PCRT_CACHE_DIR, or else $XDG_CACHE_HOME/pc, or else $HOME/.cache/pc. Empty if PCRT_CACHE_DIR is, or if none is set:
/// then nothing is kept. The directory may not exist yet.
std::string cacheDirectory();

} // namespace pcrt

#endif // PCRT_BASE_CACHEDIRECTORY_H
