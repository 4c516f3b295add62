//===- ShmComm.h - Ranks of one machine, zero copy ------------------------===//
// Members of a move announce the places of their buffers and read each other's memory directly, without copies. After
// all members have announced a move, each carries out its share, in its own call or while it waits in another call. All
// state is in one shared file (ShmControl.h).
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_SHMCOMM_H
#define PCRT_COMM_SHMCOMM_H

#include "comm/ShmControl.h"
#include "comm/ShmWatcher.h"

namespace pcrt {

/// The transport between processes of one machine. Moves of a group are carried out in the order of their starts. Moves
/// of different groups are independent, and a rank that waits advances the moves of all groups. If a rank is late, lost
/// or part of a circle of waits, an error names the rank and the run ends. A ShmComm owns all mappings and the
/// descriptor.
class ShmComm final : public Comm {
public:
  /// Joins the run whose shared file is `fd` as rank `rank`, and waits for all ranks. Takes over `fd`. `launched` is
  /// true if pc-run started this rank.
  static pcrt_status join(int fd, int rank, bool launched, std::unique_ptr<Comm> *out, std::string *error);
  ~ShmComm() override;

  const char *transport() const override { return "shm"; }
  pcrt_status allocateArena(int64_t bytes, char **base) override;
  pcrt_status barrier() override;
  pcrt_status allGatherBytes(const void *mine, int64_t n, void *all) override;
  void abort(pcrt_status status, const char *message) override;
  int64_t peerResidentBytes() const override;
  void note(const char *doing) override;
  Kept *kept() override { return launched ? &control.rank(rank()).kept : nullptr; }
  bool hasOldArena() const override { return control.oldArenas; }

protected:
  pcrt_status exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       const ParallelFor &parallelFor) override;
  void setBusy(bool busy) override;
  pcrt_status beginMoves(Ticket &ticket, const ParallelFor &parallelFor) override;
  pcrt_status endMoves(Ticket &ticket, const ParallelFor &parallelFor) override;
  pcrt_status prepareFlows() override;
  pcrt_status put(Flow &flow, int index, const void *data) override;
  pcrt_status take(Flow &flow, int index, void *data) override;

private:
  /// A part of the file that is mapped in this process.
  struct Mapping {
    char *base = nullptr;
    int64_t bytes = 0;
  };

  ShmComm(int fd, ControlBlock &control, int rank, bool launched);

  Slot &slot(int rank, int group) { return control.rank(rank).slots[group]; }

  /// Announces this rank's part of the next move of the group; returns its number.
  uint64_t announce(const Group &group, const MoveKey &key, int64_t in, int64_t out);
  bool reached(const Group &group, Goal goal);
  pcrt_status waitForMembers(const Group &group, Goal goal);
  /// A wait for one rank, which is a member of a group or the other end of a flow.
  struct Wait {
    int peer;
    Goal goal;
    const Group *group = nullptr; ///< Null: a flow.
    int64_t flow = 0;             ///< Offset of its header in the file.
  };
  bool reached(const Wait &wait);
  pcrt_status waitSlowly(const Wait &wait);
  /// Spins, then waits slowly.
  pcrt_status waitAt(const FlowHeader &header, const Wait &wait);
  /// The wait that rank `rank` has published; its peer is -1 if there is none.
  Wait waitOf(int rank);
  FlowHeader &flowAt(int64_t offset) {
    return *reinterpret_cast<FlowHeader *>(peerPointer(rankOfOffset(offset), offset));
  }
  /// Checks that all members have announced the same move.
  pcrt_status compareKeys(const Group &group, uint64_t move);
  /// The two halves of an exchange of control data. arrive() announces the exchange and waits until all members have
  /// announced it. leave() reports that this rank has finished and waits until all ranks have finished.
  pcrt_status arrive(const Group &group, const MoveKey &key, int64_t in);
  pcrt_status leave(const Group &group);

  /// The tickets of one group that are not done, in the order of their starts.
  struct Queue {
    Ticket *head = nullptr, *tail = nullptr;
  };
  void enqueue(Ticket &ticket);
  /// Bytes of a source and a result that lie outside of the shared file. They are copied through scratch memory that
  /// peers can access.
  struct Copies {
    int64_t inBytes = 0, outBytes = 0;
    bool in = false, out = false;
    bool any() const { return in || out; }
  };
  Copies copiesOf(const pcrt_move_desc &desc, const Group &group, const void *in, const void *out) const;
  /// Announces and carries out the moves of a queue in order, until the moves of `until` are done. If `until` is null,
  /// stops where it would have to wait.
  pcrt_status advance(Queue &queue, const Ticket *until, const ParallelFor &parallelFor);
  /// Advances the queues of all groups but `except`, without waiting.
  pcrt_status advanceAll(const ParallelFor &parallelFor, int except = -1);
  pcrt_status announceNext(Queue &queue, bool mayCopy);
  pcrt_status carryOut(const pcrt_move_desc &desc, const Group &group, const void *in, void *out, uint64_t move,
                       const ParallelFor &parallelFor);

  /// Seconds since any rank was busy; a rank whose process is suspended does not count as busy.
  double secondsSinceBusy();
  /// These two functions record the error and return its status. giveUp also tells the other ranks.
  pcrt_status giveUp(pcrt_status status, const std::string &message);
  pcrt_status peerLost(const std::string &doing);
  pcrt_status timedOut(const Wait &wait);
  /// Whether ranks wait for each other in a circle that includes this rank. Describes the circle in `text`. If `text`
  /// is null, does not allocate, because steps call this function when a peer is late.
  bool waitsInCircle(std::string *text = nullptr);
  /// Describes the move or message for which `rank` waits, for error messages. Uses only the number of `wait.group`.
  std::string doing(int rank, const Wait &wait);

  /// Maps [offset, offset + bytes) of the file over `mapping`, which may hold a smaller one.
  bool map(Mapping &mapping, int64_t offset, int64_t bytes);
  bool inArena(const void *at, int64_t bytes) const;
  /// Memory that peers can read, `bytes` long, at file offset scratchOffset(rank()); null if there is no memory.
  char *ownScratch(int64_t bytes);
  /// Releases the pages of a large scratch memory, which no peer reads any more.
  void releaseScratch();
  /// Returns the address in this process of the byte at `offset`, which is in one of rank `peer`'s windows. Returns
  /// null if the byte cannot be mapped.
  char *peerPointer(int peer, int64_t offset);

  int fd;
  ControlBlock &control;
  bool launched;
  double timeout;                                   ///< Seconds.
  std::vector<Queue> queues;                        ///< Per group.
  std::vector<Mapping> arenas, scratches, flowMaps; ///< One of each per rank, including this one.
  ParallelFor workers;                              ///< The workers of the last move.
  std::vector<const char *> ins;                    ///< Sources and results of the current move, per member.
  std::vector<char *> outs;
  Group numbered; ///< The group in waitOf's result; only its number is known.
  std::unique_ptr<ShmWatcher> watcher;
};

} // namespace pcrt

#endif // PCRT_COMM_SHMCOMM_H
