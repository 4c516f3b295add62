//===- HostArena.cpp - An arena that only this process accesses -----------===//
// Uses one mmap without a reservation. It is one huge page larger than the arena, so that the arena's beginning can be
// aligned.
//===----------------------------------------------------------------------===//
#include "comm/HostArena.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>

using namespace pcrt;

HostArena::~HostArena() {
  if (memory)
    munmap(memory, mapped);
}

pcrt_status HostArena::allocate(int64_t bytes, char **base, std::string *error) {
  if (memory || bytes < 0) {
    *error = memory ? "the arena was allocated twice" : "negative arena size";
    return PCRT_INTERNAL;
  }
  mapped = bytes + kHugePage;
  void *at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    *error = "cannot map an arena of " + std::to_string(bytes) + " bytes: " + strerror(errno);
    return PCRT_RESOURCE;
  }
  memory = at;
  madvise(memory, mapped, MADV_HUGEPAGE);
  *base = static_cast<char *>(memory) + (-reinterpret_cast<uintptr_t>(memory) & (kHugePage - 1));
  return PCRT_OK;
}
