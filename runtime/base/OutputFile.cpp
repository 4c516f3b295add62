//===- OutputFile.cpp - Files that a command writes -----------------------===//
// A command writes a file under a temporary name and renames it when it is complete, so that a failure leaves the old
// file. If the file cannot be created or replaced (a pipe, a directory without permission), the complete text is copied
// into it. The compiler's tools also use this file, and they are built without exceptions. So nothing here throws;
// functions return false and set errno.
//===----------------------------------------------------------------------===//
#include "pcrt/outputs.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

using namespace pcrt;

namespace {

/// Two paths name the same file if their identities are equal: device and inode of the file or, if it does not exist,
/// those of its directory and its name.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;
  bool known = false; ///< False: it cannot clash with anything.

  bool operator==(const Identity &other) const {
    return known && other.known && std::tie(device, inode, name) == std::tie(other.device, other.inode, other.name);
  }
};

} // namespace

static std::string directoryOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

static std::string nameOf(const std::string &path) { return path.substr(path.rfind('/') + 1); }

/// Returns the file to which a write to `path` goes. Follows symbolic links, also those whose last target does not
/// exist.
static std::string followLinks(std::string path) {
  for (int links = 0; links < 40; ++links) {
    char text[PATH_MAX];
    ssize_t length = readlink(path.c_str(), text, sizeof text);
    if (length <= 0 || length == ssize_t(sizeof text))
      return path;
    std::string next(text, size_t(length));
    path = next[0] == '/' ? next : directoryOf(path) + "/" + next;
  }
  return path;
}

static std::string withoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  return path;
}

/// `standard` is the descriptor that "-" means.
static Identity identify(const std::string &given, int standard) {
  struct stat found;
  std::string path = withoutSlashes(given);
  if (path.empty())
    return {};
  if (path == "-" ? fstat(standard, &found) == 0 : stat(path.c_str(), &found) == 0)
    return {found.st_dev, found.st_ino, "", S_ISREG(found.st_mode) || S_ISDIR(found.st_mode)};
  path = followLinks(path);
  if (standard == STDIN_FILENO || path == "-")
    return {}; // an input that does not exist cannot be lost
  if (stat(directoryOf(path).c_str(), &found) != 0)
    return {0, 0, path, true};
  return {found.st_dev, found.st_ino, nameOf(path), true};
}

std::string pcrt::clashOfOutputs(const std::vector<NamedPath> &inputs, const std::vector<NamedPath> &outputs) {
  std::vector<Identity> read, written;
  for (const NamedPath &input : inputs)
    read.push_back(identify(input.path, STDIN_FILENO));
  for (const NamedPath &output : outputs)
    written.push_back(identify(output.path, STDOUT_FILENO));
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string what = outputs[i].flag + ": " + outputs[i].path;
    auto input = std::find(read.begin(), read.end(), written[i]);
    if (input != read.end()) {
      const NamedPath &named = inputs[size_t(input - read.begin())];
      return what + " would overwrite a file that this command reads (" + named.flag +
             (named.path == outputs[i].path ? "" : ": " + named.path) + "); name another file";
    }
    auto other = std::find(written.begin(), written.begin() + long(i), written[i]);
    if (other != written.begin() + long(i))
      return what + " is also the output file of " + outputs[size_t(other - written.begin())].flag +
             "; name two different files";
  }
  return "";
}

bool OutputFile::open(const std::string &path) {
  discard();
  struct stat found;
  bool exists = stat(path.c_str(), &found) == 0;
  if (exists && S_ISDIR(found.st_mode)) {
    errno = EISDIR;
    return false;
  }
  // A file without write permission is not replaced, even if its directory would allow it. The file of a running
  // program is replaced: its process keeps the old file.
  if (exists && access(path.c_str(), W_OK) != 0 && errno != ETXTBSY)
    return false;
  byCopy = exists && !S_ISREG(found.st_mode);
  target = byCopy ? path : followLinks(path); // for a pipe, the last link in /proc has no path
  static std::atomic<int> number{0};
  std::string suffix = ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  auto make = [&](const std::string &name) {
    work = name + suffix;
    fd = ::open(work.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd >= 0;
  };
  if (!byCopy && make(target)) {
    if (exists && (fchown(fd, found.st_uid, found.st_gid) != 0 || fchmod(fd, found.st_mode & 07777) != 0))
      errno = 0; // then the file keeps the owner and mode of this user
    return true;
  }
  // A directory in which no file can be created may still contain a file that can be written.
  if (!byCopy && !exists)
    return false;
  byCopy = true;
  const char *folder = getenv("TMPDIR");
  return make(std::string(folder && *folder ? folder : "/tmp") + "/pc-output");
}

bool OutputFile::copyToTarget() {
  int from = ::open(work.c_str(), O_RDONLY | O_CLOEXEC), to = ::open(target.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  bool good = from >= 0 && to >= 0;
  discard(); // must come before a signal can end the process, because the reader of a pipe may close it
  char block[1 << 16];
  for (ssize_t count; good && (count = read(from, block, sizeof block)) != 0;) {
    good = count > 0;
    for (ssize_t done = 0; good && done < count;) {
      ssize_t written = write(to, block + done, size_t(count - done));
      done += std::max<ssize_t>(written, 0);
      good = written >= 0 || errno == EINTR;
    }
  }
  int error = errno;
  for (int file : {from, to})
    if (file >= 0 && close(file) != 0 && good)
      good = false, error = errno;
  errno = error;
  return good;
}

bool OutputFile::commit() {
  int error = 0;
  if (close(fd) != 0)
    error = errno;
  fd = -1;
  if (!error && !byCopy && rename(work.c_str(), target.c_str()) == 0)
    work.clear();
  else if (!error && (byCopy || errno == EBUSY || errno == EPERM || errno == EACCES))
    error = copyToTarget() ? 0 : errno;
  else if (!error)
    error = errno;
  discard();
  errno = error;
  return !error;
}

void OutputFile::discard() {
  if (fd >= 0)
    close(fd);
  fd = -1;
  if (!work.empty())
    unlink(work.c_str());
  work.clear();
}
