//===- Order.h - Happens-before between pieces of work --------------------===//
// Vector clocks over chains: items form chains in which each happens before the next; an item's clock says how much of
// every chain lies before it. Memory remembers its last writer and the readers since; an access that does not come
// after them is reported, whatever order the seed chose. Bytes are exact.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_ORDER_H
#define PC_STANDIN_ORDER_H

#include "standin/standin.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pc::standin {

/// How many items of each chain lie before; chains past the end: none.
struct OrderClock {
  std::vector<uint32_t> ticks;
  /// The item's own place.
  uint32_t chain = 0, tick = 0;

  /// Raises this clock to at least `other`.
  void join(const OrderClock &other);
};

/// Gives the item whose predecessors are joined in `clock` its place at the end of a chain.
void placeInChain(OrderClock &clock);

/// Checks and records an access of the item `name` at `clock`.
void checkAccess(const OrderClock &clock, const std::string &name, const pc_standin_access &access);

/// Memory that was freed or newly allocated has no history.
void forgetAccesses(const void *begin, int64_t bytes);

/// Forgets everything but the chains.
void resetOrder();

} // namespace pc::standin

#endif // PC_STANDIN_ORDER_H
