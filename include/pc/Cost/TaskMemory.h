//===- TaskMemory.h - What a pipeline's stage keeps from task to task -------------------------===//
// Input: the planned step of one stage. Result: the bytes that each task needs alone, and the bytes that stay alive
// from one task to another. The memory of other orders of the tasks follows from these.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_TASKMEMORY_H
#define PC_COST_TASKMEMORY_H

#include "pc/IR/PC.h"
#include <map>
#include <vector>

namespace pc {

/// The arena of a planned stage over its tasks. A stretch is a task, the ops before the first task, or the ops after
/// the last one (`pc.task optimizer`).
struct TaskMemory {
  /// Ops of a step between two markers of tasks.
  struct Stretch {
    TaskKind kind = TaskKind::Optimizer;
    int64_t chunk = -1, microbatch = -1; ///< -1: before the first task, and after the last
    /// The most bytes of values that do not live during the whole stretch.
    int64_t own = 0;
  };
  std::vector<Stretch> stretches;
  /// Bytes of values that are alive in several stretches, by the first and the last of them.
  std::map<std::pair<int, int>, int64_t> kept;
  /// Bytes of the arena that are free at the moment when most bytes are alive.
  int64_t gaps = 0;

  /// Reads the block of a stage's step.
  static TaskMemory of(mlir::Block &body, int64_t arenaBytes);
};

} // namespace pc

#endif
