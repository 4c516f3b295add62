//===- Order.h - Happens-before between pieces of work --------------------===//
// Vector clocks over chains (C. Fidge and F. Mattern, 1988): items form chains in which each happens before the next,
// and an item's clock says how many items of every chain precede it. Each byte has a record of its last writer and the
// readers since then. An access that is not ordered after them is reported, in any order that the seed chooses. Bytes
// are exact.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_ORDER_H
#define PC_STANDIN_ORDER_H

#include "standin/standin.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pc::standin {

/// The number of preceding items of each chain; 0 for chains past the end.
struct OrderClock {
  std::vector<uint32_t> ticks;
  /// The item's own place.
  uint32_t chain = 0, tick = 0;

  /// Raises this clock to at least `other`.
  void join(const OrderClock &other);
};

/// Appends the item whose predecessors are joined in `clock` to a chain.
void placeInChain(OrderClock &clock);

/// Checks and records an access of the item `name` at `clock`.
void checkAccess(const OrderClock &clock, const std::string &name, const pc_standin_access &access);

/// Forgets the history of memory that was freed or newly allocated.
void forgetAccesses(const void *begin, int64_t bytes);

/// Forgets everything except the chains.
void resetOrder();

} // namespace pc::standin

#endif // PC_STANDIN_ORDER_H
