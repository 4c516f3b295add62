//===- victim.cpp - A rank that misbehaves on request ---------------------===//
// usage: comm-victim MODE [RANK]
// All ranks run moves; rank RANK (default 1) does what MODE says after a few of them. failures.sh checks what the
// others do then. With VICTIM_ON_DEVICE set, the moves are a device's.
//===----------------------------------------------------------------------===//
#include "Mover.h"
#include "base/Failure.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>

using namespace pcrt;

static void sleepSeconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// A ring of flows of one slot: every rank sends to the next one and receives from the one before.
static pcrt_status runFlows(Comm &comm, const std::string &mode, int victim) {
  bool chosen = comm.rank() == victim;
  int next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<char> out(1000), in(1000);
  Flow to{next, 0, true, 1000, 1, 4, "forward of chunk 1"}, from{before, 0, false, 1000, 1, 4, "forward of chunk 1"};
  if (chosen && mode == "flow-differs")
    to.bytes = 999;
  pcrt_status status = comm.openFlows({to, from});
  for (int step = 0; step < 1000000 && status == PCRT_OK; ++step) {
    if (step == 101 && chosen) {
      comm.note("forward of microbatch 1 (stage 1)");
      if (mode == "flow-kill")
        raise(SIGKILL);
      if (mode == "flow-stop")
        raise(SIGSTOP);
      if (mode == "flow-leave")
        return PCRT_OK;
    }
    bool early = step == 101 && mode == "flow-deadlock"; // no rank has sent anything yet
    if (!early)
      status = comm.send(0, out.data());
    if (status == PCRT_OK)
      status = comm.receive(1, in.data());
    if (early && status == PCRT_OK)
      status = comm.send(0, out.data());
  }
  if (status != PCRT_OK) {
    fprintf(stderr, "error: %s\n", comm.error().c_str());
    comm.abort(status, comm.error().c_str());
  }
  return status;
}

static pcrt_status runRank(Comm &comm, const std::string &mode, int victim) {
  char *arena = nullptr;
  bool onDevice = getenv("VICTIM_ON_DEVICE") != nullptr;
  int64_t bytes = mode == "huge"         ? int64_t(300) << 40
                  : mode == "all-memory" ? int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)
                                         : 1 << 20;
  pcrt_status status = onDevice ? PCRT_OK : comm.allocateArena(bytes, &arena);
  bool chosen = comm.rank() == victim;
  if (mode.starts_with("flow-"))
    return runFlows(comm, mode, victim);
  Group all, pairs;
  for (int rank = 0; rank < comm.size(); ++rank)
    all.ranks.push_back(rank);
  all.me = comm.rank();
  all.name = "dp";
  pairs = all;
  pairs.id = 1;
  pairs.name = "tp";
  pcrt_move_desc gradient{
      "all_reduce gradient", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, 1000, 1, 1, 1, 1, "backward", 0, 0, 0};
  pcrt_move_desc logits = gradient;
  logits.name = "all_reduce logits";
  MeshMoves mesh{{all, pairs}, {gradient, logits}};
  std::unique_ptr<Mover> mover = onDevice ? makeDeviceMover(comm, 1 << 20) : makeHostMover(comm, arena);
  mover->prepare(mesh);
  auto move = [&](const pcrt_move_desc &desc, const Group &group) {
    int64_t at = 0;
    pcrt_move_desc &known = mesh.moves[&desc == &logits];
    known = desc;
    return mover->move(&known, 1, mesh.groups[group.id], &at, &at, Mover::Way::Plain);
  };
  int steps = mode == "count" ? 2000 : mode == "none" || mode == "all-memory" ? 10 : mode == "slow" ? 200 : 1000000;
  if (mode == "output") {
    printf("out %d\n", comm.rank());
    fprintf(stderr, "err %d\n", comm.rank());
    steps = 1;
  }
  for (int step = 0; step < steps && status == PCRT_OK; ++step) {
    bool now = step == 100 && chosen;
    if (now && mode == "kill")
      raise(SIGKILL);
    if (now && mode == "crash")
      raise(SIGABRT);
    if (now && mode == "exit-0")
      return PCRT_OK;
    if (now && mode == "std-exit-0")
      std::exit(0);
    if (now && mode == "exit-9")
      return PCRT_BAD_DATA;
    if (now && mode == "abort-9") {
      comm.abort(PCRT_BAD_DATA, "token 70000 at position 12 is out of range");
      return PCRT_BAD_DATA;
    }
    if (step == 100 && mode == "abort-compute") {
      if (chosen) {
        comm.abort(PCRT_BAD_DATA, "a bad token");
        return PCRT_BAD_DATA;
      }
      sleepSeconds(20);
    }
    if (now && mode == "stop")
      raise(SIGSTOP);
    if (step == 100 && mode == "kill-compute") {
      if (chosen) {
        sleepSeconds(0.2);
        raise(SIGKILL);
      }
      sleepSeconds(20); // a long computation without moves
    }
    if (now && mode == "sleep-4")
      sleepSeconds(4);
    if (now && mode == "slow")
      sleepSeconds(2);
    if (mode == "count-slowly") {
      sleepSeconds(0.01);
      if (step == 0 && comm.rank() == 0 && puts("counts") >= 0)
        fflush(stdout);
    }
    bool swapped = now && mode == "order";
    bool other = now && mode == "size";
    if (step == 100 && mode == "cross") { // ranks use the two groups in different orders
      status = move(chosen ? gradient : logits, chosen ? all : pairs);
      if (status == PCRT_OK)
        status = move(chosen ? logits : gradient, chosen ? pairs : all);
      continue;
    }
    // Two moves in flight; one rank starts them in the other order, or does not wait.
    if (step == 100 && mode.starts_with("start-")) {
      const void *in = arena;
      void *out = arena;
      const void *in2 = arena + 8192;
      void *out2 = arena + 8192;
      Ticket first{&gradient, 1, &all, &in, &out}, second{&logits, 1, &all, &in2, &out2};
      bool crossed = chosen && mode == "start-order";
      status = comm.start(crossed ? second : first);
      if (status == PCRT_OK)
        status = comm.start(crossed ? first : second);
      if (status == PCRT_OK && chosen && mode == "start-no-wait")
        sleepSeconds(1000);
      if (status == PCRT_OK)
        status = comm.wait(crossed ? second : first);
      if (status == PCRT_OK)
        status = comm.wait(crossed ? first : second);
      continue;
    }
    gradient.outer = other ? 999 : 1000;
    status = move(swapped ? logits : gradient, all);
    if (status == PCRT_OK)
      status = move(swapped ? gradient : logits, pairs);
  }
  if (status != PCRT_OK) {
    fprintf(stderr, "error: %s\n", mover->error().c_str());
    comm.abort(status, mover->error().c_str());
  }
  return status;
}

int main(int argc, char **argv) {
  std::string mode = argc > 1 ? argv[1] : "none", error;
  int victim = argc > 2 ? atoi(argv[2]) : 1;
  if (mode == "die-early" && getenv("PCRT_RANK") && atoi(getenv("PCRT_RANK")) == victim)
    raise(SIGKILL);
  if (mode == "never-join" && getenv("PCRT_RANK") && atoi(getenv("PCRT_RANK")) == victim)
    sleepSeconds(5);
  if (mode == "exit-code-only")
    return 4;
  if (mode == "sleep") // for signals to pc-run
    sleepSeconds(20);
  auto body = [&](Comm &comm) {
    try {
      return runRank(comm, mode, victim);
    } catch (const Failure &failure) {
      fprintf(stderr, "error: %s\n", failure.message.c_str());
      comm.abort(failure.status, failure.message.c_str());
      return failure.status;
    }
  };
  pcrt_status status = runRanks(1, getenv("VICTIM_ON_DEVICE") != nullptr, body, &error);
  if (!error.empty())
    fprintf(stderr, "error: %s\n", error.c_str());
  return status;
}
