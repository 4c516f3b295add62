//===- Memory.cpp - The arena on the device, and copies to and from it ----===//
// The arena uses cuMemCreate and cuMemMap, exportable and with direct RDMA where the system allows it. Staging
// alternates between its two pieces, so that the host fills one while the device copies the other.
//===----------------------------------------------------------------------===//
#include "cuda/Memory.h"
#include "base/Failure.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

static std::string gibibytes(double bytes) {
  char text[32];
  snprintf(text, sizeof text, "%.2f GiB", bytes / (1 << 30));
  return text;
}

char *DeviceArena::allocate(int64_t wanted) {
  const Driver &driver = session.driver;
  AllocationProperties properties{};
  properties.type = AllocationPinned;
  properties.location = {LocationDevice, session.device};
  // Allows network cards to access the memory directly, if the system supports this.
  int directRdma = 0;
  session.check(driver.cuDeviceGetAttribute(&directRdma, AttributeDirectRdma, session.device),
                "ask for memory that network cards reach");
  size_t granule = 0, unused = 0, total = 0;
  session.check(driver.cuMemGetInfo_v2(&unused, &total), "ask for the free memory");
  auto tooMuch = [&](const std::string &why) {
    fail(PCRT_RESOURCE, session.name + ": the arena needs " + gibibytes(double(bytes)) + ", " +
                            gibibytes(double(unused)) + " of " + gibibytes(double(total)) + " are free" + why +
                            "; compile with more microbatches, a plan that splits more, or --precision=bf16");
  };
  // Some containers forbid memory that other processes could open, or that network cards reach. NCCL then copies
  // buffers that it would have registered.
  Result result = Success;
  for (int attempt = 0; attempt < 4; ++attempt) {
    properties.directRdma = directRdma && attempt % 2 == 0;
    properties.handleTypes = attempt < 2 ? int(HandlePosixFile) : 0;
    result = driver.cuMemGetAllocationGranularity(&granule, &properties, GranularityRecommended);
    if (result != Success)
      continue;
    bytes = (size_t(std::max<int64_t>(wanted, 1)) + granule - 1) / granule * granule;
    if (bytes > unused)
      tooMuch("");
    result = driver.cuMemCreate(&handle, bytes, &properties, 0);
    if (result == ErrorOutOfMemory)
      tooMuch(" (" + session.describe(result) + ")");
    if (result == Success)
      break;
  }
  session.check(result, "allocate the arena");
  created = true;
  session.check(driver.cuMemAddressReserve(&base, bytes, granule, 0, 0), "reserve addresses for the arena");
  session.check(driver.cuMemMap(base, bytes, 0, handle, 0), "map the arena");
  mapped = true;
  AccessDescription access{{LocationDevice, session.device}, AccessReadWrite};
  session.check(driver.cuMemSetAccess(base, bytes, &access, 1), "make the arena accessible");
  return reinterpret_cast<char *>(base);
}

DeviceArena::~DeviceArena() {
  const Driver &driver = session.driver;
  if (mapped)
    driver.cuMemUnmap(base, bytes);
  if (created)
    driver.cuMemRelease(handle);
  if (base)
    driver.cuMemAddressFree(base, bytes);
}

Staging::Staging(Session &session) : session(session) {
  for (Piece &piece : pieces)
    piece = {static_cast<char *>(session.pinned(pieceBytes)), session.makeEvent()};
}

void Staging::write(void *to, const void *from, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  const Driver &driver = session.driver;
  session.check(driver.cuCtxSetCurrent(session.context), "use the device");
  for (int64_t at = 0, turn = 0; at < bytes; at += pieceBytes, ++turn) {
    Piece &piece = pieces[turn % 2];
    int64_t count = std::min(pieceBytes, bytes - at);
    if (turn >= 2)
      session.check(driver.cuEventSynchronize(piece.done), "wait for a copy");
    memcpy(piece.memory, static_cast<const char *>(from) + at, count);
    session.check(driver.cuMemcpyHtoDAsync_v2(addressOf(to) + at, piece.memory, count, session.compute),
                  "copy to the device");
    session.check(driver.cuEventRecord(piece.done, session.compute), "copy to the device");
  }
  session.synchronize();
}

void Staging::read(void *to, const void *from, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  const Driver &driver = session.driver;
  session.check(driver.cuCtxSetCurrent(session.context), "use the device");
  auto fetch = [&](int64_t at) {
    Piece &piece = pieces[at / pieceBytes % 2];
    session.check(driver.cuMemcpyDtoHAsync_v2(piece.memory, addressOf(from) + at, std::min(pieceBytes, bytes - at),
                                              session.compute),
                  "copy from the device");
    session.check(driver.cuEventRecord(piece.done, session.compute), "copy from the device");
  };
  if (bytes > 0)
    fetch(0);
  for (int64_t at = 0; at < bytes; at += pieceBytes) {
    if (at + pieceBytes < bytes)
      fetch(at + pieceBytes);
    Piece &piece = pieces[at / pieceBytes % 2];
    session.check(driver.cuEventSynchronize(piece.done), "wait for a copy");
    memcpy(static_cast<char *>(to) + at, piece.memory, std::min(pieceBytes, bytes - at));
  }
}

void pcrt::cuda::fillWithNoise(Session &session, Staging &staging, char *at, int64_t bytes) {
  int64_t block = std::min<int64_t>(bytes, 4 << 20);
  std::vector<uint16_t> noise(block / 2);
  uint32_t state = 1;
  for (uint16_t &value : noise) {
    state = state * 1664525 + 1013904223;
    value = uint16_t((state >> 16 & 0x8000) | (0x3f00 + (state >> 20 & 0x7f))); // +-[0.5, 1)
  }
  staging.write(at, noise.data(), block);
  for (int64_t have = block; have < bytes; have *= 2)
    session.check(session.driver.cuMemcpyDtoDAsync_v2(addressOf(at) + have, addressOf(at),
                                                      size_t(std::min(have, bytes - have)), session.compute),
                  "fill memory");
  session.synchronize();
}

Result pcrt::cuda::copyRows(Session &session, void *to, int64_t toPitch, const void *from, int64_t fromPitch,
                            int64_t width, int64_t rows) {
  const Driver &driver = session.driver;
  if (width == 0 || rows == 0)
    return Success;
  if (rows == 1 || (toPitch == width && fromPitch == width))
    return driver.cuMemcpyDtoDAsync_v2(addressOf(to), addressOf(from), size_t(width * rows), session.compute);
  Result result = Success;
  if (std::max(toPitch, fromPitch) >= INT32_MAX) { // beyond the driver's largest pitch
    for (int64_t row = 0; result == Success && row < rows; ++row)
      result = driver.cuMemcpyDtoDAsync_v2(addressOf(to) + row * toPitch, addressOf(from) + row * fromPitch,
                                           size_t(width), session.compute);
    return result;
  }
  Copy2D copy{};
  copy.fromType = copy.toType = MemoryDevice;
  copy.fromDevice = addressOf(from);
  copy.fromPitch = size_t(fromPitch);
  copy.toDevice = addressOf(to);
  copy.toPitch = size_t(toPitch);
  copy.width = size_t(width);
  copy.height = size_t(rows);
  return driver.cuMemcpy2DAsync_v2(&copy, session.compute);
}
