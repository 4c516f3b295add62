//===- SaveDirectory.h - A directory that is replaced as a whole ----------===//
// A checkpoint is written to DIR.tmp-<tag> and then takes the place of DIR in one step. If the disk is full, the
// process is killed or an error occurs, DIR is either the old or the new directory. Other files in DIR stay there at
// every moment, because both directories hold links to them. Only a checkpoint's own files are ever removed.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_SAVEDIRECTORY_H
#define PCRT_CHECKPOINT_SAVEDIRECTORY_H

#include "checkpoint/DirectoryLock.h"
#include "checkpoint/Trajectory.h"
#include "data/TokenizerFiles.h"
#include "pcrt/average.h"

#include <optional>

namespace pcrt {

/// The files of checkpoints. Those of an adapter have PEFT's names instead of the first two.
constexpr const char *checkpointFiles[] = {"config.json",
                                           "model.safetensors",
                                           "adapter_config.json",
                                           "adapter_model.safetensors",
                                           "training_state.safetensors",
                                           PCRT_EMA_FILE,
                                           trajectoryName};

/// Returns the path of a directory without trailing slashes. If the directory is a symbolic link, returns the path of
/// its target, because a save replaces the target.
std::string plainPath(std::string path);

/// Returns the present place of a checkpoint. This is `directory`, unless a save was killed on a file system that
/// cannot exchange two directories, after the old one was moved away and before the new one had its name.
std::string whereCheckpointIs(const std::string &directory);

/// Removes the checkpoint in a directory, and the directory if nothing else is in it. If the process is killed at any
/// moment, a complete checkpoint or none is left. A directory that has only a checkpoint is renamed to `meanwhile`
/// first. So a directory with that name may always be removed later.
void removeCheckpoint(const std::string &directory, const std::string &meanwhile);

/// One directory to which a run saves. Rank 0 holds it, with the lock, from before the first step to the end of the
/// run. For each save, rank 0 calls begin, and then commit or discard. Between these calls all ranks write to the
/// temporary directory.
class SaveDirectory {
public:
  /// Locks `directory` and removes files that a killed run has left. Throws PCRT_RESOURCE if nothing can be saved in
  /// `directory`: it is in use, is not a directory, is the current directory or a mount point, or has a model that is
  /// not from a checkpoint. The tokenizer's files become part of the checkpoint, unless DIR has files of these names
  /// that are not from a checkpoint.
  explicit SaveDirectory(const std::string &directory, const TokenizerFiles &tokenizer = {});

  /// The tag of the lock, from which other ranks compute the name of the temporary directory.
  const std::string &tag() const { return lock->tag(); }
  static std::string temporaryOf(const std::string &plainPath, const std::string &tag) {
    return plainPath + ".tmp-" + tag;
  }

  /// The tokenizer's files that become part of the checkpoint.
  const TokenizerFiles &tokenizer() const { return more; }

  /// Whether DIR holds a checkpoint already; it stays as it is until commit.
  bool hasOlder() const;
  /// Makes the empty temporary directory. Throws PCRT_RESOURCE.
  void begin();
  /// Replaces DIR by the temporary directory, which is complete now. Throws PCRT_RESOURCE; committed() then returns
  /// whether the new directory is at DIR.
  void commit();
  bool committed() const { return inPlace; }
  /// Removes the temporary directory.
  void discard();

private:
  void checkHome();
  void cleanUp(const std::string &tag);
  std::string swap();
  bool isOurs(const std::string &name) const;

  std::string home, work;
  bool inPlace = false;
  TokenizerFiles more;
  std::optional<DirectoryLock> lock;
};

} // namespace pcrt

#endif // PCRT_CHECKPOINT_SAVEDIRECTORY_H
