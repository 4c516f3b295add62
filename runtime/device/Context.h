//===- Context.h - What a step calls --------------------------------------===//
// The state behind pcrt_context: what devices need for the functions of pcrt.h, and what they count.
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

/// Receives the outputs of steps.
class Observer {
public:
  virtual ~Observer() = default;
  /// Whether output `index` is needed in this step; if not, the step is spared the copy.
  virtual bool wants(int index) const = 0;
  /// Whether there are outputs besides loss and norm that are needed in more than the first step.
  virtual bool wantsInEveryStep() const { return false; }
  /// `data` is this rank's block of output `index`; of a routing the observer may change it. On failure returns a
  /// status, with a message in `error`.
  virtual pcrt_status observe(int index, int64_t microbatch, void *data, std::string *error) = 0;
};

/// The flows of `rank`, which runs `program`, a stage's; in the order of its table. Throws where the table is wrong.
std::vector<Flow> flowsOf(const Program &program, int rank);

} // namespace pcrt

/// The runtime's side of a step.
struct pcrt_context {
  /// Throws where the program's groups or moves are wrong.
  pcrt_context(const pcrt::Program &program, pcrt::Comm &comm);

  const pcrt::Program &program;
  pcrt::Comm &comm;
  pcrt::Profile profile;
  pcrt::Device *device = nullptr; ///< What steps run on; set before the first one.
  pcrt::Observer *observer = nullptr;
  std::vector<pcrt::Group> groups;
  std::vector<pcrt_move_desc> moves;  ///< The program's, as this rank sees them.
  std::vector<int64_t> moveCounts;    ///< Calls of every move since the step began.
  std::vector<int64_t> rowsSent;      ///< By every move of rows to other ranks, since the step began.
  std::vector<int64_t> roundCounts;   ///< Calls of every move in the last end of a round.
  std::vector<int64_t> flowCounts;    ///< Messages of every flow since the step began.
  int64_t allocations = 0;            ///< From the heap, inside steps.
  std::string error;                  ///< Why the last call failed.
  std::function<void()> beforeUpdate; ///< Called in every step before parameters or states change. Allocates nothing.
  bool updating = false;              ///< They may have changed in this step.
  bool keepsArena = false;            ///< The arena holds the state of training already, from an earlier process.
  int64_t behindArena = 0;            ///< Bytes that are wanted after it.

  /// Parameters and states are about to change.
  void beginUpdate();
  /// A step begins: nothing has been called.
  void beginCounts();
  /// Throws a Failure, with the rank's name and `error`, unless `status` is PCRT_OK.
  void require(pcrt_status status);
  pcrt_status fail(pcrt_status status, std::string message);
};

#endif // PCRT_DEVICE_CONTEXT_H
