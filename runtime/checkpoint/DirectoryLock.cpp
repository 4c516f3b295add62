//===- DirectoryLock.cpp - One run at a time saves to a directory ---------===//
// The lock file is written and locked under a temporary name, and link() gives it the name DIR.lock, which fails if
// that exists. A dead holder's file is replaced by rename(). On file systems without flock, boot id and process id tell
// whether the holder still runs. Sources: open(2) on O_EXCL over NFS, flock(2).
//===----------------------------------------------------------------------===//
#include "checkpoint/DirectoryLock.h"
#include "base/Failure.h"
#include "base/TensorSum.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace pcrt;
using Json = nlohmann::ordered_json;

namespace {

/// The contents of a lock file: the process that holds it.
struct Holder {
  std::string host, boot, tag;
  pid_t pid = 0;

  std::string text() const {
    return Json{{"host", host}, {"pid", pid}, {"boot", boot}, {"tag", tag}}.dump(-1, ' ', false,
                                                                                 Json::error_handler_t::replace) +
           "\n";
  }
};

} // namespace

/// The text of a small file; empty if it cannot be read.
static std::string readAll(int file) {
  char text[4096];
  ssize_t length = file < 0 ? 0 : pread(file, text, sizeof text, 0);
  return std::string(text, std::max<ssize_t>(length, 0));
}

static Holder thisProcess() {
  Holder self;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  self.host = host;
  self.pid = getpid();
  int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  self.boot = readAll(boot).substr(0, 36);
  if (boot >= 0)
    close(boot);
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != ssize_t(sizeof random))
    fail(PCRT_RESOURCE, withErrno("cannot draw a random name for a directory"));
  self.tag = sumOfBytes(&random, sizeof random).text();
  return self;
}

/// Parses the text of a lock file; false if it is something else.
static bool parse(const std::string &text, Holder &holder) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto isText = [&](const char *key) { return json.contains(key) && json[key].is_string(); };
  if (!json.is_object() || !isText("host") || !isText("boot") || !isText("tag") || !json.contains("pid") ||
      !json["pid"].is_number_integer())
    return false;
  holder = {json["host"], json["boot"], json["tag"], json["pid"].get<pid_t>()};
  return DirectoryLock::isTagged(holder.tag, "");
}

/// Returns true if the open file `file` is the one that `path` names now.
static bool isAt(int file, const std::string &path) {
  struct stat mine, there;
  return fstat(file, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

/// Creates the file under its first name, locked and complete, so that no process sees DIR.lock empty or unlocked.
void DirectoryLock::create(const std::string &text) {
  fd = open(unnamed().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd >= 0)
    flock(fd, LOCK_EX | LOCK_NB); // on file systems without flock, takeOver looks at the process id
  if (fd < 0 || write(fd, text.data(), text.size()) != ssize_t(text.size()))
    fail(PCRT_RESOURCE, withErrno("cannot save to " + directory + ": cannot write " + unnamed()));
}

DirectoryLock::DirectoryLock(const std::string &directory, const std::function<void(const std::string &tag)> &cleanUp)
    : directory(directory), path(directory + ".lock") {
  Holder self = thisProcess();
  own = self.tag;
  std::string text = self.text();
  try {
    create(text);
    bool taken = false;
    for (int attempt = 0; !taken; ++attempt) {
      if (!isAt(fd, unnamed())) { // another process removed it as a dead one's, between its creation and its lock
        close(fd);
        create(text);
      }
      taken = link(unnamed().c_str(), path.c_str()) == 0;
      if (!taken && ((errno != EEXIST && errno != ENOENT) || attempt == 100))
        fail(PCRT_RESOURCE, withErrno("cannot save to " + directory + ": cannot write " + path));
      taken = taken || takeOver(cleanUp);
    }
    unlink(unnamed().c_str());
    removeDead(self.host);
  } catch (...) {
    unlink(unnamed().c_str());
    close(fd);
    throw;
  }
}

bool DirectoryLock::isTagged(const std::string &name, const std::string &before) {
  return name.size() == before.size() + 16 && name.compare(0, before.size(), before) == 0 &&
         name.find_first_not_of("0123456789abcdef", before.size()) == std::string::npos;
}

/// Removes lock files that still have their temporary name, because their processes were killed. No process has a lock
/// on them.
void DirectoryLock::removeDead(const std::string &host) {
  std::filesystem::path lock = path;
  std::string parent = lock.parent_path(), before = lock.filename().string() + "-";
  std::error_code error;
  std::filesystem::directory_iterator at(parent.empty() ? "." : parent, error), end;
  for (; !error && at != end; at.increment(error)) {
    if (!isTagged(at->path().filename(), before))
      continue;
    int file = open(at->path().c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    Holder holder;
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0)
      if (std::string text = readAll(file); text.empty() || (parse(text, holder) && holder.host == host))
        unlink(at->path().c_str());
    if (file >= 0)
      close(file);
  }
}

/// Takes the lock of a holder that is dead. Returns false if the lock is gone by now, so that the caller should try
/// again. Throws if the holder may live.
bool DirectoryLock::takeOver(const std::function<void(const std::string &tag)> &cleanUp) {
  struct File {
    int fd;
    ~File() {
      if (fd >= 0)
        close(fd);
    }
  } file{open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0 && errno == ENOENT)
    return false;
  bool supported = true;
  bool free = file.fd >= 0 && flock(file.fd, LOCK_EX | LOCK_NB) == 0;
  if (file.fd >= 0 && !free)
    supported = errno == EWOULDBLOCK || errno == EINTR;
  Holder holder, self = thisProcess();
  if (!parse(readAll(file.fd), holder))
    fail(PCRT_RESOURCE,
         "cannot save to " + directory + ": " + path + " is not a lock file of this program; move it away");
  if (free && !isAt(file.fd, path))
    return false;
  bool here = holder.host == self.host;
  bool lives = supported ? !free : holder.boot == self.boot && (kill(holder.pid, 0) == 0 || errno == EPERM);
  if (!here || lives)
    fail(PCRT_RESOURCE, "cannot save to " + directory + ": process " + std::to_string(holder.pid) + " on " +
                            holder.host + " is saving there" +
                            (here ? "; use another directory, or wait until that process ends"
                                  : " (according to " + path + "); if that process has ended, remove the file"));
  cleanUp(holder.tag);
  unlink((path + "-" + holder.tag).c_str()); // the first name of its lock
  if (rename(unnamed().c_str(), path.c_str()) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot save to " + directory + ": cannot write " + path));
  return true;
}

DirectoryLock::~DirectoryLock() {
  if (isAt(fd, path))
    unlink(path.c_str());
  close(fd);
}

std::string DirectoryLock::tagOf(const std::string &directory) {
  int file = open((directory + ".lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  Holder holder;
  bool good = parse(readAll(file), holder);
  if (file >= 0)
    close(file);
  return good ? holder.tag : "";
}
