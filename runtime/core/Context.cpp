//===- Context.cpp - what a step calls ------------------------------------===//
#include "core/Context.h"
#include "core/Failure.h"
#include "device/Allocations.h"

#include <cstdio>
#include <sys/mman.h>

using namespace pcrt;

/// The groups of `rank`, checked.
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
    // Members: equal to this rank but for the coordinates on the group's axes, the first axis major.
    auto strideOf = [&](int axis) {
      int64_t stride = 1;
      for (size_t inner = axis + 1; inner < mesh.sizes.size(); ++inner)
        stride *= mesh.sizes[inner];
      return stride;
    };
    int64_t base = rank;
    for (int i = 0; i < from.num_axes; ++i)
      base -= mesh.coordinate(rank, from.axes[i]) * strideOf(from.axes[i]);
    std::vector<int64_t> members = {base};
    for (int i = 0; i < from.num_axes; ++i) {
      std::vector<int64_t> next;
      for (int64_t member : members)
        for (int64_t at = 0; at < mesh.sizes[from.axes[i]]; ++at)
          next.push_back(member + at * strideOf(from.axes[i]));
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

/// The program's tables, checked before anything is made of them.
static const pcrt_program &checkTables(const pcrt_program &program) {
  auto wrong = [](const std::string &what) { fail(PCRT_INTERNAL, what + "; this is a bug of the compiler"); };
  bool cpu = program.target == PCRT_CPU;
  for (int i = 0; cpu && i < program.num_gemms; ++i)
    if (const char *problem = checkGemm(program.gemms[i]))
      wrong("matrix product '" + std::string(program.gemms[i].name) + "' has " + problem);
  for (int i = 0; cpu && i < program.num_kernels; ++i)
    if (!program.kernels[i].fn || program.kernels[i].items < 0 || program.kernels[i].scratch_bytes < 0)
      wrong("kernel '" + std::string(program.kernels[i].name) + "' is malformed");
  for (int i = 0; i < program.num_moves; ++i) {
    const pcrt_move_desc &move = program.moves[i];
    if (move.group < 0 || move.group >= program.num_groups || move.with < 0 || move.with > program.num_groups)
      wrong("move '" + std::string(move.name) + "' has no group");
  }
  return program;
}

/// The moves as this rank sees them: shifts without its coordinate in another group.
static std::vector<pcrt_move_desc> makeMoves(const pcrt_program &program, const std::vector<Group> &groups) {
  std::vector<pcrt_move_desc> moves(program.moves, program.moves + program.num_moves);
  for (pcrt_move_desc &move : moves) {
    if (!move.with)
      continue;
    const Group &with = groups[move.with - 1];
    if (with.size() != groups[move.group].size())
      fail(PCRT_INTERNAL,
           "move '" + std::string(move.name) + "' is over groups of two sizes; this is a bug of the compiler");
    move.shift = (move.shift + with.size() - with.me) % with.size();
  }
  return moves;
}

pcrt_context::pcrt_context(const Program &program, Comm &comm, Pool &pool)
    : program(program), comm(comm), pool(pool),
      gemms(pool, checkTables(program.abi).gemms, program.abi.target == PCRT_CPU ? program.abi.num_gemms : 0),
      profile(program.abi), groups(makeGroups(program, comm.rank())), moves(makeMoves(program.abi, groups)),
      moveCounts(program.abi.num_moves, 0), flowCounts(program.abi.num_flows, 0), started(program.abi.num_tickets) {
  for (int i = 0; i < program.abi.num_kernels; ++i)
    scratchStride = std::max(scratchStride, program.abi.kernels[i].scratch_bytes);
  scratchStride = (scratchStride + 4095) & ~int64_t(4095);
  if (scratchStride) {
    void *memory = mmap(nullptr, scratchStride * pool.size(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      pcrt::fail(PCRT_RESOURCE, withErrno("cannot map the kernels' scratch memory"));
    scratch = static_cast<char *>(memory);
  }
}

pcrt_context::~pcrt_context() {
  if (scratch)
    munmap(scratch, scratchStride * pool.size());
}

pcrt_status pcrt_context::fail(pcrt_status status, std::string message) {
  error = std::move(message);
  return status;
}

void pcrt_context::step(char *arena, int64_t *allocations) {
  std::fill(moveCounts.begin(), moveCounts.end(), 0);
  std::fill(flowCounts.begin(), flowCounts.end(), 0);
  startCountingAllocations();
  pcrt_status status = program.abi.step(this, arena);
  *allocations += stopCountingAllocations();
  profile.endTask();
  require(status);
}

void pcrt_context::require(pcrt_status status) {
  if (status == PCRT_OK)
    return;
  if (error.empty())
    error = "a step ended with status " + std::to_string(status);
  // What the communication layer says names ranks already.
  bool names = comm.size() == 1 || status == PCRT_PEER_LOST || status == PCRT_TIMEOUT;
  pcrt::fail(status, names ? error : "rank " + std::to_string(comm.rank()) + ": " + error);
}

//===----------------------------------------------------------------------===//
// The functions of pcrt.h
//===----------------------------------------------------------------------===//

pcrt_status pcrt_launch(pcrt_context *ctx, int32_t index, void *const *args) {
  if (ctx->device)
    return ctx->device->launch(*ctx, index, args);
  const pcrt_kernel &kernel = ctx->program.abi.kernels[index];
  int64_t start = nanoseconds();
  std::atomic<int64_t> firstBad{INT64_MAX};
  ctx->pool.ranges(kernel.items, [&](int thread, int64_t lo, int64_t hi) {
    int64_t bad = kernel.fn(args, lo, hi, ctx->scratchOf(thread));
    if (bad) {
      int64_t before = firstBad.load();
      while (bad < before && !firstBad.compare_exchange_weak(before, bad))
        ;
    }
  });
  ctx->profile.book(Profile::Call::Kernel, index, start);
  if (int64_t bad = firstBad.load(); bad != INT64_MAX)
    return ctx->fail(PCRT_BAD_DATA, std::string("'") + kernel.name + "': element " + std::to_string(bad - 1) +
                                        " is out of range (a token that is not in the vocabulary)");
  return PCRT_OK;
}

pcrt_status pcrt_gemm(pcrt_context *ctx, int32_t index, const void *a, const void *b, void *c, const void *bias,
                      void *aux) {
  if (ctx->device)
    return ctx->device->gemm(*ctx, index, a, b, c, bias, aux);
  int64_t start = nanoseconds();
  const char *problem = nullptr;
  bool good = ctx->gemms.run(index, a, b, c, bias, &problem);
  ctx->profile.book(Profile::Call::Gemm, index, start);
  if (!good)
    return ctx->fail(PCRT_INTERNAL, std::string("matrix product '") + ctx->program.abi.gemms[index].name +
                                        "': oneDNN says " + problem);
  return PCRT_OK;
}

/// Work of a move on all threads of this rank.
static ParallelFor parallelForOf(pcrt_context *ctx) {
  return {&ctx->pool, [](void *pool, int64_t items, ParallelFor::Body body, void *arg) {
            static_cast<Pool *>(pool)->ranges(items, [&](int, int64_t lo, int64_t hi) { body(arg, lo, hi); });
          }};
}

pcrt_status pcrt_move(pcrt_context *ctx, int32_t index, const void *in, void *out) {
  if (ctx->device)
    return ctx->device->move(*ctx, index, in, out);
  const pcrt_move_desc &move = ctx->moves[index];
  int64_t start = nanoseconds();
  ++ctx->moveCounts[index];
  pcrt_status status = ctx->comm.move(move, ctx->groups[move.group], in, out, parallelForOf(ctx));
  ctx->profile.book(Profile::Call::Move, index, start);
  return status == PCRT_OK ? PCRT_OK : ctx->fail(status, ctx->comm.error());
}

pcrt_status pcrt_observe(pcrt_context *ctx, int32_t index, int64_t microbatch, const void *data) {
  if (!ctx->observer)
    return PCRT_OK;
  if (index < 0 || index >= int(ctx->program.outputs.size()))
    return ctx->fail(PCRT_INTERNAL, "output " + std::to_string(index) + " is not in the description of the program");
  if (ctx->device)
    return ctx->device->observe(*ctx, index, microbatch, data);
  return ctx->observer->observe(index, microbatch, data, &ctx->error);
}

pcrt_status pcrt_block_offset(pcrt_context *ctx, int32_t group, int64_t block, int32_t *to) {
  if (ctx->device)
    return ctx->device->blockOffset(*ctx, group, block, to);
  *to = int32_t(ctx->groups[group].me * block);
  return PCRT_OK;
}

pcrt_status pcrt_attention(pcrt_context *ctx, int32_t index, void *const *args) {
  if (ctx->device)
    return ctx->device->attention(*ctx, index, args);
  return ctx->fail(PCRT_INTERNAL, "attention is a kernel on a CPU; this is a bug of the compiler");
}

pcrt_status pcrt_start(pcrt_context *ctx, int32_t first, int32_t count, const void *const *ins, void *const *outs,
                       int32_t index) {
  if (ctx->device)
    return ctx->device->start(*ctx, first, count, ins, outs, index);
  const pcrt_program &abi = ctx->program.abi;
  if (count < 1 || count > StartedMoves::most || first < 0 || count > abi.num_moves - first || index < 0 ||
      index >= abi.num_tickets || ctx->started[index].first >= 0)
    return ctx->fail(PCRT_INTERNAL,
                     "malformed start with ticket " + std::to_string(index) + "; this is a bug of the compiler");
  int64_t begin = nanoseconds();
  StartedMoves &started = ctx->started[index];
  const pcrt_move_desc *moves = ctx->moves.data() + first;
  started.first = first;
  started.ticket = {moves, count, &ctx->groups[moves[0].group], started.ins, started.outs};
  for (int i = 0; i < count; ++i) {
    if (moves[i].group != moves[0].group)
      return ctx->fail(PCRT_INTERNAL, std::string("'") + moves[i].name +
                                          "' is started with moves of another group; this is a bug of the compiler");
    started.ins[i] = ins[i];
    started.outs[i] = outs[i];
    ++ctx->moveCounts[first + i];
  }
  pcrt_status status = ctx->comm.start(started.ticket, parallelForOf(ctx));
  ctx->profile.book(Profile::Call::Start, first, begin);
  return status == PCRT_OK ? PCRT_OK : ctx->fail(status, ctx->comm.error());
}

pcrt_status pcrt_wait(pcrt_context *ctx, int32_t index) {
  if (ctx->device)
    return ctx->device->wait(*ctx, index);
  if (index < 0 || index >= ctx->program.abi.num_tickets || ctx->started[index].first < 0)
    return ctx->fail(PCRT_INTERNAL, "wait for ticket " + std::to_string(index) +
                                        ", which was not started; this is a bug of the compiler");
  int64_t begin = nanoseconds();
  StartedMoves &started = ctx->started[index];
  pcrt_status status = ctx->comm.wait(started.ticket, parallelForOf(ctx));
  ctx->profile.book(Profile::Call::Wait, started.first, begin);
  started.first = -1;
  return status == PCRT_OK ? PCRT_OK : ctx->fail(status, ctx->comm.error());
}

pcrt_status pcrt_send(pcrt_context *ctx, int32_t index, const void *data) {
  if (ctx->device)
    return ctx->device->send(*ctx, index, data);
  int64_t begin = nanoseconds();
  ++ctx->flowCounts[index];
  pcrt_status status = ctx->comm.send(index, data);
  ctx->profile.book(Profile::Call::Send, index, begin);
  return status == PCRT_OK ? PCRT_OK : ctx->fail(status, ctx->comm.error());
}

pcrt_status pcrt_receive(pcrt_context *ctx, int32_t index, void *data) {
  if (ctx->device)
    return ctx->device->receive(*ctx, index, data);
  int64_t begin = nanoseconds();
  ++ctx->flowCounts[index];
  pcrt_status status = ctx->comm.receive(index, data);
  ctx->profile.book(Profile::Call::Receive, index, begin);
  return status == PCRT_OK ? PCRT_OK : ctx->fail(status, ctx->comm.error());
}

pcrt_status pcrt_task(pcrt_context *ctx, int32_t kind, int32_t chunk, int32_t microbatch) {
  if (ctx->device)
    return ctx->device->task(*ctx, kind, chunk, microbatch);
  ctx->profile.task(kind, chunk, microbatch);
  char doing[96];
  describeTask(doing, kind, chunk, microbatch, ctx->program.stage);
  ctx->comm.note(doing);
  return PCRT_OK;
}
