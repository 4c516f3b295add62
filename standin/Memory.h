//===- Memory.h - Device memory and pinned memory of the stand-in ---------===//
// Device memory is host memory that only items should access: reserved ranges without access rights, with physical
// memory as anonymous files mapped into them, poisoned with 0xff (NaN in every float type) before first use.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_MEMORY_H
#define PC_STANDIN_MEMORY_H

#include "standin/Options.h"

#include <cstdint>
#include <string>

namespace pc::standin {

/// Whether all of [begin, begin + bytes) is accessible device memory.
bool isDeviceMemory(const void *begin, int64_t bytes);

/// Whether all of [begin, begin + bytes) is pinned host memory.
bool isPinnedMemory(const void *begin, int64_t bytes);

/// The bytes from `begin` to the end of the accessible device or pinned memory that contains it; 0: none does.
int64_t bytesFrom(const void *begin);

/// "bytes [0, 256) of the arena": for reports.
std::string describeMemory(const void *begin, int64_t bytes);

/// Poisons memory that was mapped since the last call. It is called when work runs, because programs usually begin by
/// filling all of their memory.
void poisonFresh();
/// Call it before a fill of [begin, begin + bytes). Returns true if all of these bytes are fresh memory, which holds
/// zeros; they will then not be poisoned. Otherwise poisons the memory and returns false.
bool takeFresh(const void *begin, int64_t bytes);

/// Whether the host polls this byte (pc_standin_polled).
bool isPolled(const void *at);

class AccessChecker;

/// The checker of kernels, which knows all accessible memory; null if nothing is checked.
AccessChecker *accessChecker();
/// Says that work other than a kernel has written these bytes.
void setWritten(const void *begin, int64_t bytes);

} // namespace pc::standin

#endif // PC_STANDIN_MEMORY_H
