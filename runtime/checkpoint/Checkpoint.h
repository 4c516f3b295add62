//===- Checkpoint.h - saving and loading the state of training ------------===//
//
// A checkpoint is a directory that Hugging Face loads (config.json and
// model.safetensors), with training_state.safetensors and trajectory.json
// beside it. SaveDirectory says how it takes the place of an older one.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_CHECKPOINT_H
#define PCRT_CHECKPOINT_CHECKPOINT_H

#include "base/Failure.h"
#include "checkpoint/SaveDirectory.h"
#include "checkpoint/Trajectory.h"
#include "comm/Comm.h"
#include "cpu/Pool.h"
#include "device/Device.h"

namespace pcrt {

class CheckpointWriter {
public:
  /// Locks DIR for this run. All ranks make one, before the first step. Throws PCRT_RESOURCE (SaveDirectory).
  CheckpointWriter(const std::string &directory, const TokenizerFiles &tokenizer, Comm &comm);

  /// Throws PCRT_RESOURCE unless there is room for a checkpoint of `program` now. All ranks call it.
  void requireRoomFor(const Program &program);

  ~CheckpointWriter();

  /// Writes parameters, optimizer states and `trajectory`, whose files and tensors are filled in. All ranks call it.
  /// Throws PCRT_RESOURCE.
  void write(const Program &program, const Trajectory &trajectory, Device &device) {
    begin(program, trajectory, device);
    writeBlocks();
    finish();
  }

  /// The parts of write. begin makes the files, with room for everything, and finish puts them in their place: all
  /// ranks call them, and they throw. In between another thread of each rank may write its blocks, as long as
  /// parameters and states stay as they are.
  void begin(const Program &program, const Trajectory &trajectory, Device &device);
  void writeBlocks();
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

/// Throws PCRT_RESOURCE unless `bytes` are free on the disk of `directory`, or of what it will be made in. `what` is
/// to be written there ("the checkpoint"), and `remedy` is what to do where it does not fit ("make room").
void requireRoom(const std::string &directory, int64_t bytes, const std::string &what, const std::string &remedy);

/// Throws PCRT_BAD_DATA unless the checkpoint in `directory` is of the model and the optimizer of `program`.
void checkModel(const Program &program, const Trajectory &trajectory, const std::string &directory);

/// Reads what a CheckpointWriter wrote to DIR, of which `trajectory` is the trajectory.json, on any mesh. All ranks
/// call it. Throws PCRT_BAD_DATA, naming the tensor if one is damaged, or the key of config.json if it is another
/// model.
void loadCheckpoint(const std::string &directory, const Trajectory &trajectory, const Program &program, Device &device,
                    Pool &pool, Comm &comm);

/// Where a directory or file of weights is; empty for none.
std::string directoryOfWeights(const std::string &path);

/// Reads the parameters alone from a file or directory of safetensors; beside a trajectory.json their sums, and beside
/// a config.json the model, are checked, too. All ranks call it. Throws PCRT_BAD_DATA.
void loadWeights(const std::string &path, const Program &program, Device &device, Pool &pool, Comm &comm);

} // namespace pcrt

#endif // PCRT_CHECKPOINT_CHECKPOINT_H
