//===- CpuDevice.cpp - Steps on the CPU -----------------------------------===//
// The program's tables are checked before they are used; a wrong one is a bug of the compiler (PCRT_INTERNAL). A kernel
// that may write parameters or states tells KeptMemory first, so that a lost rank leaves a consistent state.
//===----------------------------------------------------------------------===//
#include "cpu/CpuDevice.h"
#include "base/Block.h"
#include "base/Types.h"
#include "comm/Codes.h"
#include "comm/Collective.h"
#include "comm/Environment.h"
#include "comm/Rows.h"
#include "cpu/Allocations.h"

#include <cstring>
#include <sys/mman.h>

using namespace pcrt;

/// Checks the program's tables and returns the program.
static const pcrt_program &checkTables(const pcrt_program &program) {
  auto wrong = [](const std::string &what) { fail(PCRT_INTERNAL, what + "; this is a bug of the compiler"); };
  for (int i = 0; i < program.num_gemms; ++i)
    if (const char *problem = checkGemm(program.gemms[i]))
      wrong("matrix product '" + std::string(program.gemms[i].name) + "' has " + problem);
  for (int i = 0; i < program.num_kernels; ++i)
    if (!program.kernels[i].fn || program.kernels[i].items < 0 || program.kernels[i].scratch_bytes < 0)
      wrong("kernel '" + std::string(program.kernels[i].name) + "' is malformed");
  for (int i = 0; i < program.num_moves; ++i)
    if (const pcrt_move_desc &move = program.moves[i];
        move.codes && !routedOf(move) &&
        (move.kind != PCRT_ALL_REDUCE || move.dtype != PCRT_F32 || move.reduction != PCRT_SUM))
      wrong("move '" + std::string(move.name) + "' sends 8-bit codes, but is not a sum of f32");
  for (int i = 0; i < program.num_moves; ++i) {
    const pcrt_move_desc &move = program.moves[i];
    int64_t elements = move.outer * move.extent * move.middle * move.extent2;
    if (routedOf(move) && (move.dtype == PCRT_I32 || routedOf(move) < 0 || move.codes < 0 ||
                           elements > (program.arena_bytes - move.codes) / int64_t(sizeof(float))))
      wrong("move '" + std::string(move.name) +
            "' has routed tokens that are neither f32 nor bf16, or no mask in the arena");
  }
  return program;
}

CpuDevice::CpuDevice(const Program &program, const Bf16Choice &bf16, int threads)
    : program(program), pool(threads),
      gemms(pool, checkTables(program.abi).gemms, program.abi.num_gemms, bf16.products.native,
            /*rowsAlike=*/program.generates),
      started(program.abi.num_tickets) {
  for (int i = 0; i < program.abi.num_kernels; ++i) {
    const pcrt_kernel &kernel = program.abi.kernels[i];
    scratchStride = std::max(scratchStride, kernel.scratch_bytes);
    functions.push_back(kernel.fn_f32 && !bf16.kernels.native ? kernel.fn_f32 : kernel.fn);
    updates.push_back(!strcmp(kernel.kind, "optimizer"));
  }
  scratchStride = (scratchStride + 4095) & ~int64_t(4095);
  if (scratchStride) {
    void *memory = mmap(nullptr, scratchStride * pool.size(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      fail(PCRT_RESOURCE, withErrno("cannot map the kernels' scratch memory"));
    scratch = static_cast<char *>(memory);
  }
}

CpuDevice::~CpuDevice() {
  if (scratch)
    munmap(scratch, scratchStride * pool.size());
}

void CpuDevice::prepare(pcrt_context &context) {
  Comm &comm = context.comm;
  int64_t bytes = program.abi.arena_bytes + context.afterArena;
  requireOk(comm, comm.allocateArena(bytes, &arena));
  for (pcrt_move_desc &move : context.moves)
    if (routedOf(move)) {
      rowCounts().reserve(move, context.groups[move.group].size());
      move.codes += int64_t(reinterpret_cast<uintptr_t>(arena));
    }
  if (program.stageAxis >= 0)
    requireOk(comm, comm.openFlows(context.flows));
  openDisk(context);
  if (context.keepsArena) // oneDNN then generates its code in the first step
    return;
  if (comm.hasOldArena())
    pool.ranges(bytes, [&](int, int64_t lo, int64_t hi) { memset(arena + lo, 0, size_t(hi - lo)); });
  // Touches all memory now, so that no step waits for pages, and so that too little memory is an error at the start.
  constexpr int64_t page = 4096;
  pool.ranges((bytes + page - 1) / page, [&](int, int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i)
      static_cast<volatile char *>(arena)[i * page] = 0;
  });
  gemms.warmUp(arena, bytes);
  if (!switchedOn("PCRT_POISON", false))
    return;
  memset(arena, 0xff, size_t(program.abi.arena_bytes));
  for (const State &state : program.states)
    if (state.offset < PCRT_DISK)
      memset(arena + state.offset, 0,
             size_t(blockOf(program.mesh, state.shape, state.layout, 0).elements() * elementBytes(state.dtype)));
}

/// Some stages of a pipeline may keep nothing on disk; all ranks call it, to agree on failures.
void CpuDevice::openDisk(pcrt_context &context) {
  onAllRanks(context.comm, [&] {
    if (!program.abi.disk_bytes)
      return;
    if (context.comm.rank() == 0)
      DiskArena::warnAbout(context.scratch);
    disk.emplace(context.scratch, program.abi.disk_bytes, program.abi.num_moves, cores);
  });
}

void CpuDevice::write(int64_t offset, const void *from, int64_t bytes) {
  if (offset < PCRT_DISK)
    memcpy(arena + offset, from, bytes);
  else
    disk->write(offset - PCRT_DISK, from, bytes);
}

void CpuDevice::read(void *to, int64_t offset, int64_t bytes) {
  if (offset < PCRT_DISK)
    memcpy(to, arena + offset, bytes);
  else
    disk->read(to, offset - PCRT_DISK, bytes);
}

char *CpuDevice::input(int64_t, int index) { return arena + program.inputs[index].offset; }

pcrt_status CpuDevice::begin(pcrt_context &context, int64_t) {
  context.beginCounts();
  startCountingAllocations();
  pcrt_status status = program.abi.step(&context, arena);
  context.allocations += stopCountingAllocations();
  context.profile.endTask();
  return status;
}

pcrt_status CpuDevice::evaluate(pcrt_context &context, int64_t) {
  context.beginCounts();
  return program.abi.evaluate(&context, arena);
}

pcrt_status CpuDevice::endRound(pcrt_context &context) {
  context.beginUpdate();
  return program.abi.round(&context, arena);
}

//===----------------------------------------------------------------------===//
// The functions of pcrt.h
//===----------------------------------------------------------------------===//

pcrt_status CpuDevice::launch(pcrt_context &context, int index, void *const *args) {
  const pcrt_kernel &kernel = program.abi.kernels[index];
  const pcrt_kernel_fn function = functions[size_t(index)];
  if (updates[size_t(index)])
    context.beginUpdate();
  int64_t start = nanoseconds();
  std::atomic<int64_t> firstBad{INT64_MAX};
  pool.ranges(kernel.items, [&](int thread, int64_t lo, int64_t hi) {
    int64_t bad = function(args, lo, hi, scratchOf(thread));
    if (bad) {
      int64_t before = firstBad.load();
      while (bad < before && !firstBad.compare_exchange_weak(before, bad))
        ;
    }
  });
  context.profile.book(Profile::Call::Kernel, index, start);
  if (int64_t bad = firstBad.load(); bad != INT64_MAX)
    return context.fail(PCRT_BAD_DATA, std::string("'") + kernel.name + "': element " + std::to_string(bad - 1) +
                                           " is out of range, so a token is not in the vocabulary");
  return PCRT_OK;
}

pcrt_status CpuDevice::gemm(pcrt_context &context, int index, const void *a, const void *b, void *c, const void *bias,
                            void *aux) {
  int64_t start = nanoseconds();
  const char *problem = nullptr;
  bool good = gemms.run(index, a, b, c, bias, aux, &problem);
  context.profile.book(Profile::Call::Gemm, index, start);
  if (!good)
    return context.fail(PCRT_INTERNAL,
                        std::string("matrix product '") + program.abi.gemms[index].name + "': oneDNN says " + problem);
  return PCRT_OK;
}

pcrt_status CpuDevice::attention(pcrt_context &context, int, void *const *) {
  return context.fail(PCRT_INTERNAL, "a CPU program calls library attention; this is a bug of the compiler");
}

ParallelFor CpuDevice::parallelFor() {
  return {&pool, [](void *pool, int64_t items, ParallelFor::Body body, void *arg) {
            static_cast<Pool *>(pool)->ranges(items, [&](int, int64_t lo, int64_t hi) { body(arg, lo, hi); });
          }};
}

/// Passes the error of a call of the transport to the context.
static pcrt_status done(pcrt_context &context, pcrt_status status) {
  return status == PCRT_OK ? PCRT_OK : context.fail(status, context.comm.error());
}

/// One of the two addresses is PCRT_DISK bytes or more after the arena.
void CpuDevice::startCarry(pcrt_context &context, int index, const void *in, void *out) {
  const pcrt_move_desc &move = program.abi.moves[index];
  auto at = reinterpret_cast<uintptr_t>(move.reduction ? out : in) - reinterpret_cast<uintptr_t>(arena);
  if (move.reduction)
    context.beginUpdate();
  disk->start(index, {static_cast<char *>(move.reduction ? const_cast<void *>(in) : out), int64_t(at) - PCRT_DISK,
                      move.outer * elementBytes(move.dtype), move.reduction == PCRT_CARRY_OUT});
}

pcrt_status CpuDevice::waitForCarry(pcrt_context &context, int index) {
  std::string error;
  if (disk->wait(index, &error))
    return PCRT_OK;
  return context.fail(PCRT_RESOURCE, "'" + std::string(program.abi.moves[index].name) + "': " + error);
}

pcrt_status CpuDevice::move(pcrt_context &context, int index, const void *in, void *out) {
  const pcrt_move_desc &move = context.moves[index];
  int64_t start = nanoseconds();
  ++context.moveCounts[index];
  if (isCarry(index)) {
    startCarry(context, index, in, out);
    pcrt_status status = waitForCarry(context, index);
    context.profile.book(Profile::Call::Move, index, start);
    return status;
  }
  const Group &group = context.groups[move.group];
  bool asCodes = move.codes && !routedOf(move) && group.size() > 1;
  pcrt_status status = asCodes ? sumByCodes(context.comm, move, group, in, out, arena + move.codes, parallelFor())
                               : context.comm.move(move, group, in, out, parallelFor());
  if (routedOf(move) && group.size() > 1 && status == PCRT_OK) // the rows that the transport has just counted
    context.rowsSent[index] += rowCounts().sent(group.me);
  context.profile.book(Profile::Call::Move, index, start);
  return done(context, status);
}

pcrt_status CpuDevice::start(pcrt_context &context, int first, int count, const void *const *ins, void *const *outs,
                             int index) {
  if (count < 1 || count > PCRT_MOST_STARTED || first < 0 || count > program.abi.num_moves - first || index < 0 ||
      index >= program.abi.num_tickets || started[index].first >= 0)
    return context.fail(PCRT_INTERNAL,
                        "malformed start with ticket " + std::to_string(index) + "; this is a bug of the compiler");
  int64_t begin = nanoseconds();
  StartedMoves &entry = started[index];
  const pcrt_move_desc *moves = context.moves.data() + first;
  entry.first = first;
  if (isCarry(first)) { // the threads of the disk go on while the rank computes
    entry.ticket.count = count;
    for (int i = 0; i < count; ++i) {
      startCarry(context, first + i, ins[i], outs[i]);
      ++context.moveCounts[first + i];
    }
    context.profile.book(Profile::Call::Start, first, begin);
    return PCRT_OK;
  }
  entry.ticket = {moves, count, &context.groups[moves[0].group], entry.ins, entry.outs};
  for (int i = 0; i < count; ++i) {
    if (routedOf(moves[i]))
      return context.fail(PCRT_INTERNAL,
                          std::string("'") + moves[i].name +
                              "' starts asynchronously, but moves routed tokens; this is a bug of the compiler");
    if (moves[i].group != moves[0].group)
      return context.fail(PCRT_INTERNAL,
                          std::string("'") + moves[i].name +
                              "' is started together with moves of another group; this is a bug of the compiler");
    entry.ins[i] = ins[i];
    entry.outs[i] = outs[i];
    ++context.moveCounts[first + i];
  }
  pcrt_status status = context.comm.start(entry.ticket, parallelFor());
  context.profile.book(Profile::Call::Start, first, begin);
  return done(context, status);
}

pcrt_status CpuDevice::wait(pcrt_context &context, int index) {
  if (index < 0 || index >= program.abi.num_tickets || started[index].first < 0)
    return context.fail(PCRT_INTERNAL, "it waits for ticket " + std::to_string(index) +
                                           ", which was not started; this is a bug of the compiler");
  int64_t begin = nanoseconds();
  StartedMoves &entry = started[index];
  bool carries = isCarry(entry.first);
  pcrt_status status = carries ? PCRT_OK : context.comm.wait(entry.ticket, parallelFor());
  for (int i = 0; carries && status == PCRT_OK && i < entry.ticket.count; ++i)
    status = waitForCarry(context, entry.first + i);
  context.profile.book(Profile::Call::Wait, entry.first, begin);
  entry.first = -1;
  return carries ? status : done(context, status);
}

pcrt_status CpuDevice::send(pcrt_context &context, int flow, const void *data) {
  int64_t begin = nanoseconds();
  ++context.flowCounts[flow];
  pcrt_status status = context.comm.send(flow, data);
  context.profile.book(Profile::Call::Send, flow, begin);
  return done(context, status);
}

pcrt_status CpuDevice::receive(pcrt_context &context, int flow, void *data) {
  int64_t begin = nanoseconds();
  ++context.flowCounts[flow];
  pcrt_status status = context.comm.receive(flow, data);
  context.profile.book(Profile::Call::Receive, flow, begin);
  return done(context, status);
}

pcrt_status CpuDevice::task(pcrt_context &context, int kind, int chunk, int microbatch) {
  context.profile.task(kind, chunk, microbatch);
  char doing[96];
  describeTask(doing, kind, chunk, microbatch, program.stage);
  context.comm.note(doing);
  return PCRT_OK;
}

pcrt_status CpuDevice::observe(pcrt_context &context, int index, int64_t microbatch, void *data) {
  return context.observer->observe(index, microbatch, data, &context.error);
}

pcrt_status CpuDevice::blockOffset(pcrt_context &context, int group, int64_t block, int32_t *to) {
  *to = int32_t(context.groups[group].me * block);
  return PCRT_OK;
}

//===----------------------------------------------------------------------===//

std::unique_ptr<Device> pcrt::openCpuDevice(const Program &program, const Bf16Choice &bf16) {
  return std::make_unique<CpuDevice>(program, bf16, threadsOfThisRank());
}
