//===- FreeMemory.h - The memory that arenas may still use ----------------===//
// The kernel would kill a run whose arenas do not fit into memory, but only minutes later. These functions find this
// out before the run begins.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_FREEMEMORY_H
#define PCRT_COMM_FREEMEMORY_H

#include <string>
#include <vector>

namespace pcrt {

/// The bytes that this process may still use before the kernel kills processes. Swap does not count, because a step
/// that reads its arena from a disk is far too slow.
struct FreeMemory {
  double available = 0;
  double total = 0; ///< All memory, including used memory: the machine's memory, or the limit.
  int isLimited =
      0; ///< A limit of the process's control group (a container or a job) leaves less than the machine has.
};

/// Reads MemAvailable from /proc/meminfo, and the limit and use of memory of the process's control group (version 1 or
/// 2) and of the group's parents. Cached pages that the kernel can drop count as free, as in MemAvailable. `root` is
/// prepended to all paths, for tests.
FreeMemory freeMemory(const std::string &root = "");

/// The bytes that a rank needs, and the memory of its machine.
struct MemoryWish {
  char machine[64] = ""; ///< The name of its host.
  double bytes = 0;
  FreeMemory free;
};

/// Returns the message of rank `rank` if a machine lacks memory for the wishes of its ranks together. Returns an empty
/// text if no machine does. `wishes` are in the order of the ranks.
std::string lackOfMemory(const std::vector<MemoryWish> &wishes, int rank);

} // namespace pcrt

#endif // PCRT_COMM_FREEMEMORY_H
