//===- NcclMoves.cpp - Moves by NCCL --------------------------------------===//
// Moves map to NCCL's collectives of the same names; all_to_all, scatter, gather and permute are groups of ncclSend and
// ncclRecv. A kernel notes each move on the host before it begins, so that a wait that times out can name it.
// NcclConnect.cpp creates the communicators.
//===----------------------------------------------------------------------===//
#include "cuda/NcclMoves.h"
#include "comm/Collective.h"
#include "comm/Moves.h"
#include "comm/Rows.h"
#include "comm/ShmControl.h"
#include "pcrt/messages.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

using namespace pcrt;
using namespace pcrt::cuda;

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

namespace {

/// The blocks of a move in the buffers of one member, in bytes. In a reduce_scatter or all_to_all the member sends a
/// block to every member; in an all_gather or all_to_all it gets one from every member.
struct Blocks {
  int64_t bytes;                   ///< The bytes of one block.
  int64_t sendRows = 1, sendWidth; ///< Block k of the source: rows at (k + row * members) * sendWidth.
  int64_t getRows = 1, getWidth;   ///< Block k of the result: rows at (k + row * members) * getWidth.

  bool packs() const { return sendRows > 1; }
  bool unpacks() const { return getRows > 1; }
};

} // namespace

static pcrt_move_shape shapeOf(const pcrt_move_desc &move) {
  return {move.outer,  move.extent,  move.inner,
          move.middle, move.extent2, move.kind == PCRT_ALL_TO_ALL && move.reduction};
}

static Blocks blocksOf(const pcrt_move_desc &move, int n) {
  pcrt_move_shape shape = shapeOf(move);
  pcrt_move_pieces pieces = pcrt_pieces_of_move(move.kind, &shape, n);
  Blocks blocks{};
  blocks.sendRows = pieces.operand;
  blocks.getRows = pieces.result;
  blocks.bytes = std::min(inElements(move, n), outElements(move, n)) * elementBytes(move.dtype);
  if (move.kind == PCRT_ALL_TO_ALL)
    blocks.bytes /= n;
  blocks.sendWidth = blocks.bytes / std::max<int64_t>(blocks.sendRows, 1);
  blocks.getWidth = blocks.bytes / std::max<int64_t>(blocks.getRows, 1);
  return blocks;
}

int64_t pcrt::cuda::stagingBytes(const pcrt_move_desc &move, int n) {
  if (routedOf(move)) // rows are received at their places
    return 0;
  pcrt_move_shape shape = shapeOf(move);
  return pcrt_staging_bytes_of_move(move.kind, &shape, n, elementBytes(move.dtype));
}

//===----------------------------------------------------------------------===//
// Start-up and end
//===----------------------------------------------------------------------===//

/// Leaves room for products: at most `blocks` blocks, each on any multiprocessor. From sm_90 on, NCCL otherwise
/// launches clusters of four (init.cc, enqueue.cc), which need four free multiprocessors of one cluster.
static void boundBlocks(NcclConfig &config, int blocks) {
  config.maxCtas = blocks;
  config.cgaClusterSize = 1;
}

NcclMoves::NcclMoves(Session &session, Comm &comm, const pcrt_program &program, const std::vector<Group> &groups,
                     const std::vector<bool> &besideProducts)
    : session(session), control(comm), program(program), timeout(timeoutSeconds()),
      leavesRoom(switchedOn("PCRT_CUDA_ROOM", true)), members(groups.size()),
      live(std::make_shared<Communicators>(session)) {
  Nccl &nccl = live->nccl;
  NcclUniqueId id{};
  // Independent calls of several communicators begin in the order of the host on every rank. Without this order, ranks
  // can wait for each other in a circle (the stand-in finds such orders).
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  onAllRanks(control, [&] {
    load(nccl, &library);
    if (control.rank() == 0)
      require(nccl.ncclGetUniqueId(&id), nullptr, "make an id for the run");
  });
  std::vector<NcclUniqueId> ids(control.size());
  requireOk(control, control.allGatherBytes(&id, sizeof id, ids.data()));
  hooked.plane = control.control();
  if (hooked.plane)
    hooked.plane->setHooks({[this](Progress &progress) { tellProgress(progress); }, [live = live] { live->abort(); }});
  onAllRanks(control, [&] { connectAll(ids[0]); });
  int64_t &total = stagingTotal;
  for (const Group &group : groups) {
    Member &member = members[group.id];
    member.group = &group;
    if (group.size() == 1 && control.size() > 1)
      continue; // needs no communicator, except in a test with one rank
    ++numCommunicators;
    onAllRanks(control, [&] {
      NcclConfig config;
      config.commName = group.name.c_str();
      if (leavesRoom && besideProducts[group.id])
        boundBlocks(config, mostBlocksOfMoves);
      // Members of one group share its first rank, which no other group of this axis has.
      member.comm = connectSome(group.ranks[0], group.me, config, "connect the devices of " + groupName(group));
    });
    for (int i = 0; i < program.num_moves; ++i)
      if (program.moves[i].group == group.id)
        member.stagingBytes = std::max(member.stagingBytes, stagingBytes(program.moves[i], group.size()));
    member.stagingOffset = total;
    total += (member.stagingBytes + 511) / 512 * 512;
  }
  onAllRanks(control, [&] {
    kernels = std::make_unique<MoveKernels>(session);
    stagingMemory = std::make_unique<DeviceArena>(session);
    if (total)
      staging = stagingMemory->allocate(total);
    size_t markBytes = members.size() * 64 * sizeof(uint32_t);
    marks = static_cast<volatile uint32_t *>(session.pinned(markBytes));
    session.polled(marks, int64_t(markBytes));
  });
}

NcclMoves::~NcclMoves() {
  {
    std::lock_guard<std::mutex> lock(live->mutex);
    for (Member &member : members) {
      if (member.registered && !live->aborted)
        live->nccl.ncclCommDeregister(member.comm, member.registered);
      if (member.window && !live->aborted)
        live->nccl.ncclCommWindowDeregister(member.comm, member.window);
    }
  }
  // After a good run all ranks get here. After a failure some may not, so this calls abort, which does not wait for
  // other ranks as destroy would.
  live->abort(timeout);
}

std::string NcclMoves::describe(NcclResult result) const {
  std::string text = live->nccl.ncclGetErrorString(result);
  const char *last = live->nccl.ncclGetLastError(nullptr);
  return last && *last ? text + ": " + last : text;
}

void NcclMoves::registerWindows(void *base, int64_t bytes) {
  std::vector<int64_t> all(control.size());
  requireOk(control, control.allGatherBytes(&bytes, sizeof bytes, all.data()));
  for (Member &member : members) {
    auto isEqual = [&](int rank) { return all[rank] == bytes; };
    if (member.comm && std::all_of(member.group->ranks.begin(), member.group->ranks.end(), isEqual))
      require(live->nccl.ncclCommWindowRegister(member.comm, base, size_t(bytes), &member.window, NcclWindowSymmetric),
              member.comm, "make the arena a window of " + groupName(*member.group));
  }
}

pcrt_status NcclMoves::registerArena(void *base, int64_t bytes) {
  if (switchedOn("PCRT_NCCL_WINDOWS", false)) {
    if (!live->nccl.ncclCommWindowRegister)
      fail(PCRT_RESOURCE, "PCRT_NCCL_WINDOWS=1 needs NCCL 2.27 or newer; " + library.path + " has no windows");
    registerWindows(base, bytes);
  }
  // Lets NCCL read and write the arena directly. If it cannot, moves are only slower.
  for (Member &member : members)
    if (member.comm && !member.window &&
        live->nccl.ncclCommRegister(member.comm, base, size_t(bytes), &member.registered) != NcclSuccess)
      member.registered = nullptr;
  return PCRT_OK;
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

static int ncclType(int32_t dtype) {
  return dtype == PCRT_F32 ? NcclFloat32 : dtype == PCRT_BF16 ? NcclBfloat16 : dtype == PCRT_I8 ? NcclInt8 : NcclInt32;
}

Result NcclMoves::packBefore(const pcrt_move_desc &move, const Member &member, const void *in, Stream stream) {
  int n = member.group->size();
  Blocks blocks = blocksOf(move, n);
  return blocks.packs() ? kernels->swapBlocks(staging + member.stagingOffset, in, blocks.sendRows, n, blocks.sendWidth,
                                              move.name, stream)
                        : Success;
}

Result NcclMoves::unpackAfter(const pcrt_move_desc &move, const Member &member, void *out, Stream stream) {
  int n = member.group->size();
  Blocks blocks = blocksOf(move, n);
  const char *packed = staging + member.stagingOffset + (blocks.packs() ? n * blocks.bytes : 0);
  return blocks.unpacks() ? kernels->swapBlocks(out, packed, n, blocks.getRows, blocks.getWidth, move.name, stream)
                          : Success;
}

/// Every member sends each piece of rows that is contiguous on both sides; a receiver gets a peer's pieces in the order
/// of its own buffer. Its own rows are sent to itself.
NcclResult NcclMoves::exchangeRows(const pcrt_move_desc &move, const Member &member, const void *in, void *out,
                                   Stream stream) {
  const Nccl &nccl = live->nccl;
  const int n = member.group->size(), me = member.group->me, type = ncclType(move.dtype);
  const int64_t bytes = move.inner * elementBytes(move.dtype);
  NcclResult result = NcclSuccess;
  auto note = [&](NcclResult one) {
    if (one != NcclSuccess && one != NcclInProgress)
      result = one;
  };
  for (int peer = 0; peer < n; ++peer)
    for (const RowSegment &rows : rowCounts().segments(peer))
      if (rows.source == me)
        note(nccl.ncclSend(static_cast<const char *>(in) + rows.from * bytes, size_t(rows.count * move.inner), type,
                           peer, member.comm, stream));
  for (const RowSegment &rows : rowCounts().segments(me))
    note(nccl.ncclRecv(static_cast<char *>(out) + rows.to * bytes, size_t(rows.count * move.inner), type, rows.source,
                       member.comm, stream));
  return result;
}

NcclResult NcclMoves::call(const pcrt_move_desc &move, const Member &member, const void *in, void *out, Stream stream) {
  const Nccl &nccl = live->nccl;
  int n = member.group->size(), type = ncclType(move.dtype);
  int reduction = move.reduction == PCRT_MAX ? NcclMax : NcclSum;
  int64_t width = elementBytes(move.dtype);
  if (routedOf(move))
    return exchangeRows(move, member, in, out, stream);
  if (move.kind == PCRT_ALL_REDUCE)
    return nccl.ncclAllReduce(in, out, size_t(outElements(move, n)), type, reduction, member.comm, stream);
  size_t elements = size_t(outElements(move, n));
  if (move.kind == PCRT_BROADCAST)
    return nccl.ncclBroadcast(in, out, elements, type, 0, member.comm, stream);
  if (move.kind == PCRT_REDUCE)
    return nccl.ncclReduce(in, out, elements, type, reduction, 0, member.comm, stream);
  NcclResult result = NcclSuccess;
  auto note = [&](NcclResult one) {
    if (one != NcclSuccess && one != NcclInProgress)
      result = one;
  };
  int me = member.group->me;
  if (move.kind == PCRT_PERMUTE) {
    note(nccl.ncclSend(in, elements, type, targetOf(move, n, me), member.comm, stream));
    note(nccl.ncclRecv(out, elements, type, sourceOf(move, n, me), member.comm, stream));
    return result;
  }
  Blocks blocks = blocksOf(move, n);
  char *packed = staging + member.stagingOffset;
  const char *from = blocks.packs() ? packed : static_cast<const char *>(in);
  char *to = blocks.unpacks() ? packed + (blocks.packs() ? n * blocks.bytes : 0) : static_cast<char *>(out);
  size_t count = size_t(blocks.bytes / width);
  if (move.kind == PCRT_ALL_GATHER)
    return nccl.ncclAllGather(from, to, count, type, member.comm, stream);
  if (move.kind == PCRT_REDUCE_SCATTER)
    return nccl.ncclReduceScatter(from, to, count, type, reduction, member.comm, stream);
  if (move.kind == PCRT_SCATTER || move.kind == PCRT_GATHER) { // between the root and each member, including itself
    bool gathers = move.kind == PCRT_GATHER;
    if (me != 0 && gathers)
      note(nccl.ncclSend(from, count, type, 0, member.comm, stream));
    else if (me != 0)
      note(nccl.ncclRecv(to, count, type, 0, member.comm, stream));
    for (int peer = 0; peer < n && me == 0; ++peer) {
      bool sends = !gathers || peer == 0, gets = gathers || peer == 0;
      if (sends)
        note(nccl.ncclSend(from + (gathers ? 0 : peer) * blocks.bytes, count, type, peer, member.comm, stream));
      if (gets)
        note(nccl.ncclRecv(to + (gathers ? peer : 0) * blocks.bytes, count, type, peer, member.comm, stream));
    }
    return result;
  }
  for (int peer = 0; peer < n; ++peer) {
    note(nccl.ncclSend(from + peer * blocks.bytes, count, type, peer, member.comm, stream));
    note(nccl.ncclRecv(to + peer * blocks.bytes, count, type, peer, member.comm, stream));
  }
  return result;
}

pcrt_status NcclMoves::enqueue(const pcrt_move_desc *moves, int count, const Group &group, const void *const *ins,
                               void *const *outs, Stream stream) {
  const Member &member = members[group.id];
  auto staged = [&](int i) { return stagingBytes(moves[i], group.size()) > 0; };
  for (int first = 0; first < count;) {
    // Moves that need no staging memory are enqueued in one call. The others share that memory and are enqueued one by
    // one.
    int last = first + 1;
    while (!staged(first) && last < count && !staged(last))
      ++last;
    const char *name = moves[first].name;
    if (pcrt_status status = mark(moves[first], stream); status != PCRT_OK)
      return status;
    if (staged(first))
      if (pcrt_status status = check(packBefore(moves[first], member, ins[first], stream), name); status != PCRT_OK)
        return status;
    NcclResult result = live->nccl.ncclGroupStart();
    for (int i = first; i < last && (result == NcclSuccess || result == NcclInProgress); ++i)
      if (outElements(moves[i], group.size()) > 0)
        result = call(moves[i], member, ins[i], outs[i], stream);
    NcclResult ended = live->nccl.ncclGroupEnd();
    for (NcclResult one : {result, ended})
      if (pcrt_status status = check(one, member.comm, name); status != PCRT_OK)
        return status;
    if (staged(first))
      if (pcrt_status status = check(unpackAfter(moves[first], member, outs[first], stream), name); status != PCRT_OK)
        return status;
    first = last;
  }
  return PCRT_OK;
}

//===----------------------------------------------------------------------===//
// Flows
//===----------------------------------------------------------------------===//

void NcclMoves::openFlows(const std::vector<DeviceFlow> &all) {
  flows.resize(program.num_flows);
  onAllRanks(control, [&] {
    size_t bytes = (program.num_flows + 1) * 64 * sizeof(uint32_t);
    passed = static_cast<volatile uint32_t *>(session.pinned(bytes));
    session.polled(passed, int64_t(bytes));
  });
  for (const DeviceFlow &one : all)
    onAllRanks(control, [&] {
      NcclConfig config;
      config.commName = one.flow->name;
      // A receive may begin long before its message, so it must leave room for other kernels.
      boundBlocks(config, pcrt_blocks_of_message(one.flow->bytes));
      int color = one.source < 0 ? NcclSplitNoColor : one.source;
      if (NcclComm comm = connectSome(color, one.source >= 0 && !one.sends, config,
                                      std::string("connect the ends of '") + one.flow->name + "'"))
        flows[one.index] = comm;
    });
}

int NcclMoves::blocksOfMessages() const {
  int blocks = 0;
  for (int i = 0; leavesRoom && i < program.num_flows; ++i)
    if (const pcrt_flow &flow = program.flows[i]; !flow.sends)
      blocks += pcrt_blocks_of_message(flow.bytes);
  return blocks;
}

pcrt_status NcclMoves::enqueueMessage(int index, int number, void *at, Stream stream) {
  const pcrt_flow &flow = program.flows[index];
  NcclComm comm = flows[index];
  size_t count = size_t(flow.bytes / 2);
  NcclResult result = flow.sends ? live->nccl.ncclSend(at, count, NcclBfloat16, 1, comm, stream)
                                 : live->nccl.ncclRecv(at, count, NcclBfloat16, 0, comm, stream);
  if (pcrt_status status = check(result, comm, flow.name); status != PCRT_OK)
    return status;
  return check(kernels->note(passed + index * 64, uint32_t(number + 1), stream), flow.name);
}

/// A number that changes whenever the device makes progress in its step.
uint32_t NcclMoves::progress() const {
  uint32_t sum = reached();
  for (int flow = 0; passed && flow < program.num_flows; ++flow)
    sum += passed[flow * 64] << 16;
  return sum;
}

pcrt_status NcclMoves::check(Result result, const char *name) {
  if (result == Success)
    return PCRT_OK;
  lastError = std::string("kernels of '") + name + "': " + session.describe(result);
  return PCRT_INTERNAL;
}

pcrt_status NcclMoves::check(NcclResult result, NcclComm on, const char *name) {
  // Communicators do not block, so a call may still be connecting. No kernel may follow on the stream before it has
  // ended.
  if (result == NcclInProgress)
    result = settle(on);
  if (result == NcclSuccess)
    return PCRT_OK;
  TcpControl *plane = control.control();
  if (result == NcclInProgress || (plane && plane->failed()))
    return unsettled(std::string("begin '") + name + "'");
  lastError = rankName(control.rank()) + ": NCCL rejected '" + name + "': " + describe(result);
  return PCRT_INTERNAL;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

/// Enqueues a note from the device to the host that this move begins.
pcrt_status NcclMoves::mark(const pcrt_move_desc &move, Stream stream) {
  ptrdiff_t index = &move - program.moves;
  if (index < 0 || index >= program.num_moves)
    return PCRT_OK;
  return check(kernels->note(marks + move.group * 64, uint32_t(index + 1), stream), move.name);
}

void NcclMoves::openTasks(std::vector<std::string> names) {
  taskNames = std::move(names);
  if (taskNames.empty())
    return;
  task = static_cast<volatile uint32_t *>(session.pinned(sizeof(uint32_t)));
  *task = 0;
  session.polled(task, sizeof(uint32_t));
}

pcrt_status NcclMoves::enqueueTask(int number, Stream stream) {
  return check(kernels->note(task, uint32_t(number + 1), stream), taskNames[number].c_str());
}

pcrt_status NcclMoves::wait(const Driver &driver, Stream stream) {
  TcpControl *plane = control.control();
  double start = monotonicSeconds(), since = start;
  Patience patience(timeout);
  uint32_t seen = 0, noted = 0;
  for (;;) {
    Result result = driver.cuStreamQuery(stream);
    if (uint32_t now = task ? *task : 0; now != noted && now > 0) {
      noted = now;
      control.note(taskNames[now - 1].c_str());
    }
    if (plane && plane->failed() && result != Success)
      return lost();
    if (result == Success) {
      ++stepsWaited;
      for (size_t group = 0; group < members.size(); ++group)
        marks[group * 64] = 0;
      for (int flow = 0; passed && flow < program.num_flows; ++flow)
        passed[flow * 64] = 0;
      if (task)
        *task = 0;
      return PCRT_OK;
    }
    if (result != ErrorNotReady)
      return PCRT_INTERNAL;
    double now = monotonicSeconds();
    bool isLate = patience.isOver(now);
    if (uint32_t number = progress(); seen != number) {
      seen = number;
      since = now; // something moves
      patience = Patience(timeout);
    } else if (isLate && !(plane && patience.isExtended(TcpControl::secondsSinceBusy(plane->askProgress())))) {
      return late();
    }
    if (int left = plane && now - since > 0.3 ? plane->leftRank() : -1; left >= 0)
      return giveUp(PCRT_PEER_LOST, rankName(left) + " ended before joining " + doing());
    if (now - since > 0.02)
      for (const Member &member : members) {
        NcclResult state = member.comm ? live->state(member.comm) : NcclSuccess;
        if (state != NcclSuccess && state != NcclInProgress && !(plane && plane->failed())) {
          lastError = rankName(control.rank()) + ": " + groupName(*member.group) + ": " + describe(state);
          return PCRT_PEER_LOST;
        }
      }
    if (now - start > 0.0002)
      usleep(now - start < 0.05 ? 20 : 200);
  }
}

pcrt_status NcclMoves::lost() {
  TcpControl *plane = control.control();
  plane->setReported(PCRT_PEER_LOST);
  lastError = rankName(control.rank()) + ": " + plane->failure() + "; the run has ended, " +
              (waitingGroup() ? "in " : "before ") + doing();
  return PCRT_PEER_LOST;
}

/// The number of the furthest move that a stream has begun; 0: none.
uint32_t NcclMoves::reached() const {
  uint32_t number = 0;
  for (size_t group = 0; marks && group < members.size(); ++group)
    number = std::max(number, uint32_t(marks[group * 64]));
  return number;
}

const Group *NcclMoves::waitingGroup() const {
  uint32_t number = reached();
  return number == 0 || int64_t(number) > program.num_moves ? nullptr : members[program.moves[number - 1].group].group;
}

std::string NcclMoves::doing() const {
  const Group *group = waitingGroup();
  std::string text = group ? describeMove(program.moves[reached() - 1], group->size()) + " of " + groupName(*group)
                           : "the first move of step " + std::to_string(stepsWaited.load());
  for (int flow = 0; passed && flow < program.num_flows; ++flow)
    if (uint32_t count = passed[flow * 64]; int64_t(count) < program.flows[flow].messages)
      text += std::string(", ") + (program.flows[flow].sends ? "before sending" : "before receiving") + " message " +
              std::to_string(count) + " of '" + program.flows[flow].name + "'";
  return text;
}

/// Fills in the progress of the device. The control plane's thread also calls it.
void NcclMoves::tellProgress(Progress &progress) {
  std::lock_guard<std::mutex> lock(connectingMutex);
  if (!connecting.empty()) {
    progress.counter = connections;
    snprintf(progress.doing, sizeof progress.doing, "waiting to %s", connecting.c_str());
    return;
  }
  progress.counter = stepsWaited.load() << 32 | this->progress();
  snprintf(progress.doing, sizeof progress.doing, "%s %s", waitingGroup() ? "in" : "before", doing().c_str());
}

std::string NcclMoves::whoIsLate(const Group *group) {
  TcpControl *plane = control.control();
  if (!plane)
    return "the other ranks";
  Progress mine{};
  tellProgress(mine);
  std::vector<Progress> all = plane->askProgress();
  std::vector<int> elsewhere;
  for (int rank = 0; rank < control.size(); ++rank)
    if ((!group || std::find(group->ranks.begin(), group->ranks.end(), rank) != group->ranks.end()) &&
        (!all[rank].doing[0] || all[rank].counter != mine.counter))
      elsewhere.push_back(rank);
  return plane->describeLate(elsewhere, all);
}

/// Ends the run because a wait took too long, and names the ranks of the group that are elsewhere.
pcrt_status NcclMoves::late() {
  std::string who = whoIsLate(waitingGroup());
  if (control.control() && control.control()->failed())
    return lost();
  return giveUp(PCRT_TIMEOUT, "no answer within " + secondsText(timeout) + " s from " + who + " in " + doing() +
                                  "; check whether it is stopped or much slower, or raise PCRT_TIMEOUT_SECONDS");
}

pcrt_status NcclMoves::giveUp(pcrt_status status, const std::string &why) {
  lastError = rankName(control.rank()) + ": " + why;
  if (TcpControl *plane = control.control())
    plane->giveUp(status, rankName(control.rank()) + " stopped: " + why);
  live->abort();
  return status;
}
