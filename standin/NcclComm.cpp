//===- NcclComm.cpp - Communicators between threads or processes ----------===//
// Joining and splitting are state machines that advance() continues whenever the state is asked for. A deadlock is
// proved by generations: if all ranks were idle at the same generation, no rank can produce another arrival.
//===----------------------------------------------------------------------===//
#include "standin/NcclComm.h"
#include "standin/Capture.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace pc::standin;

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

MappedFile::~MappedFile() {
  if (base)
    munmap(base, bytes);
  if (fd >= 0)
    close(fd);
}

static bool mapFile(MappedFile &file, int64_t mapped, int protection) {
  void *base = mmap(nullptr, mapped, protection, MAP_SHARED, file.fd, 0);
  if (base == MAP_FAILED)
    return false;
  file.base = static_cast<char *>(base);
  file.bytes = mapped;
  return true;
}

bool MappedFile::create(int64_t mapped, int64_t fileBytes) {
  fd = memfd_create("pc_standin_nccl", MFD_CLOEXEC);
  return fd >= 0 && ftruncate(fd, fileBytes) == 0 && mapFile(*this, mapped, PROT_READ | PROT_WRITE);
}

bool MappedFile::open(FileName name, int64_t mapped, bool writable) {
  std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
  fd = ::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  return fd >= 0 && mapFile(*this, mapped, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

// The head of a mailbox has room for this many peers; data begins after it.
static int64_t headBytes(int size) {
  return (static_cast<int64_t>(sizeof(Mailbox) + sizeof(PeerBox) * size) + 4095) / 4096 * 4096;
}
static constexpr int64_t dataOffset = int64_t(64) << 20;

int64_t Comm::collectiveOffset(uint64_t call) {
  return dataOffset + static_cast<int64_t>(call % 2) * collectiveSlotBytes;
}
int64_t Comm::sendOffset(int peer, uint64_t number) {
  return dataOffset + 2 * collectiveSlotBytes +
         (peer * static_cast<int64_t>(sendSlots) + static_cast<int64_t>(number % sendSlots)) * sendSlotBytes;
}

//===----------------------------------------------------------------------===//
// Joining
//===----------------------------------------------------------------------===//

/// The communicators of this process that are not destroyed.
static std::vector<std::weak_ptr<Comm>> &comms() {
  static auto *comms = new std::vector<std::weak_ptr<Comm>>;
  return *comms;
}

static bool makeMailbox(Comm &comm, int size) {
  for (int stream = 0; stream < 2; ++stream) // ncclStrongStreamConstruct of deviceStream and hostStream
    takeQueue(comm.device);
  comm.own = std::make_shared<MappedFile>();
  if (!comm.own->create(headBytes(size), Comm::sendOffset(size, 0)))
    return false;
  comm.ownBox().pid = getpid();
  comm.ownBox().device = comm.device;
  return true;
}

CommRef pc::standin::joinWorld(std::shared_ptr<MappedFile> world, int rank, int size, int device, std::string *error) {
  auto comm = std::make_shared<Comm>();
  comm->rank = comm->worldRank = rank;
  comm->size = size;
  comm->device = device;
  comm->world = std::move(world);
  comm->peers.resize(size);
  comm->sends.resize(size);
  comm->receives.resize(size);
  World::Entry &entry = comm->shared().entries[rank];
  if (entry.ready.load()) {
    *error = "rank " + std::to_string(rank) + " joins twice";
    return nullptr;
  }
  if (!makeMailbox(*comm, size)) {
    *error = "there is not enough memory for a mailbox";
    return nullptr;
  }
  comms().push_back(comm);
  comm->shared().ranks = size;
  entry.mailbox = {getpid(), comm->own->fd};
  entry.ready.store(1);
  ++comm->shared().generation;
  return comm;
}

/// NCCL refuses two ranks on one device. Processes of the stand-in have devices of their own.
static void checkDevices(Comm &comm) {
  for (int i = 0; i < comm.size; ++i)
    for (int j = 0; j < i; ++j) {
      const Mailbox &a = comm.box(i), &b = comm.box(j);
      if (a.pid != b.pid || a.device != b.device)
        continue;
      comm.error = ncclInvalidUsage;
      comm.errorText = "Duplicate GPU detected: ranks " + std::to_string(j) + " and " + std::to_string(i) +
                       " both on device " + std::to_string(a.device);
    }
}

/// Opens the mailboxes that exist; returns true when all ranks have opened all. `find` returns the mailbox of a rank,
/// with pid 0 if it does not exist yet.
template <typename Find> static bool openMailboxes(Comm &comm, int capacity, Find find) {
  for (int i = 0; i < comm.size; ++i) {
    if (comm.peers[i])
      continue;
    if (i == comm.rank) {
      comm.peers[i] = comm.own;
      continue;
    }
    FileName name = find(i);
    if (name.pid == 0)
      return false;
    auto file = std::make_shared<MappedFile>();
    if (!file->open(name, headBytes(capacity), false)) {
      comm.error = ncclSystemError;
      comm.errorText = "rank " + std::to_string(i) + " (process " + std::to_string(name.pid) + ") has ended";
      return false;
    }
    comm.peers[i] = std::move(file);
  }
  // No rank leaves before all have opened its mailbox.
  comm.ownBox().joined.store(1);
  for (int i = 0; i < comm.size; ++i)
    if (!comm.box(i).joined.load())
      return false;
  return true;
}

static void advanceJoin(Comm &comm) {
  World &world = comm.shared();
  bool complete = openMailboxes(comm, comm.size, [&](int i) {
    return world.entries[i].ready.load() ? world.entries[i].mailbox : FileName{0, 0};
  });
  if (!complete)
    return;
  checkDevices(comm);
  comm.ready = comm.error == ncclSuccess;
}

ncclResult_t pc::standin::beginSplit(const CommRef &parent, int color, int key, const ncclConfig_t *config,
                                     ncclComm_t *result) {
  if (parent->splitsBegun == maxSplits) {
    parent->errorText = "more than " + std::to_string(maxSplits) + " splits of one communicator";
    return ncclInvalidUsage;
  }
  bool bounded = config && config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (bounded && config->cgaClusterSize != 1) {
    parent->errorText = "maxCTAs leaves room for other kernels, but the blocks are launched as clusters of four, which "
                        "may find none: set cgaClusterSize to 1";
    return ncclInvalidArgument;
  }
  PendingSplit split{parent->splitsBegun++, nullptr, result};
  SplitPost post{color, key, {0, 0}};
  if (color != NCCL_SPLIT_NOCOLOR) {
    auto child = std::make_shared<Comm>();
    child->device = parent->device;
    child->world = parent->world;
    child->worldRank = parent->worldRank;
    // A communicator without a configuration gets that of its parent (copyCommConfig). With one, it blocks unless the
    // configuration says otherwise (parseCommConfig).
    child->blocking = config ? config->blocking != 0 : parent->blocking;
    if (config && config->commName)
      child->name = config->commName;
    if (!makeMailbox(*child, parent->size))
      return ncclSystemError;
    post.mailbox = {getpid(), child->own->fd};
    comms().push_back(child);
    split.child = std::move(child);
  }
  if (faultHere("split")) {
    tellFault("split " + std::to_string(split.index) + " of " + describe(*parent) + " never begins");
  } else {
    parent->ownBox().posts[split.index] = post;
    parent->ownBox().splits.store(split.index + 1);
    ++parent->shared().generation;
  }
  parent->splits.push_back(std::move(split));
  return ncclSuccess;
}

/// Gives the caller the communicator of a split that failed: ncclCommInitRankFunc assigns it at its end in any case.
static void endSplit(PendingSplit &split, ncclResult_t error) {
  if (split.child)
    split.child->error = error;
  *split.result = split.child ? handleOf(split.child) : nullptr;
}

void pc::standin::endSplits(Comm &parent) {
  for (PendingSplit &split : std::exchange(parent.splits, {})) {
    if (split.child)
      split.child->aborted = true;
    endSplit(split, ncclInternalError);
  }
}

/// Continues a split; returns true when it is complete or has failed.
static bool advanceSplit(Comm &parent, PendingSplit &split) {
  if (!std::exchange(split.asked, true))
    return false;
  for (int i = 0; i < parent.size; ++i)
    if (parent.box(i).splits.load() <= static_cast<uint32_t>(split.index))
      return false;
  if (!split.child)
    return true;
  Comm &child = *split.child;
  auto postOf = [&](int rank) -> const SplitPost & { return parent.box(rank).posts[split.index]; };
  std::vector<int> members; // ranks of the parent with this colour, by key
  for (int i = 0; i < parent.size; ++i)
    if (postOf(i).color == postOf(parent.rank).color)
      members.push_back(i);
  std::sort(members.begin(), members.end(),
            [&](int a, int b) { return std::pair(postOf(a).key, a) < std::pair(postOf(b).key, b); });
  child.size = static_cast<int>(members.size());
  child.rank = static_cast<int>(std::find(members.begin(), members.end(), parent.rank) - members.begin());
  child.peers.resize(child.size);
  child.sends.resize(child.size);
  child.receives.resize(child.size);
  if (!openMailboxes(child, parent.size, [&](int i) { return postOf(members[i]).mailbox; })) {
    if (child.error == ncclSuccess)
      return false;
    parent.error = child.error;
    parent.errorText = child.errorText;
    endSplit(split, child.error);
    return true;
  }
  child.ready = true;
  *split.result = handleOf(split.child);
  return true;
}

void Comm::advance() {
  if (error != ncclSuccess || aborted)
    return;
  if (!ready)
    advanceJoin(*this);
  if (ready)
    std::erase_if(splits, [&](PendingSplit &split) { return advanceSplit(*this, split); });
  std::erase_if(connecting, [&](auto &one) { return pair(one.first, rank).connects.load() & one.second; });
}

/// The first message in a direction connects both ends, and the first collective all ranks. Each waits there for the
/// others: ncclP2PPreconnectFunc and ncclCollPreconnect (group.cc) call ncclTransportP2pSetup, whose bootstrapRecv
/// blocks (transport.cc). NCCL connects neighbours, and again for other algorithms.
void Comm::connect(const Call &call) {
  auto with = [&](int peer, uint32_t own, uint32_t theirs) {
    if (pair(rank, peer).connects.fetch_or(own) & own)
      return;
    connecting.push_back({peer, theirs});
    ++shared().generation;
  };
  if (call.isMessage())
    return call.kind == Call::Send ? with(call.peer, 1, 2) : with(call.peer, 2, 1);
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank)
      with(peer, 4, 4);
}

bool Comm::isAdvancing() const {
  return error == ncclSuccess && !aborted &&
         (!ready || !splits.empty() || !connecting.empty() || (finalizing && (queued > 0 || persistentRefs > 0)));
}

//===----------------------------------------------------------------------===//
// Deadlocks
//===----------------------------------------------------------------------===//

/// This process is idle at a generation if it found nothing to do after it had read that generation. If all ranks are
/// idle at the current generation, no rank will ever continue.
std::string pc::standin::findDeadlock(int waitingThreads) {
  std::string text;
  std::erase_if(comms(), [](const std::weak_ptr<Comm> &weak) {
    CommRef comm = weak.lock();
    return !comm || comm->destroyed || comm->aborted;
  });
  std::set<std::thread::id> threads; // that play ranks
  for (auto &weak : comms())
    threads.insert(weak.lock()->thread);
  bool idle = waitingThreads > 0 && waitingThreads >= static_cast<int>(threads.size());
  for (auto &weak : comms()) {
    CommRef comm = weak.lock();
    World &world = comm->shared();
    World::Entry &self = world.entries[comm->worldRank];
    if (!idle) {
      self.idle.store(0);
      comm->generationRead = 0;
      continue;
    }
    if (!comm->connecting.empty())
      snprintf(self.waiting, sizeof self.waiting, "the first call of %s, on the host", describe(*comm).c_str());
    else if (!comm->current.empty())
      snprintf(self.waiting, sizeof self.waiting, "%s of %s", comm->current.c_str(), describe(*comm).c_str());
    uint64_t now = world.generation.load();
    bool looked = comm->generationRead == now + 1; // whether it has looked for work since then
    comm->generationRead = now + 1;
    if (!looked)
      continue;
    self.idle.store(now + 1);
    bool all = world.ranks > 0;
    for (int i = 0; i < world.ranks; ++i)
      all &= world.entries[i].ready.load() && world.entries[i].idle.load() == now + 1;
    if (all && world.generation.load() == now)
      world.deadlocked.store(1); // the others stop being idle when they have reported it
    if (!world.deadlocked.load())
      continue;
    text.clear();
    for (int i = 0; i < world.ranks; ++i)
      text += (i ? "; rank " : "rank ") + std::to_string(i) + " waits in " + world.entries[i].waiting;
  }
  return text;
}
