//===- DiskRing.h - Copies between a device and the disk ------------------===//
// Values pass through page-locked memory in pieces: a copy of the driver on one side, and a host function that reads or
// writes the file on the other. So captured steps have them, too. A host function waits for the threads of the disk,
// which call nothing of the driver and wait for nothing of it, as cuLaunchHostFunc demands.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_DISKRING_H
#define PCRT_CUDA_DISKRING_H

#include "cpu/DiskArena.h"
#include "cuda/Session.h"

#include <map>

namespace pcrt::cuda {

/// The arena on disk of a device's rank. Copies in the same direction are enqueued on one stream. It must outlive the
/// graphs that were captured.
class DiskRing {
public:
  /// `memory` has PCRT_DISK_RING bytes, page-locked and aligned to PCRT_DISK_BLOCK. Throws as DiskArena does.
  DiskRing(const Session &session, const std::string &directory, int64_t bytes, char *memory);

  /// Enqueues carry `move` between the device and byte `offset` of the disk.
  Result enqueue(const pcrt_move_desc &move, const void *onDevice, int64_t offset, Stream stream);
  /// The first error of copies that are done; empty: none failed.
  std::string error();

  DiskArena disk;

private:
  struct Piece {
    DiskRing *ring;
    const char *name; ///< Of the carry.
    DiskArena::Copy copy;
  };
  static void transfer(void *piece);

  const Session &session;
  char *memory;
  std::map<std::pair<const pcrt_move_desc *, int64_t>, Piece>
      pieces;       ///< By carry and offset: they stay in their place.
  std::mutex mutex; ///< Of `firstError`.
  std::string firstError;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_DISKRING_H
