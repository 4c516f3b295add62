//===- VirtualComm.h - The ranks of a run as threads of one process -------===//
// Every rank has its own context, arena and thread, and runs the real program. All of them may use one device. Members
// of a move access each other's buffers directly, whether the buffers are host memory or addresses of one device. The
// ranks share a lock, so that a deadlock is found at once.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_VIRTUALCOMM_H
#define PCRT_COMM_VIRTUALCOMM_H

#include "comm/HostArena.h"
#include "comm/MoveKey.h"
#include "comm/Patience.h"

#include <condition_variable>
#include <functional>
#include <mutex>

namespace pcrt {

/// The state that the ranks share and borrow. The mutex guards all of it.
class VirtualWorld {
public:
  /// One rank's state.
  struct Rank {
    /// A rank's progress in a group. Phase 2 s - 1: it has arrived at the s-th move; 2 s: it is done with it.
    struct Slot {
      uint64_t phase = 0;
      const void *in = nullptr;
      void *out = nullptr;
      MoveKey key{};
      bool reads = false; ///< True between the two phases, when it may access the memory of other ranks.
    };
    Slot slots[kMaxGroups];
    const Group *waitsIn = nullptr; ///< The group for whose members it waits.
    uint64_t waitPhase = 0;

    /// The messages of a flow that this rank receives.
    struct Ring {
      uint64_t sent = 0, received = 0;
      std::vector<char> data;
    };
    std::vector<Ring> rings;
    const Ring *waitsAt = nullptr; ///< The flow at whose other end it waits, until `waitCount` were sent or received.
    uint64_t waitCount = 0;
    bool waitsForSpace = false;
    const Flow *waitFlow = nullptr;

    bool busy = false; ///< Comm::Busy.
    double lastBusy = -neverBusy;

    bool left = false;
    bool waits() const { return waitsIn || waitsAt; }
    bool flowReached() const { return (waitsForSpace ? waitsAt->received : waitsAt->sent) >= waitCount; }
  };

  explicit VirtualWorld(int size);

  int size() const { return int(ranks.size()); }

  /// Runs `body` for every rank, each on its own thread with a share of this process's cores. Returns the status of the
  /// first failure. If a rank has failed and another one does not end within 0.7 s, ends the process with that status.
  pcrt_status run(const std::function<pcrt_status(Comm &)> &body);

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Rank> ranks;
  double timeout; ///< Seconds.

  /// The first failure; status PCRT_OK: none. The lock guards it.
  pcrt_status failure = PCRT_OK;
  std::string failureMessage;
  void recordFailure(pcrt_status status, std::string message);
};

/// The transport between ranks that are threads of one process. Each object belongs to one rank's thread.
class VirtualComm final : public Comm {
public:
  VirtualComm(VirtualWorld &shared, int rank);
  ~VirtualComm() override;

  const char *transport() const override { return "virtual"; }
  pcrt_status allocateArena(int64_t bytes, char **base) override;
  pcrt_status barrier() override;
  pcrt_status allGatherBytes(const void *mine, int64_t n, void *all) override;
  void abort(pcrt_status status, const char *message) override;
  /// The other ranks' part of the process's peak, as if all ranks had equal parts.
  int64_t peerResidentBytes() const override;

  /// For moves that a device carries out: gives `mine` to the members of `group` and returns their data, in coordinate
  /// order, after all have called it with the same key. The data must not change until all have called part().
  pcrt_status meet(const Group &group, const MoveKey &key, const void *mine, const void *const **theirs);
  pcrt_status part(const Group &group) { return leave(group); }

  /// For messages that a device carries, instead of send and receive: `begin` waits until a slot of the flow is free,
  /// or its next message is there; `end` tells the other side that the copy to or from the slot has been enqueued.
  /// Between the two, the number of the message, from 0, is openedFlows()[flow].count - 1.
  pcrt_status beginSend(int flow) { return awaitSpace(flows[flow], ++flows[flow].count); }
  pcrt_status beginReceive(int flow) { return waitAt(flows[flow], ringOf(flow), ++flows[flow].count, false); }
  void endSend(int flow);
  void endReceive(int flow);

protected:
  pcrt_status exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       const ParallelFor &parallelFor) override;
  pcrt_status prepareFlows() override;
  pcrt_status put(Flow &flow, int index, const void *data) override;
  pcrt_status take(Flow &flow, int index, void *data) override;

private:
  using Slot = VirtualWorld::Rank::Slot;

  /// Announces this rank's part of a move, waits until all members have arrived with the same one, and notes their
  /// buffers in `ins` and `outs`.
  pcrt_status arrive(const Group &group, const MoveKey &key, const void *in, void *out);
  /// Waits until all members are done with the move.
  pcrt_status leave(const Group &group);
  pcrt_status waitForMembers(std::unique_lock<std::mutex> &lock, const Group &group, uint64_t phase);
  /// Waits, before this rank leaves a failed move and frees its memory, until no member reads that memory.
  void waitForReaders(std::unique_lock<std::mutex> &lock, const Group &group);
  pcrt_status waitAt(const Flow &flow, const VirtualWorld::Rank::Ring &ring, uint64_t count, bool forSpace);
  /// Waits until a slot is free for message `count`.
  pcrt_status awaitSpace(const Flow &flow, uint64_t count);
  /// The ring of a flow, which is the receiver's.
  VirtualWorld::Rank::Ring &ringOf(int flow) {
    const Flow &one = flows[flow];
    return one.sends ? shared.ranks[one.peer].rings[one.partner] : shared.ranks[rank()].rings[flow];
  }
  void setBusy(bool busy) override;
  /// Sleeps until something changes, or for a while; returns true if the time for the wait is up. Call it under the
  /// lock.
  bool isTimeUp(std::unique_lock<std::mutex> &lock, Patience &patience);
  bool allReached(const Group &group, uint64_t phase) const;
  /// The rank for which `rank` waits, and in which move or message.
  std::string describeWait(int rank) const;
  /// Whether the ranks are deadlocked, so that none of them can continue.
  bool standsStill() const;
  std::string describeStandstill() const;
  std::string doing(int rank, int group) const;
  pcrt_status giveUp(pcrt_status status, const std::string &message);
  pcrt_status lost(const std::string &doing);

  VirtualWorld &shared;
  HostArena arena;
  std::vector<const void *> met;
  std::vector<const char *> ins; ///< Sources and results of the current move, per member.
  std::vector<char *> outs;
};

} // namespace pcrt

#endif // PCRT_COMM_VIRTUALCOMM_H
