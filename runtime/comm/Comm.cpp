//===- Comm.cpp - what all transports share --------------------------------===//
#include "comm/Comm.h"
#include "comm/Moves.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

using namespace pcrt;

pcrt_status Comm::fail(pcrt_status status, std::string message) {
  lastError = std::move(message);
  return status;
}

std::string Comm::checkMemory(double bytes) {
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

pcrt_status Comm::move(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       const ParallelFor &parallelFor) {
  std::string problem = checkMove(desc, group, in, out);
  if (!problem.empty())
    return fail(PCRT_INTERNAL, "rank " + std::to_string(rank()) + ": " + problem + "; this is a bug of the compiler");
  if (desc.kind == PCRT_SLICE || desc.kind == PCRT_MASK || desc.kind == PCRT_PAD || group.size() == 1) {
    localMove(desc, group, in, out, parallelFor);
    return PCRT_OK;
  }
  return exchange(desc, group, in, out, parallelFor);
}
