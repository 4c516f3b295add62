//===- Comm.h - The ranks of one run and the moves between them -----------===//
// A Comm connects the ranks of one run and carries out the moves of pcrt.h. Transports are `self` (one rank), `shm`
// (ranks of one machine, zero copy), `virtual` (ranks as threads), `mpi` (a plug-in) and `tcp` (control data). All give
// the same bits, because addends are added in coordinate order.
// Equivalents: a Group is an ncclComm_t or MPI_Comm; move is a blocking collective of MPI; start and wait are
// MPI_Iallreduce and MPI_Wait; a Flow is a persistent MPI send with a bounded number of buffers.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_COMM_H
#define PCRT_COMM_COMM_H

#include "comm/Kept.h"
#include "pcrt/pcrt.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

/// Leaves the function with the status of `call` unless that is PCRT_OK.
#define PCRT_TRY(call)                                                                                                 \
  if (pcrt_status status = (call); status != PCRT_OK)                                                                  \
  return status

namespace pcrt {

/// Ranks that move data among themselves.
struct Group {
  std::vector<int> ranks; ///< Members in coordinate order.
  int me = 0;             ///< Index of this rank in `ranks`.
  int id = 0;             ///< Index of the group in the program, 0 .. 62.
  std::string name;       ///< The mesh axes, for error messages ("dp,tp"); may be empty.

  int size() const { return static_cast<int>(ranks.size()); }
};

/// Splits the local work of a move over the threads of this rank. It consists of a function pointer and the function's
/// context, so that no call allocates. The default runs the work on the calling thread.
class ParallelFor {
public:
  /// Runs on items [lo, hi).
  using Body = void (*)(void *arg, int64_t lo, int64_t hi);
  /// Calls `body` with disjoint ranges that cover [0, items), and waits.
  using Run = void (*)(void *pool, int64_t items, Body body, void *arg);

  ParallelFor() = default;
  ParallelFor(void *pool, Run run) : pool(pool), run(run) {}

  /// Calls `f(lo, hi)` with disjoint ranges that cover [0, items), and waits.
  template <typename F> void operator()(int64_t items, F &&f) const {
    if (!run || items <= 1)
      return f(int64_t(0), items);
    using Fn = std::remove_reference_t<F>;
    run(
        pool, items, [](void *arg, int64_t lo, int64_t hi) { (*static_cast<Fn *>(arg))(lo, hi); },
        const_cast<void *>(static_cast<const void *>(&f)));
  }

private:
  void *pool = nullptr;
  Run run = nullptr;
};

class TcpControl;

/// Moves of one group that have been started. The caller owns the ticket and everything to which it points, and keeps
/// both unchanged until the wait returns.
struct Ticket {
  const pcrt_move_desc *moves = nullptr; ///< `count` of them, with their sources and results.
  int count = 0;
  const Group *group = nullptr;
  const void *const *ins = nullptr;
  void *const *outs = nullptr;

  /// For the transport only.
  int announced = 0, done = 0; ///< How many of `moves` have been announced and done.
  uint64_t last = 0;           ///< The number of the last of the moves in its group.
  Ticket *next = nullptr;
};

/// The messages of one size in one direction between two ranks, in order. Flows are independent of each other and of
/// moves.
struct Flow {
  int peer = 0;       ///< The rank at the other end.
  int id = 0;         ///< Distinguishes the flows from one rank to another.
  bool sends = false; ///< Whether this rank is the source.
  int64_t bytes = 0;  ///< The bytes of a message.
  int slots = 1;      ///< Messages that can be in flight.
  int messages = 1;   ///< In a step; errors name message n as number n % messages.
  std::string name;   ///< "forward of chunk 1 from stage 0 to stage 1".

  /// Names message `n`, counted from 1: "message 3 of 'forward of chunk 1 ...'".
  std::string describe(uint64_t n) const;

  /// State of the open flow: the number of messages sent or received so far, and the number of the peer's end.
  uint64_t count = 0;
  int partner = -1;
};

/// The connection of this rank with the others of its run. One thread at a time may use it. It owns the arena. After a
/// call has returned anything but PCRT_OK, the run is over, and the caller ends with that status.
class Comm {
public:
  virtual ~Comm() = default;

  int rank() const { return myRank; }
  int size() const { return numRanks; }

  /// The name of the transport: "self", "shm", "virtual", "mpi" or "tcp".
  virtual const char *transport() const = 0;

  /// Allocates this rank's arena: `bytes` bytes of zeros, aligned to 2 MiB, that use no memory until they are touched.
  /// All ranks call it once, each with its own size. The arena lives as long as this object. Returns PCRT_RESOURCE if
  /// there is not enough memory.
  virtual pcrt_status allocateArena(int64_t bytes, char **base) = 0;

  /// Carries out `desc` (pcrt.h describes shapes and semantics) with the members of `group`, and waits. `in` and `out`
  /// are either equal or disjoint; they should lie in the arena, because other memory is copied twice. If members ask
  /// for different moves, returns PCRT_INTERNAL with a message that names both. The messages of PCRT_TIMEOUT and
  /// PCRT_PEER_LOST name the missing ranks.
  pcrt_status move(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                   const ParallelFor &parallelFor = {});

  /// `start` begins the moves of `ticket` without waiting for other ranks. `wait` returns when the moves are done.
  /// Between the two calls, sources must not change and results are undefined. Any number of tickets may be in flight.
  /// All members start the moves of a group in the same order, and wait in the same order, including other moves of the
  /// group.
  pcrt_status start(Ticket &ticket, const ParallelFor &parallelFor = {});
  pcrt_status wait(Ticket &ticket, const ParallelFor &parallelFor = {});

  /// Opens the flows of this rank; a flow's number is its position. All ranks call it once. Returns PCRT_INTERNAL on
  /// all ranks if the two ends of a flow differ.
  pcrt_status openFlows(std::vector<Flow> flows);
  /// The launcher's record of the state in this rank's arena, which outlives its process; null: there is none.
  virtual Kept *kept() { return nullptr; }
  /// Whether the arena still holds what an earlier process of this rank had in it.
  virtual bool hasOldArena() const { return false; }

  /// Copies a message into flow `flow`. Waits only while all slots of the flow are full. The caller may change `data`
  /// after the call returns.
  pcrt_status send(int flow, const void *data);
  /// Waits for the next message of flow `flow`, and copies it to `data`.
  pcrt_status receive(int flow, void *data);
  const std::vector<Flow> &openedFlows() const { return flows; }

  /// Records what this rank does from now on, such as "forward of microbatch 3", for error messages of other ranks.
  /// Allocates nothing.
  virtual void note(const char *) {}

  /// Exists while this rank saves or logs, which may take longer than the timeout. As long as the rank's process runs,
  /// others wait for it without a timeout, except while this rank itself waits for other ranks.
  class Busy {
  public:
    explicit Busy(Comm &comm) : comm(comm) {
      if (comm.busy++ == 0)
        comm.setBusy(true);
    }
    ~Busy() {
      if (--comm.busy == 0)
        comm.setBusy(false);
    }
    Busy(const Busy &) = delete;
    Busy &operator=(const Busy &) = delete;

  private:
    Comm &comm;
  };

  /// Returns when all ranks have called barrier().
  virtual pcrt_status barrier() = 0;

  /// Gathers small control data: each rank gives `n` bytes, the same number on all ranks. `all` gets them in rank order
  /// and has size() * n bytes.
  virtual pcrt_status allGatherBytes(const void *mine, int64_t n, void *all) = 0;

  /// Tells the other ranks that this one gives up. They end with PCRT_PEER_LOST within a second, even if they are
  /// inside a long computation. Their message names this rank and quotes `message`. Call this before this rank ends
  /// with a status other than PCRT_OK.
  virtual void abort(pcrt_status status, const char *message) = 0;

  /// Returns the bytes of other ranks' memory that this process currently has mapped. The kernel also counts these
  /// bytes in this process's resident set (VmHWM, ru_maxrss). They stay mapped, so VmHWM minus this number is the
  /// rank's own peak.
  virtual int64_t peerResidentBytes() const { return 0; }

  /// The control plane of a `tcp` run; null for other transports.
  virtual TcpControl *control() { return nullptr; }

  /// The message of the last failure: rank, op, group and what to do.
  const std::string &error() const { return lastError; }

protected:
  Comm(int rank, int size);

  Group world; ///< All ranks.

  /// Carries out a move between two or more members. `desc` has been checked.
  virtual pcrt_status exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                               const ParallelFor &parallelFor) = 0;

  /// beginMoves announces the moves of `ticket` between two or more members, and endMoves completes them. By default, a
  /// transport carries them out in endMoves.
  virtual pcrt_status beginMoves(Ticket &, const ParallelFor &) { return PCRT_OK; }
  virtual pcrt_status endMoves(Ticket &ticket, const ParallelFor &parallelFor);

  /// Prepares `flows`; the other ends have been checked. Allocates what send and receive need.
  virtual pcrt_status prepareFlows() = 0;
  /// Sends or receives message flow.count (from 1) of an open flow.
  virtual pcrt_status put(Flow &flow, int index, const void *data) = 0;
  virtual pcrt_status take(Flow &flow, int index, void *data) = 0;
  std::vector<Flow> flows; ///< Open ones.

  /// Tells the other ranks whether this one is busy (Busy).
  virtual void setBusy(bool) {}

  /// Sets `problem` to a message if the arenas of all ranks do not fit into the memory that is available on their
  /// machines, and to "" otherwise. This rank's arena has `bytes`. All ranks call this function before any of them
  /// touches its arena, and all get the same answer.
  pcrt_status checkArenas(int64_t bytes, std::string *problem);

  /// Records `message` as error() and returns `status`.
  pcrt_status fail(pcrt_status status, std::string message);

private:
  int myRank, numRanks;
  std::string lastError;
  int busy = 0; ///< How many Busy objects exist.
};

/// Connects this process with the other ranks of its run. The environment says which run that is: the variables of
/// pc-run (PCRT_*), torchrun (RANK, WORLD_SIZE, ...), mpirun (OMPI_COMM_WORLD_*) or srun (SLURM_*). Without any of them
/// there is one rank. PCRT_TRANSPORT=self|shm|mpi|tcp|virtual overrides the choice of transport. On failure, `error` is
/// the message.
pcrt_status connect(std::unique_ptr<Comm> *out, std::string *error);

/// Calls `body` for every rank that this process runs. There is one such rank, connected as above; with
/// PCRT_TRANSPORT=virtual, this process runs all ranks, each on its own thread. `programRanks` is the program's number
/// of ranks, which is the number of virtual ranks if pc-run does not set it. If `onDevices` is true, devices carry out
/// the moves, and the default transport of several ranks is `tcp`. A body that fails has called Comm::abort. Returns
/// the status of `body`, or that of `connect` with a reason in `error`.
pcrt_status runRanks(int programRanks, bool onDevices, const std::function<pcrt_status(Comm &)> &body,
                     std::string *error);

/// Returns the number of threads that this rank may use: PCRT_THREADS, or otherwise the number of cores to which the
/// rank is pinned.
int threadsOfThisRank();

} // namespace pcrt

#endif // PCRT_COMM_COMM_H
