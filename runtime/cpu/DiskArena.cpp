//===- DiskArena.cpp - The arena on disk of one rank ----------------------===//
// Copies are cut into pieces of 1 MiB, in which several threads keep the disk busy. A piece whose memory or length is
// not aligned is copied through aligned blocks of its thread.
//===----------------------------------------------------------------------===//
#include "cpu/DiskArena.h"
#include "base/Failure.h"
#include "base/SignalMask.h"
#include "comm/Environment.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

using namespace pcrt;

static constexpr int64_t kBlock = PCRT_DISK_BLOCK, kPiece = 1 << 20, kSector = 512;
/// Enough to keep an NVMe disk busy; more did not help (docs/rationale/offload.md).
static constexpr int kThreads = 16;
/// After this number of consecutive transfers that moved nothing, a file is assumed to be broken.
static constexpr int kMostIdle = 1000;

static int64_t down(int64_t offset) { return offset / kBlock * kBlock; }
static int64_t up(int64_t offset) { return down(offset + kBlock - 1); }

/// Opens a file without a name, so that it is gone when the process ends. Returns -1 on failure.
static int openNameless(const std::string &directory) {
  int file = open(directory.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
    return file;
  std::string path = directory + "/pc-scratch-XXXXXX"; // this file system cannot make files without a name
  file = mkostemp(path.data(), O_CLOEXEC);
  if (file >= 0)
    unlink(path.c_str());
  return file;
}

/// The alignment of memory for direct transfers of `file`, which has zeros.
static int64_t memoryAlignmentOf(int file) {
  alignas(kBlock) static char zeros[2 * kBlock];
  return pwrite(file, zeros + kSector, size_t(kBlock), 0) == kBlock ? kSector : kBlock;
}

void DiskArena::FreeBlocks::operator()(char *blocks) const { free(blocks); }

/// Room for a piece that begins and ends inside of blocks.
DiskArena::Blocks DiskArena::makeBlocks() {
  return Blocks(static_cast<char *>(aligned_alloc(size_t(kBlock), size_t(kPiece + 2 * kBlock))));
}

DiskArena::DiskArena(const std::string &directory, int64_t bytes, int mostCopies, const std::vector<int> &cores)
    : directory(directory), file(openNameless(directory)), copies(size_t(mostCopies)), queue(size_t(mostCopies)) {
  if (file < 0)
    fail(PCRT_RESOURCE, withErrno("--scratch " + directory + ": cannot make a file there"));
  int error = 0;
  while ((error = posix_fallocate(file, 0, std::max(bytes, kBlock))) == EINTR) {
  }
  if (error) {
    close(file);
    errno = error;
    fail(PCRT_RESOURCE,
         withErrno("--scratch " + directory + ": cannot allocate the " + std::to_string(bytes) +
                   " bytes that this rank keeps on disk; free some space, or name a directory on another disk"));
  }
  if (fcntl(file, F_SETFL, O_DIRECT) == 0)
    memoryAlignment = memoryAlignmentOf(file);
  SignalsMasked masked;
  for (int i = 0; i < kThreads; ++i)
    blocks.push_back(makeBlocks());
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([this, i, cores] {
      pinToCores(cores);
      work(blocks[size_t(i)].get());
    });
}

DiskArena::~DiskArena() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ending = true;
  }
  hasWork.notify_all();
  for (std::thread &thread : threads)
    thread.join();
  close(file);
}

/// Takes pieces until the arena ends. A copy leaves the queue when its last piece is taken.
void DiskArena::work(char *own) {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    hasWork.wait(lock, [&] { return ending || queued; });
    if (ending)
      return;
    Progress &copy = copies[size_t(queue[queueBegin])];
    int64_t at = copy.next, bytes = std::min(kPiece, copy.bytes - at);
    copy.next += bytes;
    if (copy.next == copy.bytes) {
      queueBegin = (queueBegin + 1) % queue.size();
      --queued;
    }
    Copy piece{copy.memory + at, copy.offset + at, bytes, copy.toDisk};
    lock.unlock();
    int error = copyPiece(piece, own, /*keepsRest=*/false);
    lock.lock();
    if (error && !copy.error) {
      copy.error = error;
      copy.errorAt = piece.offset;
    }
    if (--copy.unfinished == 0)
      isDone.notify_all();
  }
}

/// Reads or writes whole blocks; interrupted and short transfers are continued. Returns 0 or an errno.
int DiskArena::transfer(char *memory, int64_t offset, int64_t bytes, bool toDisk) {
  for (int idle = 0; bytes > 0;) {
    ssize_t done = toDisk ? pwrite(file, memory, size_t(bytes), offset) : pread(file, memory, size_t(bytes), offset);
    if (done < 0 && errno != EINTR)
      return errno;
    int64_t whole = done > 0 ? down(done) : 0; // direct transfers begin at blocks
    idle = whole ? 0 : idle + 1;
    if (idle > kMostIdle)
      return EIO;
    memory += whole, offset += whole, bytes -= whole;
  }
  return 0;
}

/// Copies at most kPiece bytes. If `keepsRest` is true, a write changes no other byte of the blocks at its ends.
/// Returns 0 or an errno.
int DiskArena::copyPiece(const Copy &piece, char *blocks, bool keepsRest) {
  int64_t begin = down(piece.offset), end = up(piece.offset + piece.bytes), lead = piece.offset - begin;
  bool whole = lead == 0 && end == piece.offset + piece.bytes;
  if (whole && reinterpret_cast<uintptr_t>(piece.memory) % uintptr_t(memoryAlignment) == 0)
    return transfer(piece.memory, begin, piece.bytes, piece.toDisk);
  std::unique_lock<std::mutex> lock(partialBlocks, std::defer_lock);
  if (piece.toDisk && !whole && keepsRest)
    lock.lock();
  if (!piece.toDisk || lock.owns_lock()) {
    if (int error = transfer(blocks, begin, end - begin, false))
      return error;
  } else if (!whole) {
    memset(blocks + (end - begin) - kBlock, 0, size_t(kBlock));
  }
  if (!piece.toDisk) {
    memcpy(piece.memory, blocks + lead, size_t(piece.bytes));
    return 0;
  }
  memcpy(blocks + lead, piece.memory, size_t(piece.bytes));
  return transfer(blocks, begin, end - begin, true);
}

std::string DiskArena::message(const Copy &copy, int error, int64_t at) const {
  errno = error;
  return withErrno(std::string("cannot ") + (copy.toDisk ? "write" : "read") + " the scratch file in " + directory +
                   " at byte " + std::to_string(at));
}

void DiskArena::start(int number, const Copy &copy) {
  std::lock_guard<std::mutex> lock(mutex);
  Progress &progress = copies[size_t(number)];
  static_cast<Copy &>(progress) = copy;
  progress.next = progress.error = 0;
  progress.unfinished = int((copy.bytes + kPiece - 1) / kPiece);
  if (!copy.bytes)
    return;
  queue[(queueBegin + queued++) % queue.size()] = number;
  hasWork.notify_all();
}

bool DiskArena::wait(int number, std::string *error) {
  std::unique_lock<std::mutex> lock(mutex);
  Progress &copy = copies[size_t(number)];
  isDone.wait(lock, [&] { return copy.unfinished == 0; });
  if (!copy.error)
    return true;
  *error = message(copy, copy.error, copy.errorAt);
  return false;
}

/// Uses the calling thread, so that checkpoints need no threads of the arena.
void DiskArena::copyNow(const Copy &copy) {
  Blocks own = makeBlocks();
  for (int64_t at = 0; at < copy.bytes; at += kPiece) {
    Copy piece{copy.memory + at, copy.offset + at, std::min(kPiece, copy.bytes - at), copy.toDisk};
    if (int error = copyPiece(piece, own.get(), /*keepsRest=*/true))
      fail(PCRT_RESOURCE, message(copy, error, piece.offset));
  }
}

void DiskArena::write(int64_t offset, const void *from, int64_t bytes) {
  copyNow({static_cast<char *>(const_cast<void *>(from)), offset, bytes, true});
}

void DiskArena::read(void *to, int64_t offset, int64_t bytes) {
  copyNow({static_cast<char *>(to), offset, bytes, false});
}

std::string DiskArena::drawbackOf(const std::string &directory) {
  struct statfs about;
  if (statfs(directory.c_str(), &about) != 0)
    return ""; // the constructor reports this
  constexpr long network[] = {NFS_SUPER_MAGIC,
                              SMB_SUPER_MAGIC,
                              CEPH_SUPER_MAGIC,
                              AFS_SUPER_MAGIC,
                              long(0xff534d42) /* CIFS */,
                              long(0xfe534d42) /* SMB2 */,
                              0x0bd00bd0 /* Lustre */,
                              0x65735546 /* FUSE */,
                              0x01021997 /* 9P */};
  auto type = long(uint32_t(about.f_type));
  if (type == TMPFS_MAGIC || type == long(RAMFS_MAGIC))
    return "is in memory, so nothing is saved by keeping values there";
  if (std::any_of(std::begin(network), std::end(network), [&](long one) { return type == long(uint32_t(one)); }))
    return "is on a network or user-space file system, which may be slow";
  return "";
}

void DiskArena::warnAbout(const std::string &directory) {
  if (std::string drawback = drawbackOf(directory); !drawback.empty())
    fprintf(stderr, "pc: warning: --scratch %s %s\n", directory.c_str(), drawback.c_str());
}
