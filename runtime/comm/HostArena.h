//===- HostArena.h - An arena that only this process sees -----------------===//
#ifndef PCRT_COMM_HOSTARENA_H
#define PCRT_COMM_HOSTARENA_H

#include "pcrt/pcrt.h"

#include <string>

namespace pcrt {

/// Arenas begin at one of these, so that the kernel can give them huge pages.
constexpr int64_t kHugePage = 2 << 20;

/// Anonymous memory, aligned to 2 MiB, zeros until it is written.
class HostArena {
public:
  HostArena() = default;
  ~HostArena();
  HostArena(const HostArena &) = delete;
  HostArena &operator=(const HostArena &) = delete;

  /// Takes `bytes` bytes, once. On failure returns PCRT_RESOURCE or PCRT_INTERNAL with a message.
  pcrt_status allocate(int64_t bytes, char **base, std::string *error);

private:
  void *memory = nullptr;
  int64_t mapped = 0;
};

} // namespace pcrt

#endif // PCRT_COMM_HOSTARENA_H
