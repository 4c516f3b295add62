//===- HostArena.cpp - an arena that only this process sees ---------------===//
#include "comm/HostArena.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace pcrt;

HostArena::~HostArena() {
  if (memory)
    munmap(memory, mapped);
}

pcrt_status HostArena::allocate(int64_t bytes, int ranks, char **base, std::string *error) {
  if (memory || bytes < 0) {
    *error = memory ? "the arena was allocated twice" : "negative arena size";
    return PCRT_INTERNAL;
  }
  if (*error = checkMemory(double(bytes) * ranks); !error->empty())
    return PCRT_RESOURCE;
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

std::string pcrt::checkMemory(double bytes) {
  double memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  if (FILE *file = fopen("/sys/fs/cgroup/memory.max", "re")) {
    double limit;
    if (fscanf(file, "%lf", &limit) == 1) // "max": none
      memory = std::min(memory, limit);
    fclose(file);
  }
  if (bytes <= memory)
    return "";
  char text[256];
  snprintf(text, sizeof text,
           "the arenas of the ranks on this machine need %.2f GiB, it has %.2f GiB; use more microbatches, a plan that "
           "splits more, or more machines",
           bytes / (1 << 30), memory / (1 << 30));
  return text;
}
