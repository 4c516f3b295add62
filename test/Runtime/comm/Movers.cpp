//===- Movers.cpp - Host memory and devices for the conformance suite -----===//
// HostMover splits work over three threads in uneven ranges, to find moves that depend on ranges; DeviceMover enqueues
// on streams like CudaDevice.
//===----------------------------------------------------------------------===//
#include "Mover.h"
#include "comm/Environment.h"
#include "cuda/DeviceComm.h"
#include "cuda/Memory.h"

#include <cstdlib>
#include <cstring>
#include <thread>

using namespace pcrt;
using namespace pcrt::cuda;

namespace {

/// Runs the body on three threads, in uneven ranges.
void threeThreads(void *, int64_t items, ParallelFor::Body body, void *arg) {
  int64_t first = items / 5, second = items / 5 + items / 3;
  std::thread a([&] { body(arg, 0, first); }), b([&] { body(arg, first, second); });
  body(arg, second, items);
  a.join();
  b.join();
}

/// Moves between buffers of the host, over the transport of the run.
class HostMover final : public Mover {
public:
  HostMover(Comm &comm, char *arena) : comm(comm), arena(arena) {}
  std::string name() const override { return comm.transport(); }
  bool isExact() const override { return true; }
  bool carries(const pcrt_move_desc &, const Group &) const override { return true; }
  void write(int64_t at, const void *from, int64_t bytes) override { memcpy(arena + at, from, bytes); }
  void read(int64_t at, void *to, int64_t bytes) override { memcpy(to, arena + at, bytes); }
  pcrt_status move(const pcrt_move_desc *moves, int count, const Group &group, const int64_t *ins, const int64_t *outs,
                   Way way) override {
    ParallelFor parallelFor = way == Way::Threads ? ParallelFor(nullptr, threeThreads) : ParallelFor();
    for (int i = 0; i < count; ++i)
      if (pcrt_status status = comm.move(moves[i], group, arena + ins[i], arena + outs[i], parallelFor);
          status != PCRT_OK)
        return status;
    return PCRT_OK;
  }
  std::string error() const override { return comm.error(); }

private:
  Comm &comm;
  char *arena;
};

int deviceOrdinal() {
  Place place;
  std::string error;
  const char *chosen = getenv("PCRT_CUDA_DEVICE");
  return chosen ? atoi(chosen) : readPlace(&place, &error) ? place.localRank : 0;
}

/// Moves between buffers of a CUDA device.
class DeviceMover final : public Mover {
public:
  DeviceMover(Comm &control, int64_t bytes)
      : control(control), session(deviceOrdinal()), memory(session), staging(session), arena(memory.allocate(bytes)) {}

  std::string name() const override { return std::string(moves ? moves->name() : "?") + " on " + session.name; }
  bool isExact() const override { return strcmp(moves->name(), "nccl") != 0; }
  bool carries(const pcrt_move_desc &move, const Group &group) const override {
    // The device does all other moves.
    return pcrt_facts_of_move(move.kind)->way != PCRT_WAY_LOCAL &&
           (group.size() > 1 || (!isExact() && control.size() == 1));
  }

  void prepare(const MeshMoves &mesh) override {
    moves.reset();
    pcrt_program program{};
    program.num_moves = int32_t(mesh.moves.size());
    program.moves = mesh.moves.data();
    moves = openDeviceComm(session, control, program, mesh.groups, std::vector<bool>(mesh.groups.size(), true));
    moves->registerArena(arena, memory.mappedBytes());
  }

  void write(int64_t at, const void *from, int64_t bytes) override { staging.write(arena + at, from, bytes); }
  void read(int64_t at, void *to, int64_t bytes) override { staging.read(to, arena + at, bytes); }

  pcrt_status move(const pcrt_move_desc *descs, int count, const Group &group, const int64_t *ins, const int64_t *outs,
                   Way way) override {
    std::vector<const void *> from;
    std::vector<void *> to;
    for (int i = 0; i < count; ++i) {
      from.push_back(arena + ins[i]);
      to.push_back(arena + outs[i]);
    }
    auto enqueue = [&] { return moves->enqueue(descs, count, group, from.data(), to.data(), session.compute); };
    // Works as a step does: the moves are captured once and then launched. Moves in place would give another result the
    // second time.
    bool capture = way == Way::Threads && moves->canCapture() && from[0] != to[0];
    if (!capture) {
      if (pcrt_status status = enqueue(); status != PCRT_OK) {
        text = moves->error();
        return status;
      }
      return wait();
    }
    const Driver &driver = session.driver;
    Graph graph = nullptr;
    GraphExec launchable = nullptr;
    session.check(driver.cuStreamBeginCapture_v2(session.compute, CaptureThreadLocal), "capture");
    pcrt_status status = enqueue();
    session.check(driver.cuStreamEndCapture(session.compute, &graph), "capture");
    session.check(driver.cuGraphInstantiateWithFlags(&launchable, graph, 0), "instantiate");
    for (int launch = 0; launch < 2 && status == PCRT_OK; ++launch) {
      session.check(driver.cuGraphLaunch(launchable, session.compute), "launch");
      status = wait();
    }
    driver.cuGraphExecDestroy(launchable);
    driver.cuGraphDestroy(graph);
    return status;
  }

  std::string error() const override { return text; }

private:
  pcrt_status wait() {
    pcrt_status status = moves->wait(session.driver, session.compute);
    Result result = status == PCRT_OK ? Success : session.driver.cuStreamQuery(session.compute);
    if (status != PCRT_OK)
      text = moves->error().empty() ? session.name + ": " + session.describe(result) : moves->error();
    return status;
  }

  Comm &control;
  std::string text;
  Session session;
  DeviceArena memory;
  Staging staging;
  char *arena;
  std::unique_ptr<DeviceComm> moves;
};

} // namespace

std::unique_ptr<Mover> makeHostMover(Comm &comm, char *arena) { return std::make_unique<HostMover>(comm, arena); }

std::unique_ptr<Mover> makeDeviceMover(Comm &comm, int64_t bytes) { return std::make_unique<DeviceMover>(comm, bytes); }
