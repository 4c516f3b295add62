//===- ShmComm.h - Ranks of one machine, zero copy ------------------------===//
// Members of a move announce where their buffers lie and read each other's memory directly; no copies in between. Once
// all members have announced a started move, each carries out its share in a later call. All state lies in one shared
// file (ShmControl.h).
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_SHMCOMM_H
#define PCRT_COMM_SHMCOMM_H

#include "comm/ShmControl.h"
#include "comm/ShmWatcher.h"

namespace pcrt {

class ShmComm final : public Comm {
public:
  /// Joins the run whose shared file is `fd` (taken over) as rank `rank`, and waits for all ranks. `launched`: by
  /// pc-run.
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
  /// A part of the file that is mapped here.
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
  /// A wait for one rank: in a group, or at the other end of a flow.
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
  /// The wait that rank `rank` has told the others of; peer -1: none.
  Wait waitOf(int rank);
  FlowHeader &flowAt(int64_t offset) {
    return *reinterpret_cast<FlowHeader *>(peerPointer(rankOfOffset(offset), offset));
  }
  /// All members have announced the same move.
  pcrt_status compareKeys(const Group &group, uint64_t move);
  /// Control data: announces and waits for all, and tells all that this rank is done and waits for them.
  pcrt_status arrive(const Group &group, const MoveKey &key, int64_t in);
  pcrt_status leave(const Group &group);

  /// Tickets of one group that are not done, in the order of their starts.
  struct Queue {
    Ticket *head = nullptr, *tail = nullptr;
  };
  void enqueue(Ticket &ticket);
  /// Bytes of a source and a result that lie outside of the shared file, and are copied through scratch memory that
  /// peers can access.
  struct Copies {
    int64_t inBytes = 0, outBytes = 0;
    bool in = false, out = false;
    bool any() const { return in || out; }
  };
  Copies copiesOf(const pcrt_move_desc &desc, const Group &group, const void *in, const void *out) const;
  /// Announces and carries out the moves of a queue in order, until those of `until` are done. Without it: as far as
  /// nobody has to be waited for.
  pcrt_status advance(Queue &queue, const Ticket *until, const ParallelFor &parallelFor);
  /// Advances the queues of all groups but `except`, without waiting.
  pcrt_status advanceAll(const ParallelFor &parallelFor, int except = -1);
  pcrt_status announceNext(Queue &queue, bool mayCopy);
  pcrt_status carryOut(const pcrt_move_desc &desc, const Group &group, const void *in, void *out, uint64_t move,
                       const ParallelFor &parallelFor);

  /// Seconds since a rank was busy whose process runs.
  double secondsSinceBusy();
  /// Errors. `giveUp` also tells the others.
  pcrt_status giveUp(pcrt_status status, const std::string &message);
  pcrt_status peerLost(const std::string &doing);
  pcrt_status timedOut(const Wait &wait);
  /// Whether ranks wait for each other in a circle that includes this one; appends to `text` who waits for whom in
  /// what. Without a text it does not allocate: steps call it when a peer is late.
  bool waitsInCircle(std::string *text = nullptr);
  /// What `rank` waits in, for messages; `wait.group` is used for its number alone.
  std::string doing(int rank, const Wait &wait);

  /// Maps [offset, offset + bytes) of the file over `mapping`, which may hold a smaller one.
  bool map(Mapping &mapping, int64_t offset, int64_t bytes);
  bool inArena(const void *at, int64_t bytes) const;
  /// Memory that peers can read, `bytes` long, at file offset scratchOffset(rank()); null where there is no memory.
  char *ownScratch(int64_t bytes);
  /// Gives the pages of a large scratch memory back; no peer reads it any more.
  void releaseScratch();
  /// Where the byte at `offset` of rank `peer`'s windows is mapped; null if it cannot be.
  char *peerPointer(int peer, int64_t offset);

  int fd;
  ControlBlock &control;
  bool launched;
  double timeout;                                   ///< Seconds.
  std::vector<Queue> queues;                        ///< Per group.
  std::vector<Mapping> arenas, scratches, flowMaps; ///< Per rank, own ones included.
  ParallelFor workers;                              ///< Of the last move.
  std::vector<const char *> ins;                    ///< Sources and results of the current move, per member.
  std::vector<char *> outs;
  Group numbered; ///< What waitOf knows of a group: its number.
  std::unique_ptr<ShmWatcher> watcher;
};

} // namespace pcrt

#endif // PCRT_COMM_SHMCOMM_H
