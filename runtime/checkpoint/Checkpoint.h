//===- Checkpoint.h - Saving and loading the state of training ------------===//
// A checkpoint is a directory that Hugging Face loads. It has config.json and model.safetensors, or if the program has
// an adapter, PEFT's adapter_config.json and adapter_model.safetensors. It also has training_state.safetensors and
// trajectory.json. SaveDirectory describes how a checkpoint replaces an older one.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_CHECKPOINT_H
#define PCRT_CHECKPOINT_CHECKPOINT_H

#include "base/Failure.h"
#include "base/TensorSum.h"
#include "checkpoint/SaveDirectory.h"
#include "checkpoint/Trajectory.h"
#include "comm/Comm.h"
#include "cpu/Pool.h"
#include "device/Device.h"

#include <functional>

namespace pcrt {

/// Writes checkpoints of a run to one directory. Every rank has one CheckpointWriter and calls all its methods in the
/// same order, except writeBlocks, which it may call from another thread. Rank 0 owns the directory; each rank writes
/// its own blocks. If one rank fails, all of them throw, and an older checkpoint stays as it was unless the message
/// says otherwise.
class CheckpointWriter {
public:
  /// Locks DIR for this run. All ranks create one object, before the first step. Throws PCRT_RESOURCE (SaveDirectory).
  CheckpointWriter(const std::string &directory, const TokenizerFiles &tokenizer, Comm &comm);

  /// Throws PCRT_RESOURCE unless there is room for a checkpoint of `program` now. All ranks call it.
  void requireRoomFor(const Program &program);

  ~CheckpointWriter();

  /// Writes parameters, optimizer states and `trajectory` (with its files and tensors filled in). All ranks call it.
  /// Throws PCRT_RESOURCE.
  void write(const Program &program, const Trajectory &trajectory, Device &device) {
    begin(program, trajectory, device);
    writeBlocks();
    finish();
  }

  /// Host memory with a part of the arena, by its offset.
  using PartOfArena = std::function<const char *(int64_t)>;

  /// These functions are the parts of write. `begin` creates the files, with room for everything, and `finish` moves
  /// them to their place; both throw PCRT_RESOURCE. Between the two calls, any thread of each rank may call
  /// writeBlocks, which calls `ready` first. From then on parameters and states must be unchanged in the arena, or in
  /// `onHost`. Failures of writeBlocks are thrown by `finish`.
  void begin(const Program &program, const Trajectory &trajectory, Device &device, PartOfArena onHost = nullptr);
  void writeBlocks(const std::function<void()> &ready = nullptr);
  void finish();

private:
  struct Files;
  [[noreturn]] void giveUp(const Failure &failure);

  Comm &comm;
  std::optional<SaveDirectory> directory; ///< Rank 0.
  std::string path, temporary;
  std::unique_ptr<Files> files; ///< Between begin and finish.
  bool older = false;           ///< Rank 0: a checkpoint was there already.
};

/// Bytes of a checkpoint of `program`: its tensors, and an upper bound for the text about them.
int64_t checkpointBytes(const Program &program);

/// Throws PCRT_RESOURCE unless `bytes` are free on the disk of `directory`, or of the directory in which `directory`
/// will be created. In the message, `what` names what needs the bytes ("the checkpoint"), and `remedy` says what to do
/// ("make room").
void requireRoom(const std::string &directory, int64_t bytes, const std::string &what, const std::string &remedy);

/// Throws PCRT_BAD_DATA unless the checkpoint in `directory` has the model and the optimizer of `program`.
void checkModel(const Program &program, const Trajectory &trajectory, const std::string &directory);

/// Reads a checkpoint, which may have been written on another mesh, to the arenas of all ranks. `trajectory` is its
/// trajectory.json. All ranks call this function. Throws PCRT_BAD_DATA, naming the damaged tensor or the key of
/// config.json that differs from the program's model. Throws PCRT_USAGE if the checkpoint is from the middle of a round
/// and the run has another number of replicas.
void loadCheckpoint(const std::string &directory, const Trajectory &trajectory, const Program &program, Device &device,
                    Pool &pool, Comm &comm);

/// Returns the directory of `path`, which is a directory or file of weights. Returns an empty text if `path` is empty.
std::string directoryOfWeights(const std::string &path);

/// Reads only the parameters of the model, without an adapter's, from a file or directory of safetensors. If the
/// directory has a trajectory.json, checks the sums in it; if it has a config.json, checks the model. Returns the sums
/// of the tensors. All ranks call this function. Throws PCRT_BAD_DATA.
TensorSums loadWeights(const std::string &path, const Program &program, Device &device, Pool &pool, Comm &comm);

/// Reads the adapter of `program` from a directory that PEFT or a run has saved. All ranks call it. Throws
/// PCRT_BAD_DATA, naming the setting or the tensor that differs.
void loadAdapter(const std::string &directory, const Program &program, Device &device, Pool &pool, Comm &comm);

} // namespace pcrt

#endif // PCRT_CHECKPOINT_CHECKPOINT_H
