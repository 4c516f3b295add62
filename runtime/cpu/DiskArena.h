//===- DiskArena.h - The arena on disk of one rank ------------------------===//
// The arena on disk is one file without a name, whose space is allocated before the first step. Threads copy between
// the file and memory while the rank computes. The file bypasses the page cache (O_DIRECT) if its file system can do
// that.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_DISKARENA_H
#define PCRT_CPU_DISKARENA_H

#include "pcrt/pcrt.h"

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace pcrt {

/// The file and its threads, from the constructor to the destructor. However the process ends, the file is gone
/// afterwards. start() and wait() allocate nothing.
class DiskArena {
public:
  /// A copy between memory and byte `offset` of the file.
  struct Copy {
    char *memory = nullptr;
    int64_t offset = 0, bytes = 0;
    bool toDisk = false;
  };

  /// Makes a file of `bytes` zeros in `directory`, and threads for at most `mostCopies` copies at a time, which run on
  /// `cores`. Throws PCRT_RESOURCE if the directory has no room.
  DiskArena(const std::string &directory, int64_t bytes, int mostCopies, const std::vector<int> &cores);
  ~DiskArena();
  DiskArena(const DiskArena &) = delete;
  DiskArena &operator=(const DiskArena &) = delete;

  /// Starts copy `number`, which is below `mostCopies` and not in progress. Its offset is a multiple of
  /// PCRT_DISK_BLOCK. A copy to the disk may set the rest of its last block to zeros.
  void start(int number, const Copy &copy);
  /// Waits for copy `number`. Returns false, and the reason, if it failed.
  bool wait(int number, std::string *error);

  /// Copies any bytes and waits. Any thread may call these. They throw PCRT_RESOURCE.
  void write(int64_t offset, const void *from, int64_t bytes);
  void read(void *to, int64_t offset, int64_t bytes);

  /// Returns why values should not be kept in `directory`, for a warning: it is in memory, or on another machine.
  /// Returns an empty text if neither is the case.
  static std::string drawbackOf(const std::string &directory);
  /// Prints this warning.
  static void warnAbout(const std::string &directory);

private:
  /// A copy in progress. Threads take pieces from `next` on.
  struct Progress : Copy {
    int64_t next = 0;   ///< The first byte of the first piece that no thread has taken.
    int unfinished = 0; ///< Pieces that are not done.
    int error = 0;      ///< errno of the first piece that failed, and its place.
    int64_t errorAt = 0;
  };
  /// Memory for pieces that cannot be copied directly.
  struct FreeBlocks {
    void operator()(char *blocks) const;
  };
  using Blocks = std::unique_ptr<char, FreeBlocks>;

  void work(char *blocks);
  int copyPiece(const Copy &piece, char *blocks, bool keepsRest);
  int transfer(char *memory, int64_t offset, int64_t bytes, bool toDisk);
  void copyNow(const Copy &copy);
  std::string message(const Copy &copy, int error, int64_t at) const;
  static Blocks makeBlocks();

  std::string directory;
  int file = -1;
  int64_t memoryAlignment = PCRT_DISK_BLOCK; ///< Of memory that can be read or written directly.
  std::vector<Progress> copies;              ///< By number.
  std::vector<int> queue;                    ///< Ring of the numbers of copies with pieces to take.
  size_t queueBegin = 0, queued = 0;
  bool ending = false;
  std::mutex mutex, partialBlocks; ///< `partialBlocks` is held while part of a block is changed.
  std::condition_variable hasWork, isDone;
  std::vector<Blocks> blocks;       ///< By thread.
  std::vector<std::thread> threads; ///< Last, because they use the other members.
};

} // namespace pcrt

#endif // PCRT_CPU_DISKARENA_H
