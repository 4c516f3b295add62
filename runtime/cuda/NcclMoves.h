//===- NcclMoves.h - Moves by NCCL ----------------------------------------===//
// Each group of the program has one communicator, split from that of all ranks. Every rank splits in the order of the
// groups, so all ranks make the same calls. A move whose dim is outermost is one NCCL call. Other moves pass through
// staging memory, with a kernel before or after. If a rank dies or is late, the control plane notices it and aborts all
// communicators, so that no rank waits forever on its device.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_NCCLMOVES_H
#define PCRT_CUDA_NCCLMOVES_H

#include "comm/TcpControl.h"
#include "cuda/DeviceComm.h"
#include "cuda/Memory.h"
#include "cuda/MoveKernels.h"
#include "cuda/Nccl.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace pcrt::cuda {

/// The library and its communicators, shared with the thread that aborts them.
struct Communicators : std::enable_shared_from_this<Communicators> {
  explicit Communicators(const Session &session) : useDevice(session.driver.cuCtxSetCurrent), device(session.context) {}

  Nccl nccl;
  std::mutex mutex;
  std::vector<NcclComm> all; ///< The first one connects all ranks.
  bool aborted = false;

  void add(NcclComm comm);
  /// Ends kernels that wait for other ranks, and frees the communicators. In this call NCCL waits until no graph uses
  /// one of them, possibly forever. So this function returns after `seconds`, and a thread does the rest. Later calls
  /// only wait.
  void abort(double seconds = 1);
  /// The asynchronous state of `comm`, which is NcclRemoteError after an abort.
  NcclResult state(NcclComm comm);
  /// Begins to split the first communicator. Returns NcclRemoteError after an abort. NCCL writes `made` later, or when
  /// it is aborted.
  NcclResult split(int color, int key, NcclComm *made, NcclConfig &config);

private:
  Result (*useDevice)(Context);
  Context device;
  bool freed = false;
  std::condition_variable changed;
};

/// The transport by NCCL. The rank's thread calls it, except tellProgress, which the control plane's thread also calls.
/// The device notes its progress in pinned memory, from which errors name the move, the rank and the axis.
class NcclMoves final : public DeviceComm {
public:
  /// Connects the devices of all ranks. Throws a Failure: PCRT_RESOURCE if NCCL is missing or does not start,
  /// PCRT_PEER_LOST and PCRT_TIMEOUT if a rank does not come.
  NcclMoves(Session &session, Comm &comm, const pcrt_program &program, const std::vector<Group> &groups,
            const std::vector<bool> &besideProducts);
  ~NcclMoves() override;

  const char *name() const override { return "nccl"; }
  pcrt_status registerArena(void *base, int64_t bytes) override;
  std::string lastBegun() const override { return waitingGroup() ? doing() : ""; }
  int blocksOfMoves() const override { return leavesRoom ? mostBlocksOfMoves : 0; }
  int blocksOfMessages() const override;
  int64_t communicators() const override { return numCommunicators; }
  int64_t stagingMemoryBytes() const override { return stagingTotal; }
  pcrt_status enqueue(const pcrt_move_desc *moves, int count, const Group &group, const void *const *ins,
                      void *const *outs, Stream stream) override;
  void openFlows(const std::vector<DeviceFlow> &all) override;
  bool hasLanes() const override { return true; }
  pcrt_status enqueueMessage(int index, int number, void *at, Stream stream) override;
  void openTasks(std::vector<std::string> names) override;
  pcrt_status enqueueTask(int number, Stream stream) override;
  pcrt_status wait(const Driver &driver, Stream stream) override;

private:
  /// The number of blocks of a communicator whose moves run during products. It is the number that NVLink's switches
  /// need, and it has not been measured.
  static constexpr int mostBlocksOfMoves = 16;

  /// A group with its communicator and staging memory, at the index of its id.
  struct Member {
    NcclComm comm = nullptr;
    const Group *group = nullptr;
    int64_t stagingBytes = 0, stagingOffset = 0;
    void *registered = nullptr;
    NcclWindow window = nullptr; ///< Instead of `registered`, with PCRT_NCCL_WINDOWS=1.
  };

  /// Adds the communicator of all ranks; throws as the constructor does.
  void connectAll(const NcclUniqueId &id);
  /// Returns the communicator of the ranks that give the same color; null for NcclSplitNoColor. All ranks call this
  /// function, in the same order.
  NcclComm connectSome(int color, int key, NcclConfig &config, const std::string &doing);
  /// Waits for a call and throws unless it succeeds. `doing` is like "connect the devices of all ranks".
  void require(NcclResult result, NcclComm on, const std::string &doing);
  /// Turn the result of a call inside steps into a status, with lastError.
  pcrt_status check(NcclResult result, NcclComm on, const char *name);
  pcrt_status check(Result result, const char *name);
  /// Registers the arena as a window of each communicator. All members call it in the same order. Where their arenas
  /// differ in size, as between stages, or NCCL makes no window, the arena is registered without one.
  void registerWindows(void *base, int64_t bytes);
  /// Waits until nothing is in progress on `on`; returns NcclInProgress if that takes too long or the run has failed.
  NcclResult settle(NcclComm on);
  std::string describe(NcclResult result) const;

  /// Enqueues one move between ncclGroupStart and ncclGroupEnd.
  NcclResult call(const pcrt_move_desc &move, const Member &member, const void *in, void *out, Stream stream);
  NcclResult exchangeRows(const pcrt_move_desc &move, const Member &member, const void *in, void *out, Stream stream);
  Result packBefore(const pcrt_move_desc &move, const Member &member, const void *in, Stream stream);
  Result unpackAfter(const pcrt_move_desc &move, const Member &member, void *out, Stream stream);
  pcrt_status mark(const pcrt_move_desc &move, Stream stream);

  /// Ends the run because `doing`, a call of NCCL, has not ended in time.
  pcrt_status unsettled(const std::string &doing);
  pcrt_status lost();
  pcrt_status late();
  /// Ends the run for this reason, on all ranks.
  pcrt_status giveUp(pcrt_status status, const std::string &why);
  /// Names the ranks of `group` (null: all ranks of the run) that are at another place in the step than this rank, and
  /// their places.
  std::string whoIsLate(const Group *group);
  /// The current move of the device, for messages.
  std::string doing() const;
  /// The group of that move; null before the first move.
  const Group *waitingGroup() const;
  void tellProgress(Progress &progress);

  Session &session;
  Comm &control;
  pcrt_program program; ///< Its tables live at least as long as this.
  double timeout;
  bool leavesRoom; ///< With PCRT_CUDA_ROOM=0, NCCL and products use as many multiprocessors as they choose.
  Opened library;
  std::vector<Member> members;
  std::vector<NcclComm> flows; ///< By flow of this rank's program: the two ends, the source first.
  std::unique_ptr<MoveKernels> kernels;
  std::unique_ptr<DeviceArena> stagingMemory;
  char *staging = nullptr;
  int64_t stagingTotal = 0, numCommunicators = 1; ///< The number of communicators: one per group, and one of all ranks.

  std::shared_ptr<Communicators> live;

  /// The number of messages that each flow has passed in this step, in words 64 apart; the device writes them.
  volatile uint32_t *passed = nullptr;
  uint32_t progress() const;

  /// 1 + the number of the device's current task; 0 before the first. While it waits, this rank passes the number to
  /// the launcher.
  volatile uint32_t *task = nullptr;
  std::vector<std::string> taskNames;

  /// 1 + the index of the last move that the device has begun in this step; 0 before the first. Each group has a
  /// separate word, 64 words apart, because no order holds between streams.
  volatile uint32_t *marks = nullptr;
  uint32_t reached() const;
  std::atomic<uint64_t> stepsWaited{0};

  /// The name of the communicator that is being connected (empty: none), and how often this text has changed.
  struct Connecting;
  std::mutex connectingMutex;
  std::string connecting;
  uint64_t connections = 0;

  /// The control plane calls this object during the lifetime of this member. It is the last member, so that it is
  /// destroyed first if the constructor throws.
  struct Hooked {
    TcpControl *plane = nullptr;
    ~Hooked() {
      if (plane)
        plane->setHooks({});
    }
  } hooked;
};

/// Bytes of staging memory that `move` needs between `n` members; 0 if its blocks are contiguous already.
int64_t stagingBytes(const pcrt_move_desc &move, int n);

} // namespace pcrt::cuda

#endif // PCRT_CUDA_NCCLMOVES_H
