//===- MpiComm.cpp - The MPI transport, as a plug-in ----------------------===//
// For ranks on several machines. MPI's collectives may add in any order, but results must have the same bits as with
// every other transport. So it uses messages between pairs and the arithmetic of Moves.h instead. Members first
// exchange their keys, which finds mismatches and missing ranks.
//===----------------------------------------------------------------------===//
#include "comm/Environment.h"
#include "comm/HostArena.h"
#include "comm/Moves.h"
#include "comm/Patience.h"
#include "comm/Rows.h"
#include "comm/Secret.h"
#include "comm/ShmControl.h"
#include "comm/TcpControl.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mpi.h>
#include <unistd.h>

using namespace pcrt;

/// The status with which the process ends, set by abort(). MPI_Abort ends all ranks with it.
static int abortStatus = PCRT_OK;

static void endMpi() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized)
    return;
  if (abortStatus != PCRT_OK)
    MPI_Abort(MPI_COMM_WORLD, abortStatus);
  MPI_Finalize();
}

namespace {

/// A wait of the main thread. If it takes longer than 0.1 s, the other ranks are told.
class Waiting {
public:
  Waiting(TcpControl *plane, double timeout) : plane(plane), patience(timeout) {}
  ~Waiting() {
    if (told)
      plane->setWaiting(false);
  }
  Waiting(const Waiting &) = delete;
  Waiting &operator=(const Waiting &) = delete;

  /// Returns true if the time is up; the waiting loop calls it.
  bool isOver() {
    double now = monotonicSeconds();
    if (plane && !told && now - start > 0.1) {
      told = true;
      plane->setWaiting(true);
    }
    if (!patience.isOver(now))
      return false;
    return !plane || !patience.isExtended(TcpControl::secondsSinceBusy(plane->askProgress()));
  }

private:
  TcpControl *plane;
  Patience patience;
  double start = monotonicSeconds();
  bool told = false;
};

/// The transport over MPI, for the thread that called MPI_Init_thread (MPI_THREAD_FUNNELED). It owns the control plane,
/// the arena and all buffers of messages. If a rank dies, the control plane reports it.
class MpiComm final : public Comm {
public:
  MpiComm(int rank, int size) : Comm(rank, size), timeout(timeoutSeconds()), sources(size), keys(size) {
    MPI_Comm_dup(MPI_COMM_WORLD, &messages);
    watchRanks();
  }

  ~MpiComm() override {
    for (Ring &ring : rings)
      for (MPI_Request &request : ring.requests)
        if (request != MPI_REQUEST_NULL) { // a receive of a message that no rank will send
          MPI_Cancel(&request);
          MPI_Request_free(&request);
        }
    plane.reset();
    endMpi(); // frees the communicator too
  }

  const char *transport() const override { return "mpi"; }

  pcrt_status allocateArena(int64_t bytes, char **base) override {
    std::string problem;
    PCRT_TRY(checkArenas(bytes, &problem));
    pcrt_status status = problem.empty() ? arena.allocate(bytes, base, &problem) : PCRT_RESOURCE;
    return status == PCRT_OK ? status : fail(status, rankName(rank()) + ": " + problem);
  }

  pcrt_status barrier() override { return agree(world, makeKey("barrier", world)); }

  pcrt_status allGatherBytes(const void *mine, int64_t n, void *all) override {
    MoveKey key = makeKey("allGatherBytes", world);
    key.outer = n;
    PCRT_TRY(agree(world, key));
    auto *at = static_cast<char *>(all);
    if (n > 0)
      memcpy(at + rank() * n, mine, n);
    for (int peer = 0; peer < size(); ++peer) {
      receive(world, peer, at + peer * n, n);
      send(world, peer, mine, n);
    }
    return finish(world, key);
  }

  void abort(pcrt_status status, const char *message) override {
    if (plane)
      plane->giveUp(status, rankName(rank()) + " failed: " + message);
    // mpirun reports the rank that ends first, so all ranks end with the status of the first failure.
    abortStatus = plane ? plane->failureStatus() : status;
  }

protected:
  pcrt_status exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                       const ParallelFor &parallelFor) override;
  pcrt_status prepareFlows() override;
  pcrt_status put(Flow &flow, int index, const void *data) override;
  pcrt_status take(Flow &flow, int index, void *data) override;

  void setBusy(bool busy) override {
    if (plane)
      plane->setBusy(busy);
  }

  void note(const char *doing) override {
    if (plane)
      plane->note(doing);
  }

private:
  /// The all_to_all of rows: one message for each pair of members, whose number of rows both compute.
  pcrt_status exchangeRows(const pcrt_move_desc &desc, const Group &group, const char *from, char *to);

  /// The ring buffer of a flow. At the sender, its slots hold messages in flight; at the receiver, posted receives.
  struct Ring {
    std::vector<char> data;
    std::vector<MPI_Request> requests; ///< By slot.
  };
  pcrt_status waitFor(MPI_Request &request, const Flow &flow);
  static int tagOf(const Flow &flow) { return kMaxGroups + flow.id; }

  /// Exchanges `key` with all members. Returns PCRT_INTERNAL if their keys differ.
  pcrt_status agree(const Group &group, const MoveKey &key);
  /// Start sending to or receiving from member `index`, in pieces that MPI can count. They do nothing for this rank.
  void send(const Group &group, int index, const void *data, int64_t bytes);
  void receive(const Group &group, int index, void *data, int64_t bytes);
  /// `begin` is MPI_Isend or MPI_Irecv.
  template <typename Begin, typename Byte>
  void begin(Begin begin, const Group &group, int index, Byte *data, int64_t bytes);
  /// Waits for everything that was started.
  pcrt_status finish(const Group &group, const MoveKey &key);
  char *stagingOf(int64_t bytes) {
    if (int64_t(staging.size()) < bytes)
      staging.resize(bytes);
    return staging.data();
  }

  /// Also connects the ranks over TCP, because MPI does not report that a rank has died. If the network does not allow
  /// these connections, mpirun has to end the other ranks.
  void watchRanks();

  MPI_Comm messages;
  std::unique_ptr<TcpControl> plane;
  double timeout;
  HostArena arena;
  std::vector<char> staging;
  std::vector<const char *> sources; ///< Per member: its addends or blocks, in this rank's memory.
  std::vector<MoveKey> keys;
  std::vector<MPI_Request> requests;
  std::vector<int> requestPeers; ///< The other rank of each request.
  std::vector<Ring> rings;       ///< By flow.
};

} // namespace

void MpiComm::watchRanks() {
  if (size() == 1)
    return;
  // MPI provides the values that otherwise come from the launcher's environment.
  struct Start {
    char host[64];
    int64_t process, time;
    Bytes32 secret;
  } start{{}, getpid(), int64_t(monotonicSeconds() * 1e9), {}};
  bool drawn = drawBytes(&start.secret);
  gethostname(start.host, sizeof start.host - 1);
  MPI_Bcast(&start, sizeof start, MPI_BYTE, 0, messages);
  MPI_Comm machine;
  MPI_Comm_split_type(messages, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &machine);
  Place place;
  place.rank = rank();
  place.size = size();
  MPI_Comm_size(machine, &place.localSize);
  MPI_Comm_free(&machine);
  int fewest = place.localSize;
  MPI_Allreduce(MPI_IN_PLACE, &fewest, 1, MPI_INT, MPI_MIN, messages);
  place.localSize = fewest;
  place.launcher = "mpi";
  place.run = std::to_string(start.process) + "/" + std::to_string(start.time);
  MeetingPoint point = meetingPointAt(fewest == size() ? "127.0.0.1" : start.host, place);
  point.secret.assign(start.secret.data(), start.secret.size());
  std::string error;
  int connected = drawn && TcpControl::connect(place, point, &plane, &error) == PCRT_OK;
  MPI_Allreduce(MPI_IN_PLACE, &connected, 1, MPI_INT, MPI_MIN, messages);
  if (connected)
    return;
  plane.reset();
  if (!error.empty())
    fprintf(stderr, "warning: %s; if a rank dies, only mpirun can end the others\n", error.c_str());
}

template <typename Begin, typename Byte>
void MpiComm::begin(Begin begin, const Group &group, int index, Byte *data, int64_t bytes) {
  constexpr int64_t piece = 1 << 30;
  for (int64_t at = 0; at < bytes && index != group.me; at += piece) {
    requests.push_back(MPI_REQUEST_NULL);
    requestPeers.push_back(group.ranks[index]);
    begin(data + at, int(std::min(piece, bytes - at)), MPI_BYTE, group.ranks[index], group.id, messages,
          &requests.back());
  }
}

void MpiComm::send(const Group &group, int index, const void *data, int64_t bytes) {
  begin(MPI_Isend, group, index, static_cast<const char *>(data), bytes);
}

void MpiComm::receive(const Group &group, int index, void *data, int64_t bytes) {
  begin(MPI_Irecv, group, index, static_cast<char *>(data), bytes);
}

pcrt_status MpiComm::finish(const Group &group, const MoveKey &key) {
  Waiting waiting(plane.get(), timeout);
  for (int tries = 0;; ++tries) {
    int done = 0;
    MPI_Testall(int(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done)
      break;
    if (tries > 200)
      sched_yield();
    if (plane && plane->failed()) {
      plane->setReported(PCRT_PEER_LOST);
      return fail(PCRT_PEER_LOST,
                  rankName(rank()) + ": in " + describeKey(key) + ": " + plane->failure() + "; the run has ended");
    }
    if (!waiting.isOver())
      continue;
    std::vector<int> missing;
    for (size_t i = 0; i < requests.size(); ++i) {
      int complete = 0;
      MPI_Test(&requests[i], &complete, MPI_STATUS_IGNORE);
      if (!complete)
        missing.push_back(requestPeers[i]);
    }
    if (missing.empty()) // the last rank has arrived in the meantime
      break;
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    std::string names;
    for (int peer : missing)
      names += (names.empty() ? "rank " : ", rank ") + std::to_string(peer);
    return fail(PCRT_TIMEOUT, "rank " + std::to_string(rank()) + ": no answer within " + secondsText(timeout) +
                                  " s from " + names + " in " + describeKey(key) + " of " + groupName(group) +
                                  "; check whether it is stopped or much slower, or raise PCRT_TIMEOUT_SECONDS");
  }
  requests.clear();
  requestPeers.clear();
  return PCRT_OK;
}

pcrt_status MpiComm::agree(const Group &group, const MoveKey &key) {
  for (int peer = 0; peer < group.size(); ++peer) {
    receive(group, peer, &keys[peer], sizeof key);
    send(group, peer, &key, sizeof key);
  }
  PCRT_TRY(finish(group, key));
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.me && memcmp(&keys[peer], &key, sizeof key) != 0)
      return fail(PCRT_INTERNAL, "ranks run different collectives in " + groupName(group) + ": " +
                                     describeMismatch(rank(), key, group.ranks[peer], keys[peer]));
  return PCRT_OK;
}

pcrt_status MpiComm::exchangeRows(const pcrt_move_desc &desc, const Group &group, const char *from, char *to) {
  const int n = group.size(), me = group.me;
  const int64_t bytes = desc.inner * elementBytes(desc.dtype);
  RowCounts &counts = rowCounts();
  if (const char *problem = counts.count(desc, n))
    return fail(PCRT_INTERNAL, rankName(rank()) + ": " + describeMove(desc, n) + ": " + problem);
  char *packed = stagingOf((inElements(desc, n) + outElements(desc, n)) * elementBytes(desc.dtype));
  char *received = packed + inElements(desc, n) * elementBytes(desc.dtype), *at = packed;
  for (int peer = 0; peer < n; ++peer) {
    char *first = at;
    for (const RowSegment &segment : counts.segments(peer))
      if (segment.source == me && peer != me) {
        memcpy(at, from + segment.from * bytes, size_t(segment.count * bytes));
        at += segment.count * bytes;
      }
    send(group, peer, first, at - first);
  }
  const std::vector<RowSegment> &gotten = counts.segments(me);
  at = received;
  for (int peer = 0; peer < n; ++peer) {
    int64_t rows = 0;
    for (const RowSegment &segment : gotten)
      rows += segment.source == peer && peer != me ? segment.count : 0;
    receive(group, peer, at, rows * bytes);
    at += rows * bytes;
  }
  PCRT_TRY(finish(group, makeKey(desc, group)));
  at = received;
  for (int peer = 0; peer < n; ++peer)
    for (const RowSegment &segment : gotten)
      if (segment.source == peer) {
        const char *rows = peer == me ? from + segment.from * bytes : at;
        memcpy(to + segment.to * bytes, rows, size_t(segment.count * bytes));
        at += peer == me ? 0 : segment.count * bytes;
      }
  return PCRT_OK;
}

pcrt_status MpiComm::exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                              const ParallelFor &parallelFor) {
  int n = group.size(), me = group.me;
  int64_t width = elementBytes(desc.dtype), elements = outElements(desc, n);
  MoveKey key = makeKey(desc, group);
  PCRT_TRY(agree(group, key));
  const auto *from = static_cast<const char *>(in);
  auto *to = static_cast<char *>(out);

  if (desc.kind == PCRT_ALL_REDUCE) {
    // Each member adds its own part and sends the sums to the others.
    int64_t first, last;
    allReducePart(elements, n, me, &first, &last);
    int64_t partBytes = (last - first) * width;
    char *addends = stagingOf(n * partBytes);
    for (int peer = 0; peer < n; ++peer) {
      int64_t lo, hi;
      allReducePart(elements, n, peer, &lo, &hi);
      receive(group, peer, addends + peer * partBytes, partBytes);
      send(group, peer, from + lo * width, (hi - lo) * width);
      sources[peer] = peer == me ? from + first * width : addends + peer * partBytes;
    }
    PCRT_TRY(finish(group, key));
    char *sums = to + first * width;
    if (last > first)
      parallelFor(last - first, [&](int64_t lo, int64_t hi) {
        reduceElements(desc.dtype, desc.reduction, sources.data(), n, &sums, 1, lo, hi);
      });
    for (int peer = 0; peer < n; ++peer) {
      int64_t lo, hi;
      allReducePart(elements, n, peer, &lo, &hi);
      receive(group, peer, to + lo * width, (hi - lo) * width);
      send(group, peer, sums, partBytes);
    }
    return finish(group, key);
  }

  if (desc.kind == PCRT_PERMUTE || pcrt_facts_of_move(desc.kind)->way == PCRT_WAY_ROOTED) {
    // Between neighbours, or between the root and each member.
    int64_t inBytes = inElements(desc, n) * width, outBytes = elements * width,
            blockBytes = std::min(inBytes, outBytes);
    char *blocks = stagingOf(n * inBytes);
    const char *own = from;
    if (desc.kind == PCRT_PERMUTE) {
      if (sourceOf(desc, n, me) == me && to != from)
        memcpy(to, from, outBytes);
      receive(group, sourceOf(desc, n, me), to, outBytes);
      send(group, targetOf(desc, n, me), from, inBytes);
      return finish(group, key);
    }
    bool toRoot = desc.kind == PCRT_GATHER || desc.kind == PCRT_REDUCE;
    if (me != 0) {
      toRoot ? send(group, 0, from, inBytes) : receive(group, 0, to, outBytes);
      return finish(group, key);
    }
    pcrt_move_desc slice = desc;
    slice.kind = PCRT_SLICE;
    Group member = group;
    for (int peer = 0; peer < n; ++peer) {
      const char *toPeer = from;
      if (desc.kind == PCRT_SCATTER) {
        member.me = peer;
        localMove(slice, member, in, blocks + peer * blockBytes, parallelFor);
        toPeer = blocks + peer * blockBytes;
      }
      own = peer == 0 ? toPeer : own;
      sources[peer] = peer == 0 ? from : blocks + peer * inBytes;
      if (peer != 0)
        toRoot ? receive(group, peer, blocks + peer * inBytes, inBytes) : send(group, peer, toPeer, outBytes);
    }
    PCRT_TRY(finish(group, key));
    if (elements > 0)
      parallelFor(elements, [&](int64_t lo, int64_t hi) {
        if (desc.kind == PCRT_GATHER)
          pullAllGather(desc, n, sources.data(), to, lo, hi);
        else if (desc.kind == PCRT_REDUCE)
          reduceElements(desc.dtype, desc.reduction, sources.data(), n, &to, 1, lo, hi);
        else
          memcpy(to + lo * width, own + lo * width, (hi - lo) * width);
      });
    return PCRT_OK;
  }

  if (routedOf(desc))
    return exchangeRows(desc, group, from, to);

  // In the other moves, a rank sends a block to each member, and gets blocks or addends from each member.
  pcrt_move_desc block = desc;                                // the slice of `in` that goes to a member
  bool back = desc.kind == PCRT_ALL_TO_ALL && desc.reduction; // split on extent2, to be split on extent
  if (back) {
    block.inner = desc.middle * (desc.extent2 / n) * desc.inner;
  } else if (desc.kind == PCRT_ALL_TO_ALL) {
    block.outer = desc.outer * (desc.extent / n) * desc.middle;
    block.extent = desc.extent2;
  }
  block.kind = PCRT_SLICE;
  bool packs = desc.kind != PCRT_ALL_GATHER;
  int64_t blockBytes = (packs ? outElements(block, n) : inElements(desc, n)) * width;
  char *received = stagingOf(int64_t(packs ? 2 : 1) * n * blockBytes), *packed = received + n * blockBytes;
  Group member = group;
  for (int peer = 0; peer < n; ++peer) {
    const char *toPeer = from;
    if (packs) {
      member.me = peer;
      char *slice = packed + peer * blockBytes;
      localMove(block, member, in, slice, parallelFor);
      toPeer = slice;
    }
    receive(group, peer, received + peer * blockBytes, blockBytes);
    send(group, peer, toPeer, blockBytes);
    sources[peer] = peer == me ? toPeer : received + peer * blockBytes;
  }
  PCRT_TRY(finish(group, key));
  pcrt_move_desc blocks = desc; // how received blocks lie in `out`
  if (back)
    blocks.outer = desc.outer * (desc.extent / n) * desc.middle, blocks.extent = desc.extent2;
  else if (desc.kind == PCRT_ALL_TO_ALL)
    blocks.inner = desc.middle * (desc.extent2 / n) * desc.inner;
  if (elements > 0)
    parallelFor(elements, [&](int64_t lo, int64_t hi) {
      if (desc.kind == PCRT_REDUCE_SCATTER)
        reduceElements(desc.dtype, desc.reduction, sources.data(), n, &to, 1, lo, hi);
      else
        pullAllGather(blocks, n, sources.data(), to, lo, hi);
    });
  return PCRT_OK;
}

//===----------------------------------------------------------------------===//
// Flows
//===----------------------------------------------------------------------===//

pcrt_status MpiComm::prepareFlows() {
  rings.resize(flows.size());
  for (size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].bytes > INT32_MAX)
      return fail(PCRT_INTERNAL, "a message of " + std::to_string(flows[i].bytes) +
                                     " bytes is too large for MPI; use a smaller microbatch");
    rings[i].data.resize(flows[i].slots * flows[i].bytes);
    rings[i].requests.assign(flows[i].slots, MPI_REQUEST_NULL);
    for (int slot = 0; slot < flows[i].slots && !flows[i].sends; ++slot)
      MPI_Irecv(rings[i].data.data() + slot * flows[i].bytes, int(flows[i].bytes), MPI_BYTE, flows[i].peer,
                tagOf(flows[i]), messages, &rings[i].requests[slot]);
  }
  return barrier();
}

pcrt_status MpiComm::waitFor(MPI_Request &request, const Flow &flow) {
  Waiting waiting(plane.get(), timeout);
  auto what = [&] { return (flow.sends ? "send of " : "receive of ") + flow.describe(flow.count); };
  for (int tries = 0;; ++tries) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done)
      return PCRT_OK;
    if (tries > 200)
      sched_yield();
    if (plane && plane->failed()) {
      plane->setReported(PCRT_PEER_LOST);
      return fail(PCRT_PEER_LOST,
                  rankName(rank()) + ": in " + what() + ": " + plane->failure() + "; the run has ended");
    }
    if (waiting.isOver())
      return fail(PCRT_TIMEOUT, rankName(rank()) + ": no answer within " + secondsText(timeout) + " s from " +
                                    rankName(flow.peer) + " in " + what() +
                                    "; check whether it is stopped or much slower, or raise PCRT_TIMEOUT_SECONDS");
  }
}

pcrt_status MpiComm::put(Flow &flow, int index, const void *data) {
  int slot = int((flow.count - 1) % flow.slots);
  MPI_Request &request = rings[index].requests[slot];
  PCRT_TRY(waitFor(request, flow));
  char *at = rings[index].data.data() + slot * flow.bytes;
  memcpy(at, data, flow.bytes);
  MPI_Isend(at, int(flow.bytes), MPI_BYTE, flow.peer, tagOf(flow), messages, &request);
  return PCRT_OK;
}

pcrt_status MpiComm::take(Flow &flow, int index, void *data) {
  int slot = int((flow.count - 1) % flow.slots);
  MPI_Request &request = rings[index].requests[slot];
  PCRT_TRY(waitFor(request, flow));
  char *at = rings[index].data.data() + slot * flow.bytes;
  memcpy(data, at, flow.bytes);
  MPI_Irecv(at, int(flow.bytes), MPI_BYTE, flow.peer, tagOf(flow), messages, &request);
  return PCRT_OK;
}

/// The entry of the plug-in. Returns a pcrt_status, with a message if it is not PCRT_OK.
extern "C" __attribute__((visibility("default"))) int pcrt_mpi_connect(Comm **out, char *message, size_t capacity) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (!initialized) {
    int provided;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
      snprintf(message, capacity, "MPI_Init failed");
      return PCRT_RESOURCE;
    }
  }
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Place place;
  std::string error;
  if (readPlace(&place, &error) && place.size != size) {
    snprintf(message, capacity,
             "%s says that there are %d ranks, but MPI says %d; MPI connects only ranks started by mpirun or srun, so "
             "use one of these, or %s",
             place.launcher.c_str(), place.size, size, overTcp);
    return PCRT_USAGE;
  }
  *out = new MpiComm(rank, size);
  atexit(endMpi); // for programs that end without destroying their Comm
  return PCRT_OK;
}
