//===- Device.h - a device that the host reaches by copies ----------------===//
//
// Programs for a CPU need none: their arena is host memory and their calls run
// where they are made. Any other device holds the arena, enqueues the calls of
// a step, and copies what the host writes and reads.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_DEVICE_H
#define PCRT_CORE_DEVICE_H

#include "core/Program.h"

#include <memory>

namespace pcrt {

class Comm;

class Device {
public:
  virtual ~Device() = default;

  /// "NVIDIA H200 (sm_90)".
  virtual const std::string &name() const = 0;

  /// Takes this rank's arena: zeros. Called once. Throws PCRT_RESOURCE naming what is needed and what there is.
  virtual char *allocateArena(int64_t bytes) = 0;

  /// Makes everything that a step needs but its data. The arena holds nothing yet, and holds zeros afterwards (or, with
  /// PCRT_POISON=1, NaNs where nothing is written before the first step). All ranks call it.
  virtual void prepare(pcrt_context &context) = 0;

  /// Copies between the host and the arena, any thread, and waits. Throws.
  virtual void write(char *to, const void *from, int64_t bytes) = 0;
  virtual void read(void *to, const char *from, int64_t bytes) = 0;

  /// Host memory that step `step` reads input `index` of the program from. It is free once the step before the last one
  /// has been finished.
  virtual char *input(int64_t step, int index) = 0;

  /// Enqueues a step, then waits for it and shows its outputs. On failure context.error says why.
  virtual pcrt_status begin(pcrt_context &context, int64_t step) = 0;
  virtual pcrt_status finish(pcrt_context &context) = 0;

  /// The functions of pcrt.h, inside begin (and prepare, which only listens).
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
  virtual pcrt_status observe(pcrt_context &context, int index, int64_t microbatch, const void *data) = 0;
  virtual pcrt_status blockOffset(pcrt_context &context, int group, int64_t block, int32_t *to) = 0;

  /// What the summary says under "device": name, versions, memory.
  virtual Json figures() = 0;
};

/// Opens this rank's CUDA device. All ranks call it. Throws PCRT_RESOURCE where a library or the device is missing.
std::unique_ptr<Device> openCudaDevice(const Program &program, Comm &comm);

/// A rank's arena: host memory, or a device's.
struct Arena {
  char *base = nullptr;
  Device *device = nullptr; ///< Null: the host addresses it.
};

/// Some bytes of an arena in host memory: the arena itself on a CPU, else a copy.
class HostBlock {
public:
  enum Access { Write, Read };
  HostBlock(const Arena &arena, int64_t offset, int64_t bytes, Access access)
      : arena(arena), offset(offset), bytes(bytes) {
    if (!arena.device)
      return;
    copy.reset(new char[bytes]()); // what nobody writes is padding: zero
    if (access == Read)
      arena.device->read(copy.get(), arena.base + offset, bytes);
  }
  char *data() { return arena.device ? copy.get() : arena.base + offset; }
  /// Brings what was written to the arena.
  void store() {
    if (arena.device)
      arena.device->write(arena.base + offset, copy.get(), bytes);
  }

private:
  const Arena &arena;
  int64_t offset, bytes;
  std::unique_ptr<char[]> copy;
};

} // namespace pcrt

#endif // PCRT_CORE_DEVICE_H
