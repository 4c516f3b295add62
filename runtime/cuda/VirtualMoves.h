//===- VirtualMoves.h - Moves between virtual ranks on one device ---------===//
// The ranks are threads of one process and their arenas are on one device, so a move consists of copies and sums
// between arenas. Every member enqueues its share on its own stream. Events order these streams: shares begin when all
// sources are complete, and later work begins when all shares are complete. This transport needs no NCCL and gives the
// same bits as a CPU. Messages between stages are copies into and out of slots of the receiving rank.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_VIRTUALMOVES_H
#define PCRT_CUDA_VIRTUALMOVES_H

#include "comm/VirtualComm.h"
#include "cuda/DeviceComm.h"
#include "cuda/Memory.h"

namespace pcrt::cuda {

/// The largest number of members of a virtual move, whose addresses are parameters of one kernel.
constexpr int kMaxVirtualMembers = 32;

/// The transport between virtual ranks on one device; each rank's thread has one. It owns events, slots and kernels,
/// and other ranks wait for its events.
class VirtualMoves final : public DeviceComm {
public:
  /// Throws a Failure if a group has too many members or the device refuses the kernels.
  VirtualMoves(Session &session, VirtualComm &comm, const std::vector<Group> &groups);
  ~VirtualMoves() override;

  const char *name() const override { return "virtual"; }
  /// Returns false, because other ranks' events are not part of this rank's graph.
  bool canCapture() const override { return false; }
  pcrt_status enqueue(const pcrt_move_desc *moves, int count, const Group &group, const void *const *ins,
                      void *const *outs, Stream stream) override;
  void openFlows(const std::vector<DeviceFlow> &all) override;
  pcrt_status enqueueSend(int index, const void *data, Stream stream) override;
  pcrt_status enqueueReceive(int index, void *data, Stream stream) override;

private:
  /// A member's part of a move, which the other members read.
  struct Part {
    const void *in;
    void *out;
    Event ready; ///< Its source is complete.
    Event done;  ///< Its share is complete.
  };

  /// One end of a flow of this rank. Threads enqueue in the order in which a CPU's ranks would send and receive. So an
  /// event has been recorded before the other end waits for it.
  struct End {
    char *slots = nullptr;      ///< The slots on the device; null at the sender.
    int64_t stride = 0;         ///< Bytes from slot to slot.
    std::vector<Event> passed;  ///< An event for each slot: it holds the message (sender), or is free again (receiver).
    const End *other = nullptr; ///< The same flow on the other rank.
  };

  pcrt_status enqueueOne(const pcrt_move_desc &move, const Group &group, const void *in, void *out, Stream stream);
  /// Enqueues this rank's share of the work: it writes its whole result or, for an all_reduce, a part of every rank's
  /// result.
  Result enqueueShare(const pcrt_move_desc &move, const Group &group, const Part *const *parts, Stream stream);
  /// Enqueues a reduction by rows: row r of every output becomes the sum (or maximum) of row r of all inputs. A row has
  /// `width` elements, and rows begin at the given shifts and pitches.
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
