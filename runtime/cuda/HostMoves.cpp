//===- HostMoves.cpp - Moves through host memory --------------------------===//
// All moves share one source and one result in pinned memory, because a single stream runs them in order. That memory
// is the Comm's arena, so that other ranks read it directly, unless a device keeps snapshots there.
//===----------------------------------------------------------------------===//
#include "cuda/HostMoves.h"
#include "comm/Collective.h"
#include "comm/Moves.h"
#include "pcrt/codes.h"

#include <algorithm>

using namespace pcrt;
using namespace pcrt::cuda;

HostMoves::HostMoves(Session &session, Comm &comm, const pcrt_program &program, const std::vector<Group> &groups,
                     bool arenaIsUsed)
    : session(session), comm(comm), ownsArena(!arenaIsUsed) {
  int64_t most = 256;
  for (int i = 0; i < program.num_moves; ++i) {
    const pcrt_move_desc &move = program.moves[i];
    int members = groups[move.group].size();
    most = std::max({most, inElements(move, members) * elementBytes(move.dtype),
                     outElements(move, members) * elementBytes(move.dtype)});
    if (move.codes) // which are gathered
      most = std::max(most, 4 * members * pcrt_code_words(inElements(move, members)));
  }
  most = (most + 4095) / 4096 * 4096;
  if (arenaIsUsed) {
    in = static_cast<char *>(session.pinned(size_t(2 * most)));
  } else {
    requireOk(comm, comm.allocateArena(2 * most, &in));
    session.check(session.driver.cuMemHostRegister_v2(in, size_t(2 * most), 0), "lock the moves' host memory in place");
  }
  out = in + most;
}

HostMoves::Call *HostMoves::callOf(const pcrt_move_desc &move, const Group &group) {
  for (auto &call : calls)
    if (call->move == &move && call->group == &group)
      return call.get();
  calls.push_back(std::make_unique<Call>(Call{this, &move, &group}));
  return calls.back().get();
}

pcrt_status HostMoves::enqueue(const pcrt_move_desc *moves, int count, const Group &group, const void *const *ins,
                               void *const *outs, Stream stream) {
  const Driver &driver = session.driver;
  for (int i = 0; i < count; ++i) {
    const pcrt_move_desc &move = moves[i];
    int64_t bytes = elementBytes(move.dtype), members = group.size();
    Result result = driver.cuMemcpyDtoHAsync_v2(in, addressOf(ins[i]), inElements(move, members) * bytes, stream);
    auto carryOut = [](void *argument) {
      auto *call = static_cast<Call *>(argument);
      HostMoves &owner = *call->owner;
      if (owner.status == PCRT_OK)
        owner.status = owner.comm.move(*call->move, *call->group, owner.in, owner.out);
    };
    if (result == Success)
      result = driver.cuLaunchHostFunc(stream, carryOut, callOf(move, group));
    if (result == Success)
      result = driver.cuMemcpyHtoDAsync_v2(addressOf(outs[i]), out, outElements(move, members) * bytes, stream);
    if (result != Success)
      return check(result);
  }
  return PCRT_OK;
}

pcrt_status HostMoves::check(Result result) {
  if (result == Success)
    return PCRT_OK;
  lastError = session.describe(result);
  return PCRT_INTERNAL;
}

void HostMoves::openFlows(const std::vector<DeviceFlow> &) {
  onAllRanks(comm, [&] {
    for (const Flow &flow : comm.openedFlows())
      letters.push_back({this, int(letters.size()), session.pinned(size_t(std::max<int64_t>(flow.bytes, 1)))});
  });
}

template <auto transfer> void HostMoves::carryOut(void *argument) {
  auto *letter = static_cast<Letter *>(argument);
  HostMoves &owner = *letter->owner;
  if (owner.status == PCRT_OK)
    owner.status = (owner.comm.*transfer)(letter->flow, letter->memory);
}

pcrt_status HostMoves::enqueueSend(int index, const void *data, Stream stream) {
  const Driver &driver = session.driver;
  Letter &letter = letters[index];
  Result result =
      driver.cuMemcpyDtoHAsync_v2(letter.memory, addressOf(data), size_t(comm.openedFlows()[index].bytes), stream);
  if (result == Success)
    result = driver.cuLaunchHostFunc(stream, carryOut<&Comm::send>, &letter);
  return check(result);
}

pcrt_status HostMoves::enqueueReceive(int index, void *data, Stream stream) {
  const Driver &driver = session.driver;
  Letter &letter = letters[index];
  Result result = driver.cuLaunchHostFunc(stream, carryOut<&Comm::receive>, &letter);
  if (result == Success)
    result =
        driver.cuMemcpyHtoDAsync_v2(addressOf(data), letter.memory, size_t(comm.openedFlows()[index].bytes), stream);
  return check(result);
}

pcrt_status HostMoves::wait(const Driver &driver, Stream stream) {
  Result result = driver.cuStreamSynchronize(stream);
  if (status != PCRT_OK)
    lastError = comm.error();
  return status != PCRT_OK ? status : result == Success ? PCRT_OK : PCRT_INTERNAL;
}
