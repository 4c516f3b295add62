//===- HostMoves.h - Moves through host memory ----------------------------===//
// Carries out device moves through the ranks' control plane: copies to pinned memory, calls Comm::move (send, receive)
// in a host function of the stream, and copies back. This is slow. However, it needs neither NCCL nor a GPU for every
// rank, and it can be captured into a graph. PCRT_CUDA_COMM=host chooses it.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_HOSTMOVES_H
#define PCRT_CUDA_HOSTMOVES_H

#include "cuda/DeviceComm.h"
#include "cuda/Session.h"

#include <memory>

namespace pcrt::cuda {

/// The transport through host memory. It owns the pinned memory and the closures of its host functions, which captured
/// graphs use. The first failure of a host function ends all later ones; wait() returns it.
class HostMoves final : public DeviceComm {
public:
  /// Allocates pinned memory for the largest move of `program`. It is the Comm's arena, which other ranks read
  /// directly, or other memory if `arenaIsUsed`. All ranks call the constructor. Throws a Failure.
  HostMoves(Session &session, Comm &comm, const pcrt_program &program, const std::vector<Group> &groups,
            bool arenaIsUsed);

  ~HostMoves() override {
    if (ownsArena)
      session.driver.cuMemHostUnregister(in);
  }

  const char *name() const override { return "host"; }
  /// Host functions of one process run one after the other, so only one order is safe.
  bool hasStreams() const override { return false; }
  bool readsMask() const override { return true; }
  pcrt_status enqueue(const pcrt_move_desc *moves, int count, const Group &group, const void *const *ins,
                      void *const *outs, Stream stream) override;
  void openFlows(const std::vector<DeviceFlow> &all) override;
  pcrt_status enqueueSend(int index, const void *data, Stream stream) override;
  pcrt_status enqueueReceive(int index, void *data, Stream stream) override;
  pcrt_status wait(const Driver &driver, Stream stream) override;

private:
  /// The closure of a move.
  struct Call {
    HostMoves *owner;
    const pcrt_move_desc *move;
    const Group *group;
  };
  /// The closure of a flow, whose messages pass through `memory` one after the other.
  struct Letter {
    HostMoves *owner;
    int flow;
    void *memory;
  };
  /// A host function: sends or receives a Letter, unless something failed before.
  template <auto transfer> static void carryOut(void *letter);
  /// Turns a result of the driver into a status.
  pcrt_status check(Result result);
  Call *callOf(const pcrt_move_desc &move, const Group &group);

  Session &session;
  Comm &comm;
  const bool ownsArena;
  char *in = nullptr, *out = nullptr;
  std::vector<std::unique_ptr<Call>> calls; ///< By move and group; graphs keep their addresses.
  std::vector<Letter> letters;              ///< By flow; graphs also keep their addresses.
  pcrt_status status = PCRT_OK;             ///< The first failure of a host function.
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_HOSTMOVES_H
