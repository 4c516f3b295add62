//===- Context.cpp - The functions that a step calls ----------------------===//
// Derives this rank's data from the program's tables: its groups, its moves with their shifts, its flows. The functions
// of pcrt.h at the end pass each call to the device.
//===----------------------------------------------------------------------===//
#include "device/Context.h"
#include "base/Failure.h"

using namespace pcrt;

/// The groups of `rank`. Throws if the table is wrong.
static std::vector<Group> makeGroups(const Program &program, int rank) {
  std::vector<Group> groups;
  const Mesh &mesh = program.mesh;
  for (int index = 0; index < program.abi.num_groups; ++index) {
    const pcrt_group &from = program.abi.groups[index];
    Group group;
    group.id = index;
    bool good = from.num_axes >= 0 && from.num_axes <= 8 && index <= 62;
    for (int i = 0; good && i < from.num_axes; ++i) {
      good = from.axes[i] >= 0 && from.axes[i] < int(mesh.sizes.size());
      if (good)
        group.name += (i ? "+" : "") + mesh.names[from.axes[i]];
    }
    if (!good)
      pcrt::fail(PCRT_INTERNAL, "group " + std::to_string(index) + " of the program is malformed");
    // Members differ from this rank only in the coordinates on the group's axes; the first axis is major.
    int64_t base = rank;
    for (int i = 0; i < from.num_axes; ++i)
      base -= mesh.coordinate(rank, from.axes[i]) * mesh.stride(from.axes[i]);
    std::vector<int64_t> members = {base};
    for (int i = 0; i < from.num_axes; ++i) {
      std::vector<int64_t> next;
      for (int64_t member : members)
        for (int64_t at = 0; at < mesh.sizes[from.axes[i]]; ++at)
          next.push_back(member + at * mesh.stride(from.axes[i]));
      members = std::move(next);
    }
    for (int64_t member : members) {
      if (member == rank)
        group.me = group.size();
      group.ranks.push_back(int(member));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

/// The moves as this rank carries them out: if a shift is relative to another group (`with`), this rank's coordinate in
/// that group is subtracted.
static std::vector<pcrt_move_desc> makeMoves(const pcrt_program &program, const std::vector<Group> &groups) {
  std::vector<pcrt_move_desc> moves(program.moves, program.moves + program.num_moves);
  for (pcrt_move_desc &move : moves) {
    if (move.group < 0 || move.group >= program.num_groups || move.with < 0 || move.with > program.num_groups)
      fail(PCRT_INTERNAL, "move '" + std::string(move.name) + "' has no group of ranks; this is a bug of the compiler");
    if (!move.with)
      continue;
    const Group &with = groups[move.with - 1];
    if (with.size() != groups[move.group].size())
      fail(PCRT_INTERNAL,
           "move '" + std::string(move.name) + "' uses groups of two different sizes; this is a bug of the compiler");
    move.shift = (move.shift + with.size() - with.me) % with.size();
  }
  return moves;
}

std::vector<Flow> pcrt::flowsOf(const Program &program, int rank) {
  std::vector<Flow> flows;
  for (int i = 0; i < program.abi.num_flows; ++i) {
    const pcrt_flow &from = program.abi.flows[i];
    if (from.stage < 0 || from.stage >= int(program.stages.size()) || from.stage == program.stage)
      fail(PCRT_INTERNAL, "the description of the program is wrong: flow " + std::to_string(i) + " leads to stage " +
                              std::to_string(from.stage) + "; this is a bug of the compiler");
    Flow flow;
    flow.peer = rank + int((from.stage - program.stage) * program.mesh.stride(program.stageAxis));
    flow.id = from.id;
    flow.sends = from.sends;
    flow.bytes = from.bytes;
    flow.slots = from.slots;
    flow.messages = from.messages;
    flow.name = from.name;
    flows.push_back(std::move(flow));
  }
  return flows;
}

pcrt_context::pcrt_context(const Program &program, Comm &comm)
    : program(program), comm(comm), profile(program.abi), groups(makeGroups(program, comm.rank())),
      moves(makeMoves(program.abi, groups)), moveCounts(program.abi.num_moves, 0), rowsSent(program.abi.num_moves, 0),
      flowCounts(program.abi.num_flows, 0),
      flows(program.stageAxis < 0 ? std::vector<Flow>() : flowsOf(program, comm.rank())) {}

void pcrt_context::beginCounts() {
  std::fill(moveCounts.begin(), moveCounts.end(), 0);
  std::fill(rowsSent.begin(), rowsSent.end(), 0);
  std::fill(flowCounts.begin(), flowCounts.end(), 0);
  updating = false;
}

void pcrt_context::saveCounts(Counts &to) const {
  to.moves = moveCounts;
  to.rows = rowsSent;
  to.messages = flowCounts;
}

void pcrt_context::restoreCounts(const Counts &from) {
  moveCounts = from.moves;
  rowsSent = from.rows;
  flowCounts = from.messages;
}

void pcrt_context::beginUpdate() {
  if (updating)
    return;
  updating = true;
  if (beforeUpdate)
    beforeUpdate();
  if (pcrt::Kept *kept = comm.kept())
    kept->updating.store(1, std::memory_order_relaxed);
}

pcrt_status pcrt_context::fail(pcrt_status status, std::string message) {
  error = std::move(message);
  return status;
}

void pcrt_context::require(pcrt_status status) {
  if (status == PCRT_OK)
    return;
  if (error.empty())
    error = "a step ended with status " + std::to_string(status);
  // Messages of the communication layer name the ranks already.
  bool names = comm.size() == 1 || status == PCRT_PEER_LOST || status == PCRT_TIMEOUT;
  pcrt::fail(status, names ? error : "rank " + std::to_string(comm.rank()) + ": " + error);
}

//===----------------------------------------------------------------------===//
// The functions of pcrt.h
//===----------------------------------------------------------------------===//

pcrt_status pcrt_launch(pcrt_context *ctx, int32_t index, void *const *args) {
  return ctx->device->launch(*ctx, index, args);
}

pcrt_status pcrt_gemm(pcrt_context *ctx, int32_t index, const void *a, const void *b, void *c, const void *bias,
                      void *aux) {
  return ctx->device->gemm(*ctx, index, a, b, c, bias, aux);
}

pcrt_status pcrt_attention(pcrt_context *ctx, int32_t index, void *const *args) {
  return ctx->device->attention(*ctx, index, args);
}

pcrt_status pcrt_move(pcrt_context *ctx, int32_t index, const void *in, void *out) {
  return ctx->device->move(*ctx, index, in, out);
}

pcrt_status pcrt_start(pcrt_context *ctx, int32_t first, int32_t count, const void *const *ins, void *const *outs,
                       int32_t index) {
  return ctx->device->start(*ctx, first, count, ins, outs, index);
}

pcrt_status pcrt_wait(pcrt_context *ctx, int32_t index) { return ctx->device->wait(*ctx, index); }

pcrt_status pcrt_send(pcrt_context *ctx, int32_t index, const void *data) {
  return ctx->device->send(*ctx, index, data);
}

pcrt_status pcrt_receive(pcrt_context *ctx, int32_t index, void *data) {
  return ctx->device->receive(*ctx, index, data);
}

pcrt_status pcrt_task(pcrt_context *ctx, int32_t kind, int32_t chunk, int32_t microbatch) {
  return ctx->device->task(*ctx, kind, chunk, microbatch);
}

pcrt_status pcrt_observe(pcrt_context *ctx, int32_t index, int64_t microbatch, void *data) {
  if (!ctx->observer)
    return PCRT_OK;
  if (index < 0 || index >= int(ctx->program.outputs.size()))
    return ctx->fail(PCRT_INTERNAL, "output " + std::to_string(index) + " is not in the description of the program");
  return ctx->device->observe(*ctx, index, microbatch, data);
}

pcrt_status pcrt_block_offset(pcrt_context *ctx, int32_t group, int64_t block, int32_t *to) {
  return ctx->device->blockOffset(*ctx, group, block, to);
}
