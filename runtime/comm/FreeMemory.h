//===- FreeMemory.h - How much memory arenas may still take ---------------===//
#ifndef PCRT_COMM_FREEMEMORY_H
#define PCRT_COMM_FREEMEMORY_H

#include <string>
#include <vector>

namespace pcrt {

/// What this process may still take before something on the machine is killed, in bytes. Swap does not count: a step
/// that reads its arena from a disk does not end in the time that anybody has.
struct FreeMemory {
  double available = 0;
  double total = 0; ///< What `available` is left of: the machine's memory, or the limit.
  int isLimited =
      0; ///< A limit of the process's control group, a container's or a job's, leaves less than the machine.
};

/// Reads /proc/meminfo (MemAvailable), and the limits and use of the memory of the process's control group and of those
/// around it, of version 1 or 2. Files of pages that the kernel can drop count as free, as they do in MemAvailable.
/// `root` stands before all paths.
FreeMemory freeMemory(const std::string &root = "");

/// The memory that a rank needs, and what its machine has.
struct MemoryWish {
  char machine[64] = ""; ///< The name of its host.
  double bytes = 0;
  FreeMemory free;
};

/// Why the machines lack memory for the wishes of all ranks (in the order of the ranks), as rank `rank` says it; empty
/// if they do not. Ranks of one host are added up.
std::string lackOfMemory(const std::vector<MemoryWish> &wishes, int rank);

} // namespace pcrt

#endif // PCRT_COMM_FREEMEMORY_H
