//===- CudaDevice.cpp - Steps on a CUDA device ----------------------------===//
// Start-up, steps, and the functions of pcrt.h. A group's moves run on a separate stream between two events:
// `ready` on the compute stream before them, `arrived` after. A traced step is enqueued again, with timers around its
// calls.
//===----------------------------------------------------------------------===//
#include "cuda/CudaDevice.h"
#include "comm/Collective.h"
#include "comm/Environment.h"
#include "comm/Moves.h"
#include "cuda/StageCalls.h"
#include "pcrt/description.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

CudaDevice::CudaDevice(const Program &program, int ordinal)
    : program(program), session(ordinal), arenaMemory(session), staging(session), kernels(session, program.abi),
      blocking(switchedOn("PCRT_CUDA_BLOCKING", false)), graphs(!blocking && switchedOn("PCRT_CUDA_GRAPH", true)),
      step{program.abi.step}, evaluation{program.abi.evaluate} {
  // Ranks agree on algorithms if one of them has a product; with codes, only the last stage of a pipeline may have one.
  if (std::any_of(program.stages.begin(), program.stages.end(), [](auto *stage) { return stage->abi.num_gemms > 0; }))
    products = std::make_unique<Products>(session, program.abi, &kernels);
  if (program.abi.num_attentions)
    attentions = std::make_unique<Attentions>(session, program.abi, &kernels);
  prepareInputs();
  findUpdates();
}

CudaDevice::~CudaDevice() {
  session.driver.cuCtxSetCurrent(session.context);
  session.driver.cuCtxSynchronize();
  if (keptMemory)
    session.driver.cuMemHostUnregister(keptMemory);
  for (const Part *part : {&step, &evaluation})
    if (part->graph)
      session.driver.cuGraphExecDestroy(part->graph);
}

//===----------------------------------------------------------------------===//
// Start-up
//===----------------------------------------------------------------------===//

void CudaDevice::prepareInputs() {
  for (const Input &input : program.inputs) {
    // Every rank's block has the same size.
    int64_t bytes = blockOf(program.mesh, input.shape, input.layout, 0).elements() * elementBytes(input.dtype);
    inputOffsets.push_back(inputBytes);
    inputSizes.push_back(bytes);
    inputBytes += (bytes + 255) / 256 * 256;
  }
  inputMemory = static_cast<char *>(session.pinned(size_t(2 * inputBytes)));
}

char *CudaDevice::input(int64_t step, int index) { return inputMemory + step % 2 * inputBytes + inputOffsets[index]; }

void CudaDevice::clearArena() {
  bool poison = switchedOn("PCRT_POISON", false);
  auto fill = [&](int64_t offset, unsigned char value, int64_t bytes) {
    if (bytes)
      session.check(session.driver.cuMemsetD8Async(addressOf(arena) + offset, value, bytes, session.compute),
                    "clear the arena");
  };
  fill(0, poison ? 0xff : 0, arenaMemory.mappedBytes());
  if (poison)
    for (const State &state : program.states)
      if (state.offset < PCRT_HOST)
        fill(state.offset, 0,
             blockOf(program.mesh, state.shape, state.layout, 0).elements() * elementBytes(state.dtype));
  session.synchronize();
}

void CudaDevice::prepare(pcrt_context &context) {
  Comm &control = context.comm;
  onAllRanks(control, [&] {
    arena = arenaMemory.allocate(program.abi.arena_bytes);
    openHostArenas(context);
  });
  session.nameMemory(arena, arenaMemory.mappedBytes(), "the arena of rank " + std::to_string(control.rank()));
  allocateAfterArena(context);
  onAllRanks(control, [&] {
    session.check(session.driver.cuCtxSetCurrent(session.context), "use the device");
    const size_t lines = context.groups.size() + numLinks;
    groupStreams.resize(lines);
    ready.resize(lines);
    outstanding.resize(program.abi.num_tickets + 1);
    tickets.resize(program.abi.num_tickets + 1);
    for (int i = 0; i <= program.abi.num_tickets; ++i)
      arrived.push_back(session.makeEvent());
    groupMoves.resize(lines);
    underWay.resize(context.groups.size());
    besideProducts.resize(context.groups.size());
    context.require(enqueuePart(context, step, Mode::Listen));
    if (evaluation.function)
      context.require(enqueuePart(context, evaluation, Mode::Listen));
    if (program.rounds.any())
      context.require(enqueueRound(context, Mode::Listen));
    for (const AttentionCall &call : attentionCalls)
      attentions->prepare(call.index, call.args.data());
    for (size_t link = context.groups.size(); link < lines; ++link)
      if (groupMoves[link]) {
        groupStreams[link] = session.makeStream();
        ready[link] = session.makeEvent();
      }
    if (attentions && !attentions->whyOwn().empty() && control.rank() == 0)
      fprintf(stderr, "pc: attention uses the program's own kernels: %s\n", attentions->whyOwn().c_str());
    scalars = static_cast<float *>(session.pinned(size_t(std::max<int64_t>(scalarsShown, 1)) * sizeof(float)));
  });
  if (control.size() > 1) {
    pcrt_program ofThisRank = program.abi;
    ofThisRank.moves = context.moves.data();
    onAllRanks(control, [&] {
      session.reserveMoveStreams(int(std::count(groupMoves.begin(), groupMoves.end() - numLinks, true)) +
                                 program.abi.num_flows);
    });
    comm = openDeviceComm(session, control, ofThisRank, context.groups, besideProducts, keptMemory != nullptr);
    graphs = graphs && comm->canCapture();
    openRows(context);
    if (program.stageAxis >= 0)
      flows = std::make_unique<StageFlows>(session, context, *comm);
    if (flows && comm->hasLanes())
      onAllRanks(control, [&] {
        step.receives = placeReceives(context, &pcrt_program::step);
        if (evaluation.function)
          evaluation.receives = placeReceives(context, &pcrt_program::evaluate);
      });
    onAllRanks(control, [&] {
      if (comm->registerArena(arena, arenaMemory.mappedBytes()) != PCRT_OK)
        fail(PCRT_RESOURCE, comm->error());
      std::vector<std::string> names = step.taskNames;
      names.insert(names.end(), evaluation.taskNames.begin(), evaluation.taskNames.end());
      comm->openTasks(std::move(names));
      for (size_t group = 0; group < context.groups.size(); ++group)
        if (groupMoves[group] && comm->hasStreams()) {
          groupStreams[group] = session.makeMoveStream();
          ready[group] = session.makeEvent();
        }
    });
  }
  if (products) {
    if (comm)
      products->leave(comm->blocksOfMoves(), comm->blocksOfMessages());
    onAllRanks(control, [&] {
      products->prepare(productCalls, arena + program.abi.workspace_offset,
                        [&] { fillWithNoise(session, staging, arena, arenaMemory.mappedBytes()); });
    });
    requireOk(control, products->agree(control));
  }
  onAllRanks(control, [&] { clearArena(); });
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void CudaDevice::beginCalls(Mode wanted) {
  mode = wanted;
  std::fill(outstanding.begin(), outstanding.end(), false);
  timed.clear();
  timersUsed = 0;
  openTask.start = nullptr;
  tasksBegun = 0;
}

/// Moves that no call waits for are also part of the step.
pcrt_status CudaDevice::waitForAll(pcrt_context &context, pcrt_status status) {
  for (size_t ticket = 0; status == PCRT_OK && ticket < outstanding.size(); ++ticket)
    if (outstanding[ticket])
      status = wait(context, int(ticket));
  return status;
}

pcrt_status CudaDevice::enqueuePart(pcrt_context &context, Part &part, Mode wanted) {
  beginCalls(wanted);
  context.beginCounts();
  current = &part;
  part.shown.clear();
  bool sends = flows && mode != Mode::Listen;
  pcrt_status status = sends ? flowDone(context, flows->begin(part.receives), "the step's messages") : PCRT_OK;
  if (status == PCRT_OK)
    status = part.function(&context, arena);
  if (status == PCRT_OK && sends)
    status = flowDone(context, flows->end(), "the step's messages");
  return waitForAll(context, status);
}

pcrt_status CudaDevice::enqueueRound(pcrt_context &context, Mode wanted) {
  beginCalls(wanted);
  current = &step; // which a round follows
  return waitForAll(context, program.abi.round(&context, arena));
}

pcrt_status CudaDevice::callByCall(pcrt_context &context, Part &part) {
  pcrt_status status = enqueuePart(context, part, Mode::Run);
  if (status != PCRT_OK || !context.profile.tracing())
    return status;
  if (!stepEnd)
    stepEnd = session.makeEvent(true);
  if (openTask.start) {
    openTask.end = stepEnd;
    timed.push_back(openTask);
  }
  return done(context, session.driver.cuEventRecord(stepEnd, session.compute), "time", "the step");
}

pcrt_status CudaDevice::capture(pcrt_context &context, Part &part) {
  const Driver &driver = session.driver;
  Graph captured = nullptr;
  Result result = driver.cuStreamBeginCapture_v2(session.compute, CaptureThreadLocal);
  if (result != Success)
    return done(context, result, "capture", "the step");
  pcrt_status status = enqueuePart(context, part, Mode::Capture);
  result = driver.cuStreamEndCapture(session.compute, &captured);
  if (status == PCRT_OK && result == Success) // without this flag, moves would lose the priority of their streams
    result = driver.cuGraphInstantiateWithFlags(&part.graph, captured, GraphUseNodePriority);
  if (captured)
    driver.cuGraphDestroy(captured);
  if (status == PCRT_OK && result == Success)
    result = driver.cuGraphUpload(part.graph, session.compute);
  return status != PCRT_OK ? status : done(context, result, "capture", "the step");
}

pcrt_status CudaDevice::begin(pcrt_context &context, Part &part, int64_t number) {
  const Driver &driver = session.driver;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    Result result = driver.cuMemcpyHtoDAsync_v2(addressOf(arena) + program.inputs[i].offset, input(number, int(i)),
                                                size_t(inputSizes[i]), session.compute);
    PCRT_TRY(done(context, result, "input", program.inputs[i].kind.c_str()));
  }
  bool tracing = context.profile.tracing();
  while (tracing && int64_t(timers.size()) < 2 * callsMade)
    timers.push_back(session.makeEvent(true));
  bool waits = copying && &part == &step;
  if (!graphs || ++part.runs == 1 || tracing || waits || context.observer->wantsInEveryStep())
    return callByCall(context, part);
  if (!part.graph)
    PCRT_TRY(capture(context, part));
  current = &part;
  return done(context, driver.cuGraphLaunch(part.graph, session.compute), "launch", "the step");
}

pcrt_status CudaDevice::begin(pcrt_context &context, int64_t number) { return begin(context, step, number); }

pcrt_status CudaDevice::evaluate(pcrt_context &context, int64_t number) {
  PCRT_TRY(begin(context, evaluation, number));
  return finish(context);
}

pcrt_status CudaDevice::endRound(pcrt_context &context) {
  PCRT_TRY(enqueueRound(context, Mode::Run));
  timed.clear(); // a trace shows only the step
  return waitForDevice(context);
}

pcrt_status CudaDevice::waitForDevice(pcrt_context &context) {
  pcrt_status status = PCRT_OK;
  if (comm) {
    status = comm->wait(session.driver, session.compute);
    if (status != PCRT_OK && !comm->error().empty())
      return context.fail(status, comm->error());
  }
  if (Result result = session.driver.cuStreamSynchronize(session.compute); result != Success)
    return context.fail(PCRT_INTERNAL, session.name + ": the step failed: " + session.describe(result) + howToFind());
  if (status != PCRT_OK)
    return context.fail(status, std::string("collectives over ") + comm->name() + " failed");
  return PCRT_OK;
}

pcrt_status CudaDevice::finish(pcrt_context &context) {
  PCRT_TRY(waitForDevice(context));
  if (std::string error = ring ? ring->error() : ""; !error.empty())
    return context.fail(PCRT_RESOURCE, error);
  copying &= current != &step;
  bookTimes(context);
  for (const Shown &scalar : current->shown)
    if (pcrt_status status = context.observer->observe(scalar.index, scalar.microbatch, scalar.value, &context.error);
        status != PCRT_OK)
      return status;
  return PCRT_OK;
}

pcrt_status CudaDevice::done(pcrt_context &context, Result result, const char *what, const char *name) {
  const char *when = "";
  if (result == Success && blocking && mode == Mode::Run) {
    result = session.driver.cuCtxSynchronize();
    when = " failed";
  }
  if (result == Success)
    return PCRT_OK;
  return context.fail(result == ErrorOutOfMemory ? PCRT_RESOURCE : PCRT_INTERNAL,
                      session.name + ": " + what + " '" + name + "'" + when + ": " + session.describe(result) +
                          (result == ErrorOutOfMemory ? "" : howToFind()));
}

/// Advice at the end of messages about faults: calls are asynchronous, so any earlier call may be the cause.
std::string CudaDevice::howToFind() const {
  if (blocking)
    return "";
  std::string text = comm ? comm->lastBegun() : "";
  if (!text.empty())
    text = "; the last collective that it began is " + text;
  return text + "; devices report errors late, so run again with PCRT_CUDA_BLOCKING=1 to see which call fails";
}

/// Returns the error of a call that a library refused; the reason may be an earlier fault of the device.
pcrt_status CudaDevice::refused(pcrt_context &context, const std::string &text) {
  Result result = mode == Mode::Run ? session.driver.cuStreamQuery(session.compute) : Success;
  bool fault = result != Success && result != ErrorNotReady;
  return context.fail(PCRT_INTERNAL, text + (fault ? ", after " + session.describe(result) + howToFind() : ""));
}

/// Calls `f`, which enqueues the work of a call of pcrt.h. If the step is traced, the work is between two events.
template <typename F>
pcrt_status CudaDevice::run(pcrt_context &context, Profile::Call call, int index, const char *name, Stream stream,
                            F &&f) {
  const char *what = call == Profile::Call::Kernel      ? "kernel"
                     : call == Profile::Call::Gemm      ? "matrix product"
                     : call == Profile::Call::Attention ? "attention"
                     : call == Profile::Call::Move      ? "move"
                                                        : "message";
  if (mode == Mode::Listen) {
    ++callsMade;
    return PCRT_OK;
  }
  session.label(name);
  bool timing = context.profile.tracing() && mode == Mode::Run;
  Timed times{call, index, nullptr, nullptr};
  if (timing) {
    times.start = timers[timersUsed++];
    times.end = timers[timersUsed++];
    if (Result result = session.driver.cuEventRecord(times.start, stream); result != Success)
      return done(context, result, what, name);
  }
  PCRT_TRY(f());
  if (timing) {
    if (Result result = session.driver.cuEventRecord(times.end, stream); result != Success)
      return done(context, result, what, name);
    timed.push_back(times);
  }
  return done(context, Success, what, name);
}

//===----------------------------------------------------------------------===//
// The functions of pcrt.h
//===----------------------------------------------------------------------===//

pcrt_status CudaDevice::launch(pcrt_context &context, int index, void *const *args) {
  const char *name = program.abi.kernels[index].name;
  if (updates[size_t(index)])
    PCRT_TRY(beforeUpdate(context, session.compute));
  return run(context, Profile::Call::Kernel, index, name, session.compute,
             [&] { return done(context, kernels.launch(index, args), "kernel", name); });
}

pcrt_status CudaDevice::gemm(pcrt_context &context, int index, const void *a, const void *b, void *c, const void *bias,
                             void *aux) {
  ProductCall call{index, a, b, c, bias, aux, int(underWay.size() - std::count(underWay.begin(), underWay.end(), 0))};
  if (mode == Mode::Listen && current == &step) { // outputs of the evaluation are outputs of the step
    productCalls.push_back(call);
    for (size_t group = 0; group < underWay.size(); ++group)
      if (underWay[group])
        besideProducts[group] = true;
  }
  const char *name = program.abi.gemms[index].name;
  return run(context, Profile::Call::Gemm, index, name, session.compute, [&] {
    BlasStatus status = products->run(call);
    return status == 0 ? PCRT_OK
                       : refused(context, std::string("matrix product '") + name + "': cuBLASLt says " +
                                              products->describe(status));
  });
}

pcrt_status CudaDevice::attention(pcrt_context &context, int index, void *const *args) {
  const char *name = program.abi.attentions[index].name;
  if (mode == Mode::Listen && current == &step)
    attentionCalls.push_back(
        {index, std::vector<void *>(args, args + (program.abi.attentions[index].backward ? 12 : 6))});
  return run(context, Profile::Call::Attention, index, name, session.compute, [&] {
    std::string problem = attentions->run(index, args);
    return problem.empty() ? PCRT_OK : refused(context, std::string("attention '") + name + "' fails: " + problem);
  });
}

bool CudaDevice::isLocal(const pcrt_context &context, int move) const {
  const pcrt_move_desc &desc = context.moves[move];
  return isLocalMove(desc, context.groups[desc.group]);
}

Stream CudaDevice::streamOf(int group) { return groupStreams[group] ? groupStreams[group] : session.compute; }

/// Carries out a move without traffic, like pcrt::localMove, by copies on the device.
pcrt_status CudaDevice::localMove(pcrt_context &context, int index, const void *in, void *out) {
  const pcrt_move_desc &desc = context.moves[index];
  const Group &group = context.groups[desc.group];
  int64_t n = group.size(), bytes = outElements(desc, int(n)) * elementBytes(desc.dtype);
  int64_t row = desc.extent * desc.inner * elementBytes(desc.dtype), block = row / n;
  int64_t at = sourceOf(desc, int(n), group.me) * block; // the offset of a slice or an insert in each row
  return run(context, Profile::Call::Move, index, desc.name, session.compute, [&] {
    Result result = Success;
    auto clear = [&] { return session.driver.cuMemsetD8Async(addressOf(out), 0, size_t(bytes), session.compute); };
    if (bytes == 0)
      return PCRT_OK;
    if (n == 1 || (desc.kind == PCRT_MASK && group.me == 0)) {
      if (in != out)
        result = copyRows(session, out, bytes, in, bytes, bytes, 1);
    } else if (desc.kind == PCRT_MASK) {
      result = clear();
    } else if (desc.kind == PCRT_SLICE) {
      result = copyRows(session, out, block, static_cast<const char *>(in) + at, row, block, desc.outer);
    } else if (desc.kind == PCRT_INSERT) {
      result = copyRows(session, static_cast<char *>(out) + at, row, in, block, block, desc.outer);
    } else { // pad
      result = clear();
      if (result == Success)
        result = copyRows(session, static_cast<char *>(out) + group.me * block, row, in, block, block, desc.outer);
    }
    return done(context, result, "move", desc.name);
  });
}

pcrt_status CudaDevice::start(pcrt_context &context, int first, int count, const void *const *ins, void *const *outs,
                              int ticket) {
  const Driver &driver = session.driver;
  const bool carries = isCarry(first);
  bool local = !carries;
  for (int i = first; i < first + count; ++i) {
    ++context.moveCounts[i];
    local &= isLocal(context, i);
  }
  if (local) {
    for (int i = 0; i < count; ++i)
      PCRT_TRY(localMove(context, first + i, ins[i], outs[i]));
    return PCRT_OK;
  }
  const pcrt_move_desc &desc = context.moves[first];
  for (int i = first; !carries && i < first + count; ++i) {
    const pcrt_move_desc &other = context.moves[i];
    if (other.group != desc.group || isLocal(context, i))
      return context.fail(PCRT_INTERNAL, std::string("moves '") + desc.name + "' and '" + other.name +
                                             "' cannot be started together; this is a bug of the compiler");
    if (std::string problem = checkMove(other, context.groups[other.group], ins[i - first], outs[i - first]);
        !problem.empty())
      return context.fail(PCRT_INTERNAL, problem + "; this is a bug of the compiler");
  }
  const int line = carries ? linkOf(desc) : desc.group;
  outstanding[ticket] = true;
  tickets[ticket] = line;
  if (!carries) // which need no multiprocessors
    ++underWay[line];
  if (mode == Mode::Listen) {
    groupMoves[line] = true;
    ++callsMade;
    return PCRT_OK;
  }
  if (flows && !carries)
    PCRT_TRY(flowDone(context, flows->beforeMove(), desc.name));
  Stream stream = streamOf(line);
  Result result = Success;
  if (stream != session.compute) {
    result = driver.cuEventRecord(ready[line], session.compute);
    if (result == Success)
      result = driver.cuStreamWaitEvent(stream, ready[line], 0);
  }
  if (result != Success)
    return done(context, result, "move", desc.name);
  if (carries && desc.reduction & PCRT_CARRY_OUT)
    PCRT_TRY(beforeUpdate(context, stream));
  pcrt_status status = run(context, Profile::Call::Move, first, desc.name, stream, [&] {
    for (int i = 0; carries && i < count; ++i)
      if (Result copied = carry(context.moves[first + i], ins[i], outs[i], stream); copied != Success)
        return done(context, copied, "carry", context.moves[first + i].name);
    return carries ? PCRT_OK : enqueueMoves(context, first, count, ins, outs, stream);
  });
  if (status == PCRT_OK && stream != session.compute)
    status = done(context, driver.cuEventRecord(arrived[ticket], stream), "move", desc.name);
  return status;
}

pcrt_status CudaDevice::wait(pcrt_context &context, int ticket) {
  if (!outstanding[ticket])
    return PCRT_OK;
  outstanding[ticket] = false;
  if (tickets[ticket] < program.abi.num_groups)
    --underWay[tickets[ticket]];
  if (mode == Mode::Listen || streamOf(tickets[ticket]) == session.compute)
    return PCRT_OK;
  return done(context, session.driver.cuStreamWaitEvent(session.compute, arrived[ticket], 0), "wait", "for a move");
}

pcrt_status CudaDevice::move(pcrt_context &context, int index, const void *in, void *out) {
  int ticket = program.abi.num_tickets; // the ticket after all tickets of the program
  pcrt_status status = start(context, index, 1, &in, &out, ticket);
  return status == PCRT_OK ? wait(context, ticket) : status;
}

pcrt_status CudaDevice::flowDone(pcrt_context &context, pcrt_status status, const char *name) {
  if (status == PCRT_OK)
    return PCRT_OK;
  if (flows->result != Success)
    return done(context, flows->result, "message", name);
  return context.fail(status, std::string("'") + name + "' over " + comm->name() + ": " + comm->error());
}

pcrt_status CudaDevice::send(pcrt_context &context, int flow, const void *data) {
  const char *name = program.abi.flows[flow].name;
  ++context.flowCounts[flow];
  return run(context, Profile::Call::Send, flow, name, session.compute,
             [&] { return flowDone(context, flows->send(flow, data), name); });
}

pcrt_status CudaDevice::receive(pcrt_context &context, int flow, void *data) {
  const char *name = program.abi.flows[flow].name;
  ++context.flowCounts[flow];
  return run(context, Profile::Call::Receive, flow, name, session.compute,
             [&] { return flowDone(context, flows->receive(flow, data), name); });
}

/// Notes the task for error messages. In a traced step, a task ends where the next one begins.
pcrt_status CudaDevice::task(pcrt_context &context, int kind, int chunk, int microbatch) {
  if (mode == Mode::Listen) {
    char name[96];
    describeTask(name, kind, chunk, microbatch, program.stage);
    current->taskNames.emplace_back(name);
    ++callsMade;
    return PCRT_OK;
  }
  int firstTask = current == &step ? 0 : int(step.taskNames.size());
  if (comm)
    if (pcrt_status status = comm->enqueueTask(firstTask + tasksBegun++, session.compute); status != PCRT_OK)
      return context.fail(status, "task '" + current->taskNames[tasksBegun - 1] + "': " + comm->error());
  if (mode != Mode::Run || !context.profile.tracing())
    return PCRT_OK;
  Event now = timers[timersUsed++];
  if (openTask.start) {
    openTask.end = now;
    timed.push_back(openTask);
  }
  openTask = {Profile::Call::Task, Profile::packTask(kind, chunk, microbatch), now, nullptr};
  return done(context, session.driver.cuEventRecord(now, session.compute), "time", "a task");
}

pcrt_status CudaDevice::observe(pcrt_context &context, int index, int64_t microbatch, void *data) {
  Output output = program.outputs[index];
  if (output.kind == "loss" || output.kind == "grad_norm") {
    if (mode == Mode::Listen) {
      ++scalarsShown;
      return PCRT_OK;
    }
    float *to = scalars + current->shown.size();
    current->shown.push_back({index, microbatch, to});
    return done(context, session.driver.cuMemcpyDtoHAsync_v2(to, addressOf(data), sizeof(float), session.compute),
                "output", output.kind.c_str());
  }
  // Gradients and logits are read only in the first step, which is not replayed from a graph. A run that reads or
  // writes choices of experts uses no graph.
  if (mode != Mode::Run || !context.observer->wants(index))
    return PCRT_OK;
  if (output.kind == "logits" || output.kind == PCRT_ROUTING)
    output.shape[0] /= program.microbatches;
  int64_t elements = blockOf(program.mesh, output.shape, output.layout, context.comm.rank()).elements();
  std::vector<char> host(elements * elementBytes(output.dtype));
  try {
    staging.read(host.data(), data, int64_t(host.size()));
    PCRT_TRY(context.observer->observe(index, microbatch, host.data(), &context.error));
    if (output.kind == PCRT_ROUTING)
      staging.write(data, host.data(), int64_t(host.size()));
  } catch (const Failure &failure) {
    return context.fail(failure.status, failure.message);
  }
  return PCRT_OK;
}

pcrt_status CudaDevice::blockOffset(pcrt_context &context, int group, int64_t block, int32_t *to) {
  if (mode == Mode::Listen)
    return PCRT_OK;
  auto value = uint32_t(context.groups[group].me * block);
  return done(context, session.driver.cuMemsetD32Async(addressOf(to), value, 1, session.compute), "block offset",
              "of a group");
}

std::unique_ptr<Device> pcrt::openCudaDevice(const Program &program) {
  Place place;
  std::string error;
  if (!readPlace(&place, &error))
    fail(PCRT_USAGE, error);
  const char *ordinal = getenv("PCRT_CUDA_DEVICE");
  return std::make_unique<CudaDevice>(program, ordinal ? atoi(ordinal) : place.localRank);
}
