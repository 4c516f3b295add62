//===- HostArena.h - An arena that only this process accesses -------------===//
// The arena of transports that do not share memory between processes.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_HOSTARENA_H
#define PCRT_COMM_HOSTARENA_H

#include "pcrt/pcrt.h"

#include <string>

namespace pcrt {

/// The bytes of a huge page. Arenas begin at a multiple of it, so that the kernel can give them huge pages.
constexpr int64_t kHugePage = 2 << 20;

/// Anonymous memory, aligned to 2 MiB, which reads as zeros until it is written. It lives as long as this object.
class HostArena {
public:
  HostArena() = default;
  ~HostArena();
  HostArena(const HostArena &) = delete;
  HostArena &operator=(const HostArena &) = delete;

  /// Allocates `bytes` bytes, once. On failure returns PCRT_RESOURCE or PCRT_INTERNAL with a message.
  pcrt_status allocate(int64_t bytes, char **base, std::string *error);

private:
  void *memory = nullptr;
  int64_t mapped = 0;
};

} // namespace pcrt

#endif // PCRT_COMM_HOSTARENA_H
