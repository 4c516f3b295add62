//===- CacheDirectory.cpp - The directory of files that outlive a run -----===//
#include "base/CacheDirectory.h"

#include <cstdlib>

std::string pcrt::cacheDirectory() {
  if (const char *own = getenv("PCRT_CACHE_DIR"))
    return own;
  if (const char *base = getenv("XDG_CACHE_HOME"); base && *base)
    return std::string(base) + "/pc";
  if (const char *home = getenv("HOME"); home && *home)
    return std::string(home) + "/.cache/pc";
  return "";
}
