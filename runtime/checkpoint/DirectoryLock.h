//===- DirectoryLock.h - One run at a time saves to a directory -----------===//
// DIR.lock names the process that saves to DIR by host, process and boot. The process holds an flock on DIR.lock until
// it ends. If the holder died on this machine, the next process takes the lock over. The user must remove a lock of
// another machine.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_DIRECTORYLOCK_H
#define PCRT_CHECKPOINT_DIRECTORYLOCK_H

#include <functional>
#include <string>

namespace pcrt {

/// The right of one process to save to a directory, from the constructor to the destructor. The object owns DIR.lock.
/// One thread uses the object, but any thread may read tag().
class DirectoryLock {
public:
  /// Takes the lock of `directory` for this process. If the previous holder died, first calls `cleanUp` with that
  /// holder's tag, to remove files whose names contain the tag. A process that is killed during this leaves the lock
  /// unchanged for the next one. Throws PCRT_RESOURCE if another process holds the lock, naming the process, or if
  /// DIR.lock is not a lock of a run.
  DirectoryLock(const std::string &directory, const std::function<void(const std::string &tag)> &cleanUp);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock &) = delete;
  DirectoryLock &operator=(const DirectoryLock &) = delete;

  /// A random text of 16 hexadecimal digits. Only this holder uses names that end in it, such as DIR.tmp-<tag>.
  const std::string &tag() const { return own; }

  /// Whether `name` is `before` followed by a tag.
  static bool isTagged(const std::string &name, const std::string &before);

  /// The tag in the lock of `directory`, whether or not this process holds it; empty if there is no lock.
  static std::string tagOf(const std::string &directory);

private:
  void create(const std::string &text);
  bool takeOver(const std::function<void(const std::string &tag)> &cleanUp);
  void removeDead(const std::string &host);
  std::string unnamed() const { return path + "-" + own; }

  std::string directory, path, own;
  int fd = -1;
};

} // namespace pcrt

#endif // PCRT_CHECKPOINT_DIRECTORYLOCK_H
