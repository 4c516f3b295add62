//===- Meet.h - Collectives of the lanes of a warp ------------------------===//
// All warp-level instructions synchronize their lanes by meet().
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_KERNEL_MEET_H
#define PC_STANDIN_KERNEL_MEET_H

#include "Worker.h"

namespace pc::standin {

/// The mask of the lanes that exist in the warp whose first thread is `first`.
inline uint32_t lanesOf(const Worker &worker, unsigned first) {
  unsigned lanes = worker.threads - first;
  return lanes >= warpSize ? ~0u : (1u << lanes) - 1;
}

/// Makes this lane, whose operands are in place, arrive at the collective at `site`. When all lanes of `mask` have
/// arrived, the last one calls `finish(warp, first)`, with the warp's first thread, and all continue. Lanes at
/// different sites, or with different masks, are a fault.
template <class Finish> void meet(Fiber *me, uint32_t mask, uint32_t site, Finish finish) {
  Worker &worker = *me->worker;
  unsigned thread = worker.index(me), lane = thread % warpSize, first = thread - lane;
  Warp &warp = worker.warps[thread / warpSize];
  uint32_t exist = lanesOf(worker, first);
  if (!(mask >> lane & 1))
    worker.fail(me, worker.siteText(site) + ": the lane is missing in its own member mask");
  if (!warp.arrived) {
    warp.needed = mask & exist;
    warp.site = site;
  } else if (warp.site != site) {
    worker.fail(me, "lanes of a warp wait at different places: this one at " + worker.siteText(site) + ", others at " +
                        worker.siteText(warp.site));
  } else if (warp.needed != (mask & exist)) {
    worker.fail(me, worker.siteText(site) + ": lanes of a warp use different member masks");
  }
  warp.arrived |= 1u << lane;
  if (warp.arrived != warp.needed) {
    me->waits = Waits::Warp;
    me->site = site;
    worker.yield(me);
    return;
  }
  finish(warp, first);
  uint32_t lanes = warp.needed;
  warp.arrived = 0;
  if (worker.launch->checker)
    worker.launch->checker->warpCollective(thread / warpSize, lanes, lanes == exist);
  worker.inOrder(warpSize, [&](unsigned i) {
    if (lanes >> i & 1) {
      worker.fibers[first + i].waits = Waits::No;
      worker.push(first + i);
    }
  });
  worker.yield(me);
}

} // namespace pc::standin

#endif
