//===- ShmControl.cpp - The memory that the ranks of one machine share ----===//
// Creates, maps and resets the file. Processes may be killed anywhere, so a field is a lock-free atomic, or is written
// before an atomic announces it. A new file is all zeros, which is the initial state of every field except size and
// magic.
//===----------------------------------------------------------------------===//
#include "comm/ShmControl.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace pcrt;

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared between processes");
static_assert(std::has_unique_object_representations_v<MoveKey>, "compared byte by byte");
static_assert(sizeof(ControlBlock) <= kRankBlocksOffset);

RankBlock &ControlBlock::rank(int index) {
  return reinterpret_cast<RankBlock *>(reinterpret_cast<char *>(this) + kRankBlocksOffset)[index];
}

bool FailureRecord::record(int who, pcrt_status what, const std::string &text) {
  int32_t none = 0;
  if (!state.compare_exchange_strong(none, 1))
    return false;
  rank = who;
  status = what;
  snprintf(message, sizeof message, "%s", text.c_str());
  state.store(2, std::memory_order_release);
  return true;
}

int pcrt::createSharedFile(int size) {
  int fd = memfd_create("pcrt", MFD_CLOEXEC);
  if (fd < 0)
    return -1;
  ControlBlock *control = nullptr;
  if (ftruncate(fd, arenaOffset(size)) == 0) {
    void *at = mmap(nullptr, controlBytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
      control = static_cast<ControlBlock *>(at);
  }
  if (!control) {
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
  }
  control->size = size;
  control->magic = kControlMagic;
  munmap(control, controlBytes(size));
  return fd;
}

bool pcrt::reuseSharedFile(int fd) {
  std::string ignored;
  ControlBlock *control = mapControl(fd, &ignored);
  if (!control)
    return false;
  int size = control->size;
  bool good = true;
  for (int rank = 0; rank < size; ++rank) {
    RankBlock &block = control->rank(rank);
    // All fields but `kept` become zeros again.
    char *start = reinterpret_cast<char *>(&block), *kept = reinterpret_cast<char *>(&block.kept);
    memset(start, 0, size_t(kept - start));
    memset(kept + sizeof(Kept), 0, size_t(start + sizeof block - kept) - sizeof(Kept));
    // Scratch memory and flows lie after the arena.
    good &= fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, scratchOffset(rank), kWindowHalf) == 0;
  }
  memset(static_cast<void *>(control), 0, sizeof *control);
  control->size = size;
  control->oldArenas = 1;
  control->magic = kControlMagic;
  unmapControl(control);
  return good;
}

ControlBlock *pcrt::mapControl(int fd, std::string *error) {
  auto fail = [&](const char *why) {
    *error = std::string("shared memory of the run (descriptor ") + std::to_string(fd) + "): " + why;
    return nullptr;
  };
  struct stat info;
  if (fstat(fd, &info) != 0 || info.st_size < arenaOffset(1))
    return fail("it does not exist; a wrapper script may have closed it");
  void *head = mmap(nullptr, sizeof(ControlBlock), PROT_READ, MAP_SHARED, fd, 0);
  if (head == MAP_FAILED)
    return fail(strerror(errno));
  const auto *control = static_cast<const ControlBlock *>(head);
  int size = control->size;
  bool ours = control->magic == kControlMagic && size >= 1 && size <= kMaxRanks;
  munmap(head, sizeof(ControlBlock));
  if (!ours)
    return fail("it was made by a different version of pc-run");
  void *at = mmap(nullptr, controlBytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED)
    return fail(strerror(errno));
  return static_cast<ControlBlock *>(at);
}

void pcrt::unmapControl(ControlBlock *control) { munmap(control, controlBytes(control->size)); }
