//===- ShmComm.h - ranks of one machine, zero copy ------------------------===//
//
// Members of a move announce where their buffers lie and read each other's
// memory directly; two waits per move, no copies in between. All state lies in
// one shared file (ShmControl.h).
//
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

protected:
  pcrt_status exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       const ParallelFor &parallelFor) override;

private:
  /// A part of the file that is mapped here.
  struct Mapping {
    char *base = nullptr;
    int64_t bytes = 0;
  };

  ShmComm(int fd, ControlBlock &control, int rank, bool launched);

  Slot &slot(int rank, int group) { return control.rank(rank).slots[group]; }

  /// Announces this rank's part of a move and waits until all members have arrived with the same one.
  pcrt_status arrive(const Group &group, const MoveKey &key, int64_t in, int64_t out);
  /// Waits until all members are done with the move.
  pcrt_status leave(const Group &group);
  pcrt_status waitForMembers(const Group &group, uint64_t phase);
  pcrt_status waitSlowly(const Group &group, int peer, uint64_t phase);
  pcrt_status compareKeys(const Group &group, const MoveKey &key);

  /// Errors. `giveUp` also tells the others.
  pcrt_status giveUp(pcrt_status status, const std::string &message);
  pcrt_status peerLost(const std::string &doing);
  pcrt_status timedOut(const Group &group, uint64_t phase);
  /// The ranks that wait for each other in a circle that includes this one, described; empty if there is none.
  std::string deadlock();
  /// What `rank` is waiting in, for messages.
  std::string doing(int rank, int group);

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
  double timeout; ///< Seconds.
  Group world;
  std::vector<uint64_t> sequence;         ///< Moves begun, per group.
  std::vector<Mapping> arenas, scratches; ///< Per rank, own ones included.
  std::vector<const char *> ins;          ///< Sources and results of the current move, per member.
  std::vector<char *> outs;
  std::unique_ptr<ShmWatcher> watcher;
};

} // namespace pcrt

#endif // PCRT_COMM_SHMCOMM_H
