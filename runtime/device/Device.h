//===- Device.h - The interface of devices --------------------------------===//
// A device holds the arena and carries out the calls of a step. The CPU carries out the calls before they return, in
// memory that the host can access. Any other device may enqueue the calls, and the host accesses the arena of such a
// device by copies.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_DEVICE_H
#define PCRT_DEVICE_DEVICE_H

#include "base/Program.h"
#include "device/RowTally.h"

#include <memory>

namespace pcrt {

class Pool;

/// The device of one rank. The rank's thread calls it. A device borrows the program. After a failed call, context.error
/// is the message and the run is over.
class Device {
public:
  virtual ~Device() = default;
  /// Call it when the run has failed. Returns true if this device may wait for ranks that are gone. Then it must not be
  /// destroyed, and the process ends by _exit.
  virtual bool abandon() { return false; }

  /// Allocates this rank's arena, opens its flows and prepares everything else that a step needs except its data. The
  /// arena holds zeros afterwards (or, with PCRT_POISON=1, NaNs where nothing is written before the first step). All
  /// ranks call it, once. Throws PCRT_RESOURCE with the bytes that are needed and available.
  virtual void prepare(pcrt_context &context) = 0;

  /// Returns the host's address of byte `offset` of the arena, or null if the host can only copy from and to the arena.
  virtual char *onHost(int64_t) { return nullptr; }

  /// A part of the arena, and host memory for a copy of it.
  struct HostCopy {
    int64_t offset, bytes;
    char *to;
  };
  /// For a device whose onHost is null. Between two steps, copyAside starts to copy parts of the arena. The next step
  /// runs meanwhile, but changes no parameter or state before the copies are made. waitForCopies waits for the copies;
  /// any thread may call it. Both functions throw a Failure.
  virtual void copyAside(const std::vector<HostCopy> &) {}
  virtual void waitForCopies() {}
  /// Host memory for such copies, which lives as long as the device. Throws PCRT_RESOURCE.
  virtual char *hostMemory(int64_t) { return nullptr; }
  /// The host memory of `context.afterArena` bytes that prepare has allocated. It may outlive this process.
  virtual char *afterArena() { return nullptr; }

  /// These functions copy between the host and the arena, and wait. Any thread may call them. They throw a Failure.
  virtual void write(int64_t offset, const void *from, int64_t bytes) = 0;
  virtual void read(void *to, int64_t offset, int64_t bytes) = 0;

  /// The host memory from which step `step` reads input `index` of the program. It may be written after `step - 1` has
  /// begun.
  virtual char *input(int64_t step, int index) = 0;

  /// begin starts a step, which may still run when it returns; finish waits for it and passes its outputs to the
  /// observer.
  virtual pcrt_status begin(pcrt_context &context, int64_t step) = 0;
  virtual pcrt_status finish(pcrt_context &context) = 0;

  /// Runs the program's evaluation on the inputs of `step`, and passes its outputs to the observer. The program must
  /// have one.
  virtual pcrt_status evaluate(pcrt_context &context, int64_t step) = 0;
  /// Ends a round of local SGD, after a step. The program must have rounds.
  virtual pcrt_status endRound(pcrt_context &context) = 0;

  /// The functions of pcrt.h, which the program calls inside begin (and inside prepare, if the device calls the step to
  /// learn which calls it makes).
  virtual pcrt_status launch(pcrt_context &context, int index, void *const *args) = 0;
  virtual pcrt_status gemm(pcrt_context &context, int index, const void *a, const void *b, void *c, const void *bias,
                           void *aux) = 0;
  virtual pcrt_status attention(pcrt_context &context, int index, void *const *args) = 0;
  virtual pcrt_status move(pcrt_context &context, int index, const void *in, void *out) = 0;
  virtual pcrt_status start(pcrt_context &context, int first, int count, const void *const *ins, void *const *outs,
                            int ticket) = 0;
  virtual pcrt_status wait(pcrt_context &context, int ticket) = 0;
  virtual pcrt_status send(pcrt_context &context, int flow, const void *data) = 0;
  virtual pcrt_status receive(pcrt_context &context, int flow, void *data) = 0;
  virtual pcrt_status task(pcrt_context &context, int kind, int chunk, int microbatch) = 0;
  virtual pcrt_status observe(pcrt_context &context, int index, int64_t microbatch, void *data) = 0;
  virtual pcrt_status blockOffset(pcrt_context &context, int group, int64_t block, int32_t *to) = 0;

  /// The host's threads that work in steps; null if the steps run elsewhere.
  virtual Pool *threads() { return nullptr; }

  /// Counts of the rows of this rank's experts; null if the device does not count them.
  virtual const RowTally *rows() { return nullptr; }

  /// The entry "device" of the summary: name, versions, memory; null: there is none.
  virtual Json figures() { return nullptr; }
};

/// Some bytes of an arena in host memory. This is the arena itself if the host can access it, and a copy otherwise. A
/// HostBlock owns the copy.
class HostBlock {
public:
  enum Access { Write, Read };
  HostBlock(Device &device, int64_t offset, int64_t bytes, Access access)
      : device(device), offset(offset), bytes(bytes), at(device.onHost(offset)) {
    if (at)
      return;
    copy.reset(new char[bytes]()); // zeros, because padding is never written
    at = copy.get();
    if (access == Read)
      device.read(at, offset, bytes);
  }
  char *data() { return at; }
  /// Copies the data to the arena, unless the block is the arena itself.
  void store() {
    if (copy)
      device.write(offset, at, bytes);
  }

private:
  Device &device;
  int64_t offset, bytes;
  char *at;
  std::unique_ptr<char[]> copy;
};

} // namespace pcrt

#endif // PCRT_DEVICE_DEVICE_H
