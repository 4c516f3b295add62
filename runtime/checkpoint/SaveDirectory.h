//===- SaveDirectory.h - a directory that is replaced as a whole -----------===//
//
// A checkpoint is written to DIR.tmp-<tag> and then takes the place of DIR in
// one step: a full disk, a kill or an error at any moment leaves the old one or
// the new one. Other files in DIR stay there at every moment: both directories
// hold links to them. Nothing else than a checkpoint's files is ever removed.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_SAVEDIRECTORY_H
#define PCRT_CHECKPOINT_SAVEDIRECTORY_H

#include "checkpoint/DirectoryLock.h"
#include "checkpoint/Trajectory.h"
#include "data/TokenizerFiles.h"

#include <optional>

namespace pcrt {

/// What every checkpoint consists of.
constexpr const char *checkpointFiles[] = {"config.json", "model.safetensors", "training_state.safetensors",
                                           trajectoryName};

/// "a/b/" and "a/b" name the same directory, and so does a link to it: what it leads to is replaced, not the link.
std::string plainPath(std::string path);

/// Where a checkpoint of that name is now: `directory`, unless a save was killed on a file system that cannot exchange
/// two directories, at the moment when the new one has no name yet.
std::string whereCheckpointIs(const std::string &directory);

/// Removes the checkpoint in a directory, and the directory if nothing else is in it. Killed at any moment it leaves a
/// checkpoint or none. A directory with nothing else in it is renamed to `meanwhile` first, so that what a killed
/// process leaves under that name belongs to no other program.
void removeCheckpoint(const std::string &directory, const std::string &meanwhile);

/// Held by rank 0, from before the first step to the end of the run.
class SaveDirectory {
public:
  /// Locks `directory`, removes what a killed run has left, and throws PCRT_RESOURCE if nothing can be saved there: in
  /// use, not a directory, the current one, a mount point, or with a model that is not a checkpoint's.
  /// The tokenizer's files become part of the checkpoint, unless DIR has files of their names that no checkpoint has.
  explicit SaveDirectory(const std::string &directory, const TokenizerFiles &tokenizer = {});

  /// Part of the names of this run's temporary directories: other ranks compute the directory's name from it.
  const std::string &tag() const { return lock->tag(); }
  static std::string temporaryOf(const std::string &plainPath, const std::string &tag) {
    return plainPath + ".tmp-" + tag;
  }

  /// The tokenizer's files that the checkpoint takes in.
  const TokenizerFiles &tokenizer() const { return more; }

  /// Whether DIR holds a checkpoint already; it stays as it is until commit.
  bool hasOlder() const;
  /// Makes the empty temporary directory. Throws PCRT_RESOURCE.
  void begin();
  /// Replaces DIR by the temporary directory, now complete. Throws PCRT_RESOURCE; committed() then says which of the
  /// two is at DIR.
  void commit();
  bool committed() const { return inPlace; }
  /// Removes what begin has made.
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
