//===- StageBytes.h - Bytes of a pipeline's stages, from a small pipeline --------------------===//
// The order of tasks alone determines which values are in an arena at the same time. The planned programs of a small
// pipeline say which bytes a task allocates, and which later task frees them, for the first, a middle and the last
// microbatch. From these bytes, the order of a stage of the whole pipeline is replayed.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_STAGEBYTES_H
#define PC_LIB_SEARCH_PRICE_STAGEBYTES_H

#include "pc/Cost/TaskMemory.h"
#include "pc/Pipeline/Schedule.h"

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <tuple>

namespace pc {

/// Predicts the bytes of the arenas of a whole pipeline's stages. Input: the memory of the stages of a small pipeline,
/// with two numbers of layers. Bytes are in two parts, so that they can be scaled to any number of layers.
class StageBytes {
public:
  /// `ofA` and `ofB` have, for each stage of the small pipeline, its program with `a` and with `b` layers in each
  /// chunk.
  StageBytes(const pipeline::Problem &small, int64_t a, llvm::ArrayRef<TaskMemory> ofA, int64_t b,
             llvm::ArrayRef<TaskMemory> ofB);

  /// Returns a lower bound for the bytes that a stage's tasks keep at once. It follows from the bytes that a layer of
  /// the small pipeline's first chunk adds. If `withOwn` is true, also counts values that live in only one task.
  /// `gradientShare` is the share of summed gradients on a rank. If `untilLast` is true, counts only until the first
  /// backward pass of the last microbatch has ended.
  double ofLayers(const pipeline::Problem &whole, const std::vector<pipeline::Task> &tasks,
                  llvm::ArrayRef<int64_t> layers, bool withOwn, double gradientShare, bool untilLast) const;

  /// Returns the bytes of a stage's arena. `like` is the stage of the small pipeline that stands for this stage, and
  /// `chunkLike` has the corresponding chunk for each of its chunks. `layers` are the layers of each chunk of the whole
  /// problem.
  double arena(const pipeline::Problem &whole, const std::vector<pipeline::Task> &tasks, int like,
               llvm::function_ref<int(int)> chunkLike, llvm::ArrayRef<int64_t> layers) const;

private:
  /// The point until which a value is needed.
  struct End {
    enum How : uint8_t {
      Optimizer, ///< after all tasks
      Own,       ///< the task of its own microbatch
      Last,      ///< the task of the last microbatch
      Later      ///< the task `tasks` tasks later
    } how = Optimizer;
    TaskKind kind = TaskKind::Forward;
    int64_t chunk = 0, tasks = 0; ///< `chunk`: an index among the chunks of the stage
    friend bool operator<(const End &a, const End &b) {
      return std::tie(a.how, a.kind, a.chunk, a.tasks) < std::tie(b.how, b.kind, b.chunk, b.tasks);
    }
  };
  /// Bytes, with `a` and with `b` layers.
  using Bytes = std::array<double, 2>;
  /// The bytes that are allocated by a task, or by the ops before or after all tasks: those that are freed again within
  /// it, and those that live longer.
  struct Stretch {
    Bytes own = {};
    std::map<End, Bytes> kept; ///< bytes that live longer, by their ends
  };
  enum Microbatch : uint8_t { First, Middle, LastOne };
  /// The known bytes of one stage of the small pipeline.
  struct Stage {
    std::map<std::tuple<TaskKind, int64_t, Microbatch>, Stretch> tasks; ///< key: kind, chunk, microbatch
    Stretch before, after;                                              ///< before and after all tasks
    double gaps = 0;
  };
  static Microbatch which(int64_t microbatch, int64_t microbatches) {
    return microbatch == 0 ? First : microbatch == microbatches - 1 ? LastOne : Middle;
  }
  void read(const pipeline::Problem &small, Stage &stage, const TaskMemory &memory, int program) const;
  double ofLayer(const Bytes &bytes) const { return (bytes[1] - bytes[0]) / static_cast<double>(b - a); }

  /// How `most` walks along the tasks of a stage.
  struct Walk {
    const Stretch *before = nullptr, *after = nullptr; ///< before and after all tasks; null: nothing
    bool ownChunks = false;                            ///< values end in the chunk in which they begin
    bool untilLast = false; ///< until the first backward pass of the last microbatch has ended
  };
  /// Walks along the tasks of a stage and returns the most bytes that are alive at once. `stretchOf` returns the bytes
  /// of a task (null: none). `bytes` scales bytes to the layers of a chunk.
  double most(const pipeline::Problem &whole, const std::vector<pipeline::Task> &tasks, const Walk &walk,
              llvm::function_ref<const Stretch *(const pipeline::Task &)> stretchOf,
              llvm::function_ref<double(const Bytes &, int)> bytes) const;

  int64_t a, b;
  std::vector<Stage> stages;
};

} // namespace pc

#endif
