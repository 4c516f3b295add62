//===- KeptMemory.h - the state of training beyond a process ---------------===//
//
// pc-run holds the memory of its ranks' arenas. What is in there when a rank is
// lost is the state of training, unless a rank was in the middle of an update;
// --snapshot keeps a copy after the arena for then (comm/Kept.h).
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_KEPTMEMORY_H
#define PCRT_CHECKPOINT_KEPTMEMORY_H

#include "base/Program.h"
#include "comm/Comm.h"
#include "cpu/Pool.h"
#include "metrics/NormLimit.h"

#include <string>

namespace pcrt {

class KeptMemory {
public:
  /// `every`: steps from one copy to the next; 0: there are none. Throws PCRT_USAGE where no memory outlives the ranks.
  KeptMemory(const Program &program, std::string programSum, Comm &comm, int64_t every);

  /// After how many steps the newest state is that all ranks have, each in its arena or in its copy, as an earlier
  /// process has left them; -1: there is none. All ranks call it.
  int64_t newest();
  NormLimit::History history() const; ///< Of that state.

  /// Bytes after the arena for the copy.
  int64_t copyBytes() const;
  /// Brings the newest state to the arena, where it lies in the copy.
  void restore(char *arena, Pool &pool);
  /// The arena will hold another state.
  void forget();
  /// The arena holds the state after `steps` steps.
  void note(int64_t steps, const NormLimit::History &history);
  /// The arena is about to be updated: copies its state, if it is that state's turn. Allocates nothing.
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
