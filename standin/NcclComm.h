//===- NcclComm.h - Communicators between threads or processes ------------===//
// Each rank of a communicator owns a mailbox, an anonymous file that the others read. It has the number of calls that
// the rank has begun, their descriptions, and the data that it contributes. The scheduler asks which ranks have
// arrived; nothing ever blocks inside an item. Ranks find each other through /proc/<pid>/fd on one machine.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_NCCLCOMM_H
#define PC_STANDIN_NCCLCOMM_H

#include "standin/Scheduler.h"
#include "standin/abi/Nccl.h"

#include <atomic>
#include <thread>

namespace pc::standin {

/// The number of sends to one peer that may be in flight at the same time.
constexpr uint64_t sendSlots = 16;
constexpr int maxSplits = 64, maxRanks = 4096;
constexpr int64_t collectiveSlotBytes = int64_t(8) << 30, sendSlotBytes = int64_t(256) << 20;

/// A file of another process.
struct FileName {
  int32_t pid, fd;
};

/// A rank's data for one split.
struct SplitPost {
  int32_t color, key;
  FileName mailbox;
};

/// A message to one peer.
struct SendPost {
  int64_t bytes;
  char what[120]; ///< "send of 12 f32"
};

/// The messages between a pair of ranks; the owner of the mailbox writes it.
struct PeerBox {
  std::atomic<uint32_t> connects; ///< The owner has called a send to the peer (1), a receive (2), a collective (4).
  std::atomic<uint64_t> sent;     ///< Messages to the peer that have been made ready, in all.
  std::atomic<uint64_t> received; ///< Messages of the peer that have been taken, in all.
  SendPost posts[sendSlots];
};

/// The head of a mailbox; PeerBoxes follow, then data.
struct Mailbox {
  int32_t pid, device;
  std::atomic<uint32_t> joined;      ///< This rank has opened all mailboxes.
  std::atomic<uint64_t> collectives; ///< Collective calls begun, in all.
  std::atomic<uint32_t> splits;      ///< Splits posted, in all.
  char signatures[2][1024];          ///< The collective call with this parity.
  SplitPost posts[maxSplits];
};

/// The file that all ranks of a run share: where they find each other, and which ranks wait.
struct World {
  std::atomic<uint64_t> generation; ///< Grows with every arrival of any rank.
  std::atomic<int32_t> deadlocked;  ///< A rank has found that no rank can continue.
  int32_t ranks;
  struct Entry {
    std::atomic<int32_t> ready;
    FileName mailbox;
    std::atomic<uint64_t> idle; ///< 1 + the generation at which this rank had nothing to do; 0: it has work.
    char waiting[200];          ///< The call in which it then waits.
  } entries[maxRanks];
};

/// A file whose first bytes are mapped. It owns the descriptor and the mapping.
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
  bool asked = false; ///< The state was asked for since; the first answer is always "in progress".
};

/// One rank's communicator. The driver's lock guards it.
struct Comm {
  int rank = 0, size = 0, device = 0;
  int worldRank = 0;
  std::thread::id thread = std::this_thread::get_id(); ///< The thread that made it.
  std::string name;
  bool blocking = true, ready = false, aborted = false, finalizing = false, destroyed = false;
  ncclResult_t error = ncclSuccess;
  std::string errorText;
  std::shared_ptr<MappedFile> world;
  std::shared_ptr<MappedFile> own;
  std::vector<std::shared_ptr<MappedFile>> peers; ///< The mailbox of each rank, including its own.
  std::vector<PendingSplit> splits;
  int splitsBegun = 0;
  bool inFlight = false; ///< A call has begun and not ended.
  bool mustPoll = false; ///< ncclCommGetAsyncError has not returned success since the last call.
  std::string current;   ///< The call that is in flight.
  uint64_t collectives = 0, generationRead = 0;
  std::vector<uint64_t> sends, receives;            ///< Begun, by peer.
  std::vector<std::pair<int, uint32_t>> connecting; ///< Peers that have not called yet, and what they must call.
  int64_t queued = 0;         ///< Calls that were submitted and have not ended, including those of launched graphs.
  int64_t persistentRefs = 0; ///< Captured calls whose graphs exist (localPersistentRefs).

  World &shared() const { return *reinterpret_cast<World *>(world->base); }
  Mailbox &box(int rank) const { return *reinterpret_cast<Mailbox *>(peers[rank]->base); }
  PeerBox &pair(int owner, int peer) const {
    return reinterpret_cast<PeerBox *>(peers[owner]->base + sizeof(Mailbox))[peer];
  }
  Mailbox &ownBox() const { return *reinterpret_cast<Mailbox *>(own->base); }

  /// The offset in its owner's file of the data of collective number `call`, or of message `number` to `peer`.
  static int64_t collectiveOffset(uint64_t call);
  static int64_t sendOffset(int peer, uint64_t number);

  /// Continues operations that have begun, such as joining and splits. Sets `ready`, `error`.
  void advance();
  /// Begins to connect with the other ranks of a call.
  void connect(const struct Call &call);
  /// Whether advance() still has something to do.
  bool isAdvancing() const;
};

/// One call inside a group.
struct Call {
  enum Kind { AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Send, Receive } kind;
  const void *in;
  void *out;
  int64_t count;
  int dtype, reduction;
  int peer; ///< The root, or the other side of a message; otherwise 0.

  bool isMessage() const { return kind == Send || kind == Receive; }
};

int64_t ncclElementBytes(int dtype);

/// Bytes that the call reads and writes on rank `rank` of `size`.
int64_t inBytes(const Call &call, int rank, int size);
int64_t outBytes(const Call &call, int rank, int size);

/// A call as text: "all_reduce sum of 12 f32".
std::string describe(const Call &call);

/// A communicator as text: "'tp' (rank 1 of 2)".
std::string describe(const Comm &comm);

/// Turns the calls into work for a stream.
Work makeWork(const CommRef &comm, std::vector<Call> calls);

/// A new communicator of `size` ranks that meets the others through `world`.
CommRef joinWorld(std::shared_ptr<MappedFile> world, int rank, int size, int device, std::string *error);

/// Begins a split. `result` is written when all ranks have called and the parent's state is asked for, or when the
/// parent is aborted: it has to live until then.
ncclResult_t beginSplit(const CommRef &parent, int color, int key, const ncclConfig_t *config, ncclComm_t *result);

/// Ends all splits of an aborted communicator.
void endSplits(Comm &parent);

/// The handle of a communicator.
ncclComm_t handleOf(const CommRef &comm);

/// The report of a deadlock, or nothing. The scheduler calls it when this process has nothing to do.
std::string findDeadlock(int waitingThreads);

} // namespace pc::standin

#endif // PC_STANDIN_NCCLCOMM_H
