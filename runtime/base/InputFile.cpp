//===- InputFile.cpp - A file to read -------------------------------------===//
// Opens only regular files: the kind is checked before and after open(), because opening a pipe may block and opening a
// device may change it. The status is PCRT_RESOURCE if the limit of open files is reached, and PCRT_BAD_DATA for any
// other failure.
//===----------------------------------------------------------------------===//
#include "base/InputFile.h"
#include "base/Failure.h"
#include "pcrt/weights.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace pcrt;

static const char *kindOf(mode_t mode) {
  return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

InputFile::InputFile(const std::string &path) : name(path) {
  struct stat info;
  auto refuseOthers = [&] {
    if (!S_ISREG(info.st_mode))
      fail(PCRT_BAD_DATA, "cannot read " + path + ": it is not a regular file but " + kindOf(info.st_mode));
  };
  // Opening a pipe may block, and opening a device may change it, so the kind of the file is checked first. O_NONBLOCK
  // is there in case a pipe has replaced the file since then.
  if (stat(path.c_str(), &info) == 0)
    refuseOthers();
  fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail(errno == EMFILE || errno == ENFILE ? PCRT_RESOURCE : PCRT_BAD_DATA,
         "cannot read " + path + ": " + whyNotOpened(path, strerror(errno)));
  InputFile closes(std::move(*this)); // closes the descriptor if the rest of the constructor throws
  if (fstat(closes.fd, &info) != 0)
    fail(PCRT_BAD_DATA, withErrno("cannot read " + path));
  refuseOthers();
  closes.length = info.st_size;
  swap(closes);
}

InputFile::~InputFile() {
  if (fd >= 0)
    close(fd);
}

void InputFile::swap(InputFile &other) noexcept {
  std::swap(name, other.name);
  std::swap(fd, other.fd);
  std::swap(length, other.length);
}

void InputFile::read(int64_t offset, int64_t count, void *to) const {
  for (auto *at = static_cast<char *>(to); count > 0;) {
    ssize_t got = pread(fd, at, size_t(count), offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      fail(PCRT_BAD_DATA, withErrno("cannot read " + name));
    if (got == 0)
      fail(PCRT_BAD_DATA, name + " was truncated while it was being read: it had " + std::to_string(length) +
                              " bytes, but now ends before byte " + std::to_string(offset + 1));
    at += got;
    offset += got;
    count -= got;
  }
}

std::string InputFile::read(int64_t offset, int64_t count) const {
  std::string bytes(size_t(count), '\0');
  read(offset, count, bytes.data());
  return bytes;
}
