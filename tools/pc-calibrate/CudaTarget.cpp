//===- CudaTarget.cpp - Calls of a rank that runs on a CUDA device --------===//
// Products by cuBLASLt and moves by NCCL, called as the steps of programs call them. They run on the streams of the
// runtime, with the moves of a group on a separate stream, and from the second time on in a graph. Events of the device
// time them.
//===----------------------------------------------------------------------===//
#include "Target.h"
#include "comm/Collective.h"
#include "comm/FreeMemory.h"
#include "cuda/DeviceComm.h"
#include "cuda/Memory.h"
#include "cuda/MoveKernels.h"
#include "cuda/Products.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pcrt;
using namespace pcrt::cuda;
using namespace pc_calibrate;
using PlannedProduct = pcrt::cuda::ProductCall;

namespace {

/// Divides `count` tiles into rows x columns that are nearly a square.
void divide(int64_t count, int64_t *rows, int64_t *columns) {
  *columns = 1;
  for (int64_t i = 1; i * i <= count; ++i)
    if (count % i == 0)
      *columns = i;
  *rows = count / *columns;
}

/// The target of a device rank. It owns the session, the memory and a graph for each case.
class CudaTarget final : public Target {
public:
  CudaTarget(Comm &control, int ordinal)
      : control(control), session(ordinal), memory(session), staging(session), kernels(session),
        begun(session.makeEvent(true)), ended(session.makeEvent(true)), ready(session.makeEvent()),
        arrived(session.makeEvent()) {}

  ~CudaTarget() override {
    session.driver.cuCtxSetCurrent(session.context);
    session.driver.cuCtxSynchronize();
    for (auto &[number, graph] : graphs) // before their communicators
      session.driver.cuGraphExecDestroy(graph.executable);
  }

  /// Products of 8192 tokens with layers of 2048 and 8192, whole and divided.
  Sizes sizes(bool isShort) const override {
    constexpr int64_t tileRows = 256, tileColumns = 128;
    int64_t rows = 1, columns = 1, waves = isShort ? 1 : 2;
    divide(session.multiprocessors, &rows, &columns);
    rows *= waves * tileRows, columns *= waves * tileColumns;
    Sizes sizes;
    sizes.products = {{rows, isShort ? 16 : 1024, columns}, {rows, isShort ? 64 : 4096, columns}};
    sizes.bf16Products = {{rows, isShort ? 16 : 1024, columns}, {rows, isShort ? 64 : 8192, columns}};
    if (!isShort) {
      sizes.products.push_back({8192, 2048, 2048});
      for (Shape shape : {Shape{2048, 2048, 2048},
                          {8192, 2048, 8192},
                          {8192, 8192, 2048},
                          {8192, 8192, 3584},
                          {8192, 3584, 8192},
                          {8192, 8192, 8192}})
        sizes.bf16Products.push_back(shape);
    }
    sizes.beside = int(sizes.bf16Products.size()) - 1; // this product takes longer than the move
    sizes.copy = isShort ? MiB : 1024 * MiB;
    sizes.largeMove = isShort ? MiB : 256 * MiB;
    sizes.carry = isShort ? MiB : 64 * MiB;
    sizes.away = "host";
    return sizes;
  }

  DeviceFacts facts() const override {
    size_t unused = 0, total = 0;
    session.check(session.driver.cuMemGetInfo_v2(&unused, &total), "ask for the memory");
    return {session.deviceName, session.arch, session.multiprocessors, int64_t(total),
            int64_t(pcrt::freeMemory().total)};
  }

  void prepare(const Tables &made) override {
    tables = &made;
    takeTables();
    onAllRanks(control, [&] {
      base = memory.allocate(made.bytes + workspaceBytes);
      session.nameMemory(base, memory.mappedBytes(), "the memory of rank " + std::to_string(control.rank()));
      fillWithNoise(session, staging, base, memory.mappedBytes());
    });
    if (control.size() > 1)
      connect();
    std::vector<PlannedProduct> planned;
    for (size_t i = 0; i < made.products.size(); ++i)
      planned.push_back(callOf(int(i)));
    onAllRanks(control, [&] {
      products = std::make_unique<Products>(session, program);
      if (comm)
        products->leave(comm->blocksOfMoves(), 0);
      products->prepare(planned, base + made.bytes, [] {}); // noise is there
    });
    requireOk(control, products->agree(control));
  }

  void product(int index) override {
    if (BlasStatus status = products->run(callOf(index)))
      fail(PCRT_INTERNAL,
           std::string("matrix product '") + gemms[index].name + "': cuBLASLt says " + products->describe(status));
  }
  void copy(int64_t to, int64_t from, int64_t bytes) override {
    session.check(session.driver.cuMemcpyDtoDAsync_v2(addressOf(base + to), addressOf(base + from), size_t(bytes),
                                                      session.compute),
                  "copy");
  }
  void sum(int64_t, int64_t, int64_t, int64_t) override {}
  void launch() override {
    session.check(kernels.note(reinterpret_cast<volatile uint32_t *>(base), 0, session.compute), "launch a kernel");
  }

  void move(int index, int64_t in, int64_t out) override {
    start(index, in, out);
    wait();
  }
  void start(int index, int64_t in, int64_t out) override {
    const pcrt_move_desc &desc = tables->moves[index];
    const void *from = base + in;
    void *to = base + out;
    Stream stream = moveStream ? moveStream : session.compute;
    if (moveStream) {
      session.check(session.driver.cuEventRecord(ready, session.compute), "start a move");
      session.check(session.driver.cuStreamWaitEvent(moveStream, ready, 0), "start a move");
    }
    require(comm->enqueue(&desc, 1, tables->groups[desc.group], &from, &to, stream), desc.name);
    if (moveStream)
      session.check(session.driver.cuEventRecord(arrived, moveStream), "start a move");
  }
  void wait() override {
    if (moveStream)
      session.check(session.driver.cuStreamWaitEvent(session.compute, arrived, 0), "wait for a move");
  }

  void messages(int flow, bool begins) override {
    for (bool sends : {begins, !begins}) {
      int index = flow + !sends;
      void *at = base + letters + int64_t(index) * messageBytes;
      require(comm->hasLanes() ? comm->enqueueMessage(index, 0, at, session.compute)
              : sends          ? comm->enqueueSend(index, at, session.compute)
                               : comm->enqueueReceive(index, at, session.compute),
              flows[index].name);
    }
  }
  void carryOut(int64_t bytes) override {
    session.check(
        session.driver.cuMemcpyDtoHAsync_v2(hostMemory(bytes), addressOf(base), size_t(bytes), session.compute),
        "copy to the host");
  }
  void carryIn(int64_t bytes) override {
    session.check(
        session.driver.cuMemcpyHtoDAsync_v2(addressOf(base), hostMemory(bytes), size_t(bytes), session.compute),
        "copy from the host");
  }

  double time(int number, int64_t repeats, const std::function<void()> &call) override {
    const Driver &driver = session.driver;
    bool isFirst = seen.insert(number).second; // in the first call, libraries load kernels and NCCL connects
    bool captures = !isFirst && (!comm || comm->canCapture());
    constexpr int64_t most = 100; // calls of a graph
    int64_t ofGraph = std::min(repeats, most), launches = (repeats + ofGraph - 1) / ofGraph;
    Captured *graph = captures ? &capture(number, ofGraph, call) : nullptr;
    requireOk(control, control.barrier());
    session.check(driver.cuEventRecord(begun, session.compute), "time");
    for (int64_t i = 0; i < (graph ? launches : repeats); ++i)
      if (graph)
        session.check(driver.cuGraphLaunch(graph->executable, session.compute), "launch a graph");
      else
        call();
    session.check(driver.cuEventRecord(ended, session.compute), "time");
    finish();
    float milliseconds = 0;
    session.check(driver.cuEventElapsedTime_v2(&milliseconds, begun, ended), "read the time");
    double mine = double(milliseconds) * 1e-3 * (graph ? double(repeats) / double(launches * ofGraph) : 1);
    std::vector<double> all(control.size());
    requireOk(control, control.allGatherBytes(&mine, sizeof mine, all.data()));
    return *std::max_element(all.begin(), all.end());
  }

private:
  static constexpr int64_t workspaceBytes = 32 * MiB; ///< The workspace of products, as large as in programs.

  struct Captured {
    int64_t calls = 0;
    GraphExec executable = nullptr;
  };

  /// Builds the tables of a program for the runtime.
  void takeTables() {
    for (const pc_calibrate::ProductCall &call : tables->products)
      gemms.push_back(call.desc);
    for (const Flow &flow : tables->flows)
      flows.push_back({flow.name.c_str(), 0, flow.id, flow.sends, flow.slots, flow.messages, flow.bytes});
    program.num_gemms = int(gemms.size()), program.gemms = gemms.data();
    program.num_moves = int(tables->moves.size()), program.moves = tables->moves.data();
    program.num_flows = int(flows.size()), program.flows = flows.data();
    program.workspace_bytes = workspaceBytes;
    letters = tables->bytes - int64_t(flows.size()) * messageBytes;
  }

  void connect() {
    onAllRanks(control, [&] { session.reserveMoveStreams(1); });
    // In programs, products run in parallel with moves, which then take few multiprocessors; these moves take as few.
    comm = openDeviceComm(session, control, program, tables->groups, std::vector<bool>(tables->groups.size(), true));
    require(comm->registerArena(base, memory.mappedBytes()), "the memory");
    if (comm->hasStreams())
      moveStream = session.makeMoveStream();
    requireOk(control, control.openFlows(tables->flows));
    comm->openFlows(flowsOfAll());
  }

  /// Each pair has two flows, there and back; the pairs of one kind open theirs together.
  std::vector<DeviceFlow> flowsOfAll() const {
    static const pcrt_flow others{"of other ranks", 0, 0, 0, 2, 1, messageBytes};
    std::vector<DeviceFlow> all;
    for (int first : tables->pairs) {
      int me = control.rank(), peer = first < 0 ? -1 : tables->flows[first].peer;
      for (int source : {std::min(me, peer), std::max(me, peer)})
        all.push_back(first < 0 ? DeviceFlow{-1, false, -1, &others}
                                : DeviceFlow{source, source == me, first + (source != me), &flows[first]});
    }
    return all;
  }

  PlannedProduct callOf(int index) const {
    const pc_calibrate::ProductCall &call = tables->products[index];
    return {index, base + call.a, base + call.b, base + call.c, nullptr, nullptr, call.isBeside && comm ? 1 : 0};
  }

  void require(pcrt_status status, const char *what) {
    if (status != PCRT_OK)
      fail(status, std::string("'") + what + "': " + comm->error());
  }

  /// Waits for the device, watching the other ranks.
  void finish() {
    if (comm)
      if (pcrt_status status = comm->wait(session.driver, session.compute); status != PCRT_OK && !comm->error().empty())
        fail(status, comm->error());
    session.synchronize();
  }

  /// The graph of a case with `calls` calls.
  Captured &capture(int number, int64_t calls, const std::function<void()> &call) {
    const Driver &driver = session.driver;
    Captured &graph = graphs[number];
    if (graph.calls == calls)
      return graph;
    if (graph.executable)
      driver.cuGraphExecDestroy(graph.executable);
    graph = {};
    Graph captured = nullptr;
    session.check(driver.cuStreamBeginCapture_v2(session.compute, CaptureThreadLocal), "capture");
    for (int64_t i = 0; i < calls; ++i)
      call();
    session.check(driver.cuStreamEndCapture(session.compute, &captured), "capture");
    Result result = driver.cuGraphInstantiateWithFlags(&graph.executable, captured, GraphUseNodePriority);
    driver.cuGraphDestroy(captured);
    session.check(result, "make a graph");
    session.check(driver.cuGraphUpload(graph.executable, session.compute), "make a graph");
    session.synchronize();
    graph.calls = calls;
    return graph;
  }

  void *hostMemory(int64_t bytes) {
    if (bytes > hostBytes)
      host = session.pinned(size_t(hostBytes = bytes));
    return host;
  }

  Comm &control;
  Session session;
  DeviceArena memory;
  Staging staging;
  MoveKernels kernels;
  Event begun, ended, ready, arrived;
  const Tables *tables = nullptr;
  pcrt_program program{};
  std::vector<pcrt_gemm_desc> gemms;
  std::vector<pcrt_flow> flows;
  char *base = nullptr;
  int64_t letters = 0; ///< The offset of messages, which are at the end of the memory.
  std::unique_ptr<DeviceComm> comm;
  std::unique_ptr<Products> products;
  Stream moveStream = nullptr;
  void *host = nullptr;
  int64_t hostBytes = 0;
  std::set<int> seen;
  std::map<int, Captured> graphs;
};

} // namespace

std::unique_ptr<Target> pc_calibrate::makeCudaTarget(Comm &comm, int ordinal) {
  std::unique_ptr<Target> target;
  onAllRanks(comm, [&] { target = std::make_unique<CudaTarget>(comm, ordinal); });
  return target;
}

Devices pc_calibrate::devicesOfMachine() {
  Driver driver;
  Opened library;
  load(driver, &library);
  Devices devices;
  int major = 0, minor = 0;
  Ordinal first = 0;
  if (driver.cuInit(0) != Success || driver.cuDeviceGetCount(&devices.count) != Success || devices.count == 0 ||
      driver.cuDeviceGet(&first, 0) != Success ||
      driver.cuDeviceGetAttribute(&major, AttributeMajor, first) != Success ||
      driver.cuDeviceGetAttribute(&minor, AttributeMinor, first) != Success)
    fail(PCRT_RESOURCE, "the CUDA driver (" + library.path + ") finds no device; check that nvidia-smi lists one");
  devices.arch = "sm_" + std::to_string(major) + std::to_string(minor) + (major >= 9 ? "a" : "");
  devices.isStandIn = standinChosen();
  return devices;
}
