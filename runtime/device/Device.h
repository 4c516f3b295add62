//===- Device.h - What steps run on ---------------------------------------===//
// A device holds the arena and carries out the calls of a step. The CPU does so where they are made, in memory that the
// host addresses; any other device may enqueue them, and the host reaches its arena by copies.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_DEVICE_H
#define PCRT_DEVICE_DEVICE_H

#include "base/Program.h"
#include "device/RowTally.h"

#include <memory>

namespace pcrt {

class Pool;

class Device {
public:
  virtual ~Device() = default;

  /// The run has failed. True where this device may wait for ranks that are gone: then nobody destroys it, and the
  /// process ends by _exit.
  virtual bool abandon() { return false; }

  /// Takes this rank's arena, opens its flows and makes everything else that a step needs but its data. The arena holds
  /// zeros afterwards (or, with PCRT_POISON=1, NaNs where nothing is written before the first step). All ranks
  /// call it, once. Throws PCRT_RESOURCE naming what is needed and what there is.
  virtual void prepare(pcrt_context &context) = 0;

  /// The byte at `offset` of the arena, where the host addresses it; null where only copies reach it.
  virtual char *onHost(int64_t) { return nullptr; }

  /// Copies between the host and the arena, any thread, and waits. Throws.
  virtual void write(int64_t offset, const void *from, int64_t bytes) = 0;
  virtual void read(void *to, int64_t offset, int64_t bytes) = 0;

  /// Host memory that step `step` reads input `index` of the program from. Once `step - 1` has begun it may be written.
  virtual char *input(int64_t step, int index) = 0;

  /// Begins a step, which may go on afterwards; `finish` waits for it and shows its outputs. On failure context.error
  /// says why.
  virtual pcrt_status begin(pcrt_context &context, int64_t step) = 0;
  virtual pcrt_status finish(pcrt_context &context) = 0;

  /// Runs the program's evaluation on what its inputs hold, and shows its outputs. Only where the program has one.
  virtual pcrt_status evaluate(pcrt_context &context) = 0;
  /// Ends a round of local SGD, after a step. Only where the program has rounds.
  virtual pcrt_status endRound(pcrt_context &context) = 0;

  /// The functions of pcrt.h, inside begin (and prepare, where a device may make the step to learn of its calls).
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

  /// The host's threads that work in steps; null where one is enough, since the work is elsewhere.
  virtual Pool *threads() { return nullptr; }

  /// How many rows the experts of this rank had; null where nobody counts them.
  virtual const RowTally *rows() { return nullptr; }

  /// What the summary says under "device": name, versions, memory. Null: nothing.
  virtual Json figures() { return nullptr; }
};

/// Some bytes of an arena in host memory: the arena itself where the host addresses it, else a copy.
class HostBlock {
public:
  enum Access { Write, Read };
  HostBlock(Device &device, int64_t offset, int64_t bytes, Access access)
      : device(device), offset(offset), bytes(bytes), at(device.onHost(offset)) {
    if (at)
      return;
    copy.reset(new char[bytes]()); // what nobody writes is padding: zero
    at = copy.get();
    if (access == Read)
      device.read(at, offset, bytes);
  }
  char *data() { return at; }
  /// Brings what was written to the arena.
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
