//===- DeviceMoves.cpp - The three kinds of moves of a CUDA device --------===//
// This file has moves of values of fixed sizes, sums as codes, and moves of rows. The host waits for the mask and the
// counts of its rows before it enqueues a move of rows, so a program with such moves is enqueued call by call in every
// step.
//===----------------------------------------------------------------------===//
#include "comm/Collective.h"
#include "comm/Rows.h"
#include "cuda/CudaDevice.h"

using namespace pcrt;
using namespace pcrt::cuda;

void CudaDevice::openRows(pcrt_context &context) {
  onAllRanks(context.comm, [&] {
    for (int i = 0; i < program.abi.num_moves; ++i)
      if (const pcrt_move_desc &move = context.moves[size_t(i)]; routedOf(move)) {
        graphs = false;
        if (!rowCounter)
          rowCounter.emplace(session);
        rowCounter->reserve(move, context.groups[size_t(move.group)].size());
        moved.emplace(i, move);
      }
    if (rowCounter)
      rowCounter->allocate();
  });
}

/// Counts the rows of move `index`, and copies its mask to the host if the transport reads it there.
pcrt_status CudaDevice::countRows(pcrt_context &context, int index) {
  const pcrt_move_desc &move = context.moves[size_t(index)];
  const Group &group = context.groups[size_t(move.group)];
  char *mask = arena + move.codes;
  PCRT_TRY(done(context, rowCounter->enqueue(move, group.size(), mask, session.compute), "count", move.name));
  PCRT_TRY(waitForDevice(context));
  if (const char *problem = rowCounter->take(move, group.size()))
    return context.fail(PCRT_INTERNAL, std::string("move '") + move.name + "': " + problem);
  context.rowsSent[size_t(index)] += rowCounts().sent(group.me);
  if (!comm->readsMask())
    return PCRT_OK;
  std::vector<float> &onHost = masks[index];
  onHost.resize(size_t(move.outer * move.extent * move.middle * move.extent2));
  staging.read(onHost.data(), mask, int64_t(onHost.size() * sizeof(float)));
  moved.at(index).codes = int64_t(reinterpret_cast<uintptr_t>(onHost.data()));
  return PCRT_OK;
}

/// Sums with codes occur only in rounds, where each is a separate move.
pcrt_status CudaDevice::enqueueMoves(pcrt_context &context, int first, int count, const void *const *ins,
                                     void *const *outs, Stream stream) {
  const pcrt_move_desc &desc = context.moves[first];
  const Group &group = context.groups[desc.group];
  pcrt_status status = PCRT_OK;
  if (routedOf(desc)) {
    PCRT_TRY(countRows(context, first));
    status = comm->enqueue(&moved.at(first), count, group, ins, outs, stream);
  } else if (!desc.codes) {
    status = comm->enqueue(&desc, count, group, ins, outs, stream);
  } else {
    if (!codedSums)
      codedSums.emplace(session);
    status = codedSums->enqueue(*comm, desc, group, ins[0], outs[0], arena + desc.codes, stream);
    if (codedSums->result != Success)
      return done(context, codedSums->result, "move", desc.name);
  }
  return status == PCRT_OK ? PCRT_OK
                           : context.fail(status, std::string("move '") + desc.name + "' over " + comm->name() + ": " +
                                                      comm->error());
}
