//===- KeptMemory.h - The state of training outlives a rank's process -----===//
// pc-run holds the memory of its ranks' arenas. When a rank is lost, they contain the state of training, unless a rank
// was in the middle of an update; for that case --snapshot keeps a copy after the arena (comm/Kept.h).
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_KEPTMEMORY_H
#define PCRT_CHECKPOINT_KEPTMEMORY_H

#include "base/Program.h"
#include "comm/Comm.h"
#include "cpu/Pool.h"
#include "metrics/NormLimit.h"

#include <string>

namespace pcrt {

/// Records in the kept memory which step its arena and its copy hold, and restores the newest state that all ranks
/// have. Every rank has one and uses it from one thread. If no memory outlives this process, all methods do nothing.
class KeptMemory {
public:
  /// `every` is the number of steps from one copy to the next; 0: there are no copies. Throws PCRT_USAGE if copies are
  /// wanted and no memory outlives the ranks.
  KeptMemory(const Program &program, std::string programSum, Comm &comm, int64_t every);

  /// The number of steps of the newest state that all ranks have, each in its arena or in its copy, as an earlier
  /// process has left them; -1: there is none. All ranks call it.
  int64_t newest();
  NormLimit::History history() const; ///< The history of the state that newest() found.

  /// Bytes that the copy needs after the arena.
  int64_t copyBytes() const;
  /// Copies the state that newest() found to the arena, unless it is there.
  void restore(char *arena, Pool &pool);
  /// Declares both states invalid: the arena will hold another one.
  void forget();
  /// Declares that the arena holds the state after `steps` steps.
  void note(int64_t steps, const NormLimit::History &history);
  /// Call it before the arena is updated: copies its state every `every` steps. Allocates nothing.
  void copyBeforeUpdate(char *arena, Pool &pool);

private:
  enum Direction { ToCopy, FromCopy };
  void copy(char *arena, Pool &pool, Direction direction) const;

  const Program &program;
  std::string programSum;
  Comm &comm;
  int64_t every;
  Kept *kept; ///< Null: nothing outlives this process.
  bool fromCopy = false;
};

} // namespace pcrt

#endif // PCRT_CHECKPOINT_KEPTMEMORY_H
