//===- streams.cpp - Missing waits are found, and correct programs are not reported -===//
// A program on three streams with kernels and copies. Each of its waits is left out in turn, live and in a captured
// graph that is replayed, with many seeds. Then calls that CUDA, or the project, refuses.
//===----------------------------------------------------------------------===//
#include "Cuda.h"

#include <functional>
#include <set>
#include <thread>

namespace {

constexpr int n = 1024;

/// An elementwise kernel as a closure.
struct Kernel {
  std::function<void()> body;
};

void launch(const char *name, CUstream stream, std::vector<const float *> ins, float *out, std::function<void()> body) {
  std::vector<pc_standin_access> accesses{{out, n * 4, 1}};
  for (const float *in : ins)
    accesses.push_back({in, n * 4, 0});
  pc_standin_enqueue(
      stream, name, [](void *k) { static_cast<Kernel *>(k)->body(); }, new Kernel{std::move(body)},
      [](void *k) { delete static_cast<Kernel *>(k); }, accesses.data(), accesses.size());
}

void scale(const char *name, const float *x, float *y, float a, float b, CUstream stream) {
  launch(name, stream, {x}, y, [=] {
    for (int i = 0; i < n; ++i)
      y[i] = a * x[i] + b;
  });
}

void multiply(const char *name, const float *x, const float *y, float *z, CUstream stream) {
  launch(name, stream, {x, y}, z, [=] {
    for (int i = 0; i < n; ++i)
      z[i] = x[i] * y[i];
  });
}

/// w = 3 * 2 (x + 1) * 4, over three streams.
struct Program {
  CUstream a = makeStream(), b = makeStream(), c = makeStream();
  CUevent begin = makeEvent(), afterY = makeEvent(), afterZ = makeEvent(), afterW = makeEvent();
  float *x = deviceArray<float>(n), *y = deviceArray<float>(n), *z = deviceArray<float>(n), *w = deviceArray<float>(n);
  float *t = deviceArray<float>(n), *u = deviceArray<float>(n);
  float *in = pinnedArray<float>(n), *out = pinnedArray<float>(n);

  /// `dropped` is the number of the inner wait that is left out, or -1.
  void enqueue(int dropped) const {
    auto wait = [&](int which, CUstream stream, CUevent event) {
      if (which != dropped)
        OK(cuStreamWaitEvent(stream, event, 0));
    };
    OK(cuEventRecord(begin, a));
    OK(cuStreamWaitEvent(b, begin, 0));
    OK(cuStreamWaitEvent(c, begin, 0));
    OK(cuMemcpyHtoDAsync_v2(address(x), in, n * 4, a));
    scale("x += 1", x, x, 1, 1, a);
    scale("y = 2x", x, y, 2, 0, a);
    OK(cuEventRecord(afterY, a));
    OK(cuMemsetD32Async(address(t), 0, n, b));
    for (int i = 0; i < 4; ++i)
      scale("t += 1", t, t, 1, 1, b);
    wait(0, b, afterY);
    multiply("z = y t", y, t, z, b);
    OK(cuEventRecord(afterZ, b));
    OK(cuMemsetD32Async(address(u), 0, n, c));
    scale("u = 3", u, u, 0, 3, c);
    wait(1, c, afterZ);
    multiply("w = z u", z, u, w, c);
    OK(cuEventRecord(afterW, c));
    wait(2, a, afterZ);
    scale("y = 0", y, y, 0, 0, a);
    OK(cuStreamWaitEvent(a, afterW, 0));
    OK(cuStreamWaitEvent(a, afterZ, 0));
    OK(cuMemcpyDtoHAsync_v2(out, address(w), n * 4, a));
  }
};

/// Runs with `seed`. Returns true if the result is right. The caller reads the reports.
bool run(const Program &p, int dropped, bool asGraph, uint64_t seed) {
  pc_standin_reset(seed);
  bool right = true;
  auto check = [&](float base) {
    for (int i = 0; i < n; ++i)
      right &= p.out[i] == 24 * (base + static_cast<float>(i) + 1);
  };
  auto fill = [&](float base) {
    for (int i = 0; i < n; ++i)
      p.in[i] = base + static_cast<float>(i), p.out[i] = -1;
  };
  if (!asGraph) {
    float base = static_cast<float>(seed); // other values each time, so that stale values are wrong
    fill(base);
    p.enqueue(dropped);
    if (cuStreamSynchronize(p.a) == CUDA_SUCCESS)
      check(base);
    cuCtxSynchronize();
    return right;
  }
  OK(cuStreamBeginCapture_v2(p.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  p.enqueue(dropped);
  CUgraph graph;
  OK(cuStreamEndCapture(p.a, &graph));
  CUgraphExec exec;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  for (int step = 0; step < 3; ++step) {
    float base = static_cast<float>(100 * step);
    fill(base);
    if (cuGraphLaunch(exec, p.a) || cuStreamSynchronize(p.a))
      break;
    check(base);
  }
  cuCtxSynchronize();
  cuGraphExecDestroy(exec);
  return right;
}

/// If `goesOn`, reports are not errors in this process.
void testMissingWaits(bool goesOn) {
  Program p;
  const char *first[] = {"y = 2x", "z = y t", "z = y t"}, *second[] = {"z = y t", "w = z u", "y = 0"};
  constexpr int seeds = 50;
  for (bool asGraph : {false, true})
    for (int dropped = -1; dropped < 3; ++dropped) {
      int found = 0, wrong = 0;
      for (int seed = 0; seed <= seeds; ++seed) {
        bool right = run(p, dropped, asGraph, seed);
        std::string text = reports();
        if (dropped < 0) {
          CHECK(right && text.empty());
          continue;
        }
        found += has(text, first[dropped]) && has(text, second[dropped]) && has(text, "bytes [");
        wrong += !right;
      }
      if (dropped >= 0) {
        CHECK(found == seeds + 1);
        // Late reads show in results only if the adversary continues.
        CHECK(!goesOn || wrong > 0);
        printf("%s, wait %d missing: named %d of %d times, results wrong %d times\n", asGraph ? "graph" : "live",
               dropped, found, seeds + 1, wrong);
      }
    }
  pc_standin_reset(0);
}

/// A graph runs kernels with the priorities of their streams only if it is told to. Copies have none.
void testPriorities() {
  CUstream a = makeStream(), same = makeStream(), urgent = makeStream(-5);
  CUevent begin = makeEvent(), end = makeEvent();
  auto *x = deviceArray<float>(n), *y = deviceArray<float>(n);
  auto reportOf = [&](CUstream other, bool kernel, unsigned long long flags) {
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    scale("x += 1", x, x, 1, 1, a);
    OK(cuEventRecord(begin, a));
    OK(cuStreamWaitEvent(other, begin, 0));
    if (kernel)
      scale("y = x", x, y, 1, 0, other);
    else
      OK(cuMemcpyDtoDAsync_v2(address(y), address(x), n * 4, other));
    OK(cuEventRecord(end, other));
    OK(cuStreamWaitEvent(a, end, 0));
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamEndCapture(a, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, flags));
    std::string text = reports();
    pc_standin_reset(0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return text;
  };
  CHECK(has(reportOf(urgent, true, 0), "'x += 1' has priority 0 and 'y = x' has -5"));
  CHECK(reportOf(urgent, true, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY).empty());
  CHECK(reportOf(urgent, false, 0).empty() && reportOf(same, true, 0).empty());
}

CUresult unjoined(const Program &p) {
  OK(cuStreamBeginCapture_v2(p.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuEventRecord(p.begin, p.a));
  OK(cuStreamWaitEvent(p.b, p.begin, 0));
  scale("forgotten", p.t, p.t, 1, 1, p.b);
  CUgraph graph;
  return cuStreamEndCapture(p.a, &graph);
}

std::string reason(CUresult code) {
  const char *text = "";
  cuGetErrorString(code, &text);
  return text;
}

void testRefusals() {
  Program p;
  CUgraph graph;
  std::vector<float> pageable(n);
  // Tests the default stream, pageable memory, addresses outside of device memory, and destroyed streams.
  CHECK(cuMemsetD32Async(address(p.x), 0, n, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(has(reason(CUDA_ERROR_INVALID_HANDLE), "default stream"));
  CHECK(cuMemcpyHtoDAsync_v2(address(p.x), pageable.data(), n * 4, p.a) == CUDA_ERROR_INVALID_VALUE);
  CHECK(has(reason(CUDA_ERROR_INVALID_VALUE), "pageable"));
  CHECK(cuMemcpyHtoDAsync_v2(address(p.x), p.in, n * 4 + 1, p.a) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD32Async(address(pageable.data()), 0, n, p.a) == CUDA_ERROR_INVALID_VALUE);
  CUstream gone = makeStream();
  OK(cuStreamDestroy_v2(gone));
  CHECK(cuStreamSynchronize(gone) == CUDA_ERROR_INVALID_HANDLE);
  CUmodule module;
  CHECK(cuModuleLoadData(&module, "\177ELF and no more of it at all, not at all, not at all, not at all!") ==
        CUDA_ERROR_NO_BINARY_FOR_GPU);

  // A wait, a query or an allocation under capture ends the capture.
  CUdeviceptr at;
  CUevent passed = makeEvent();
  OK(cuEventRecord(passed, p.b));
  for (int what = 0; what < 9; ++what) {
    OK(cuStreamBeginCapture_v2(p.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUresult result = what == 0   ? cuStreamSynchronize(p.a)
                      : what == 1 ? cuStreamQuery(p.a)
                      : what == 2 ? cuMemAlloc_v2(&at, 256)
                      : what == 3 ? cuCtxSynchronize()
                      : what == 4 ? cuStreamQuery(p.b)
                      : what == 5 ? cuEventQuery(passed)
                      : what == 6 ? cuEventSynchronize(passed)
                      : what == 7 ? cuMemFree_v2(address(p.x))
                                  : cuMemcpyDtoH_v2(pageable.data(), address(p.x), 4);
    CHECK(result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cuStreamEndCapture(p.a, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  // A relaxed capture allows what does not conflict with it, and another thread may do all but wait for the context.
  OK(cuStreamBeginCapture_v2(p.a, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemAlloc_v2(&at, 256));
  OK(cuMemFree_v2(at));
  OK(cuEventQuery(passed));
  CHECK(cuStreamQuery(p.a) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(p.a, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamBeginCapture_v2(p.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([&] {
    useDevice(0);
    OK(cuEventSynchronize(passed));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }).join();
  CHECK(cuStreamEndCapture(p.a, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(unjoined(p) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK(has(reason(CUDA_ERROR_STREAM_CAPTURE_UNJOINED), "forgotten"));
  OK(cuStreamBeginCapture_v2(p.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK(cuStreamBeginCapture_v2(p.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_ERROR_ILLEGAL_STATE);
  OK(cuEventRecord(p.begin, p.a));
  OK(cuStreamWaitEvent(p.b, p.begin, 0));
  CHECK(cuStreamEndCapture(p.b, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  CHECK(cuEventSynchronize(p.begin) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(p.a, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuEventQuery(p.begin) == CUDA_ERROR_CAPTURED_EVENT);
  OK(cuEventRecord(p.begin, p.a));
  OK(cuStreamBeginCapture_v2(p.b, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK(cuStreamWaitEvent(p.b, p.begin, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CHECK(cuStreamEndCapture(p.b, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(pc_standin_reports() == 0);
}

/// Returns the order in which independent work on three streams runs. If `captured`, a graph replays the work.
std::string orderOf(int seed, bool copies, bool captured = false) {
  pc_standin_reset(seed);
  static std::string order;
  order.clear();
  CUstream streams[] = {makeStream(), makeStream(), makeStream()};
  auto *from = deviceArray<unsigned>(4), *to = pinnedArray<unsigned>(4);
  OK(cuMemsetD32Async(address(from), 1, 4, streams[0]));
  OK(cuStreamSynchronize(streams[0]));
  memset(to, 0, 16);
  pc_standin_polled(to, 16);
  static unsigned *seen; // for copies: the number of bytes that have arrived when each host function runs
  seen = to;
  CUevent begin = makeEvent(), end = makeEvent();
  if (captured) {
    OK(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(begin, streams[0]));
    OK(cuStreamWaitEvent(streams[1], begin, 0));
    OK(cuStreamWaitEvent(streams[2], begin, 0));
  }
  for (int i = 0; i < 3; ++i) {
    if (copies)
      OK(cuMemcpyDtoHAsync_v2(to + i, address(from), 4, streams[2 - i]));
    static const char names[] = "abc";
    OK(cuLaunchHostFunc(
        streams[2 - i],
        [](void *name) { order += *static_cast<const char *>(name) + std::to_string(seen[0] + seen[1] + seen[2]); },
        const_cast<char *>(names + i)));
  }
  CUgraphExec exec = nullptr;
  if (captured) {
    for (int i = 1; i < 3; ++i) {
      OK(cuEventRecord(end, streams[i]));
      OK(cuStreamWaitEvent(streams[0], end, 0));
    }
    CUgraph graph;
    OK(cuStreamEndCapture(streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, streams[0]));
  }
  OK(cuCtxSynchronize());
  if (exec)
    OK(cuGraphExecDestroy(exec));
  for (CUstream stream : streams)
    OK(cuStreamDestroy_v2(stream));
  return order;
}

/// Streams that share a hardware queue run their work in the order of submission. With one engine for copies to the
/// host, each copy comes after all earlier ones, whatever its stream. A graph has another order each time it is made,
/// also in one queue.
void testQueues(bool one) {
  std::set<std::string> orders, ofGraphs;
  for (int seed = 0; seed < 50; ++seed) {
    orders.insert(orderOf(seed, false));
    ofGraphs.insert(orderOf(seed, false, true));
  }
  CHECK(orders.count("a0b0c0") && (one ? orders.size() == 1 : orders.size() > 1));
  CHECK(ofGraphs.count("a0b0c0") && ofGraphs.size() == 6);
  for (int seed = 0; seed < 50; seed += 2) {
    std::string order = orderOf(seed, true); // b follows its own copy and a's, c follows all three
    CHECK(!has(order, "b1") && !has(order, "c1") && !has(order, "c2"));
  }
  pc_standin_reset(0);
}

void testHost() {
  Program p;
  // The host changes bytes that a copy has not read yet.
  p.in[0] = 1;
  OK(cuMemcpyHtoDAsync_v2(address(p.x), p.in, n * 4, p.a));
  p.in[0] = 2;
  CHECK(cuStreamSynchronize(p.a) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(has(reports(), "the host changed bytes [0, 4096) of pinned memory"));
  CHECK(has(reason(CUDA_ERROR_LAUNCH_FAILED), "the host changed"));
  CHECK(cuMemsetD32Async(address(p.x), 0, n, p.a) == CUDA_ERROR_LAUNCH_FAILED); // sticky
  pc_standin_reset(0);
  // A host function on the stream may change them.
  p.in[0] = 1;
  OK(cuLaunchHostFunc(p.a, [](void *at) { *static_cast<float *>(at) = 5; }, p.in));
  OK(cuMemcpyHtoDAsync_v2(address(p.x), p.in, n * 4, p.a));
  OK(cuMemcpyDtoHAsync_v2(p.out, address(p.x), 4, p.a));
  OK(cuStreamSynchronize(p.a));
  CHECK(p.out[0] == 5);
  // The host may not read bytes that a copy has not written, or for which it has not waited. It may read all other
  // bytes.
  for (bool ran : {false, true}) {
    OK(cuMemcpyDtoHAsync_v2(p.out, address(p.x), 64, p.a));
    for (int i = 0; ran && i < 5; ++i) // time passes
      OK(cuStreamQuery(p.c));
    p.in[0] = p.out[3];
    CHECK(has(reports(), "the host uses bytes [0, 64) of pinned memory") && has(reports(), "'copy to host'"));
    pc_standin_reset(0);
  }
  OK(cuMemcpyDtoHAsync_v2(p.out, address(p.x), 64, p.a));
  p.in[0] = p.out[16];
  OK(cuStreamSynchronize(p.a));
  CHECK(p.out[0] == 5 && pc_standin_reports() == 0);
  // A blocking copy is not ordered after work for which the host did not wait.
  scale("x = 0", p.x, p.x, 0, 0, p.a);
  float value;
  cuMemcpyDtoH_v2(&value, address(p.x), 4);
  cuCtxSynchronize();
  CHECK(has(reports(), "x = 0") && has(reports(), "cuMemcpyDtoH"));
  pc_standin_reset(0);
  // Host functions may not call the driver.
  OK(cuLaunchHostFunc(p.a, [](void *stream) { cuStreamQuery(static_cast<CUstream>(stream)); }, p.a));
  CHECK(cuStreamSynchronize(p.a) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(has(reports(), "cuStreamQuery is called from inside a host function"));
  pc_standin_reset(0);
  // Tests the times between events. A label names sources.
  CUevent start = makeEvent(), end = makeEvent();
  float milliseconds = -1;
  OK(cuEventRecord(start, p.a));
  scale("slow", p.x, p.y, 1, 0, p.a);
  OK(cuEventRecord(end, p.a));
  CHECK(cuEventElapsedTime_v2(&milliseconds, start, end) == CUDA_ERROR_NOT_READY);
  OK(cuEventSynchronize(end));
  OK(cuEventElapsedTime_v2(&milliseconds, start, end));
  CHECK(milliseconds >= 0);
  pc_standin_label("h.0.mlp");
  scale("first", p.x, p.y, 1, 0, p.a);
  pc_standin_label(nullptr);
  scale("second", p.x, p.y, 1, 0, p.b);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(has(reports(), "'first (h.0.mlp)', which writes, and 'second', which writes, bytes [0, 4096) of device"));
  pc_standin_reset(0);
}

void testMemory() {
  size_t granule, before, after, total;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemGetAllocationGranularity(&granule, &properties, 0));
  OK(cuMemGetInfo_v2(&before, &total));
  CUdeviceptr base;
  OK(cuMemAddressReserve(&base, 4 * granule, 0, 0, 0));
  CUmemGenericAllocationHandle handles[2];
  for (int i = 0; i < 2; ++i) {
    OK(cuMemCreate(&handles[i], granule, &properties, 0));
    OK(cuMemMap(base + i * granule, granule, 0, handles[i], 0));
    CHECK(cuMemMap(base + i * granule, granule, 0, handles[i], 0) == CUDA_ERROR_ALREADY_MAPPED);
    OK(cuMemRelease(handles[i]));
  }
  OK(cuMemGetInfo_v2(&after, &total));
  CHECK(before - after == 2 * granule);
  CUstream stream = makeStream();
  CHECK(cuMemsetD32Async(base, 0, 1, stream) == CUDA_ERROR_INVALID_VALUE); // mapped, not accessible
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(base, 2 * granule, &access, 1));
  unsigned char byte = 0;
  // The second mapping is filled as a whole before anything else. The first one is poison then, up to the border.
  OK(cuMemsetD32Async(base + granule, 0, granule / 4, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(&byte, base + granule, 1));
  CHECK(byte == 0);
  for (size_t at : {size_t(0), granule - 1}) {
    OK(cuMemcpyDtoH_v2(&byte, base + at, 1));
    CHECK(byte == 0xff);
  }
  // Memory that was used before is poisoned again.
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  OK(cuMemSetAccess(base + granule, granule, &access, 1));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemSetAccess(base + granule, granule, &access, 1));
  OK(cuMemcpyDtoH_v2(&byte, base + granule, 1));
  CHECK(byte == 0xff);
  OK(cuMemsetD32Async(base, 0, granule / 2, stream));
  CHECK(cuMemsetD32Async(base, 0, granule / 2 + 1, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAddressFree(base, 4 * granule) == CUDA_ERROR_INVALID_VALUE); // still mapped
  OK(cuMemUnmap(base, 2 * granule));
  OK(cuMemAddressFree(base, 4 * granule));
  OK(cuMemGetInfo_v2(&after, &total));
  CHECK(before == after);
  CHECK(cuMemCreate(&handles[0], total, &properties, 0) == (before < total ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS));
  pc_standin_reset(0);
}

} // namespace

int main(int argc, char **argv) {
  bool waitsOnly = argc > 1 && !strcmp(argv[1], "waits");
  const char *queues = getenv("PC_STANDIN_QUEUES");
  useDevice(0);
  testMissingWaits(waitsOnly);
  if (waitsOnly)
    return failures != 0;
  testQueues(queues && !strcmp(queues, "1"));
  if (queues)
    return finishChecks();
  testPriorities();
  testRefusals();
  testHost();
  testMemory();
  return finishChecks();
}
