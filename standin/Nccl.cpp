//===- Nccl.cpp - NCCL's functions ----------------------------------------===//
// Non-blocking communicators and groups as in NCCL 2.28.9; comments name functions of its src/init.cc, group.cc and
// enqueue.cc. Where NCCL may answer "in progress", this one always does, so that callers have to poll.
//===----------------------------------------------------------------------===//
#include "standin/Capture.h"
#include "standin/Memory.h"
#include "standin/NcclComm.h"

#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <unistd.h>
#include <utility>

using namespace pc::standin;

/// The contents of an ncclComm_t. It shares the communicator with the calls in progress.
struct ncclComm {
  CommRef comm;
};

/// The contents of a ncclUniqueId.
struct WorldName {
  char magic[16];
  FileName file;
};
static constexpr char worldMagic[16] = "pc stand-in";

static std::set<ncclComm_t> &handles() {
  static auto *handles = new std::set<ncclComm_t>;
  return *handles;
}

ncclComm_t pc::standin::handleOf(const CommRef &comm) {
  pc_standin_name_memory(comm.get(), 1, ("the order of calls on " + describe(*comm)).c_str());
  ncclComm_t handle = new ncclComm{comm};
  handles().insert(handle);
  return handle;
}

/// One text for the whole process, like ncclLastError.
static char lastError[1024];

static ncclResult_t fail(ncclResult_t code, const std::string &why) {
  snprintf(lastError, sizeof lastError, "%s", why.c_str());
  return code;
}

static CommRef find(ncclComm_t handle) { return handles().count(handle) ? handle->comm : nullptr; }

#define FIND(comm, handle)                                                                                             \
  CommRef comm = find(handle);                                                                                         \
  if (!comm)                                                                                                           \
  return fail(ncclInvalidArgument, std::string(__func__) + ": this is not a communicator")

PC_EXPORT ncclResult_t ncclGetVersion(int *version) {
  *version = 22809;
  return ncclSuccess;
}

PC_EXPORT const char *ncclGetErrorString(ncclResult_t result) {
  static const char *texts[] = {"no error",
                                "unhandled cuda error",
                                "unhandled system error",
                                "internal error",
                                "invalid argument",
                                "invalid usage",
                                "remote process exited or there was a network error",
                                "NCCL operation in progress"};
  return result >= 0 && result <= ncclInProgress ? texts[result] : "unknown result code";
}

PC_EXPORT const char *ncclGetLastError(ncclComm_t) { return lastError; }

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

namespace {
/// Calls between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess; ///< ncclGroupError: of the last call in the group that failed.
  std::optional<bool> blocking;     ///< ncclGroupBlocking: of all communicators in it.
  struct Queued {
    CommRef comm;
    CUstream stream;
    Call call;
  };
  std::vector<Queued> calls;
  struct Job {
    CommRef comm;
    std::function<ncclResult_t()> start;
  };
  std::vector<Job> jobs;          ///< Joins and splits, which the end of the group begins (ncclAsyncLaunch).
  std::vector<ncclComm_t> ending; ///< The communicators that the end of the group frees.
};
} // namespace

static thread_local Group group;

/// Records the result of a call inside a group: if it is an error, the group's end returns it and does nothing else
/// (ncclGroupErrCheck, ncclGroupEndInternal).
static ncclResult_t noteInGroup(ncclResult_t result) {
  if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress)
    group.error = result;
  return result;
}

/// Refuses groups whose communicators are of both kinds (ncclAsyncLaunch, ncclGroupCommJoin).
static ncclResult_t joinGroup(const Comm &comm) {
  if (group.blocking.value_or(comm.blocking) != comm.blocking)
    return fail(ncclInvalidArgument, "Blocking and nonblocking communicators are not allowed in the same group.");
  group.blocking = comm.blocking;
  return ncclSuccess;
}

/// Waits until a blocking communicator has completed the calls that it has begun.
static ncclResult_t settle(Lock &lock, const CommRef &comm) {
  comm->advance();
  while (comm->isAdvancing() && stickyError() == CUDA_SUCCESS) {
    letTimePass(!comm->connecting.empty());
    lock.unlock();
    usleep(50);
    lock.lock();
    comm->advance();
  }
  return comm->error != ncclSuccess ? fail(comm->error, comm->errorText) : ncclSuccess;
}

/// Begins jobs, and waits for those of blocking communicators (ncclGroupEndInternal).
static ncclResult_t launch(Lock &lock, const std::vector<Group::Job> &jobs) {
  for (const Group::Job &job : jobs)
    if (ncclResult_t result = job.start(); result != ncclSuccess)
      return result;
  ncclResult_t result = ncclSuccess;
  for (const Group::Job &job : jobs) {
    if (!job.comm->blocking) {
      job.comm->mustPoll = true;
      result = ncclInProgress;
    } else if (ncclResult_t settled = settle(lock, job.comm); settled != ncclSuccess) {
      return settled;
    }
  }
  return result;
}

/// Begins a job, now or at the end of the group.
static ncclResult_t launchInGroup(Lock &lock, Group::Job job) {
  if (group.depth == 0)
    return launch(lock, {std::move(job)});
  if (ncclResult_t why = joinGroup(*job.comm); why != ncclSuccess)
    return noteInGroup(why);
  group.jobs.push_back(std::move(job));
  return ncclSuccess;
}

/// A captured call that PC_STANDIN_FAULT=swap exchanges with the next.
struct HeldCall {
  CUstream stream = nullptr;
  Work work;
};

static CUresult enqueueCalls(CUstream stream, Work work) {
  static HeldCall held;
  if (deviceOf(stream) >= 0 && stream->capture && faultHere("swap")) {
    tellFault("'" + work.name + "' runs after the next call, or never");
    held = {stream, std::move(work)};
    return CUDA_SUCCESS;
  }
  if (!held.stream)
    return enqueue(stream, std::move(work), "NCCL");
  CUresult result = enqueue(stream, std::move(work), "NCCL");
  enqueue(held.stream, std::move(held.work), "NCCL");
  held = {};
  return result;
}

/// A captured call's reference to its communicator.
static std::shared_ptr<void> holdFromGraph(const CommRef &comm) {
  ++comm->persistentRefs;
  return {comm.get(), [comm](void *) { --comm->persistentRefs; }};
}

/// The capture to which a stream belongs, or null.
static const Capture *captureOf(CUstream stream) { return deviceOf(stream) >= 0 ? stream->capture.get() : nullptr; }

/// The reason why calls may not be in one group; empty if they may (ncclPlannerSetCapturingGraph, doLaunches).
static std::string checkCaptures(const std::vector<Group::Queued> &queued) {
  for (const Group::Queued &q : queued) {
    const Capture *first = captureOf(queued[0].stream), *other = captureOf(q.stream);
    if (q.comm == queued[0].comm && other != first)
      return "Streams given to a communicator within a NCCL group must either be all uncaptured or all captured by the "
             "same graph.";
    if (!first != !other)
      return "Either none or all communicators in a ncclGroup() can be CUDA graph captured.";
  }
  return "";
}

/// Submits the calls of a group: one item per communicator.
static ncclResult_t submitCalls(Lock &lock, std::vector<Group::Queued> queued) {
  ncclResult_t result = ncclSuccess;
  if (std::string why = checkCaptures(queued); !why.empty())
    return fail(ncclInvalidUsage, why);
  for (const Group::Queued &q : queued)
    q.comm->connect(q.call);
  const std::vector<Group::Queued> all = queued;
  while (!queued.empty()) {
    CommRef comm = queued.front().comm;
    CUstream stream = queued.front().stream;
    std::vector<Call> calls;
    for (const Group::Queued &q : queued) {
      if (q.comm != comm)
        continue;
      if (q.stream != stream)
        return fail(ncclInvalidUsage, "a group uses one communicator on several streams");
      calls.push_back(q.call);
    }
    std::erase_if(queued, [&](const Group::Queued &q) { return q.comm == comm; });
    if (enqueueCalls(stream, makeWork(comm, std::move(calls))) != CUDA_SUCCESS)
      return fail(ncclUnhandledCudaError, "cannot enqueue: " + explanation(stickyError()));
    if (stream->capture) // the communicator lives until the graph is destroyed (ncclCudaGraphAddDestructor)
      stream->capture->objects.push_back(holdFromGraph(comm));
    if (!comm->blocking) { // a thread of NCCL's launches them
      comm->mustPoll = true;
      result = ncclInProgress;
    }
  }
  for (const Group::Queued &q : all)
    if (ncclResult_t settled = q.comm->blocking ? settle(lock, q.comm) : ncclSuccess; settled != ncclSuccess)
      return settled;
  return result;
}

/// Waits until the calls of these communicators have ended and all graphs that hold some are destroyed, and frees the
/// communicators (commDestroySync; in a group, each one has a thread). After an abort, calls end without help. But
/// calls of other communicators that precede them on a stream do not.
static ncclResult_t reclaim(Lock &lock, const std::vector<ncclComm_t> &ending) {
  auto holds = [](const CommRef &comm) {
    return comm->persistentRefs > 0 || (comm->queued > 0 && stickyError() == CUDA_SUCCESS);
  };
  for (ncclComm_t handle : ending) {
    CommRef comm = handle->comm;
    while (holds(comm)) {
      if (comm->queued > 0)
        letTimePass();
      lock.unlock();
      usleep(50);
      lock.lock();
    }
    comm->destroyed = true;
    handles().erase(handle);
    delete handle;
  }
  return stickyError() == CUDA_SUCCESS ? ncclSuccess : fail(ncclUnhandledCudaError, explanation(stickyError()));
}

PC_EXPORT ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

PC_EXPORT ncclResult_t ncclGroupEnd() {
  Lock lock(driverMutex());
  if (group.depth == 0)
    return fail(ncclInvalidUsage, "ncclGroupEnd is called without ncclGroupStart");
  if (--group.depth > 0)
    return ncclSuccess;
  Group ended = std::exchange(group, {});
  if (ended.error != ncclSuccess)
    return ended.error;
  if (!ended.ending.empty())
    return reclaim(lock, ended.ending);
  ncclResult_t result = launch(lock, ended.jobs);
  if (result != ncclSuccess && result != ncclInProgress)
    return result;
  ncclResult_t submitted = submitCalls(lock, std::move(ended.calls));
  return submitted != ncclSuccess ? submitted : result;
}

//===----------------------------------------------------------------------===//
// Communicators
//===----------------------------------------------------------------------===//

PC_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  Lock lock(driverMutex());
  // Other ranks open it at any time, so it lives as long as the process.
  static auto *worlds = new std::vector<std::unique_ptr<MappedFile>>;
  MappedFile *world = worlds->emplace_back(std::make_unique<MappedFile>()).get();
  if (!world->create(sizeof(World), sizeof(World)))
    return fail(ncclSystemError, "there is not enough memory for a communicator");
  WorldName name{};
  memcpy(name.magic, worldMagic, sizeof worldMagic);
  name.file = {getpid(), world->fd};
  memset(id, 0, sizeof *id);
  memcpy(id->internal, &name, sizeof name);
  return ncclSuccess;
}

PC_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *handle, int size, ncclUniqueId id, int rank,
                                              ncclConfig_t *config) {
  Lock lock(driverMutex());
  setDeadlockProbe(findDeadlock);
  WorldName name;
  memcpy(&name, id.internal, sizeof name);
  if (memcmp(name.magic, worldMagic, sizeof worldMagic) != 0)
    return fail(ncclInvalidArgument, "the id does not come from the stand-in's ncclGetUniqueId");
  if (size < 1 || size > maxRanks || rank < 0 || rank >= size)
    return fail(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size));
  if (currentDevice() < 0)
    return fail(ncclUnhandledCudaError, "the calling thread has no CUDA context");
  auto world = std::make_shared<MappedFile>();
  if (!world->open(name.file, sizeof(World), true))
    return fail(ncclSystemError, "the process that made the id has ended, or is on another machine");
  std::string why;
  CommRef comm = joinWorld(std::move(world), rank, size, currentDevice(), &why);
  if (!comm)
    return fail(ncclInvalidUsage, why);
  if (config && config->blocking != NCCL_CONFIG_UNDEF_INT)
    comm->blocking = config->blocking;
  if (config && config->commName)
    comm->name = config->commName;
  // The handle is set at once, unlike that of a split, and this function reads the state again instead of returning
  // success (ncclCommInitRankDev, ncclCommInitRankConfig).
  *handle = handleOf(comm);
  return launchInGroup(lock, {comm, [] { return ncclSuccess; }});
}

PC_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *handle, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(handle, size, id, rank, nullptr);
}

/// ncclCommEnsureReady: a communicator with an error returns it, and one with an operation in progress refuses. NCCL
/// tests whether that has ended; here only ncclCommGetAsyncError does, because nothing promises that it has.
static ncclResult_t ensureReady(const Comm &comm) {
  if (comm.error != ncclSuccess)
    return fail(comm.error, comm.errorText);
  if (comm.aborted)
    return fail(ncclInvalidUsage, "the communicator was aborted");
  if (comm.isAdvancing() || comm.mustPoll)
    return fail(ncclInvalidArgument, "Attempt to use communicator before the previous operation returned ncclSuccess");
  return ncclSuccess;
}

/// Handles a call that fails on a non-blocking communicator: the communicator keeps the error, and then only
/// ncclCommAbort is allowed (ncclEnqueueCheck, ncclCommFinalize).
static ncclResult_t keepError(Comm &comm, ncclResult_t result) {
  if (result != ncclSuccess && !comm.blocking && comm.error == ncclSuccess) {
    comm.error = result;
    comm.errorText = lastError;
  }
  return noteInGroup(result);
}

/// For a parent that does not block, NCCL returns success while *result is null and nothing is known yet: NCCLCHECK
/// (checks.h) drops the ncclInProgress that ncclGroupEndInternal returns. The parent is in progress until
/// ncclCommGetAsyncError says otherwise; until then it refuses everything, and *result is not valid, not even to show
/// that there is no colour.
PC_EXPORT ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t *result, ncclConfig_t *config) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  if (ncclResult_t why = ensureReady(*comm); why != ncclSuccess)
    return noteInGroup(why);
  *result = nullptr;
  std::optional<ncclConfig_t> copy;
  if (config)
    copy = *config;
  ncclResult_t begun =
      launchInGroup(lock, {comm, [=] { return beginSplit(comm, color, key, copy ? &*copy : nullptr, result); }});
  return begun == ncclInProgress ? ncclSuccess : begun;
}

PC_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  comm->advance();
  if (bool connects = !comm->connecting.empty(); connects || (comm->finalizing && comm->queued > 0))
    letTimePass(connects);
  comm->mustPoll = false;
  *error = comm->error != ncclSuccess ? fail(comm->error, comm->errorText)
           : comm->isAdvancing()      ? ncclInProgress
                                      : ncclSuccess;
  if ((*error == ncclSuccess || *error == ncclInProgress) && stickyError() != CUDA_SUCCESS)
    *error = fail(ncclUnhandledCudaError, explanation(stickyError()));
  return ncclSuccess;
}

PC_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  if (ncclResult_t why = ensureReady(*comm); why != ncclSuccess)
    return keepError(*comm, why);
  if (comm->finalizing)
    return keepError(*comm, fail(ncclInvalidArgument, "ncclCommFinalize: called twice"));
  comm->finalizing = true;
  if (!comm->blocking) {
    comm->mustPoll = true;
    return ncclInProgress;
  }
  return waitForAll(lock) == CUDA_SUCCESS ? ncclSuccess : fail(ncclUnhandledCudaError, explanation(stickyError()));
}

/// Frees a communicator at the end of the group, or now: ncclAsyncLaunch of commReclaim, which makes the group one
/// that blocks.
static ncclResult_t end(Lock &lock, ncclComm_t handle) {
  if (group.depth == 0)
    return reclaim(lock, {handle});
  group.blocking = true;
  group.ending.push_back(handle);
  return ncclSuccess;
}

PC_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  if (ncclResult_t why = ensureReady(*comm); why != ncclSuccess) {
    ++group.depth; // NCCL also returns between ncclGroupStartInternal and ncclGroupEndInternal, and destroys nothing
    return noteInGroup(why);
  }
  return end(lock, handle);
}

/// Ends calls in flight without writing their results, in any state of the communicator. Splits end now, and write
/// their results.
PC_EXPORT ncclResult_t ncclCommAbort(ncclComm_t handle) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  comm->aborted = true;
  endSplits(*comm);
  return end(lock, handle);
}

PC_EXPORT ncclResult_t ncclCommCount(ncclComm_t handle, int *count) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  if (ncclResult_t why = ensureReady(*comm); why != ncclSuccess)
    return why;
  *count = comm->size;
  return ncclSuccess;
}

PC_EXPORT ncclResult_t ncclCommUserRank(ncclComm_t handle, int *rank) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  if (ncclResult_t why = ensureReady(*comm); why != ncclSuccess)
    return why;
  *rank = comm->rank;
  return ncclSuccess;
}

PC_EXPORT ncclResult_t ncclCommCuDevice(ncclComm_t handle, int *device) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  if (ncclResult_t why = ensureReady(*comm); why != ncclSuccess)
    return why;
  *device = comm->device;
  return ncclSuccess;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

PC_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
PC_EXPORT CUresult cuMemFree_v2(CUdeviceptr at);

PC_EXPORT ncclResult_t ncclMemAlloc(void **at, size_t bytes) {
  CUdeviceptr address;
  if (cuMemAlloc_v2(&address, bytes) != CUDA_SUCCESS)
    return ncclUnhandledCudaError;
  *at = reinterpret_cast<void *>(address);
  return ncclSuccess;
}

PC_EXPORT ncclResult_t ncclMemFree(void *at) {
  return cuMemFree_v2(reinterpret_cast<CUdeviceptr>(at)) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

static ncclResult_t checkBuffer(const void *at, size_t bytes) {
  if (isDeviceMemory(at, static_cast<int64_t>(bytes)))
    return ncclSuccess;
  return fail(ncclInvalidArgument, describeMemory(at, static_cast<int64_t>(bytes)) + " is not device memory");
}

PC_EXPORT ncclResult_t ncclCommRegister(ncclComm_t handle, void *at, size_t bytes, void **registration) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  *registration = at;
  return checkBuffer(at, bytes);
}

PC_EXPORT ncclResult_t ncclCommDeregister(ncclComm_t, void *) { return ncclSuccess; }

PC_EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void *at, size_t bytes, ncclWindow_t *window,
                                              int flags) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  if (reinterpret_cast<uintptr_t>(at) % 4096 || flags & ~1)
    return fail(ncclInvalidArgument, "a window must be aligned to 4096 bytes and have no flag except symmetric");
  *window = reinterpret_cast<ncclWindow_t>(at);
  return checkBuffer(at, bytes);
}

PC_EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Returns true if the buffers overlap in a way that is not in place.
static bool overlapsBadly(const Call &call, const Comm &comm) {
  auto *in = static_cast<const char *>(call.in);
  auto *out = static_cast<char *>(call.out);
  int64_t bytes = call.count * ncclElementBytes(call.dtype);
  int64_t ins = inBytes(call, comm.rank, comm.size), outs = outBytes(call, comm.rank, comm.size);
  if (!ins || !outs || in + ins <= out || out + outs <= in)
    return false;
  switch (call.kind) {
  case Call::AllGather:
    return in != out + comm.rank * bytes;
  case Call::ReduceScatter:
    return out != in + comm.rank * bytes;
  case Call::AllToAll:
    return true;
  default:
    return in != out;
  }
}

static ncclResult_t checkCall(const CommRef &comm, CUstream stream, const Call &call) {
  if (ncclResult_t why = ensureReady(*comm); why != ncclSuccess)
    return why;
  if (call.dtype < 0 || call.dtype > ncclBfloat16 || call.reduction < 0 || call.reduction > ncclAvg || call.count < 0)
    return fail(ncclInvalidArgument, "the type, reduction or count is not supported by the stand-in");
  if (call.peer < 0 || call.peer >= comm->size)
    return fail(ncclInvalidArgument, describe(call) + ": there is no rank " + std::to_string(call.peer));
  if (call.dtype == ncclFloat16 && (call.kind == Call::AllReduce || call.kind == Call::ReduceScatter))
    return fail(ncclInvalidArgument, "the stand-in does not support sums of f16");
  if (deviceOf(stream) != comm->device)
    return fail(ncclInvalidArgument, describe(call) + ": the stream is not on the communicator's device");
  for (auto [at, bytes] : {std::pair{call.in, inBytes(call, comm->rank, comm->size)},
                           std::pair{static_cast<const void *>(call.out), outBytes(call, comm->rank, comm->size)}})
    if (bytes && checkBuffer(at, bytes) != ncclSuccess)
      return fail(ncclInvalidArgument, describe(call) + ": " + lastError);
  if (overlapsBadly(call, *comm))
    return fail(ncclInvalidArgument, describe(call) + ": the buffers overlap, but are not the same");
  return group.depth > 0 ? joinGroup(*comm) : ncclSuccess;
}

static ncclResult_t issue(ncclComm_t handle, CUstream stream, Call call) {
  Lock lock(driverMutex());
  FIND(comm, handle);
  if (ncclResult_t why = checkCall(comm, stream, call); why != ncclSuccess)
    return keepError(*comm, why);
  if (call.count == 0)
    return ncclSuccess;
  if (group.depth > 0) {
    group.calls.push_back({comm, stream, call});
    return ncclSuccess;
  }
  return submitCalls(lock, {{comm, stream, call}});
}

static int64_t n(size_t count) { return static_cast<int64_t>(count); }

PC_EXPORT ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                     ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Call::AllReduce, in, out, n(count), type, op, 0});
}
PC_EXPORT ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                                     cudaStream_t stream) {
  return issue(comm, stream, {Call::AllGather, in, out, n(count), type, 0, 0});
}
PC_EXPORT ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                         ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Call::ReduceScatter, in, out, n(count), type, op, 0});
}
PC_EXPORT ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                                     ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Call::Broadcast, in, out, n(count), type, 0, root});
}
PC_EXPORT ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  int root, ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Call::Reduce, in, out, n(count), type, op, root});
}
PC_EXPORT ncclResult_t ncclAlltoAll(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream) {
  return issue(comm, stream, {Call::AllToAll, in, out, n(count), type, 0, 0});
}
PC_EXPORT ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
  return issue(comm, stream, {Call::Send, in, nullptr, n(count), type, 0, peer});
}
PC_EXPORT ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
  return issue(comm, stream, {Call::Receive, nullptr, out, n(count), type, 0, peer});
}
