//===- SharedMemory.h - A block's shared memory, with checks --------------===//
// Knows which threads wrote and read every two bytes last. Reports accesses outside of variables, misaligned ones,
// reads of bytes that were never written, accesses that no barrier orders ("Memory Consistency Model" of the PTX ISA),
// and those of bytes that a copy in flight will write. A product by a warpgroup reads through the asynchronous proxy:
// the threads that wrote need fence.proxy.async and then a barrier ("Async proxy").
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_PTX_READER_SHAREDMEMORY_H
#define PC_TEST_PTX_READER_SHAREDMEMORY_H

#include "Program.h"

namespace pc::ptx {

/// When something happened: barriers of the block and of the thread's warp are counted.
struct When {
  int thread = -1; ///< -1: never
  uint32_t block = 0, warp = 0;
};

enum class Access { Read, Write, ProxyRead };

class SharedMemory {
public:
  SharedMemory(const Kernel &kernel, uint64_t dynamicBytes);

  /// The bytes for an access; throws a Fault if it is not allowed.
  uint8_t *access(Access kind, uint64_t address, int bytes, const When &now);
  /// A copy of `bytes` to `address` starts.
  void startCopy(uint64_t address, int bytes, const When &now);
  void endCopy(uint64_t address, int bytes, const When &now);
  /// fence.proxy.async by a thread.
  void fenceProxy(const When &now);

private:
  /// Two bytes.
  struct Granule {
    When written, read, readElsewhere; ///< the last read, and the last one of another warp than that of `read`
    uint32_t writtenAt = 0;            ///< fences counted
    bool inVariable = false, inFlight = false;
  };
  /// The last fence of a thread, and its last one before the barrier that came before that.
  struct Fences {
    uint32_t time = 0, block = 0, timeBefore = 0;
  };

  void check(Access kind, Granule &granule, uint64_t address, const When &now);

  std::vector<uint8_t> bytes;
  std::vector<Granule> granules;
  std::vector<Fences> fences; ///< by thread
  uint32_t fenceTime = 0;
};

} // namespace pc::ptx

#endif
