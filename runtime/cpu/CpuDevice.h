//===- CpuDevice.h - Steps on the CPU -------------------------------------===//
// Calls are carried out before they return, on all threads of the rank: kernels and moves by parts of their items,
// matrix products by oneDNN. The arena is memory of the transport, which other ranks may read.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_CPUDEVICE_H
#define PCRT_CPU_CPUDEVICE_H

#include "comm/Environment.h"
#include "cpu/Bf16.h"
#include "cpu/DiskArena.h"
#include "cpu/Gemm.h"
#include "cpu/Pool.h"
#include "device/Context.h"
#include "device/Device.h"

namespace pcrt {

/// The device of one CPU rank. The rank's thread calls it. It owns the threads, the products, the scratch memory and
/// the arena on disk; the arena in memory belongs to the Comm. Calls in a step allocate nothing. Errors are written to
/// the context.
class CpuDevice final : public Device {
public:
  /// Checks the program's kernels and products, and starts the threads. Throws.
  CpuDevice(const Program &program, const Bf16Choice &bf16, int threads);
  ~CpuDevice() override;

  void prepare(pcrt_context &context) override;
  char *onHost(int64_t offset) override { return offset < PCRT_DISK ? arena + offset : nullptr; }
  void write(int64_t offset, const void *from, int64_t bytes) override;
  void read(void *to, int64_t offset, int64_t bytes) override;
  char *input(int64_t step, int index) override;
  pcrt_status begin(pcrt_context &context, int64_t step) override;
  pcrt_status finish(pcrt_context &) override { return PCRT_OK; }
  pcrt_status evaluate(pcrt_context &context, int64_t step) override;
  pcrt_status endRound(pcrt_context &context) override;

  pcrt_status launch(pcrt_context &context, int index, void *const *args) override;
  pcrt_status gemm(pcrt_context &context, int index, const void *a, const void *b, void *c, const void *bias,
                   void *aux) override;
  pcrt_status attention(pcrt_context &context, int index, void *const *args) override;
  pcrt_status move(pcrt_context &context, int index, const void *in, void *out) override;
  pcrt_status start(pcrt_context &context, int first, int count, const void *const *ins, void *const *outs,
                    int ticket) override;
  pcrt_status wait(pcrt_context &context, int ticket) override;
  pcrt_status send(pcrt_context &context, int flow, const void *data) override;
  pcrt_status receive(pcrt_context &context, int flow, void *data) override;
  pcrt_status task(pcrt_context &context, int kind, int chunk, int microbatch) override;
  pcrt_status observe(pcrt_context &context, int index, int64_t microbatch, void *data) override;
  pcrt_status blockOffset(pcrt_context &context, int group, int64_t block, int32_t *to) override;
  char *afterArena() override { return arena + program.abi.arena_bytes; }
  Pool *threads() override { return &pool; }
  const RowTally *rows() override { return &gemms.rows(); }

private:
  /// The moves of a pcrt_start, until pcrt_wait.
  struct StartedMoves {
    const void *ins[PCRT_MOST_STARTED];
    void *outs[PCRT_MOST_STARTED];
    int32_t first = -1; ///< In the table of moves; -1: nothing is in flight.
    Ticket ticket;
  };

  char *scratchOf(int thread) const { return scratch + thread * scratchStride; }
  /// Splits the work of a move over all threads of this rank.
  ParallelFor parallelFor();
  void openDisk(pcrt_context &context);
  bool isCarry(int move) const { return program.abi.moves[move].kind == PCRT_CARRY; }
  void startCarry(pcrt_context &context, int move, const void *in, void *out);
  pcrt_status waitForCarry(pcrt_context &context, int move);

  const Program &program;
  const std::vector<int> cores = coresOfProcess(); ///< Before the pool pins this thread.
  Pool pool;
  Gemms gemms;
  char *arena = nullptr;
  char *scratch = nullptr; ///< Memory of the kernels, by thread.
  int64_t scratchStride = 0;
  std::vector<pcrt_kernel_fn> functions; ///< By kernel.
  std::vector<bool> updates;             ///< By kernel: whether it may write parameters or states.
  std::vector<StartedMoves> started;     ///< By ticket.
  std::optional<DiskArena> disk;         ///< Set if the program keeps something on disk.
};

/// Makes this rank's CPU a device. All ranks of a run have the same `bf16`. Throws.
std::unique_ptr<Device> openCpuDevice(const Program &program, const Bf16Choice &bf16);

} // namespace pcrt

#endif // PCRT_CPU_CPUDEVICE_H
