//===- NcclConnect.cpp - Connects the devices of ranks by NCCL ------------===//
// Communicators do not block while they are connected, so that this rank can leave if another one does not come. Calls
// return before they are complete, so the success of a call means little: ncclCommSplit returns success at once, with a
// null communicator, while its parent is still being created. The parent must be polled by ncclCommGetAsyncError until
// it is done (src/init.cc of NCCL 2.26 to 2.30: ncclCommSplit, ncclCommInitRankFunc).
//===----------------------------------------------------------------------===//
#include "comm/Collective.h"
#include "comm/Environment.h"
#include "comm/ShmControl.h"
#include "cuda/NcclMoves.h"

#include <chrono>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace pcrt;
using namespace pcrt::cuda;

void Communicators::add(NcclComm comm) {
  std::lock_guard<std::mutex> lock(mutex);
  all.push_back(comm);
}

void Communicators::abort(double seconds) {
  std::unique_lock<std::mutex> lock(mutex);
  if (!std::exchange(aborted, true))
    std::thread([self = shared_from_this(), ending = all] {
      // NCCL tells a communicator to end and then waits for its kernels, and first for the thread that launches them
      // (ncclCommAbort, ncclCommEnsureReady). Kernels of one communicator may precede those of another, on a stream or
      // in a full queue, so every communicator has to be told before any has ended.
      std::vector<std::thread> threads;
      for (NcclComm comm : ending)
        threads.emplace_back([&self, comm] {
          self->useDevice(self->device);
          self->nccl.ncclCommAbort(comm);
        });
      for (std::thread &thread : threads)
        thread.join();
      std::lock_guard<std::mutex> lock(self->mutex);
      self->freed = true;
      self->changed.notify_all();
    }).detach();
  changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return freed; });
}

NcclResult Communicators::state(NcclComm comm) {
  std::lock_guard<std::mutex> lock(mutex);
  if (aborted)
    return NcclRemoteError;
  NcclResult state = NcclSuccess;
  NcclResult result = nccl.ncclCommGetAsyncError(comm, &state);
  return result != NcclSuccess ? result : state;
}

NcclResult Communicators::split(int color, int key, NcclComm *made, NcclConfig &config) {
  std::lock_guard<std::mutex> lock(mutex);
  return aborted ? NcclRemoteError : nccl.ncclCommSplit(all[0], color, key, made, &config);
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

NcclResult NcclMoves::settle(NcclComm on) {
  double start = monotonicSeconds();
  TcpControl *plane = control.control();
  for (;;) {
    double waited = monotonicSeconds() - start;
    if ((plane && plane->failed()) || waited > timeout || (plane && waited > 0.3 && plane->leftRank() >= 0))
      return NcclInProgress;
    if (NcclResult state = live->state(on); state != NcclInProgress)
      return state;
    usleep(waited < 0.01 ? 20 : 500);
  }
}

void NcclMoves::require(NcclResult result, NcclComm on, const std::string &doing) {
  if (result == NcclInProgress && on)
    result = settle(on);
  if (result == NcclSuccess)
    return;
  TcpControl *plane = control.control();
  if (result == NcclInProgress || (plane && plane->failed())) {
    pcrt_status status = unsettled(doing);
    fail(status, lastError);
  }
  fail(PCRT_RESOURCE, rankName(control.rank()) + ": NCCL (" + library.path + ") cannot " + doing + ": " +
                          describe(result) + "; run with NCCL_DEBUG=WARN for details");
}

pcrt_status NcclMoves::unsettled(const std::string &doing) {
  TcpControl *plane = control.control();
  if (plane && plane->failed())
    return lost();
  if (int left = plane ? plane->leftRank() : -1; left >= 0)
    return giveUp(PCRT_PEER_LOST, "cannot " + doing + ": " + rankName(left) + " has ended");
  return giveUp(PCRT_TIMEOUT, "cannot " + doing + ": no answer within " + secondsText(timeout) + " s from " +
                                  whoIsLate(nullptr) +
                                  "; run with NCCL_DEBUG=INFO for details, or raise PCRT_TIMEOUT_SECONDS");
}

/// During its lifetime, error messages of other ranks can say what this rank is connecting.
struct NcclMoves::Connecting {
  Connecting(NcclMoves &moves, const std::string &doing) : moves(moves) { tell(doing); }
  ~Connecting() { tell(""); }

private:
  void tell(const std::string &doing) {
    std::lock_guard<std::mutex> lock(moves.connectingMutex);
    moves.connecting = doing;
    ++moves.connections;
  }
  NcclMoves &moves;
};

//===----------------------------------------------------------------------===//
// Communicators of this rank
//===----------------------------------------------------------------------===//

void NcclMoves::connectAll(const NcclUniqueId &id) {
  const char *doing = "connect the devices of all ranks";
  Connecting connecting(*this, doing);
  NcclConfig config;
  config.blocking = 0;
  config.commName = "all ranks";
  NcclComm made = nullptr;
  NcclResult result = live->nccl.ncclCommInitRankConfig(&made, control.size(), id, control.rank(), &config);
  if (made) // recorded before it is connected, so that it can be aborted in the meantime
    live->add(made);
  require(result == NcclSuccess ? NcclInProgress : result, made, doing);
}

NcclComm NcclMoves::connectSome(int color, int key, NcclConfig &config, const std::string &doing) {
  Connecting connecting(*this, doing);
  config.blocking = switchedOn("PCRT_NCCL_BLOCKING", false);
  // The parent never blocks, and it decides whether the split does. NCCL writes here when the parent is done or
  // aborted. If this function throws before that, the memory is leaked.
  auto *place = new NcclComm(nullptr);
  NcclResult result = live->split(color, key, place, config);
  require(result == NcclSuccess ? NcclInProgress : result, live->all[0], doing);
  NcclComm made = *place;
  delete place;
  if (made) {
    live->add(made);
    require(NcclInProgress, made, doing);
  } else if (color != NcclSplitNoColor) {
    require(NcclInternalError, made, doing);
  }
  return made;
}
