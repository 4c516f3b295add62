//===- Context.h - The state of a step ------------------------------------===//
// pcrt_context is the opaque argument of all functions of pcrt.h. It has what devices need for these functions, and
// counters.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_CONTEXT_H
#define PCRT_DEVICE_CONTEXT_H

#include "base/Program.h"
#include "comm/Comm.h"
#include "device/Device.h"
#include "device/Profile.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pcrt {

/// Receives the outputs of steps. The device calls it on the rank's thread.
class Observer {
public:
  virtual ~Observer() = default;
  /// Whether output `index` is needed in this step; if not, it is not copied.
  virtual bool wants(int index) const = 0;
  /// Whether there are outputs besides loss and norm that are needed in more than the first step.
  virtual bool wantsInEveryStep() const { return false; }
  /// `data` is this rank's block of output `index`. If the output is a routing, the observer may change it. On failure
  /// returns a status, with a message in `error`.
  virtual pcrt_status observe(int index, int64_t microbatch, void *data, std::string *error) = 0;
};

/// Returns the flows of `rank`, which runs `program`, the program of a stage. They are in the order of the program's
/// table. Throws if the table is wrong.
std::vector<Flow> flowsOf(const Program &program, int rank);

} // namespace pcrt

/// The runtime's side of a step. A context borrows program, communicator, device and observer. The rank's thread uses
/// it.
struct pcrt_context {
  /// Throws if the program's groups or moves are wrong.
  pcrt_context(const pcrt::Program &program, pcrt::Comm &comm);

  const pcrt::Program &program;
  pcrt::Comm &comm;
  pcrt::Profile profile;
  pcrt::Device *device = nullptr; ///< The device that runs the steps; set before the first one.
  pcrt::Observer *observer = nullptr;
  std::vector<pcrt::Group> groups;
  std::vector<pcrt_move_desc> moves;  ///< The program's moves, with the shifts of this rank.
  std::vector<int64_t> moveCounts;    ///< Calls of every move since the step began.
  std::vector<int64_t> rowsSent;      ///< Rows that every move of rows sent to other ranks since the step began.
  std::vector<int64_t> roundCounts;   ///< Calls of every move in the last end of a round.
  std::vector<int64_t> flowCounts;    ///< Messages of every flow since the step began.
  std::vector<pcrt::Flow> flows;      ///< The flows of the program, and then those that the run adds between hosts.
  int64_t allocations = 0;            ///< Allocations from the heap inside steps.
  std::string error;                  ///< The error of the last call that failed.
  std::function<void()> beforeUpdate; ///< Called in every step before parameters or states change. Allocates nothing.
  bool updating = false;              ///< Parameters or states may have changed in this step.
  bool keepsArena = false;            ///< The arena holds the state of training already, from an earlier process.
  int64_t afterArena = 0;             ///< Bytes of host memory to allocate after the arena.
  std::string scratch;                ///< Directory for the arena on disk.
  /// Call it before parameters or states change.
  void beginUpdate();
  /// Call it when a step begins: resets the counts.
  void beginCounts();
  /// The counts of a step, which an evaluation after it must not change.
  struct Counts {
    std::vector<int64_t> moves, rows, messages;
  };
  void saveCounts(Counts &to) const;
  void restoreCounts(const Counts &from);
  /// Throws a Failure, with the rank's name and `error`, unless `status` is PCRT_OK.
  void require(pcrt_status status);
  pcrt_status fail(pcrt_status status, std::string message);
};

#endif // PCRT_DEVICE_CONTEXT_H
