//===- MappedFile.cpp - a file to read, mapped into memory ----------------===//
#include "core/MappedFile.h"
#include "core/Failure.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace pcrt;

MappedFile::MappedFile(const std::string &path) : name(path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    fail(PCRT_BAD_DATA, withErrno("cannot read " + path));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    fail(PCRT_BAD_DATA, "cannot read " + path + ": it is not a file");
  }
  length = info.st_size;
  if (length > 0) {
    void *mapped = mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
      std::string message = withErrno("cannot map " + path);
      close(fd);
      fail(PCRT_RESOURCE, message);
    }
    bytes = static_cast<const unsigned char *>(mapped);
  }
  close(fd);
}

MappedFile::~MappedFile() {
  if (bytes)
    munmap(const_cast<unsigned char *>(bytes), length);
}

void MappedFile::swap(MappedFile &other) noexcept {
  std::swap(name, other.name);
  std::swap(bytes, other.bytes);
  std::swap(length, other.length);
}
