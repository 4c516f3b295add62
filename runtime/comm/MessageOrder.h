//===- MessageOrder.h - One order of messages and moves on all ranks ------===//
// A device begins its calls to other ranks in the order in which its host makes them, and each call waits there for the
// other ranks. If every rank makes its calls in one order of all messages and moves, then no ranks wait for each other
// in a cycle, even if a device runs one call at a time and other work waits for the calls before it. A step fixes the
// order of its sends and moves, but a receive may begin at any time before its message is read.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_MESSAGEORDER_H
#define PCRT_COMM_MESSAGEORDER_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pcrt {

/// A call of a stage's step.
struct StageCall {
  enum Kind {
    Send,    ///< Sends the next message of flow `number`.
    Read,    ///< Reads the next message of flow `number`, whose receive must have begun.
    Move,    ///< A move between ranks of this stage.
    Meeting, ///< A move over group `number`, which has ranks of all stages.
  } kind;
  int number;
  int64_t work; ///< About how many nanoseconds this stage computes between its previous call and this one.
};

/// A flow from one stage to another. It holds at most `slots` messages that are not read.
struct MessageFlow {
  int source, target, slots;
  int64_t flight; ///< About how many nanoseconds a message takes.
};

/// The receive of the next message of a flow begins right before a call, after those that are listed before it.
struct PlacedReceive {
  size_t call;
  int flow;
};

/// For each stage, when its receives begin: in the order of about when their messages are sent, compared with the
/// stage's own sends and moves. Throws PCRT_INTERNAL if the stages wait for each other in a cycle.
std::vector<std::vector<PlacedReceive>> placeReceives(const std::vector<std::vector<StageCall>> &stages,
                                                      const std::vector<MessageFlow> &flows);

/// Runs all stages, where every send, receive and move waits until all its ranks have reached it, and returns a problem
/// or "". It uses no time, so it does not depend on how the receives were placed.
std::string checkReceives(const std::vector<std::vector<StageCall>> &stages, const std::vector<MessageFlow> &flows,
                          const std::vector<std::vector<PlacedReceive>> &receives);

} // namespace pcrt

#endif // PCRT_COMM_MESSAGEORDER_H
