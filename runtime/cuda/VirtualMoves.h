//===- VirtualMoves.h - Moves between virtual ranks on one device ---------===//
// The ranks are threads of one process and their arenas lie on one device, so a move is copies and sums between arenas.
// Every member enqueues its share on its own stream; events say that all sources are there before, and that all shares
// are done after. No NCCL, and the same bits as on a CPU. Messages between stages are copies into and out of slots of
// the rank that receives.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_VIRTUALMOVES_H
#define PCRT_CUDA_VIRTUALMOVES_H

#include "comm/VirtualComm.h"
#include "cuda/DeviceComm.h"
#include "cuda/Memory.h"

namespace pcrt::cuda {

/// Members a virtual move may have: their addresses are parameters of one kernel.
constexpr int kMaxVirtualMembers = 32;

class VirtualMoves final : public DeviceComm {
public:
  /// Throws a Failure where a group has too many members or the device refuses the kernels.
  VirtualMoves(Session &session, VirtualComm &comm, const std::vector<Group> &groups);
  ~VirtualMoves() override;

  const char *name() const override { return "virtual"; }
  /// The events of other ranks are not of this rank's graph.
  bool canCapture() const override { return false; }
  pcrt_status enqueue(const pcrt_move_desc *moves, int count, const Group &group, const void *const *ins,
                      void *const *outs, Stream stream) override;
  void openFlows(const std::vector<DeviceFlow> &all) override;
  pcrt_status enqueueSend(int index, const void *data, Stream stream) override;
  pcrt_status enqueueReceive(int index, void *data, Stream stream) override;

private:
  /// What a member tells the others of a move.
  struct Part {
    const void *in;
    void *out;
    Event ready; ///< Its source is there.
    Event done;  ///< Its share is done.
  };

  /// One end of a flow of this rank. Threads enqueue in the order in which a CPU's ranks would send and receive, so an
  /// event has been recorded before the other end waits for it.
  struct End {
    char *slots = nullptr;      ///< On the device; of the end that receives.
    int64_t stride = 0;         ///< Bytes from slot to slot.
    std::vector<Event> passed;  ///< By slot: it holds the message (the sender's), or is free again (the receiver's).
    const End *other = nullptr; ///< The same flow on the other rank.
  };

  pcrt_status enqueueOne(const pcrt_move_desc &move, const Group &group, const void *in, void *out, Stream stream);
  /// This rank's share: all of its own result, or its part of everybody's for all_reduce.
  Result enqueueShare(const pcrt_move_desc &move, const Group &group, const Part *const *parts, Stream stream);
  /// outs[k] row r = the sum (or maximum) of the ins' row r, each of `width` elements from `shift` on.
  Result reduce(const pcrt_move_desc &move, const Group &group, const Part *const *parts, bool toAll, int64_t rows,
                int64_t width, int64_t inPitch, int64_t inShift, int64_t outShift, Stream stream);
  pcrt_status check(Result result, const char *name);

  Session &session;
  VirtualComm &comm;
  std::vector<Event> ready, done; ///< By group.
  DeviceArena slots;
  std::vector<End> ends; ///< By flow.
  Module module = nullptr;
  Function kernels[3][2] = {}; ///< By dtype and reduction.
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_VIRTUALMOVES_H
