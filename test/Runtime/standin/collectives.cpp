//===- collectives.cpp - The NCCL of the stand-in -------------------------===//
// usage: standin-collectives threads|processes
// Every call on 1 to 4 ranks compared with expected values; split communicators, groups, captured calls; calls that
// NCCL refuses while an operation is in progress; then programs whose ranks disagree, wait for each other in a circle,
// or are aborted: each ends with a report that names both sides.
//===----------------------------------------------------------------------===//
#include "Cuda.h"
#include "standin/Numbers.h"
#include "standin/abi/Nccl.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

extern "C" {
const char *ncclGetErrorString(ncclResult_t);
const char *ncclGetLastError(ncclComm_t);
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t ncclCommFinalize(ncclComm_t);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommCount(ncclComm_t, int *);
ncclResult_t ncclCommUserRank(ncclComm_t, int *);
ncclResult_t ncclCommCuDevice(ncclComm_t, int *);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllGather(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclBroadcast(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclAlltoAll(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
}

namespace {

ncclConfig_t config(const char *name, int blocking) {
  ncclConfig_t c;
  memset(&c, 0xff, sizeof c);
  c.size = sizeof c, c.magic = 0xcafebeef, c.version = 22809;
  c.blocking = blocking;
  c.cgaClusterSize = c.minCTAs = c.maxCTAs = NCCL_CONFIG_UNDEF_INT;
  c.netName = nullptr, c.commName = name;
  return c;
}

/// Polls until the operation in progress on `comm` has ended.
ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    usleep(20);
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess)
      return ncclInternalError;
  }
  return state;
}

/// Checks a call that may still be in progress when it returns.
#define NCCL(comm, call)                                                                                               \
  do {                                                                                                                 \
    ncclResult_t code_ = (call);                                                                                       \
    if (code_ == ncclInProgress)                                                                                       \
      code_ = settle(comm);                                                                                            \
    if (code_ != ncclSuccess) {                                                                                        \
      fprintf(stderr, "error: line %d: %s: %s, %s\n", __LINE__, #call, ncclGetErrorString(code_),                      \
              ncclGetLastError(nullptr));                                                                              \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/// Splits a parent that does not block. The call must return success, and then waits until the parent has settled.
ncclComm_t split(ncclComm_t parent, int color, int key, ncclConfig_t *config) {
  ncclComm_t made = parent;
  CHECK(ncclCommSplit(parent, color, key, &made, config) == ncclSuccess);
  CHECK(made == nullptr);
  CHECK(settle(parent) == ncclSuccess);
  CHECK(!made || settle(made) == ncclSuccess);
  return made;
}

/// A rank with a communicator and two streams on its device.
struct Rank {
  int rank, size;
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr, other = nullptr;

  Rank(int rank, int size, ncclUniqueId id, bool processes) : rank(rank), size(size) {
    useDevice(processes ? rank % 4 : rank);
    stream = makeStream();
    other = makeStream();
    ncclConfig_t c = config("dp", 0);
    NCCL(comm, ncclCommInitRankConfig(&comm, size, id, rank, &c));
  }
};

/// Ends a rank whose communicator was not aborted. One with an error cannot be destroyed.
void leave(Rank &r) {
  if (r.comm && settle(r.comm) == ncclSuccess)
    ncclCommDestroy(r.comm);
  else if (r.comm)
    ncclCommAbort(r.comm);
}

/// The first collective of a communicator, in which the hosts wait for each other.
void connect(Rank &r, ncclComm_t comm) {
  float *a = deviceArray<float>(1);
  OK(cuMemsetD32Async(address(a), 0, 1, r.stream));
  NCCL(comm, ncclAllReduce(a, a, 1, ncclFloat32, ncclSum, comm, r.stream));
  OK(cuStreamSynchronize(r.stream));
}

float value(int rank, int i) { return static_cast<float>(rank * 1000 + i); }

const int sumSeed = getenv("PC_STANDIN_SUMS") ? atoi(getenv("PC_STANDIN_SUMS")) : 0;

/// Tests sums that are not exact, in f32 and bf16. All ranks have the same bits, which depend on the order. A maximum
/// ignores NaN.
void testSums(Rank &r) {
  constexpr int n = 60;
  int s = r.size, orders = 0;
  float *in = deviceArray<float>(n), *out = deviceArray<float>(n), *all = deviceArray<float>(n * s);
  float *host = pinnedArray<float>(n * s);
  for (int i = 0; i < n; ++i)
    // The small addends are lost if they are added to 1 one by one, but not if they are added to each other first.
    host[i] = r.rank == 0 ? 1.0f : 4e-8f;
  host[0] = r.rank == 0 ? NAN : 2.0f;
  OK(cuMemcpyHtoDAsync_v2(address(in), host, n * 4, r.stream));
  for (ncclRedOp_t reduction : {ncclMax, ncclSum}) {
    NCCL(r.comm, ncclAllReduce(in, out, n, ncclFloat32, reduction, r.comm, r.stream));
    NCCL(r.comm, ncclAllGather(out, all, n, ncclFloat32, r.comm, r.stream));
    OK(cuMemcpyDtoHAsync_v2(host, address(all), n * s * 4, r.stream));
    OK(cuStreamSynchronize(r.stream));
    CHECK(s == 1 || (reduction == ncclMax ? host[0] == 2 : std::isnan(host[0])));
    for (int i = 0; i < n * s; ++i)
      CHECK(!memcmp(&host[i], &host[i % n], 4));
    for (int i = 2; i < n && reduction == ncclSum; ++i)
      orders += host[i] != host[1];
  }
  CHECK(sumSeed || orders == 0);
  if (sumSeed == 1 && s == 4)
    CHECK(orders > 0);
}

void testCalls(Rank &r) {
  constexpr int n = 100;
  int s = r.size, all = n * s;
  float *in = deviceArray<float>(all), *out = deviceArray<float>(all);
  auto *in16 = deviceArray<uint16_t>(n), *out16 = deviceArray<uint16_t>(n);
  float *host = pinnedArray<float>(all);
  auto *host16 = pinnedArray<uint16_t>(n);
  for (int i = 0; i < all; ++i)
    host[i] = value(r.rank, i);
  for (int i = 0; i < n; ++i)
    host16[i] = pc::standin::toBf16(static_cast<float>(r.rank + 1) / 3);
  OK(cuMemcpyHtoDAsync_v2(address(in), host, all * 4, r.stream));
  OK(cuMemcpyHtoDAsync_v2(address(in16), host16, n * 2, r.stream));
  OK(cuStreamSynchronize(r.stream));
  std::vector<float> got(all);
  auto fetch = [&](int count) {
    OK(cuMemcpyDtoHAsync_v2(host, address(out), count * 4, r.stream));
    OK(cuStreamSynchronize(r.stream));
    got.assign(host, host + count);
  };
  auto sum = [&](int i) {
    float total = value(0, i);
    for (int rank = 1; rank < s; ++rank)
      total += value(rank, i);
    return total;
  };

  NCCL(r.comm, ncclAllReduce(in, out, n, ncclFloat32, ncclSum, r.comm, r.stream));
  fetch(n);
  for (int i = 0; i < n; ++i)
    CHECK(got[i] == sum(i));
  NCCL(r.comm, ncclAllReduce(in, out, n, ncclFloat32, ncclMax, r.comm, r.stream));
  fetch(n);
  for (int i = 0; i < n; ++i)
    CHECK(got[i] == value(s - 1, i));
  NCCL(r.comm, ncclAllReduce(in16, out16, n, ncclBfloat16, ncclSum, r.comm, r.stream));
  OK(cuMemcpyDtoHAsync_v2(host16, address(out16), n * 2, r.stream));
  OK(cuStreamSynchronize(r.stream));
  float total = 0, exact = 0; // rounded at every hop, by default in the order of the ranks
  for (int rank = 0; rank < s; ++rank) {
    float addend = pc::standin::fromBf16(pc::standin::toBf16(static_cast<float>(rank + 1) / 3));
    total = pc::standin::fromBf16(pc::standin::toBf16(total + addend));
    exact += addend;
  }
  float hops = static_cast<float>(s) / 256 * exact;
  CHECK(sumSeed ? std::fabs(pc::standin::fromBf16(host16[n - 1]) - exact) <= hops
                : host16[n - 1] == pc::standin::toBf16(total));

  NCCL(r.comm, ncclAllGather(in, out, n, ncclFloat32, r.comm, r.stream));
  fetch(all);
  for (int i = 0; i < all; ++i)
    CHECK(got[i] == value(i / n, i % n));
  NCCL(r.comm, ncclReduceScatter(in, out, n, ncclFloat32, ncclSum, r.comm, r.stream));
  fetch(n);
  for (int i = 0; i < n; ++i)
    CHECK(got[i] == sum(r.rank * n + i));
  NCCL(r.comm, ncclBroadcast(in, out, n, ncclFloat32, s - 1, r.comm, r.stream));
  fetch(n);
  CHECK(got[7] == value(s - 1, 7));
  NCCL(r.comm, ncclReduce(in, r.rank == 0 ? out : nullptr, n, ncclFloat32, ncclSum, 0, r.comm, r.stream));
  fetch(n);
  CHECK(got[3] == (r.rank == 0 ? sum(3) : value(s - 1, 3)));
  NCCL(r.comm, ncclAlltoAll(in, out, n, ncclFloat32, r.comm, r.stream));
  fetch(all);
  for (int i = 0; i < all; ++i)
    CHECK(got[i] == value(i / n, r.rank * n + i % n));

  // Runs a ring of messages and a collective in one group, three times by a graph.
  OK(cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  NCCL(r.comm, ncclGroupStart());
  NCCL(r.comm, ncclSend(in, n, ncclFloat32, (r.rank + 1) % s, r.comm, r.stream));
  NCCL(r.comm, ncclRecv(out, n, ncclFloat32, (r.rank + s - 1) % s, r.comm, r.stream));
  NCCL(r.comm, ncclGroupEnd());
  NCCL(r.comm, ncclAllReduce(out, out, n, ncclFloat32, ncclSum, r.comm, r.stream));
  CUgraph graph;
  CUgraphExec exec;
  OK(cuStreamEndCapture(r.stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  for (int step = 0; step < 3; ++step) {
    OK(cuGraphLaunch(exec, r.stream));
    fetch(n);
    for (int i = 0; i < n; ++i)
      CHECK(got[i] == sum(i));
  }
  OK(cuGraphExecDestroy(exec));

  // Splits the ranks into halves, in reverse order. Then calls two communicators on two streams without an order
  // between them.
  ncclConfig_t c = config("half", 0);
  ncclComm_t half = split(r.comm, r.rank % 2, -r.rank, &c);
  CHECK(half != nullptr);
  int count = 0, place = -1;
  NCCL(half, ncclCommCount(half, &count));
  NCCL(half, ncclCommUserRank(half, &place));
  CHECK(count == (s + 1 - r.rank % 2) / 2 && place == count - 1 - r.rank / 2);
  CHECK(split(r.comm, NCCL_SPLIT_NOCOLOR, 0, nullptr) == nullptr);
  ncclConfig_t clusters = config("clusters", 0);
  clusters.maxCTAs = 2;
  ncclComm_t never = nullptr;
  CHECK(ncclCommSplit(r.comm, 0, r.rank, &never, &clusters) == ncclInvalidArgument && !never);
  float *out2 = deviceArray<float>(n);
  NCCL(half, ncclAllReduce(in, out2, n, ncclFloat32, ncclSum, half, r.other));
  OK(cuStreamSynchronize(r.other));
  float expected = 0;
  for (int rank = r.rank % 2; rank < s; rank += 2)
    expected += value(rank, 5);
  CHECK(out2[5] == expected);
  NCCL(half, ncclCommFinalize(half));
  CHECK(ncclCommDestroy(half) == ncclSuccess);
  // Tests buffers that overlap, and streams and types that do not match. The communicator keeps the error.
  auto isRefused = [&](const std::function<ncclResult_t(ncclComm_t)> &call) {
    ncclComm_t comm = split(r.comm, 0, r.rank, &c);
    CHECK(call(comm) == ncclInvalidArgument);
    CHECK(settle(comm) == ncclInvalidArgument);
    CHECK(ncclAllReduce(in, out, n, ncclFloat32, ncclSum, comm, r.stream) == ncclInvalidArgument);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
  };
  if (s > 1)
    isRefused([&](ncclComm_t comm) { return ncclAllGather(out + 1, out, n, ncclFloat32, comm, r.stream); });
  isRefused([&](ncclComm_t comm) { return ncclAllReduce(host, out, n, ncclFloat32, ncclSum, comm, r.stream); });
  isRefused([&](ncclComm_t comm) { return ncclAllReduce(in, out, n, ncclFloat32, ncclSum, comm, nullptr); });
  CHECK(pc_standin_reports() == 0);
}

/// Tests NCCL's answers for communicators with an operation in progress.
void testUnsettled(Rank &r) {
  ncclConfig_t c = config("tp", 0), blocks = config("blocks", 1);
  ncclComm_t first = nullptr, second = nullptr, kept = r.comm;
  int number = -1;
  ncclResult_t state;
  CHECK(ncclCommSplit(r.comm, 0, r.rank, &first, &c) == ncclSuccess && !first);
  CHECK(ncclCommSplit(r.comm, 0, r.rank, &kept, &c) == ncclInvalidArgument && kept == r.comm);
  CHECK(has(ncclGetLastError(nullptr), "before the previous operation returned ncclSuccess"));
  CHECK(ncclCommCount(r.comm, &number) == ncclInvalidArgument && number == -1);
  CHECK(ncclCommUserRank(r.comm, &number) == ncclInvalidArgument && number == -1);
  CHECK(ncclCommCuDevice(r.comm, &number) == ncclInvalidArgument && number == -1);
  CHECK(ncclCommGetAsyncError(r.comm, &state) == ncclSuccess && state == ncclInProgress && !first);
  CHECK(settle(r.comm) == ncclSuccess && first);
  CHECK(ncclCommCount(first, &number) == ncclSuccess && number == r.size);

  // All splits of a group begin at its end, and the call that ends it reports that they are in progress. Splits of
  // blocking and non-blocking parents cannot be in one group.
  ncclComm_t third = nullptr;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommSplit(r.comm, 0, r.rank, &second, &c) == ncclSuccess);
  CHECK(ncclCommSplit(r.comm, NCCL_SPLIT_NOCOLOR, 0, &third, nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress && !second);
  CHECK(settle(r.comm) == ncclSuccess && second && !third);
  ncclComm_t blocking = split(r.comm, 0, r.rank, &blocks);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommSplit(r.comm, 0, r.rank, &third, &c) == ncclSuccess);
  CHECK(ncclCommSplit(blocking, 0, r.rank, &third, &c) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument && !third);
  CHECK(ncclCommSplit(blocking, 0, r.rank, &third, nullptr) == ncclSuccess && third);
  CHECK(ncclCommDestroy(third) == ncclSuccess && ncclCommDestroy(blocking) == ncclSuccess);

  // A refused call leaves its error in the communicator; after that only an abort works.
  float *a = deviceArray<float>(8);
  OK(cuMemsetD32Async(address(a), 0, 8, r.stream));
  CHECK(ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, first, r.stream) == ncclInProgress);
  CHECK(ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, first, r.stream) == ncclInvalidArgument);
  CHECK(settle(first) == ncclInvalidArgument);
  OK(cuStreamSynchronize(r.stream));
  CHECK(ncclCommAbort(first) == ncclSuccess);
  CHECK(ncclCommFinalize(second) == ncclInProgress);
  CHECK(settle(second) == ncclSuccess);
  CHECK(ncclCommFinalize(second) == ncclInvalidArgument);
  CHECK(ncclCommAbort(second) == ncclSuccess);

  // A split in progress when its parent is aborted still writes its result.
  first = nullptr;
  CHECK(ncclCommSplit(r.comm, 0, r.rank, &first, &c) == ncclSuccess && !first);
  CHECK(ncclCommDestroy(r.comm) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument); // ncclCommDestroy has left the group open
  CHECK(ncclCommAbort(std::exchange(r.comm, nullptr)) == ncclSuccess);
  CHECK(first && ncclCommGetAsyncError(first, &state) == ncclSuccess && state == ncclInternalError);
  CHECK(ncclCommAbort(first) == ncclSuccess);
  CHECK(pc_standin_reports() == 0);
}

/// The ranks call two communicators in opposite orders. If `polls`, the host polls instead of waiting.
void testCircle(Rank &r, bool polls) {
  ncclConfig_t c = config("tp", 0);
  ncclComm_t second = split(r.comm, 0, r.rank, &c);
  float *a = deviceArray<float>(8), *b = deviceArray<float>(8);
  ncclComm_t comms[] = {r.comm, second};
  float *arrays[] = {a, b};
  for (ncclComm_t comm : comms)
    connect(r, comm);
  for (int i = 0; i < 2; ++i) { // one stream, opposite orders
    int which = r.rank == 1 ? 1 - i : i;
    OK(cuMemsetD32Async(address(arrays[which]), 0, 8, r.stream));
    NCCL(comms[which], ncclAllReduce(arrays[which], arrays[which], 8, ncclFloat32, ncclSum, comms[which], r.stream));
  }
  CUresult result = CUDA_ERROR_NOT_READY;
  while (polls && result == CUDA_ERROR_NOT_READY) {
    result = cuStreamQuery(r.stream);
    usleep(100);
  }
  CHECK((polls ? result : cuStreamSynchronize(r.stream)) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(has(reports(), "deadlock: rank 0 waits in all_reduce sum of 8 f32 of 'dp'"));
  CHECK(has(reports(), "rank 1 waits in all_reduce sum of 8 f32 of 'tp'"));
}

/// The ranks call different collectives at the same place.
void testMismatch(Rank &r) {
  float *a = deviceArray<float>(64);
  OK(cuMemsetD32Async(address(a), 0, 64, r.stream));
  ncclResult_t begun = r.rank == 1 ? ncclAllGather(a + 4, a, 4, ncclFloat32, r.comm, r.stream)
                                   : ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, r.comm, r.stream);
  CHECK(begun == ncclInProgress); // another thread may have found the mismatch before this call settles
  CHECK(cuStreamSynchronize(r.stream) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(has(reports(), "all_reduce sum of 8 f32") && has(reports(), "all_gather of 4 f32"));
  CHECK(has(reports(), "rank 0 calls") && has(reports(), "rank 1 calls"));
}

/// A message has another length than its receiver expects.
void testMessage(Rank &r) {
  float *a = deviceArray<float>(64);
  OK(cuMemsetD32Async(address(a), 0, 64, r.stream));
  if (r.rank == 0)
    CHECK(ncclSend(a, 8, ncclFloat32, 1, r.comm, r.stream) == ncclInProgress);
  else
    CHECK(ncclRecv(a, 9, ncclFloat32, 0, r.comm, r.stream) == ncclInProgress);
  cuStreamSynchronize(r.stream);
  if (r.rank == 1)
    CHECK(has(reports(), "rank 1 calls receive of 9 f32 from rank 0, rank 0 calls send of 8 f32 to rank 1"));
}

/// Rank 1 never calls; the others are aborted from another thread.
void testAbort(Rank &r) {
  connect(r, r.comm);
  if (r.rank == 1)
    return;
  float *a = deviceArray<float>(8);
  OK(cuMemsetD32Async(address(a), 0, 8, r.stream));
  NCCL(r.comm, ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, r.comm, r.stream));
  std::thread monitor([&] {
    usleep(20000);
    CHECK(ncclCommAbort(r.comm) == ncclSuccess);
    r.comm = nullptr;
  });
  OK(cuStreamSynchronize(r.stream));
  monitor.join();
}

/// Graphs keep the communicators of their calls alive, so these end only after the graphs are destroyed. In a group,
/// all communicators are aborted together. Otherwise a call on the second waits for rank 1 until the first has ended.
void testAbortWithGraph(Rank &r, bool grouped) {
  ncclConfig_t c = config("tp", 0);
  ncclComm_t second = split(r.comm, 0, r.rank, &c), first = std::exchange(r.comm, nullptr);
  float *a = deviceArray<float>(8);
  OK(cuMemsetD32Async(address(a), 0, 8, r.stream));
  OK(cuStreamSynchronize(r.stream));
  OK(cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (ncclComm_t comm : {grouped ? second : first, grouped ? first : second})
    NCCL(comm, ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, comm, r.stream));
  CUgraph graph;
  CUgraphExec exec;
  OK(cuStreamEndCapture(r.stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  if (r.rank == 0)
    OK(cuGraphLaunch(exec, r.stream));
  std::atomic<int> ended = 0;
  std::thread monitor([&] {
    if (grouped)
      CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommAbort(first) == ncclSuccess);
    ended += !grouped;
    CHECK(ncclCommAbort(second) == ncclSuccess);
    CHECK(!grouped || ncclGroupEnd() == ncclSuccess);
    ++ended;
  });
  if (grouped) // only the launch ends
    OK(cuStreamSynchronize(r.stream));
  usleep(50000);
  CHECK(ended == 0);
  if (!grouped && r.rank == 0)
    CHECK(cuStreamQuery(r.stream) == CUDA_ERROR_NOT_READY);
  OK(cuGraphExecDestroy(exec));
  monitor.join();
  OK(cuStreamSynchronize(r.stream));
}

/// Connects two lanes, which have a message each way.
struct Lanes {
  ncclComm_t there, back;

  explicit Lanes(Rank &r, bool connected = true) {
    ncclConfig_t c = config("lane", 0);
    there = split(r.comm, 0, r.rank, &c), back = split(r.comm, 0, r.rank, &c);
    for (ncclComm_t lane : {there, back}) {
      float *a = deviceArray<float>(8);
      bool sends = (lane == back) == (r.rank == 0);
      OK(cuMemsetD32Async(address(a), 0, 8, r.stream));
      if (connected)
        NCCL(lane, sends ? ncclSend(a, 8, ncclFloat32, 1 - r.rank, lane, r.stream)
                         : ncclRecv(a, 8, ncclFloat32, 1 - r.rank, lane, r.stream));
    }
    OK(cuStreamSynchronize(r.stream));
  }
};

/// Rank 1 sends a message, and rank 0 answers it. If the receive of the answer begins before the send (`early`), the
/// ranks stop unless a device runs two calls at a time, and the receive does not come before the send in its queue. The
/// nodes of a graph have no streams, so they may be in one queue.
void testReceives(Rank &r, bool early, bool captured, bool stops) {
  Lanes lanes(r);
  float *a = deviceArray<float>(8), *b = deviceArray<float>(8);
  CUevent begin = makeEvent(), end = makeEvent();
  if (captured)
    OK(cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuEventRecord(begin, r.stream));
  OK(cuStreamWaitEvent(r.other, begin, 0));
  if (r.rank == 1) {
    if (early)
      NCCL(lanes.back, ncclRecv(b, 8, ncclFloat32, 0, lanes.back, r.other));
    OK(cuMemsetD32Async(address(a), 7, 8, r.stream));
    NCCL(lanes.there, ncclSend(a, 8, ncclFloat32, 0, lanes.there, r.stream));
    if (!early)
      NCCL(lanes.back, ncclRecv(b, 8, ncclFloat32, 0, lanes.back, r.other));
  } else {
    NCCL(lanes.there, ncclRecv(a, 8, ncclFloat32, 1, lanes.there, r.stream));
    NCCL(lanes.back, ncclSend(a, 8, ncclFloat32, 1, lanes.back, r.stream));
  }
  OK(cuEventRecord(end, r.other));
  OK(cuStreamWaitEvent(r.stream, end, 0));
  if (captured) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamEndCapture(r.stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, r.stream));
  }
  CHECK((cuStreamSynchronize(r.stream) == CUDA_ERROR_LAUNCH_FAILED) == stops);
  CHECK(has(reports(), "deadlock: ") == stops);
}

/// The hosts of both ranks receive first, and wait there for each other to connect.
void testFirstMessages(Rank &r) {
  Lanes lanes(r, false);
  ncclComm_t lane = r.rank ? lanes.back : lanes.there;
  float *a = deviceArray<float>(8);
  CHECK(ncclRecv(a, 8, ncclFloat32, 1 - r.rank, lane, r.stream) == ncclInProgress);
  CHECK(settle(lane) == ncclUnhandledCudaError);
  CHECK(has(reports(), "deadlock: ") && has(reports(), "the first call of 'lane'"));
}

/// A group must be captured as a whole, or not at all.
void testHalfCaptured(Rank &r, bool two) {
  ncclConfig_t c = config("tp", 0);
  ncclComm_t second = split(r.comm, 0, r.rank, &c);
  float *a = deviceArray<float>(8);
  OK(cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
  CHECK(ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, two ? second : r.comm, r.other) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(has(ncclGetLastError(nullptr), two ? "Either none or all communicators" : "all captured by the same graph"));
  CUgraph graph;
  OK(cuStreamEndCapture(r.stream, &graph));
  CHECK(ncclCommAbort(second) == ncclSuccess);
}

/// Two calls on one communicator have no order between them.
void testUnordered(Rank &r) {
  float *a = deviceArray<float>(8), *b = deviceArray<float>(8);
  OK(cuMemsetD32Async(address(a), 0, 8, r.stream));
  OK(cuMemsetD32Async(address(b), 0, 8, r.other));
  NCCL(r.comm, ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, r.comm, r.stream));
  NCCL(r.comm, ncclAllReduce(b, b, 8, ncclFloat32, ncclMax, r.comm, r.other));
  cuCtxSynchronize();
  CHECK(has(reports(), "all_reduce sum") && has(reports(), "all_reduce max") &&
        has(reports(), "the order of calls on"));
}

bool processes;

/// Runs `body` on `size` ranks.
void run(const char *name, int size, std::function<void(Rank &)> body) {
  pc_standin_reset(getenv("PC_STANDIN_SEED") ? strtoull(getenv("PC_STANDIN_SEED"), nullptr, 0) : 0);
  useDevice(0);
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess)
    exit(1);
  int before = failures;
  if (processes) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
      pid_t child = fork();
      if (child == 0) {
        failures = 0;
        Rank r(rank, size, id, true);
        body(r);
        leave(r);
        _exit(failures != 0);
      }
      children.push_back(child);
    }
    for (pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      failures += status != 0;
    }
  } else {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        Rank r(rank, size, id, false);
        body(r);
        leave(r);
      });
    for (auto &thread : threads)
      thread.join();
  }
  printf("%s on %d ranks: %s\n", name, size, failures == before ? "ok" : "FAILED");
  fflush(stdout);
}

} // namespace

int main(int, char **argv) {
  processes = argv[1] && !strcmp(argv[1], "processes");
  if (const char *queues = getenv("PC_STANDIN_GRAPH_QUEUES")) {
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    const bool oneCall = atoi(getenv("PC_STANDIN_IN_FLIGHT")) == 1, oneQueue = !strcmp(queues, "1");
    for (bool captured : {false, true}) {
      bool stops = oneCall || (captured && oneQueue);
      run("an early receive", 2, [=](Rank &r) { testReceives(r, true, captured, stops); });
      run("a receive in order", 2, [=](Rank &r) { testReceives(r, false, captured, false); });
    }
    return finishChecks();
  }
  for (int size = 1; size <= 4; ++size)
    run("calls", size, testCalls);
  for (int size = 1; size <= 4; ++size)
    run("sums", size, testSums);
  for (int size = 1; size <= 3; ++size)
    run("what goes on", size, testUnsettled);
  run("a circle", 2, [](Rank &r) { testCircle(r, false); });
  if (processes) { // threads of one process that poll are counted as one
    run("a circle, polled", 2, [](Rank &r) { testCircle(r, true); });
    run("first messages", 2, testFirstMessages);
  }
  run("a mismatch", 2, testMismatch);
  run("a wrong message", 2, testMessage);
  run("an abort", 2, testAbort);
  for (bool grouped : {false, true})
    run("an abort with a graph", 2, [=](Rank &r) { testAbortWithGraph(r, grouped); });
  for (bool two : {false, true})
    run("half captured", 2, [=](Rank &r) { testHalfCaptured(r, two); });
  run("no order", 1, testUnordered);
  return finishChecks();
}
