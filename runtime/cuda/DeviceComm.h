//===- DeviceComm.h - Moves between devices, enqueued on streams ----------===//
// The interface of a transport between devices. Calls only enqueue work, so that a step that makes them can be captured
// into a graph and replayed. Comm stays the ranks' control plane (barriers, small data, failures). In PyTorch, the
// equivalent is a process group's backend, with its calls on a given stream.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_DEVICECOMM_H
#define PCRT_CUDA_DEVICECOMM_H

#include "comm/Comm.h"
#include "cuda/Driver.h"

#include <memory>
#include <string>
#include <vector>

namespace pcrt::cuda {

/// A flow between two ranks, as all ranks of a run see it. All ranks open all flows in one order.
struct DeviceFlow {
  int source = -1;                 ///< The rank that sends, if this rank is one of the two; otherwise -1.
  bool sends = false;              ///< This rank is the source.
  int index = -1;                  ///< The index in the table of this rank's program.
  const pcrt_flow *flow = nullptr; ///< The flow in the table of the source's program.
};

/// The moves and messages of one rank's device. The rank's thread calls this object. After a call has failed, error()
/// is the message and the run is over.
class DeviceComm {
public:
  virtual ~DeviceComm() = default;

  /// The name of the transport: "nccl", "virtual" or "host".
  virtual const char *name() const = 0;

  /// Whether each group's moves may run on a separate stream. If not, all of them are enqueued on the compute stream.
  virtual bool hasStreams() const { return true; }

  /// Whether enqueue() may be called while its stream is captured. If not, every step is enqueued again.
  virtual bool canCapture() const { return true; }

  /// Whether enqueue() reads the mask of a move of rows in host memory. If not, it uses rowCounts() of its thread.
  virtual bool readsMask() const { return false; }

  /// Registers the arena, which has this address and size. All ranks call it once, before the first step.
  virtual pcrt_status registerArena(void *base, int64_t bytes) {
    (void)base, (void)bytes;
    return PCRT_OK;
  }

  /// Enqueues `count` moves of one group on `stream`, in one call of the library. ins[i] and outs[i] are device
  /// addresses of this rank. The group has at least two members, and the moves have traffic. It may be called while
  /// `stream` is being captured; all ranks make the same calls in the same order.
  virtual pcrt_status enqueue(const pcrt_move_desc *moves, int count, const Group &group, const void *const *ins,
                              void *const *outs, Stream stream) = 0;

  /// Connects the ends of all flows of the run, which the control plane has opened. Called once, before the first step,
  /// by all ranks. Throws a Failure.
  virtual void openFlows(const std::vector<DeviceFlow> &all) = 0;

  /// Whether each flow has a lane, with slots and events that StageFlows owns. If so, StageFlows calls
  /// enqueueMessage, otherwise enqueueSend and enqueueReceive.
  virtual bool hasLanes() const { return false; }

  /// Enqueues message `number` of the step, in flow `index` of the program, on `stream`, which is the flow's lane. The
  /// message is sent from or received to `at` on the device.
  virtual pcrt_status enqueueMessage(int index, int number, void *at, Stream stream) {
    (void)index, (void)number, (void)at, (void)stream;
    return PCRT_INTERNAL;
  }

  /// These functions enqueue the next message of flow `index` on `stream`. Work that is enqueued later may overwrite
  /// the source of a send, and sees the received data. `data` is on the device.
  virtual pcrt_status enqueueSend(int index, const void *data, Stream stream) {
    (void)index, (void)data, (void)stream;
    return PCRT_INTERNAL;
  }
  virtual pcrt_status enqueueReceive(int index, void *data, Stream stream) {
    (void)index, (void)data, (void)stream;
    return PCRT_INTERNAL;
  }

  /// Passes the names of the step's tasks in order, for error messages. Called once, before the first step. Throws a
  /// Failure.
  virtual void openTasks(std::vector<std::string> names) { (void)names; }

  /// Enqueues on `stream` a note from the device to the host that task `number` begins.
  virtual pcrt_status enqueueTask(int number, Stream stream) { return (void)number, (void)stream, PCRT_OK; }

  /// Waits until the work on `stream` is done, and watches for lost peers and timeouts. The default implementation asks
  /// only the driver. After PCRT_PEER_LOST and PCRT_TIMEOUT, error() names rank, op and axis. Other failures are
  /// failures of the driver (PCRT_INTERNAL with an empty error()).
  virtual pcrt_status wait(const Driver &driver, Stream stream) {
    return driver.cuStreamSynchronize(stream) == Success ? PCRT_OK : PCRT_INTERNAL;
  }

  /// The move of the step that the device began last, for the message of a fault; "" if that is unknown.
  virtual std::string lastBegun() const { return ""; }

  /// The multiprocessors that the moves of a group occupy while products run, and that receives of messages occupy
  /// until their message comes; 0 if they occupy none or the number is unknown.
  virtual int blocksOfMoves() const { return 0; }
  virtual int blocksOfMessages() const { return 0; }

  /// The number of communicators, and the bytes of device memory that this object has allocated outside of the arena.
  virtual int64_t communicators() const { return 0; }
  virtual int64_t stagingMemoryBytes() const { return 0; }

  const std::string &error() const { return lastError; }

protected:
  std::string lastError;
};

class Session;

/// Opens the moves of this rank's device in a run of several ranks. All ranks call this function. Throws a Failure.
/// `besideProducts` says for each group whether products run while its moves are in flight. `arenaIsUsed` says that the
/// arena of `comm` has other uses.
std::unique_ptr<DeviceComm> openDeviceComm(Session &session, Comm &comm, const pcrt_program &program,
                                           const std::vector<Group> &groups, const std::vector<bool> &besideProducts,
                                           bool arenaIsUsed = false);

} // namespace pcrt::cuda

#endif // PCRT_CUDA_DEVICECOMM_H
