//===- HostGuard.h - Host memory that work will write ---------------------===//
// Pinned memory has no access rights from the submission of a copy to it until the host has waited for the copy. So a
// host that reads too early is caught and reported. Work itself may read; guarded pages are closed again when it has
// run. The guard is exact to the byte: an access to other bytes of the same page only opens the page.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_HOSTGUARD_H
#define PC_STANDIN_HOSTGUARD_H

#include "standin/Scheduler.h"

namespace pc::standin {

/// Guards memory that `item` will write. Call it when the item is submitted.
void guardHostMemory(const ItemRef &item, const void *begin, int64_t bytes);

/// During its lifetime, this thread may access guarded memory, because it runs an item, or because the stand-in itself
/// reads.
class GuardsOff {
public:
  GuardsOff();
  ~GuardsOff();
  GuardsOff(const GuardsOff &) = delete;
};

/// Opens memory that work before `clock` has written, until GuardsOff ends. A host function may read it in any way,
/// also by system calls, which raise no signal.
void openGuards(const OrderClock &clock);

/// Opens the memory that the host may read after it has waited up to `host`.
void releaseGuards(const OrderClock &host);

/// Opens everything.
void dropGuards();

} // namespace pc::standin

#endif // PC_STANDIN_HOSTGUARD_H
