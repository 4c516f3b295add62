//===- KeptMemory.h - The state of training outlives a rank's process -----===//
// pc-run holds the memory of its ranks' arenas. When a rank is lost, the arenas contain the state of training, unless a
// rank was in the middle of an update. For that case, --snapshot keeps a copy after the arena (comm/Kept.h). The memory
// of a device does not outlive the process. So for a device, --snapshot keeps two copies, of which one is complete
// while the other is written.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_KEPTMEMORY_H
#define PCRT_CHECKPOINT_KEPTMEMORY_H

#include "checkpoint/StateImage.h"
#include "comm/Comm.h"
#include "cpu/Pool.h"
#include "device/Device.h"
#include "metrics/NormLimit.h"

#include <string>

namespace pcrt {

/// Records in the kept memory which step the arena and its copy hold, and restores the newest state that all ranks
/// have. Every rank has one KeptMemory and uses it from one thread. If no memory outlives this process, all methods do
/// nothing.
class KeptMemory {
public:
  /// `every` is the number of steps from one copy to the next; 0: there are no copies. Throws PCRT_USAGE if copies are
  /// wanted and no memory outlives the ranks.
  KeptMemory(const Program &program, std::string programSum, Comm &comm, int64_t every);

  /// Returns the number of steps of the newest state that all ranks have, each in its arena or in its copy, as an
  /// earlier process has left them. Returns -1 if there is none. All ranks call this function.
  int64_t newest();
  NormLimit::History history() const; ///< The history of norms of the state that newest() found.

  /// Bytes that copies need after the arena.
  int64_t copyBytes() const { return every ? (onDevice ? 2 : 1) * image.bytes() : 0; }
  /// Copies the state that newest() found to the arena, unless it is already there.
  void restore(Device &device, Pool &pool);
  /// Declares both states invalid: the arena will hold another one.
  void forget();
  /// Declares that the arena holds the state after `steps` steps.
  void note(int64_t steps, const NormLimit::History &history);
  /// These functions copy the arena's state every `every` steps. On a CPU, call the first one before the arena is
  /// updated; it allocates nothing. On a device, call the other two before and after each step; the copy runs at the
  /// same time as the step.
  void copyBeforeUpdate(Device &device);
  void beginStep(Device &device);
  void endStep();

private:
  bool isTurn() const { return kept && every && (steps - 1) % every == 0; }
  KeptState &older() const;
  void describe(KeptState &state) const;

  std::string programSum;
  Comm &comm;
  int64_t every;
  bool onDevice; ///< The host cannot access the arena. Then `kept->arena` also describes a copy.
  Kept *kept;    ///< Null: nothing outlives this process.
  StateImage image;
  KeptState *found = nullptr;    ///< By newest().
  KeptState *underWay = nullptr; ///< The copy that is being written during the step.
  int64_t steps = 0;             ///< 1 + the number of steps that led to the state in the arena.
  NormLimit::History lastNorms;
};

} // namespace pcrt

#endif // PCRT_CHECKPOINT_KEPTMEMORY_H
