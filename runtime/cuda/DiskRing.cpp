//===- DiskRing.cpp - Copies between a device and the disk ----------------===//
// Each direction has half of the memory, which is one piece. The order of its stream is that of the pieces.
//===----------------------------------------------------------------------===//
#include "cuda/DiskRing.h"
#include "base/Types.h"
#include "cuda/Memory.h"
#include "pcrt/disk.h"

#include <algorithm>

using namespace pcrt;
using namespace pcrt::cuda;

static constexpr int64_t kPiece = PCRT_DISK_RING / 2;

DiskRing::DiskRing(const Session &session, const std::string &directory, int64_t bytes, char *memory)
    : disk(directory, bytes, 2, {}), session(session), memory(memory) {}

Result DiskRing::enqueue(const pcrt_move_desc &move, const void *onDevice, int64_t offset, Stream stream) {
  const Driver &driver = session.driver;
  const int64_t bytes = move.outer * elementBytes(move.dtype);
  const bool isOut = move.reduction & PCRT_CARRY_OUT;
  char *half = memory + (isOut ? kPiece : 0);
  Result result = Success;
  for (int64_t at = 0; at < bytes && result == Success; at += kPiece) {
    const int64_t size = std::min(kPiece, bytes - at);
    Piece *piece =
        &pieces.insert_or_assign({&move, offset + at}, Piece{this, move.name, {half, offset + at, size, isOut}})
             .first->second;
    if (isOut)
      result = driver.cuMemcpyDtoHAsync_v2(half, addressOf(onDevice) + at, size_t(size), stream);
    if (result == Success)
      result = driver.cuLaunchHostFunc(stream, transfer, piece);
    if (!isOut && result == Success)
      result = driver.cuMemcpyHtoDAsync_v2(addressOf(onDevice) + at, half, size_t(size), stream);
  }
  return result;
}

/// After an error nothing is copied any more: the step has failed, which its end reports.
void DiskRing::transfer(void *argument) {
  auto &piece = *static_cast<Piece *>(argument);
  DiskRing &ring = *piece.ring;
  if (!ring.error().empty())
    return;
  std::string error;
  ring.disk.start(piece.copy.toDisk, piece.copy);
  if (ring.disk.wait(piece.copy.toDisk, &error))
    return;
  std::lock_guard<std::mutex> lock(ring.mutex);
  if (ring.firstError.empty())
    ring.firstError = "'" + std::string(piece.name) + "': " + error;
}

std::string DiskRing::error() {
  std::lock_guard<std::mutex> lock(mutex);
  return firstError;
}
