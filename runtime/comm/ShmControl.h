//===- ShmControl.h - The memory that the ranks of one machine share ------===//
// One anonymous file (memfd) holds everything: a control block, and a window per rank at a fixed offset for its arena
// and its scratch memory. The file is sparse, has no name, and disappears with the last process that holds it. The
// launcher also maps the control block, to record which rank died and how.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_SHMCONTROL_H
#define PCRT_COMM_SHMCONTROL_H

#include "comm/Kept.h"
#include "comm/MoveKey.h"

#include <atomic>
#include <ctime>

namespace pcrt {

/// A rank's part of one move.
struct Announcement {
  int64_t in, out; ///< The offsets of its source and its result in the file.
  MoveKey key;
};

constexpr uint64_t kMaxAnnounced = 32; ///< Moves of a group that can be in flight; more wait for their turn.

/// A rank's state in one of its groups. The rank writes it, the other members read it. The moves of a group are
/// numbered from 1, in the order in which all members start them.
struct alignas(128) Slot {
  /// The number of moves that this rank has announced, and the number of moves that are done. In moves that are done,
  /// this rank no longer accesses the memory of other ranks.
  std::atomic<uint64_t> announced, done;
  Announcement ring[kMaxAnnounced];

  /// Returns the announcement of a move. It does not change until all members are done with the move.
  Announcement &move(uint64_t number) { return ring[number % kMaxAnnounced]; }
  bool reached(struct Goal goal) const;
};

/// The condition of a wait: that a member has announced a move, or is done with it.
struct Goal {
  uint64_t move;
  bool done;

  uint64_t encode() const { return move * 2 + done; }
  static Goal decode(uint64_t code) { return {code / 2, (code & 1) != 0}; }
};

inline bool Slot::reached(Goal goal) const {
  return (goal.done ? done : announced).load(std::memory_order_acquire) >= goal.move;
}

/// The state of a flow, in the memory of the rank that receives. The rings of messages lie after all headers.
struct alignas(128) FlowHeader {
  std::atomic<uint64_t> sent;                  ///< The number of messages sent so far; written by the source.
  alignas(128) std::atomic<uint64_t> received; ///< Written by the destination.
  alignas(128) int64_t ring;                   ///< Offset of the ring in the file.
  int32_t slots, messages;                     ///< As in Flow.
  char name[112];

  bool reached(Goal goal) const { return (goal.done ? received : sent).load(std::memory_order_acquire) >= goal.move; }
};

/// The state of one rank that other ranks and the launcher read.
struct alignas(128) RankBlock {
  std::atomic<int32_t> pid;            ///< 0 until the rank has joined.
  std::atomic<int32_t> left;           ///< 1 after the rank has ended in an orderly way.
  std::atomic<int32_t> savesOnSignals; ///< 1: stopSignals make the rank save and end with 128 + n.
  std::atomic<int32_t> goesBack;       ///< 1: a restart continues from before the non-finite numbers.
  std::atomic<int64_t> arena;          ///< Bytes of the rank's arena.
  std::atomic<int64_t> scratch;        ///< Bytes of its scratch memory.
  std::atomic<int64_t> flows;          ///< Bytes of its flows.
  std::atomic<int32_t> waitsFor;       ///< 1 + the rank for which it has waited for more than a second; 0: none.
  std::atomic<int32_t> waitGroup;
  std::atomic<int64_t> waitFlow; ///< Offset of the header of the flow at which it waits; 0: it waits in a group.
  std::atomic<uint64_t>
      waitGoal; ///< The goal (encoded) that would end the wait: of `waitsFor` in slot `waitGroup`, or of the flow.
  std::atomic<uint64_t> waits;    ///< Counts published waits, to see whether it made progress.
  std::atomic<int32_t> busy;      ///< 1: it is at work that may take longer than the timeout (Comm::Busy).
  std::atomic<int64_t> lastBusy;  ///< The time at which that ended or a wait began, in ns of CLOCK_MONOTONIC.
  std::atomic<int64_t> heartbeat; ///< The last time at which its process ran, in ns of CLOCK_MONOTONIC.
  char doing[96];                 ///< Its place in the step, or empty.
  Kept kept;
  Slot slots[kMaxGroups];
};

/// A failure, written once, by the process that records it first.
struct FailureRecord {
  std::atomic<int32_t> state; ///< 0: none, 1: being written, 2: complete.
  int32_t rank;               ///< The rank that failed; -1: the launcher ends the run.
  int32_t status;             ///< pcrt_status.
  char message[1500];

  /// Writes the failure unless one has been written. Returns true if this call wrote it.
  bool record(int who, pcrt_status status, const std::string &text);
  bool isThere() const { return state.load(std::memory_order_acquire) == 2; }
};

/// The start of the file. RankBlocks follow at kRankBlocksOffset.
struct ControlBlock {
  uint64_t magic;
  int32_t size;      ///< Ranks of the run.
  int32_t oldArenas; ///< 1: arenas still hold the data of an earlier run.
  FailureRecord failure;
  FailureRecord witness; ///< The activity of the first rank that lost another one.

  RankBlock &rank(int index);
  /// Records a failure unless there is one. Returns true if this call recorded it.
  bool recordFailure(int rank, pcrt_status status, const std::string &message) {
    return failure.record(rank, status, message);
  }
  bool failed() const { return failure.isThere(); }
};

constexpr uint64_t kControlMagic = 0x70637274'00000008; // "pcrt", version of the layout
constexpr int64_t kRankBlocksOffset = 4096;
constexpr int kMaxRanks = 1024;

constexpr int64_t controlBytes(int size) { return kRankBlocksOffset + size * int64_t(sizeof(RankBlock)); }

/// Offsets in the file: first rank r's arena (half a tebibyte), then its scratch memory and its flows (a quarter each).
constexpr int64_t kWindowHalf = int64_t(1) << 39;
constexpr int64_t arenaOffset(int rank) { return int64_t(rank + 1) * 2 * kWindowHalf; }
constexpr int64_t scratchOffset(int rank) { return arenaOffset(rank) + kWindowHalf; }
constexpr int64_t flowsOffset(int rank) { return scratchOffset(rank) + kWindowHalf / 2; }
constexpr int rankOfOffset(int64_t offset) { return int(offset / (2 * kWindowHalf)) - 1; }

/// Creates the file for `size` ranks and returns its descriptor (closed on exec), or -1 with errno set.
int createSharedFile(int size);

/// Prepares the file of a run whose processes have all ended, so that another run can use it. Arenas and Kept records
/// stay. Returns false, with errno, if this failed.
bool reuseSharedFile(int fd);

/// Maps the control block of the file `fd`. Returns null, with a reason in `error`, if `fd` is not such a file.
ControlBlock *mapControl(int fd, std::string *error);
void unmapControl(ControlBlock *control);

/// Returns the seconds of a clock that never jumps.
inline double monotonicSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

} // namespace pcrt

#endif // PCRT_COMM_SHMCONTROL_H
