//===- DirectoryLock.h - one run at a time saves to a directory ------------===//
//
// DIR.lock names the process that saves to DIR: host, process, boot. The process
// holds an flock on it for as long as it lives, so that a lock whose holder died
// on this machine is taken over; one of another machine has to be removed by the
// user.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_DIRECTORYLOCK_H
#define PCRT_CHECKPOINT_DIRECTORYLOCK_H

#include <functional>
#include <string>

namespace pcrt {

class DirectoryLock {
public:
  /// Takes the lock of `directory` for this process. If its holder died, `cleanUp` removes what is left under the
  /// names of the holder's tag first: a process that is killed meanwhile leaves the lock as it was, for the next one.
  /// Throws PCRT_RESOURCE naming the holder if there is one, or if DIR.lock is not a lock of a run.
  DirectoryLock(const std::string &directory, const std::function<void(const std::string &tag)> &cleanUp);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock &) = delete;
  DirectoryLock &operator=(const DirectoryLock &) = delete;

  /// Names beside the directory that this holder may use, and no other one ever: DIR.tmp-<tag>.
  const std::string &tag() const { return own; }

  /// Whether `name` is `before` and a tag.
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
