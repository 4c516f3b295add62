//===- Memory.h - Device memory and pinned memory of the stand-in ---------===//
// Device memory is host memory that only items should touch: reserved ranges without access rights, physical memory as
// anonymous files that are mapped into them, poisoned with 0xff (NaN in every float type) before they are used.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_MEMORY_H
#define PC_STANDIN_MEMORY_H

#include "standin/Options.h"

#include <cstdint>
#include <string>

namespace pc::standin {

/// Whether all of [begin, begin + bytes) is accessible device memory.
bool isDeviceMemory(const void *begin, int64_t bytes);

/// Whether all of it is pinned host memory.
bool isPinnedMemory(const void *begin, int64_t bytes);

/// Bytes from `begin` to the end of the accessible device or pinned memory that it lies in; 0: in none.
int64_t bytesFrom(const void *begin);

/// "bytes [0, 256) of the arena": for reports.
std::string describeMemory(const void *begin, int64_t bytes);

/// Mapped memory is poisoned when the first work runs: a program most often begins by filling all of it.
void poisonFresh();
/// For a fill of [begin, begin + bytes): true where that is fresh memory as a whole, which is zeros then, and no longer
/// to be poisoned. Otherwise poisons.
bool takeFresh(const void *begin, int64_t bytes);

/// Whether the host polls this byte (pc_standin_polled).
bool isPolled(const void *at);

class AccessChecker;

/// Knows all accessible memory, for kernels; null if nothing is checked.
AccessChecker *accessChecker();

/// Work other than a kernel has written these bytes.
void setWritten(const void *begin, int64_t bytes);

} // namespace pc::standin

#endif // PC_STANDIN_MEMORY_H
