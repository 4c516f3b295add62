//===- HostGuard.h - Host memory that work will write ---------------------===//
// From the submission of a copy to pinned memory until the host has waited for it, that memory has no access rights: a
// host that looks too early is caught in the act and reported. Work itself may look; guarded pages are closed again
// when it has run. Bytes are exact: others in the same page only open it.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_HOSTGUARD_H
#define PC_STANDIN_HOSTGUARD_H

#include "standin/Scheduler.h"

namespace pc::standin {

/// Guards rows of memory that `item` will write. Called at its submission.
void guardHostMemory(const ItemRef &item, const void *begin, int64_t bytes);

/// While one lives, this thread may touch guarded memory: it runs an item, or the stand-in itself looks.
class GuardsOff {
public:
  GuardsOff();
  ~GuardsOff();
  GuardsOff(const GuardsOff &) = delete;
};

/// The host has waited for more: opens what it may read now.
void releaseGuards(const OrderClock &host);

/// Opens everything.
void dropGuards();

} // namespace pc::standin

#endif // PC_STANDIN_HOSTGUARD_H
