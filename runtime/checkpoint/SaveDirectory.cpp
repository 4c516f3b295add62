//===- SaveDirectory.cpp - A directory that is replaced as a whole --------===//
// commit() syncs the new directory, exchanges both names by renameat2(RENAME_EXCHANGE) and removes the old one. On file
// systems that cannot exchange, it renames twice; the tag in the lock tells the next process where the new one is, and
// that process finishes the exchange (cleanUp). If something cannot be removed, it prints a warning.
//===----------------------------------------------------------------------===//
#include "checkpoint/SaveDirectory.h"
#include "base/Failure.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

using namespace pcrt;
namespace fs = std::filesystem;

static bool isCheckpointFile(const std::string &name) {
  return std::find(std::begin(checkpointFiles), std::end(checkpointFiles), name) != std::end(checkpointFiles);
}

/// The tokenizer's files that belong to the checkpoint in `directory`, as its trajectory says.
static std::set<std::string> tokenizerFilesIn(const std::string &directory) {
  try {
    std::set<std::string> names;
    for (auto &[name, bytes] : Trajectory::read(directory).files)
      if (isTokenizerFile(name))
        names.insert(name);
    return names;
  } catch (const Failure &) {
    return {}; // there is no checkpoint, or it is damaged
  }
}

std::string pcrt::plainPath(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  std::error_code error;
  fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : fs::path();
  return target.empty() ? path : target.string();
}

/// Describes the entry at `path` itself, without following a link; false if there is none.
static bool look(const std::string &path, struct stat *found) { return lstat(path.c_str(), found) == 0; }

static bool exists(const std::string &path) {
  struct stat ignored;
  return look(path, &ignored);
}

/// Returns true if `path` is a directory, and not a link to one.
static bool isDirectory(const std::string &path) {
  struct stat found;
  return look(path, &found) && S_ISDIR(found.st_mode);
}

/// Returns true if `directory` holds a complete checkpoint of a program like this one: trajectory.json is written last.
static bool isCheckpoint(const std::string &directory) {
  try {
    Trajectory::read(directory);
  } catch (const Failure &) {
    return false;
  }
  return true;
}

std::string pcrt::whereCheckpointIs(const std::string &directory) {
  std::string home = plainPath(directory);
  if (exists(home))
    return home;
  std::string tag = DirectoryLock::tagOf(home);
  std::string next = tag.empty() ? "" : SaveDirectory::temporaryOf(home, tag);
  return !tag.empty() && isCheckpoint(next) ? next : home;
}

/// Calls f with every name in `directory`. Returns false, with errno, if it cannot be read.
static bool forEachEntry(const std::string &directory, const std::function<void(const std::string &)> &f) {
  DIR *open = opendir(directory.c_str());
  if (!open)
    return false;
  std::vector<std::string> names;
  errno = 0;
  while (dirent *entry = readdir(open)) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      names.push_back(entry->d_name);
    errno = 0;
  }
  int error = errno;
  closedir(open);
  errno = error;
  if (error)
    return false;
  for (const std::string &name : names)
    f(name);
  return true;
}

/// Returns true if a file of this name in a directory, or in one within it ("a/b"), belongs to the checkpoint.
using IsOurs = std::function<bool(const std::string &)>;
static bool nothing(const std::string &) { return false; }

/// Applies `isOurs` to names in the directory `name`.
static IsOurs within(const std::string &name, const IsOurs &isOurs) {
  return [name, &isOurs](const std::string &inner) { return isOurs(name + "/" + inner); };
}

/// Mirrors everything but the checkpoint of `from` in `to`: makes the same directories, with hard links to the same
/// files. Files that cannot be linked (of another owner; on some file systems any) are moved after the exchange, by
/// removeLeft.
static void mirror(const std::string &from, const std::string &to, const IsOurs &isOurs) {
  struct stat original;
  if (!look(from, &original))
    fail(PCRT_RESOURCE, withErrno("cannot read " + from));
  chmod(to.c_str(), original.st_mode & 07777);
  // The new directory gets the owner of the old one, if this process may set it.
  if (lchown(to.c_str(), original.st_uid, original.st_gid) != 0)
    errno = 0;
  bool read = forEachEntry(from, [&](const std::string &name) {
    std::string source = from + "/" + name, copy = to + "/" + name;
    struct stat found;
    if (isOurs(name) || !look(source, &found))
      return;
    if (S_ISDIR(found.st_mode)) {
      if (found.st_dev != original.st_dev)
        fail(PCRT_RESOURCE,
             source +
                 " is a mount point, so it cannot be copied into the new directory; unmount it, or save elsewhere");
      if (mkdir(copy.c_str(), 0777) != 0)
        fail(PCRT_RESOURCE, withErrno("cannot make " + copy));
      mirror(source, copy, within(name, isOurs));
    } else if (link(source.c_str(), copy.c_str()) != 0 &&
               (errno == EIO || errno == ENOSPC || errno == EDQUOT || errno == ENOMEM)) {
      fail(PCRT_RESOURCE, withErrno("cannot link " + source + " to " + copy));
    }
  });
  if (!read)
    fail(PCRT_RESOURCE, withErrno("cannot read " + from));
}

/// Removes the checkpoint's files in a directory within another, and the directory itself if nothing else is in it.
/// Returns whether the directory is gone.
static bool removeInner(const std::string &path, const IsOurs &isOurs) {
  forEachEntry(path, [&](const std::string &name) {
    if (isOurs(name))
      unlink((path + "/" + name).c_str());
  });
  return rmdir(path.c_str()) == 0;
}

/// Removes a directory that a save has made or replaced, with its checkpoint and its links to files of `home`. Other
/// files, which `home` lacks, are moved there. Returns a path that could not be removed, or an empty string.
static std::string removeLeft(const std::string &directory, const std::string &home, const IsOurs &isOurs) {
  std::string stays;
  bool read = forEachEntry(directory, [&](const std::string &name) {
    std::string path = directory + "/" + name, there = home + "/" + name;
    struct stat mine, theirs;
    if (!look(path, &mine))
      return;
    bool gone = false;
    if (isOurs(name))
      gone = unlink(path.c_str()) == 0;
    else if (name == templateDirectory && S_ISDIR(mine.st_mode) && removeInner(path, within(name, isOurs)))
      gone = true;
    else if (!look(there, &theirs))
      gone = renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, there.c_str(), RENAME_NOREPLACE) == 0 ||
             (errno == EINVAL && rename(path.c_str(), there.c_str()) == 0);
    else if (S_ISDIR(mine.st_mode) && S_ISDIR(theirs.st_mode))
      gone = removeLeft(path, there, nothing).empty();
    else if (mine.st_ino == theirs.st_ino && mine.st_dev == theirs.st_dev)
      gone = unlink(path.c_str()) == 0;
    if (!gone)
      stays = path;
  });
  if (!read && errno == ENOENT)
    return "";
  if (stays.empty() && rmdir(directory.c_str()) != 0)
    stays = directory;
  return stays;
}

/// Removes a directory, and prints a warning if a part of it is left.
static void removeOrTell(const std::string &directory, const std::string &home, const IsOurs &isOurs) {
  std::string stays = removeLeft(directory, home, isOurs);
  if (!stays.empty())
    fprintf(stderr, "pc: warning: %s could not be removed; files of an earlier save remain in %s\n", stays.c_str(),
            directory.c_str());
}

void pcrt::removeCheckpoint(const std::string &directory, const std::string &meanwhile) {
  std::string at = directory;
  std::set<std::string> tokenizer = tokenizerFilesIn(directory);
  IsOurs isOurs = [&](const std::string &name) { return isCheckpointFile(name) || tokenizer.count(name); };
  bool all = true;
  forEachEntry(directory, [&](const std::string &name) { all &= name == templateDirectory || isOurs(name); });
  forEachEntry(directory + "/" + templateDirectory,
               [&](const std::string &name) { all &= within(templateDirectory, isOurs)(name); });
  if (all && rename(directory.c_str(), meanwhile.c_str()) == 0)
    at = meanwhile;
  for (const std::string &name : tokenizer)
    unlink((at + "/" + name).c_str());
  rmdir((at + "/" + templateDirectory).c_str());
  unlink((at + "/" + trajectoryName).c_str());
  for (const char *name : checkpointFiles)
    unlink((at + "/" + name).c_str());
  rmdir(at.c_str());
}

static std::string oldOf(const std::string &home, const std::string &tag) { return home + ".old-" + tag; }

SaveDirectory::SaveDirectory(const std::string &directory, const TokenizerFiles &tokenizer)
    : home(plainPath(directory)) {
  std::error_code error;
  auto refuse = [&](const std::string &why) { fail(PCRT_RESOURCE, "cannot save to " + home + ": " + why); };
  if (std::string parent = fs::path(home).parent_path(); !parent.empty())
    fs::create_directories(parent, error);
  if (error)
    refuse(error.message());
  if (exists(home) && !fs::is_directory(home, error))
    refuse("it is not a directory");
  lock.emplace(home, [this](const std::string &tag) { cleanUp(tag); });
  work = temporaryOf(home, lock->tag());
  if (exists(home))
    checkHome();
  std::set<std::string> before = tokenizerFilesIn(home);
  std::string templates = home + "/" + templateDirectory;
  bool noDirectory = exists(templates) && !isDirectory(templates); // a file or link of another program
  for (auto &[name, text] : tokenizer)
    if ((before.count(name) || !exists(home + "/" + name)) && !(noDirectory && name.starts_with(templateDirectory)))
      more[name] = text;
  begin(); // an error in creating the directory is found now, not after the last step
  discard();
}

void SaveDirectory::checkHome() {
  std::error_code error;
  auto refuse = [&](const std::string &why) { fail(PCRT_RESOURCE, "cannot save to " + home + ": " + why); };
  // A save replaces this directory by a new one.
  fs::path own = fs::canonical(home, error), here = fs::current_path(error);
  if (std::mismatch(own.begin(), own.end(), here.begin(), here.end()).first == own.end())
    refuse("it is the working directory of the program; use a directory inside it, as in " + home + "/checkpoint");
  struct stat it, parent;
  if (stat(own.c_str(), &it) == 0 && stat(own.parent_path().c_str(), &parent) == 0 && it.st_dev != parent.st_dev)
    refuse("it is a mount point; use a directory inside it, as in " + home + "/checkpoint");
  for (const char *name : checkpointFiles)
    if (exists(home + "/" + name) && !isCheckpoint(home))
      refuse("its " + std::string(name) + " is not part of a checkpoint of this program; use another directory");
}

/// Cleans up after a holder of the lock that was killed; completes its exchange if the old directory was already moved
/// away.
void SaveDirectory::cleanUp(const std::string &tag) {
  std::string left = temporaryOf(home, tag);
  if (!exists(home) && isCheckpoint(left) && rename(left.c_str(), home.c_str()) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot rename " + left + " to " + home));
  // If there is no DIR, it had no files to link.
  auto isOurs = [&, there = exists(home), before = tokenizerFilesIn(home)](const std::string &name) {
    return isCheckpointFile(name) || before.count(name) || (!there && isTokenizerFile(name));
  };
  removeOrTell(left, home, isOurs);
  removeOrTell(oldOf(home, tag), home, isOurs);
}

bool SaveDirectory::isOurs(const std::string &name) const { return isCheckpointFile(name) || more.count(name); }

bool SaveDirectory::hasOlder() const { return exists(home + "/" + trajectoryName); }

void SaveDirectory::begin() {
  inPlace = false;
  if (mkdir(work.c_str(), 0777) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot make " + work));
  try {
    if (exists(home))
      mirror(home, work, [this](const std::string &name) { return isOurs(name); });
  } catch (const Failure &) {
    discard();
    throw;
  }
}

static void syncDirectory(const std::string &path) {
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems have nothing to sync in directories.
  bool good = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP);
  std::string message = withErrno("cannot write " + path);
  if (fd >= 0)
    close(fd);
  if (!good)
    fail(PCRT_RESOURCE, message);
}

/// Gives the new directory the name of the old one. Returns the present path of the old one, or an empty string.
std::string SaveDirectory::swap() {
  auto refuse = [&] { fail(PCRT_RESOURCE, withErrno("cannot rename " + work + " to " + home)); };
  if (!exists(home)) {
    if (rename(work.c_str(), home.c_str()) != 0)
      refuse();
    return "";
  }
  if (renameat2(AT_FDCWD, work.c_str(), AT_FDCWD, home.c_str(), RENAME_EXCHANGE) == 0)
    return work;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
    refuse();
  // This file system cannot exchange two directories. For a moment neither of them has the name, and whereCheckpointIs
  // finds the new one.
  std::string old = oldOf(home, lock->tag());
  if (rename(home.c_str(), old.c_str()) != 0)
    refuse();
  if (rename(work.c_str(), home.c_str()) != 0) {
    int error = errno;
    rename(old.c_str(), home.c_str());
    errno = error;
    refuse();
  }
  return old;
}

void SaveDirectory::commit() {
  if (std::string inner = work + "/" + templateDirectory; isDirectory(inner))
    syncDirectory(inner);
  syncDirectory(work);
  std::string old = swap();
  inPlace = true;
  std::string parent = fs::path(home).parent_path();
  try {
    syncDirectory(parent.empty() ? "." : parent);
  } catch (const Failure &failure) {
    fail(PCRT_RESOURCE, failure.message + (old.empty() ? "" : "; the older checkpoint is now in " + old));
  }
  if (!old.empty())
    removeOrTell(old, home, [this](const std::string &name) { return isOurs(name); });
}

void SaveDirectory::discard() {
  removeOrTell(work, home, [this](const std::string &name) { return isOurs(name); });
}
