//===- VirtualMoves.cpp - Moves between virtual ranks on one device -------===//
// The driver makes the copies, and the kernels of Reduce.cu make the sums; their PTX is part of the runtime. On the
// stand-in the host adds by reduceElements. Members exchange addresses and events through VirtualComm::meet.
//===----------------------------------------------------------------------===//
#include "cuda/VirtualMoves.h"
#include "comm/Collective.h"
#include "comm/Moves.h"
#include "comm/Rows.h"
#include "cuda/Rows.h"

#include <algorithm>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

namespace {

/// The parameter of the kernels of Reduce.cu.
struct ReduceArguments {
  const void *ins[kMaxVirtualMembers];
  void *outs[kMaxVirtualMembers];
  int64_t rows, width, inPitch, inShift, outPitch, outShift;
  int32_t numIns, numOuts;
};

/// The reduction on the stand-in.
struct HostReduce {
  ReduceArguments arguments;
  int32_t dtype, reduction;

  static void run(void *self) {
    auto &[a, dtype, reduction] = *static_cast<HostReduce *>(self);
    int64_t bytes = elementBytes(dtype);
    for (int64_t row = 0; row < a.rows; ++row) {
      const char *ins[kMaxVirtualMembers];
      char *outs[kMaxVirtualMembers];
      for (int k = 0; k < a.numIns; ++k)
        ins[k] = static_cast<const char *>(a.ins[k]) + (a.inShift + row * a.inPitch) * bytes;
      for (int k = 0; k < a.numOuts; ++k)
        outs[k] = static_cast<char *>(a.outs[k]) + (a.outShift + row * a.outPitch) * bytes;
      reduceElements(dtype, reduction, ins, a.numIns, outs, a.numOuts, 0, a.width);
    }
  }
};

const char reducePtx[] =
#include "Reduce.ptx.inc"
    ;

} // namespace

VirtualMoves::VirtualMoves(Session &session, VirtualComm &comm, const std::vector<Group> &groups)
    : session(session), comm(comm), slots(session) {
  for (const Group &group : groups) {
    if (group.size() > kMaxVirtualMembers)
      fail(PCRT_USAGE, "with virtual ranks, a group can have at most " + std::to_string(kMaxVirtualMembers) +
                           " ranks, but " + groupName(group) + " has " + std::to_string(group.size()));
    ready.push_back(session.makeEvent());
    done.push_back(session.makeEvent());
  }
  if (session.standin) {
    if (!session.standin->enqueue)
      fail(PCRT_RESOURCE, session.library.path + " cannot run host functions, which virtual ranks need");
    return;
  }
  session.check(session.driver.cuModuleLoadDataEx(&module, reducePtx, 0, nullptr, nullptr),
                "load the kernels of virtual ranks");
  static constexpr const char *names[3][2] = {{"reduce_f32_sum", "reduce_f32_max"},
                                              {"reduce_bf16_sum", "reduce_bf16_max"},
                                              {"reduce_i32_sum", "reduce_i32_max"}};
  for (int dtype = 0; dtype < 3; ++dtype)
    for (int reduction = 0; reduction < 2; ++reduction)
      session.check(session.driver.cuModuleGetFunction(&kernels[dtype][reduction], module, names[dtype][reduction]),
                    std::string("find kernel ") + names[dtype][reduction]);
}

VirtualMoves::~VirtualMoves() {
  if (!module)
    return;
  session.driver.cuCtxSynchronize();
  session.driver.cuModuleUnload(module);
}

pcrt_status VirtualMoves::check(Result result, const char *name) {
  if (result == Success)
    return PCRT_OK;
  lastError = std::string("move '") + name + "': " + session.describe(result);
  return PCRT_INTERNAL;
}

pcrt_status VirtualMoves::enqueue(const pcrt_move_desc *moves, int count, const Group &group, const void *const *ins,
                                  void *const *outs, Stream stream) {
  for (int i = 0; i < count; ++i)
    PCRT_TRY(enqueueOne(moves[i], group, ins[i], outs[i], stream));
  return PCRT_OK;
}

pcrt_status VirtualMoves::enqueueOne(const pcrt_move_desc &move, const Group &group, const void *in, void *out,
                                     Stream stream) {
  const Driver &driver = session.driver;
  Part mine{in, out, ready[group.id], done[group.id]};
  PCRT_TRY(check(driver.cuEventRecord(mine.ready, stream), move.name));
  auto lost = [&](pcrt_status status) {
    lastError = comm.error();
    return status;
  };
  const void *const *met = nullptr;
  if (pcrt_status status = comm.meet(group, makeKey(move, group), &mine, &met); status != PCRT_OK)
    return lost(status);
  auto *parts = reinterpret_cast<const Part *const *>(met);
  Result result = Success;
  for (int peer = 0; peer < group.size() && result == Success; ++peer)
    if (peer != group.me)
      result = driver.cuStreamWaitEvent(stream, parts[peer]->ready, 0);
  if (result == Success)
    result = enqueueShare(move, group, parts, stream);
  if (result == Success)
    result = driver.cuEventRecord(mine.done, stream);
  PCRT_TRY(check(result, move.name));
  // The events of the others are read now, before they can be recorded again.
  Event others[kMaxVirtualMembers];
  for (int peer = 0; peer < group.size(); ++peer)
    others[peer] = parts[peer]->done;
  if (pcrt_status status = comm.part(group); status != PCRT_OK)
    return lost(status);
  for (int peer = 0; peer < group.size() && result == Success; ++peer)
    if (peer != group.me)
      result = driver.cuStreamWaitEvent(stream, others[peer], 0);
  return check(result, move.name);
}

Result VirtualMoves::enqueueShare(const pcrt_move_desc &move, const Group &group, const Part *const *parts,
                                  Stream stream) {
  int n = group.size(), me = group.me;
  int64_t bytes = elementBytes(move.dtype), elements = outElements(move, n);
  if (elements == 0)
    return Success;
  if (routedOf(move)) {
    Result result = Success;
    const int64_t row = move.inner * bytes;
    for (const RowSegment &rows : rowCounts().segments(me))
      if (result == Success)
        result = copyRows(session.driver, static_cast<char *>(parts[me]->out) + rows.to * row, rows.count * row,
                          static_cast<const char *>(parts[rows.source]->in) + rows.from * row, rows.count * row,
                          rows.count * row, 1, stream);
    return result;
  }
  if (move.kind == PCRT_ALL_REDUCE) {
    int64_t first, last;
    allReducePart(elements, n, me, &first, &last);
    return reduce(move, group, parts, true, 1, last - first, 0, first, first, stream);
  }
  auto copyWhole = [&](int peer) {
    return copyRows(session.driver, parts[me]->out, elements * bytes, parts[peer]->in, elements * bytes,
                    elements * bytes, 1, stream);
  };
  if (move.kind == PCRT_BROADCAST)
    return copyWhole(0);
  if (move.kind == PCRT_PERMUTE)
    return copyWhole(sourceOf(move, n, me));
  if (me != 0 && (move.kind == PCRT_GATHER || move.kind == PCRT_REDUCE))
    return Success;
  if (move.kind == PCRT_REDUCE)
    return reduce(move, group, parts, false, 1, elements, 0, 0, 0, stream);
  int64_t block = move.extent / n * move.inner; // elements of one member in one row of `outer`
  if (move.kind == PCRT_SCATTER)
    return copyRows(session.driver, parts[me]->out, block * bytes,
                    static_cast<const char *>(parts[0]->in) + me * block * bytes, n * block * bytes, block * bytes,
                    move.outer, stream);
  if (move.kind == PCRT_REDUCE_SCATTER)
    return reduce(move, group, parts, false, move.outer, block, n * block, me * block, 0, stream);
  Result result = Success;
  for (int peer = 0; peer < n && result == Success; ++peer) {
    const char *from = static_cast<const char *>(parts[peer]->in);
    char *to = static_cast<char *>(parts[me]->out);
    if (move.kind == PCRT_ALL_GATHER || move.kind == PCRT_GATHER) {
      result = copyRows(session.driver, to + peer * block * bytes, n * block * bytes, from, block * bytes,
                        block * bytes, move.outer, stream);
      continue;
    }
    // all_to_all: rows of extent2 / n * inner, extent / n * middle of them in one step of `outer`.
    int64_t width = move.extent2 / n * move.inner * bytes, rows = move.extent / n * move.middle;
    for (int64_t outer = 0; move.reduction && outer < move.outer && result == Success; ++outer) // the other way round
      result = copyRows(session.driver, to + outer * rows * n * width + peer * width, n * width,
                        from + (outer * n + me) * rows * width, width, width, rows, stream);
    for (int64_t outer = 0; !move.reduction && outer < move.outer && result == Success; ++outer)
      result = copyRows(session.driver, to + (outer * n + peer) * rows * width, width,
                        from + outer * rows * n * width + me * width, n * width, width, rows, stream);
  }
  return result;
}

Result VirtualMoves::reduce(const pcrt_move_desc &move, const Group &group, const Part *const *parts, bool toAll,
                            int64_t rows, int64_t width, int64_t inPitch, int64_t inShift, int64_t outShift,
                            Stream stream) {
  if (rows == 0 || width <= 0)
    return Success;
  ReduceArguments arguments{};
  arguments.numIns = group.size();
  arguments.numOuts = toAll ? group.size() : 1;
  for (int k = 0; k < group.size(); ++k) {
    arguments.ins[k] = parts[k]->in;
    arguments.outs[k] = parts[k]->out;
  }
  if (!toAll)
    arguments.outs[0] = parts[group.me]->out;
  arguments.rows = rows;
  arguments.width = width;
  arguments.inPitch = inPitch;
  arguments.inShift = inShift;
  arguments.outPitch = width;
  arguments.outShift = outShift;
  if (session.standin) {
    int64_t bytes = elementBytes(move.dtype);
    std::vector<pc_standin_access> accesses;
    for (int k = 0; k < arguments.numIns; ++k)
      for (int64_t row = 0; row < rows; ++row)
        accesses.push_back(
            {static_cast<const char *>(arguments.ins[k]) + (inShift + row * inPitch) * bytes, width * bytes, 0});
    for (int k = 0; k < arguments.numOuts; ++k)
      accesses.push_back({static_cast<char *>(arguments.outs[k]) + outShift * bytes, rows * width * bytes, 1});
    session.standin->enqueue(
        stream, move.name, HostReduce::run, new HostReduce{arguments, move.dtype, move.reduction},
        [](void *closure) { delete static_cast<HostReduce *>(closure); }, accesses.data(), int(accesses.size()));
    return Success;
  }
  constexpr int64_t threads = 256;
  int64_t blocks = std::min<int64_t>((rows * width + threads - 1) / threads, int64_t(session.multiprocessors) * 16);
  void *parameters[] = {&arguments};
  return session.driver.cuLaunchKernel(kernels[move.dtype][move.reduction], unsigned(blocks), 1, 1, threads, 1, 1, 0,
                                       stream, parameters, nullptr);
}

//===----------------------------------------------------------------------===//
// Messages between stages
//===----------------------------------------------------------------------===//

void VirtualMoves::openFlows(const std::vector<DeviceFlow> &) {
  const std::vector<Flow> &flows = comm.openedFlows();
  ends.resize(flows.size());
  onAllRanks(comm, [&] {
    int64_t total = 0;
    for (size_t i = 0; i < flows.size(); ++i) {
      ends[i].stride = (flows[i].bytes + 511) / 512 * 512;
      for (int slot = 0; slot < flows[i].slots; ++slot)
        ends[i].passed.push_back(session.makeEvent());
      total += flows[i].sends ? 0 : flows[i].slots * ends[i].stride;
    }
    if (total == 0)
      return;
    char *at = slots.allocate(total);
    session.nameMemory(at, slots.mappedBytes(), "the messages of rank " + std::to_string(comm.rank()));
    for (size_t i = 0; i < flows.size(); ++i)
      if (!flows[i].sends) {
        ends[i].slots = at;
        at += flows[i].slots * ends[i].stride;
      }
  });
  Group world = worldGroup(comm.rank(), comm.size());
  const void *const *theirs = nullptr;
  requireOk(comm, comm.meet(world, makeKey("openFlows", world), ends.data(), &theirs));
  for (size_t i = 0; i < flows.size(); ++i)
    ends[i].other = static_cast<const End *>(theirs[flows[i].peer]) + flows[i].partner;
  requireOk(comm, comm.part(world));
}

pcrt_status VirtualMoves::enqueueSend(int index, const void *data, Stream stream) {
  const Driver &driver = session.driver;
  if (pcrt_status status = comm.beginSend(index); status != PCRT_OK) {
    lastError = comm.error();
    return status;
  }
  const Flow &flow = comm.openedFlows()[index];
  const End &mine = ends[index], &theirs = *mine.other;
  uint64_t number = flow.count - 1, slot = number % flow.slots;
  Result result = Success;
  if (number >= uint64_t(flow.slots))
    result = driver.cuStreamWaitEvent(stream, theirs.passed[slot], 0);
  if (result == Success)
    result = driver.cuMemcpyDtoDAsync_v2(reinterpret_cast<Address>(theirs.slots + slot * theirs.stride),
                                         reinterpret_cast<Address>(data), size_t(flow.bytes), stream);
  if (result == Success)
    result = driver.cuEventRecord(mine.passed[slot], stream);
  comm.endSend(index);
  return check(result, flow.name.c_str());
}

pcrt_status VirtualMoves::enqueueReceive(int index, void *data, Stream stream) {
  const Driver &driver = session.driver;
  if (pcrt_status status = comm.beginReceive(index); status != PCRT_OK) {
    lastError = comm.error();
    return status;
  }
  const Flow &flow = comm.openedFlows()[index];
  const End &mine = ends[index];
  uint64_t slot = (flow.count - 1) % flow.slots;
  Result result = driver.cuStreamWaitEvent(stream, mine.other->passed[slot], 0);
  if (result == Success)
    result = driver.cuMemcpyDtoDAsync_v2(reinterpret_cast<Address>(data),
                                         reinterpret_cast<Address>(mine.slots + slot * mine.stride), size_t(flow.bytes),
                                         stream);
  if (result == Success)
    result = driver.cuEventRecord(mine.passed[slot], stream);
  comm.endReceive(index);
  return check(result, flow.name.c_str());
}
