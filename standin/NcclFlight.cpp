//===- NcclFlight.cpp - Calls of a communicator, from begin to end --------===//
// A call that begins puts its contribution into its mailbox. It ends when all members have begun theirs. A sum passes
// from rank to rank, in their order or (PC_STANDIN_SUMS) in another, and is rounded each time. All members get the same
// bits.
//===----------------------------------------------------------------------===//
#include "standin/Capture.h"
#include "standin/Memory.h"
#include "standin/NcclComm.h"
#include "standin/Numbers.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unistd.h>
#include <utility>

using namespace pc::standin;

int64_t pc::standin::ncclElementBytes(int dtype) {
  switch (dtype) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  default:
    return 8;
  }
}

int64_t pc::standin::inBytes(const Call &call, int rank, int size) {
  int64_t bytes = call.count * ncclElementBytes(call.dtype);
  switch (call.kind) {
  case Call::ReduceScatter:
  case Call::AllToAll:
    return bytes * size;
  case Call::Broadcast:
    return rank == call.peer ? bytes : 0;
  case Call::Receive:
    return 0;
  default:
    return bytes;
  }
}

int64_t pc::standin::outBytes(const Call &call, int rank, int size) {
  int64_t bytes = call.count * ncclElementBytes(call.dtype);
  switch (call.kind) {
  case Call::AllGather:
  case Call::AllToAll:
    return bytes * size;
  case Call::Reduce:
    return rank == call.peer ? bytes : 0;
  case Call::Send:
    return 0;
  default:
    return bytes;
  }
}

std::string pc::standin::describe(const Call &call) {
  static const char *kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                "reduce",     "all_to_all", "send",           "receive"};
  static const char *dtypes[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"};
  static const char *reductions[] = {" sum", " product", " max", " min", " average"};
  std::string text = kinds[call.kind];
  if (call.kind == Call::AllReduce || call.kind == Call::ReduceScatter || call.kind == Call::Reduce)
    text += reductions[call.reduction];
  text += " of " + std::to_string(call.count) + " " + dtypes[call.dtype];
  if (call.kind == Call::Broadcast || call.kind == Call::Reduce)
    text += " at root " + std::to_string(call.peer);
  if (call.isMessage())
    text += (call.kind == Call::Send ? " to rank " : " from rank ") + std::to_string(call.peer);
  return text;
}

std::string pc::standin::describe(const Comm &comm) {
  return (comm.name.empty() ? "a communicator" : "'" + comm.name + "'") + " (rank " + std::to_string(comm.rank) +
         " of " + std::to_string(comm.size) + ")";
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

template <typename T> static T combine(T a, T b, int reduction) {
  switch (reduction) {
  case ncclProd:
    return a * b;
  case ncclMax: // fmaxf and __hmax (reduce_kernel.h) take the number where the other is NaN
    return b != b || a > b ? a : b;
  case ncclMin:
    return b != b || a < b ? a : b;
  default:
    return a + b;
  }
}

namespace {

/// The order in which the addends of an element are added. Between hops a sum has the element's own type.
enum class Sums {
  Chain,  ///< A ring: one rank after the other; each block of the data begins at another rank.
  Tree,   ///< A rank adds the sums of its two children to its own addend.
  Switch, ///< NVLS: the switch adds all of them and rounds once (multimem.ld_reduce, .acc::f32).
};

/// The order for a call; it is the same on all ranks and in every launch.
Sums waysOf(const Call &call, int size) {
  uint64_t seed = options().sumSeed;
  if (seed == 0 || size == 1)
    return Sums::Chain;
  uint64_t mixed = (seed + static_cast<uint64_t>(call.count) * 31 + call.kind) * 0x9e3779b97f4a7c15u;
  auto way = static_cast<Sums>((mixed >> 33) % 3);
  return way == Sums::Tree && call.kind != Call::AllReduce ? Sums::Chain : way; // as NCCL has them
}

/// One element of each rank's contribution, and the rounding of a sum that passes between ranks.
template <typename Wide, typename Round> struct Addends {
  const std::vector<Wide> &values;
  int reduction;
  Round round;

  Wide chain(int first) const {
    int n = static_cast<int>(values.size());
    Wide sum = values[first];
    for (int k = 1; k < n; ++k)
      sum = round(combine<Wide>(sum, values[(first + k) % n], reduction));
    return sum;
  }
  Wide tree(size_t node) const {
    Wide sum = values[node];
    for (size_t child : {2 * node + 1, 2 * node + 2})
      if (child < values.size())
        sum = round(combine<Wide>(sum, tree(child), reduction));
    return sum;
  }
  Wide atOnce() const {
    Wide sum = values[0];
    for (size_t rank = 1; rank < values.size(); ++rank)
      sum = combine<Wide>(sum, values[rank], reduction);
    return round(sum);
  }
};

} // namespace

/// Adds `count` elements of every rank, from element `begin` of `total` on; `read` fetches bytes of a rank's
/// contribution.
template <typename Stored, typename Wide, typename Load, typename Store, typename Read>
static void reduceAs(const Call &call, int size, int64_t begin, int64_t count, int64_t total, void *out, Load load,
                     Store store, Read read) {
  constexpr int64_t chunk = 1 << 16;
  std::vector<std::vector<Stored>> parts(size, std::vector<Stored>(std::min(chunk, count)));
  std::vector<Wide> values(size);
  auto round = [&](Wide sum) { return load(store(sum)); };
  Addends<Wide, decltype(round)> addends{values, call.reduction, round};
  Sums way = waysOf(call, size);
  bool rotates = options().sumSeed != 0;
  for (int64_t lo = 0; lo < count; lo += chunk) {
    int64_t n = std::min(chunk, count - lo);
    for (int rank = 0; rank < size; ++rank)
      read(rank, (begin + lo) * static_cast<int64_t>(sizeof(Stored)), parts[rank].data(),
           n * static_cast<int64_t>(sizeof(Stored)));
    for (int64_t i = 0; i < n; ++i) {
      for (int rank = 0; rank < size; ++rank)
        values[rank] = load(parts[rank][i]);
      // In a ring, the sum of block k ends at rank k; a reduction ends at its root.
      int64_t last = call.kind == Call::Reduce ? call.peer : (begin + lo + i) * size / total;
      Wide sum = way == Sums::Tree     ? addends.tree(0)
                 : way == Sums::Switch ? addends.atOnce()
                                       : addends.chain(rotates ? static_cast<int>(last + 1) % size : 0);
      static_cast<Stored *>(out)[lo + i] = store(call.reduction == ncclAvg ? sum / static_cast<Wide>(size) : sum);
    }
  }
}

template <typename Read>
static void reduce(const Call &call, int size, int64_t begin, int64_t count, void *out, Read read) {
  int64_t total = call.kind == Call::ReduceScatter ? count * size : count;
  auto same = [&]<typename T>(T) {
    reduceAs<T, T>(call, size, begin, count, total, out, [](T x) { return x; }, [](T x) { return x; }, read);
  };
  switch (call.dtype) {
  case ncclBfloat16:
    return reduceAs<uint16_t, float>(call, size, begin, count, total, out, fromBf16, toBf16, read);
  case ncclFloat32:
    return same(float());
  case ncclFloat64:
    return same(double());
  case ncclInt8:
    return same(int8_t());
  case ncclUint8:
    return same(uint8_t());
  case ncclInt32:
  case ncclUint32: // wraps
    return call.dtype == ncclInt32 && call.reduction != ncclSum ? same(int32_t()) : same(uint32_t());
  default:
    return call.dtype == ncclInt64 && call.reduction != ncclSum ? same(int64_t()) : same(uint64_t());
  }
}

//===----------------------------------------------------------------------===//
// One flight
//===----------------------------------------------------------------------===//

/// The bytes of a collective in each rank's mailbox.
static int64_t postedBytes(const Call &call, int size) { return inBytes(call, call.peer, size); }

static bool transfer(int fd, void *data, int64_t bytes, int64_t offset, bool writes) {
  auto *at = static_cast<char *>(data);
  while (bytes > 0) {
    ssize_t n = writes ? pwrite(fd, at, bytes, offset) : pread(fd, at, bytes, offset);
    if (n <= 0)
      return false;
    at += n, bytes -= n, offset += n;
  }
  return true;
}

namespace {

/// The calls in flight on each device, and the tickets of those that have not begun.
struct Devices {
  std::map<int, int> flying; ///< By device.
  std::map<int, std::set<uint64_t>> waiting;
  uint64_t nextTicket = 1, resets = 0;
};

Devices &devices() {
  static auto *devices = new Devices;
  if (devices->resets != numResets())
    *devices = {{}, {}, devices->nextTicket, numResets()};
  return *devices;
}

/// The calls of one group on one communicator while they are in flight.
struct NcclFlight final : Flight {
  CommRef comm;
  std::vector<Call> calls;
  bool collective = false;
  uint64_t number = 0;           ///< The number of the collective part.
  std::vector<uint64_t> numbers; ///< The numbers of messages, by call.
  std::vector<bool> done, posted;
  std::string fault;
  uint64_t resets = numResets();
  bool left = false;

  std::string source; ///< The source of the calls. It distinguishes ranks that mean different things by the same call.

  NcclFlight(CommRef comm, const std::vector<Call> &calls, std::string source)
      : comm(std::move(comm)), calls(calls), source(std::move(source)) {}
  ~NcclFlight() override { leave(); }

  std::string signature() const {
    std::string text = source.empty() ? "" : "'" + source + "': ";
    bool first = true;
    for (const Call &call : calls)
      if (!call.isMessage())
        text += (std::exchange(first, false) ? "" : ", ") + describe(call);
    return text.substr(0, sizeof(Mailbox::signatures[0]) - 1);
  }

  /// Arrives: puts this rank's contribution into its mailbox.
  void begin() {
    comm->inFlight = true;
    ++devices().flying[comm->device];
    numbers.resize(calls.size());
    done.resize(calls.size());
    posted.resize(calls.size());
    if (comm->aborted)
      return;
    int64_t offset = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      const Call &call = calls[i];
      comm->current += (i ? ", " : "") + describe(call);
      if (call.isMessage()) {
        numbers[i] = (call.kind == Call::Send ? comm->sends : comm->receives)[call.peer]++;
        continue;
      }
      if (!collective)
        number = ++comm->collectives;
      collective = true;
      int64_t bytes = inBytes(call, comm->rank, comm->size);
      if (offset + postedBytes(call, comm->size) > collectiveSlotBytes)
        fault = "one group of calls has more data than the stand-in supports";
      else if (!transfer(comm->own->fd, const_cast<void *>(call.in), bytes, Comm::collectiveOffset(number) + offset,
                         true))
        fault = "cannot write to the mailbox";
      offset += postedBytes(call, comm->size);
    }
    if (collective) {
      strcpy(comm->ownBox().signatures[number % 2], signature().c_str());
      comm->ownBox().collectives.store(number);
    }
    ++comm->shared().generation;
    isDone();
  }

  bool isDone() override {
    if (comm->aborted || !fault.empty())
      return true;
    bool all = true;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].isMessage() && !done[i])
        done[i] = calls[i].kind == Call::Send ? advanceSend(i) : advanceReceive(i);
      all &= !calls[i].isMessage() || done[i];
    }
    for (int rank = 0; collective && rank < comm->size; ++rank)
      all &= comm->box(rank).collectives.load() >= number;
    return all || !fault.empty();
  }

  bool advanceSend(size_t i) {
    const Call &call = calls[i];
    PeerBox &own = comm->pair(comm->rank, call.peer);
    const PeerBox &theirs = comm->pair(call.peer, comm->rank);
    uint64_t k = numbers[i], taken = theirs.received.load();
    int64_t bytes = inBytes(call, comm->rank, comm->size);
    if (!posted[i] && k < taken + sendSlots && own.sent.load() == k) {
      SendPost &post = own.posts[k % sendSlots];
      post.bytes = bytes;
      snprintf(post.what, sizeof post.what, "%s", describe(call).c_str());
      if (bytes > sendSlotBytes)
        fault = "a message is longer than the stand-in supports";
      else if (!transfer(comm->own->fd, const_cast<void *>(call.in), bytes, Comm::sendOffset(call.peer, k), true))
        fault = "cannot write to the mailbox";
      own.sent.store(k + 1);
      ++comm->shared().generation;
      posted[i] = true;
    }
    return taken > k;
  }

  bool advanceReceive(size_t i) {
    const Call &call = calls[i];
    PeerBox &own = comm->pair(comm->rank, call.peer);
    const PeerBox &theirs = comm->pair(call.peer, comm->rank);
    uint64_t k = numbers[i];
    if (theirs.sent.load() <= k || own.received.load() != k)
      return false;
    const SendPost &post = theirs.posts[k % sendSlots];
    int64_t bytes = outBytes(call, comm->rank, comm->size);
    if (post.bytes != bytes)
      fault = "rank " + std::to_string(comm->rank) + " calls " + describe(call) + ", rank " +
              std::to_string(call.peer) + " calls " + post.what;
    else if (!transfer(comm->peers[call.peer]->fd, call.out, bytes, Comm::sendOffset(comm->rank, k), false))
      fault = "cannot read the mailbox of rank " + std::to_string(call.peer);
    own.received.store(k + 1);
    ++comm->shared().generation;
    return true;
  }

  /// Carries out the collective calls with the data in the mailboxes.
  void collect() {
    for (int rank = 0; rank < comm->size; ++rank)
      if (signature() != comm->box(rank).signatures[number % 2]) {
        fault = "call " + std::to_string(number) + " of the communicator: rank " + std::to_string(comm->rank) +
                " calls " + signature() + "; rank " + std::to_string(rank) + " calls " +
                comm->box(rank).signatures[number % 2];
        return;
      }
    int64_t offset = Comm::collectiveOffset(number);
    for (const Call &call : calls) {
      if (call.isMessage())
        continue;
      auto read = [&](int rank, int64_t begin, void *to, int64_t bytes) {
        if (!transfer(comm->peers[rank]->fd, to, bytes, offset + begin, false))
          fault = "cannot read the mailbox of rank " + std::to_string(rank);
      };
      int64_t bytes = call.count * ncclElementBytes(call.dtype);
      auto *out = static_cast<char *>(call.out);
      switch (call.kind) {
      case Call::AllReduce:
        reduce(call, comm->size, 0, call.count, out, read);
        break;
      case Call::Reduce:
        if (comm->rank == call.peer)
          reduce(call, comm->size, 0, call.count, out, read);
        break;
      case Call::ReduceScatter:
        reduce(call, comm->size, comm->rank * call.count, call.count, out, read);
        break;
      case Call::AllGather:
        for (int rank = 0; rank < comm->size; ++rank)
          read(rank, 0, out + rank * bytes, bytes);
        break;
      case Call::AllToAll:
        for (int rank = 0; rank < comm->size; ++rank)
          read(rank, comm->rank * bytes, out + rank * bytes, bytes);
        break;
      case Call::Broadcast:
        read(call.peer, 0, out, bytes);
        break;
      default:
        break;
      }
      offset += postedBytes(call, comm->size);
    }
  }

  void leave() {
    if (std::exchange(left, true))
      return;
    comm->inFlight = false;
    comm->current.clear();
    if (resets == numResets())
      --devices().flying[comm->device];
    --comm->queued;
  }

  std::string finish() override {
    if (!comm->aborted && fault.empty() && collective)
      collect();
    leave();
    if (!fault.empty())
      comm->error = ncclInternalError, comm->errorText = fault;
    return fault;
  }
};

} // namespace

Work pc::standin::makeWork(const CommRef &comm, std::vector<Call> calls) {
  Work work;
  for (size_t i = 0; i < std::min<size_t>(calls.size(), 2); ++i) // groups can be long
    work.name += (i ? ", " : "") + describe(calls[i]);
  for (const Call &call : calls) {
    if (int64_t bytes = inBytes(call, comm->rank, comm->size))
      work.accesses.push_back({call.in, bytes, 0});
    if (int64_t bytes = outBytes(call, comm->rank, comm->size))
      work.accesses.push_back({call.out, bytes, 1});
  }
  if (calls.size() > 2)
    work.name += " and " + std::to_string(calls.size() - 2) + " more";
  work.name += " on " + describe(*comm);
  // Calls on one communicator must be ordered, so each counts as a write to it.
  work.accesses.push_back({comm.get(), 1, 1});
  // NCCL_LAUNCH_ORDER_IMPLICIT: calls of a device begin in the order in which the host made them.
  const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  // In a capture, this order becomes edges of the graph (ncclLaunchPrepare acquires `launchOrder`, enqueue.cc).
  bool inOrder = work.inOrder = order && !strcmp(order, "1");
  work.prepare = [comm](Item &item) {
    ++comm->queued;
    item.ticket = devices().nextTicket++;
    devices().waiting[comm->device].insert(item.ticket);
  };
  work.mayStart = [comm, inOrder](const Item &item) {
    Devices &d = devices();
    bool fits = d.flying[comm->device] < options().inFlight;
    return comm->aborted || (!comm->inFlight && fits && (!inOrder || *d.waiting[comm->device].begin() == item.ticket));
  };
  work.start = [comm, calls, source = currentSource()](const Item &item) {
    devices().waiting[comm->device].erase(item.ticket);
    auto flight = std::make_shared<NcclFlight>(comm, calls, source);
    flight->begin();
    return flight;
  };
  return work;
}
