//===- disk.cpp - The arena on disk, with every call of the system failing in turn -===//
// usage: core-disk DIRECTORY   (an empty one, for the scratch file)
// This program has its own pread and pwrite, which the arena calls: they fail, stop early or are interrupted at a
// chosen call. Prints what is wrong; the exit status says whether anything is.
//===----------------------------------------------------------------------===//
#include "Files.h"
#include "cpu/DiskArena.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace pcrt;

namespace {
enum class Fault { None, Error, Interrupt, Short };
std::atomic<int> calls{0};
Fault fault = Fault::None;
int faultAt = 0, faultError = 0;

/// Returns whether this call fails; a short one gets fewer bytes.
bool fails(size_t &bytes) {
  if (++calls != faultAt || fault == Fault::None)
    return false;
  if (fault == Fault::Short) {
    bytes = bytes > 8192 ? 8192 : 1;
    return false;
  }
  errno = fault == Fault::Interrupt ? EINTR : faultError;
  return true;
}
} // namespace

extern "C" ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  size_t wanted = bytes;
  if (fails(wanted))
    return -1;
  ssize_t done = syscall(SYS_pread64, fd, to, bytes, offset);
  return done < 0 ? done : std::min(done, ssize_t(wanted));
}
extern "C" ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset) {
  size_t wanted = bytes;
  if (fails(wanted))
    return -1;
  ssize_t done = syscall(SYS_pwrite64, fd, from, bytes, offset);
  return done < 0 ? done : std::min(done, ssize_t(wanted));
}

/// Copies of these bytes go out and come back, all at once, into memory that is not aligned.
static std::string roundTrip(DiskArena &disk, const std::vector<int64_t> &sizes, const char *when) {
  std::vector<std::string> out, in;
  std::string error;
  for (size_t i = 0; i < sizes.size(); ++i) {
    out.push_back(std::string(size_t(sizes[i]), char('a' + i)));
    for (int64_t at = 0; at < sizes[i]; at += 997)
      out[i][size_t(at)] = char(at / 997);
    in.push_back(std::string(size_t(sizes[i]), 0));
  }
  for (bool toDisk : {true, false}) {
    int64_t offset = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      disk.start(int(i), {toDisk ? out[i].data() : in[i].data(), offset, sizes[i], toDisk});
      offset += (sizes[i] + PCRT_DISK_BLOCK - 1) / PCRT_DISK_BLOCK * PCRT_DISK_BLOCK;
    }
    for (size_t i = 0; i < sizes.size(); ++i)
      if (std::string own; !disk.wait(int(i), &own))
        error = own;
  }
  if (error.empty())
    expect(in == out, std::string(when) + ": what comes back is what went out");
  return error;
}

int main(int, char **arguments) {
  const std::string folder = arguments[1];
  const std::vector<int64_t> sizes = {4, 0, 4096, 5000, 1 << 20, (1 << 20) + 4, 3 << 20};
  auto open = [&] { return std::make_unique<DiskArena>(folder, 6 << 20, int(sizes.size()), std::vector<int>{0}); };
  auto disk = open();
  calls = 0;
  expect(roundTrip(*disk, sizes, "without a fault").empty(), "without a fault");
  int all = calls;
  expect(all > 10, "the number of calls");
  for (int at = 1; at <= all; ++at) {
    for (Fault kind : {Fault::Interrupt, Fault::Short}) {
      calls = 0, fault = kind, faultAt = at;
      expect(roundTrip(*disk, sizes, "interrupted").empty(), "goes on after call " + std::to_string(at));
    }
    for (int number : {EIO, ENOSPC}) {
      calls = 0, fault = Fault::Error, faultAt = at, faultError = number;
      std::string error = roundTrip(*disk, sizes, "failed");
      expect(error.find("the scratch file in " + folder + " at byte ") != std::string::npos &&
                 error.find(strerror(number)) != std::string::npos,
             "call " + std::to_string(at) + " fails with a message: " + error);
    }
  }
  fault = Fault::None;

  // Any bytes, as checkpoints ask for them; bytes around them stay.
  std::string before(20000, 'x'), found(20000, 0);
  disk->write(0, before.data(), 20000);
  disk->write(4090, "0123456789", 10);
  before.replace(4090, 10, "0123456789");
  disk->read(found.data(), 0, 20000);
  expect(found == before, "a write inside of blocks");
  disk->read(found.data(), 4093, 3);
  expect(found.compare(0, 3, "345") == 0, "a read inside of a block");

  // The file has no name, so a run that is killed leaves nothing, and two runs cannot share it.
  auto other = open();
  other->read(found.data(), 0, 20000);
  expect(found == std::string(20000, 0), "a new arena has zeros");
  int names = 0;
  if (DIR *entries = opendir(folder.c_str())) {
    while (dirent *entry = readdir(entries))
      names += entry->d_name[0] != '.';
    closedir(entries);
  }
  expect(names == 0, "the directory stays empty");
  std::string why = failureOf([&] { DiskArena huge(folder, int64_t(1) << 50, 1, {0}); }, PCRT_RESOURCE);
  expect(why.find("cannot allocate the 1125899906842624 bytes that this rank keeps on disk") != std::string::npos, why);
  why = failureOf([&] { DiskArena nowhere(folder + "/none", 4096, 1, {0}); }, PCRT_RESOURCE);
  expect(why.find("cannot make a file there: No such file") != std::string::npos, why);
  expect(DiskArena::drawbackOf("/dev/shm").find("is in memory") == 0, "tmpfs is reported");
  return finishChecks();
}
