//===- AuxiliaryFile.cpp - A log whose failures do not end a run ----------===//
// A record is one writev; if only a part of it fits, the file is truncated again. After a failure, records are skipped
// for a second before the next attempt.
//===----------------------------------------------------------------------===//
#include "metrics/AuxiliaryFile.h"
#include "base/Failure.h"
#include "base/SignalMask.h"
#include "device/Profile.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace pcrt;

void AuxiliaryFile::open(const std::string &path, int flags) {
  this->path = path;
  fd = ::open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  regular = S_ISREG(info.st_mode);
  if (!regular)
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

AuxiliaryFile::~AuxiliaryFile() {
  if (missing)
    fprintf(stderr, "pc: warning: %lld records are missing at the end of %s\n", (long long)missing, path.c_str());
  if (fd >= 0)
    close(fd);
}

void AuxiliaryFile::cut(int64_t bytes) {
  if (ftruncate(fd, bytes) != 0 || lseek(fd, bytes, SEEK_SET) != bytes)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

/// Writes a record. If it does not fit, removes the part that was written, and returns false, with errno.
bool AuxiliaryFile::write(const iovec *parts, int count) {
  ssize_t whole = 0;
  for (int i = 0; i < count; ++i)
    whole += ssize_t(parts[i].iov_len);
  struct stat before;
  if (regular && fstat(fd, &before) != 0)
    return false;
  ssize_t written = writev(fd, parts, count);
  if (written == whole)
    return true;
  if (written >= 0) { // another write shows why the rest was not written
    errno = ENOSPC;
    [[maybe_unused]] ssize_t more = regular ? ::write(fd, "", 1) : 0;
  }
  int reason = errno;
  if (written > 0 && regular && ftruncate(fd, before.st_size) == 0)
    lseek(fd, before.st_size, SEEK_SET);
  errno = reason;
  return false;
}

bool AuxiliaryFile::add(const iovec *parts, int count) {
  int64_t now = nanoseconds();
  if (missing && now - lastTry < 1'000'000'000) {
    ++missing;
    return false;
  }
  lastTry = now;
  bool good;
  {
    SignalsMasked masked; // against SIGPIPE
    good = write(parts, count);
    int reason = errno;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    timespec none{};
    if (!good && reason == EPIPE)
      sigtimedwait(&pipe, nullptr, &none);
    errno = reason;
  }
  if (!good) {
    ++missing;
    if (!warned)
      fprintf(stderr, "pc: warning: cannot write %s: %s; the run continues and will try again\n", path.c_str(),
              strerror(errno));
    warned = true;
    return false;
  }
  if (missing)
    fprintf(stderr, "pc: warning: %s can be written again, but %lld records are missing in it\n", path.c_str(),
            (long long)missing);
  missing = 0;
  return true;
}
