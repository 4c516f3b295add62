//===- NcclComm.h - Communicators between threads or processes ------------===//
// Each rank of a communicator owns a mailbox, an anonymous file that the others read: how many calls it has begun, what
// they are, and the data it contributes. Who has arrived is looked up when the scheduler asks; nothing ever blocks
// inside an item. Ranks find each other through /proc/<pid>/fd of one machine.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_NCCLCOMM_H
#define PC_STANDIN_NCCLCOMM_H

#include "standin/Scheduler.h"
#include "standin/abi/Nccl.h"

#include <atomic>
#include <thread>

namespace pc::standin {

/// Sends to one peer that may be on their way at the same time.
constexpr uint64_t sendSlots = 16;
constexpr int maxSplits = 64, maxRanks = 4096;
constexpr int64_t collectiveSlotBytes = int64_t(8) << 30, sendSlotBytes = int64_t(256) << 20;

/// A file of another process.
struct FileName {
  int32_t pid, fd;
};

/// What a rank tells the others about one split.
struct SplitPost {
  int32_t color, key;
  FileName mailbox;
};

/// A message to one peer.
struct SendPost {
  int64_t bytes;
  char what[120]; ///< "send of 12 f32"
};

/// One per pair: written by the owner of the mailbox.
struct PeerBox {
  std::atomic<uint64_t> sent;     ///< Messages to the peer that lie ready, ever.
  std::atomic<uint64_t> received; ///< Messages of the peer that were taken, ever.
  SendPost posts[sendSlots];
};

/// The head of a mailbox; PeerBoxes follow, then data.
struct Mailbox {
  int32_t pid, device;
  std::atomic<uint32_t> joined;      ///< All mailboxes are open here.
  std::atomic<uint64_t> collectives; ///< Collective calls begun, ever.
  std::atomic<uint32_t> splits;      ///< Splits posted, ever.
  char signatures[2][1024];          ///< Of the collective call, by its parity.
  SplitPost posts[maxSplits];
};

/// What all ranks of a run share: where they find each other, and who waits.
struct World {
  std::atomic<uint64_t> generation; ///< Grows with every arrival anywhere.
  std::atomic<int32_t> deadlocked;  ///< Somebody found that nobody can go on.
  int32_t ranks;
  struct Entry {
    std::atomic<int32_t> ready;
    FileName mailbox;
    std::atomic<uint64_t> idle; ///< 1 + the generation at which this rank had nothing to do; 0: it has.
    char waiting[200];          ///< In what, then.
  } entries[maxRanks];
};

/// A file mapped from its begin.
struct MappedFile {
  int fd = -1;
  char *base = nullptr;
  int64_t bytes = 0;
  MappedFile() = default;
  MappedFile(const MappedFile &) = delete;
  ~MappedFile();
  /// A new anonymous file of `fileBytes`, the first `mapped` of them mapped.
  bool create(int64_t mapped, int64_t fileBytes);
  bool open(FileName name, int64_t mapped, bool writable);
};

struct Comm;
using CommRef = std::shared_ptr<Comm>;

/// A split that has begun.
struct PendingSplit {
  int index;
  CommRef child; ///< Null without colour.
  ncclComm_t *result;
  bool asked = false; ///< Somebody has asked since: the first answer is always that it goes on.
};

/// Calls of communicators with at most this many CTAs do not count among those that a device can run at the same time,
/// as long as all of them fit on it and leave a multiprocessor to what ends by itself.
constexpr int smallCtas = 8;

struct Comm {
  int rank = 0, size = 0, device = 0;
  int worldRank = 0;
  std::thread::id thread = std::this_thread::get_id(); ///< That made it.
  std::string name;
  bool blocking = true, ready = false, aborted = false, finalizing = false, destroyed = false;
  ncclResult_t error = ncclSuccess;
  std::string errorText;
  std::shared_ptr<MappedFile> world;
  std::shared_ptr<MappedFile> own;
  std::vector<std::shared_ptr<MappedFile>> peers; ///< By rank; the own one included.
  std::vector<PendingSplit> splits;
  int splitsBegun = 0;
  bool inFlight = false; ///< A call has begun and not ended.
  int ctas = 0;          ///< Of its calls, if it is small.
  bool isSmall = false;  ///< Its calls take so few of a device's multiprocessors (maxCTAs) that others can go on.
  bool mustPoll = false; ///< ncclCommGetAsyncError has not said yet that the last call succeeded.
  std::string current;   ///< The call that is in flight.
  uint64_t collectives = 0, generationRead = 0;
  std::vector<uint64_t> sends, receives; ///< Begun, by peer.
  int64_t queued = 0;         ///< Calls that were submitted and have not ended; counts launches of graphs as well.
  int64_t persistentRefs = 0; ///< Captured calls whose graphs exist (localPersistentRefs).

  World &shared() const { return *reinterpret_cast<World *>(world->base); }
  Mailbox &box(int rank) const { return *reinterpret_cast<Mailbox *>(peers[rank]->base); }
  PeerBox &pair(int owner, int peer) const {
    return reinterpret_cast<PeerBox *>(peers[owner]->base + sizeof(Mailbox))[peer];
  }
  Mailbox &ownBox() const { return *reinterpret_cast<Mailbox *>(own->base); }

  /// Where data of the collective number `call`, and of message `number` to `peer`, lies in its owner's file.
  static int64_t collectiveOffset(uint64_t call);
  static int64_t sendOffset(int peer, uint64_t number);

  /// Goes on with what is begun: joining, splits. Sets `ready`, `error`.
  void advance();
  /// Whether something is still to be done by advance().
  bool isAdvancing() const;
};

/// One call inside a group.
struct Call {
  enum Kind { AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Send, Receive } kind;
  const void *in;
  void *out;
  int64_t count;
  int dtype, reduction;
  int peer; ///< The root, or the other side of a message; else 0.

  bool isMessage() const { return kind == Send || kind == Receive; }
};

int64_t ncclElementBytes(int dtype);

/// Bytes that the call reads and writes on rank `rank` of `size`.
int64_t inBytes(const Call &call, int rank, int size);
int64_t outBytes(const Call &call, int rank, int size);

/// "all_reduce sum of 12 f32".
std::string describe(const Call &call);

/// "'tp' (rank 1 of 2)".
std::string describe(const Comm &comm);

/// The calls as work for a stream.
Work makeWork(const CommRef &comm, std::vector<Call> calls);

/// A new communicator of `size` ranks that meets the others through `world`.
CommRef joinWorld(std::shared_ptr<MappedFile> world, int rank, int size, int device, std::string *error);

/// Begins a split. `result` is written when all ranks have called and the parent is asked, and at the latest when the
/// parent is aborted: it has to live until then.
ncclResult_t beginSplit(const CommRef &parent, int color, int key, const ncclConfig_t *config, ncclComm_t *result);

/// Ends what goes on on an aborted communicator.
void endSplits(Comm &parent);

/// The handle of a communicator.
ncclComm_t handleOf(const CommRef &comm);

/// Reports deadlocks: called by the scheduler when this process has nothing to do.
std::string findDeadlock(int waitingThreads);

} // namespace pc::standin

#endif // PC_STANDIN_NCCLCOMM_H
