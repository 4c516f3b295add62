//===- Context.h - what a step calls --------------------------------------===//
//
// The state behind pcrt_context: the functions of pcrt.h run kernels, matrix
// products and moves with it, and count what they do.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_CONTEXT_H
#define PCRT_CORE_CONTEXT_H

#include "comm/Comm.h"
#include "core/Device.h"
#include "core/Profile.h"
#include "core/Program.h"
#include "device/Gemm.h"
#include "device/Pool.h"

#include <memory>
#include <string>
#include <vector>

namespace pcrt {

/// What pcrt_start was given, until pcrt_wait.
struct StartedMoves {
  static constexpr int most = 64; ///< Moves of one start.
  const void *ins[most];
  void *outs[most];
  int32_t first = -1; ///< In the table of moves; -1: nothing is under way.
  Ticket ticket;
};

/// Gets every output that a step shows.
class Observer {
public:
  virtual ~Observer() = default;
  /// Whether a step has to show output `index` at all: no one reads a copy that costs time.
  virtual bool wants(int index) const = 0;
  /// `data` is this rank's block of output `index`. On failure returns a status, with a message in `error`.
  virtual pcrt_status observe(int index, int64_t microbatch, const void *data, std::string *error) = 0;
};

} // namespace pcrt

/// The runtime's side of a step.
struct pcrt_context {
  pcrt_context(const pcrt::Program &program, pcrt::Comm &comm, pcrt::Pool &pool);
  ~pcrt_context();

  const pcrt::Program &program;
  pcrt::Comm &comm;
  pcrt::Pool &pool;
  pcrt::Gemms gemms;
  pcrt::Profile profile;
  pcrt::Device *device = nullptr; ///< Null: the CPU.
  pcrt::Observer *observer = nullptr;
  std::vector<pcrt::Group> groups;
  std::vector<pcrt_move_desc> moves;       ///< The program's, as this rank sees them.
  std::vector<int64_t> moveCounts;         ///< Calls of every move since the step began.
  std::vector<int64_t> flowCounts;         ///< Messages of every flow since the step began.
  std::vector<pcrt::StartedMoves> started; ///< By ticket.
  std::string error;                       ///< Why the last call failed.

  /// Runs one step and counts the heap allocations in it. Throws a Failure.
  void step(char *arena, int64_t *allocations);
  /// Throws a Failure, with the rank's name and `error`, unless `status` is PCRT_OK.
  void require(pcrt_status status);

  char *scratchOf(int thread) const { return scratch + thread * scratchStride; }
  pcrt_status fail(pcrt_status status, std::string message);

private:
  char *scratch = nullptr;
  int64_t scratchStride = 0;
};

#endif // PCRT_CORE_CONTEXT_H
