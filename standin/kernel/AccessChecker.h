//===- AccessChecker.h - Shadow memory of kernels -------------------------===//
// In one run and with any order of threads it finds these faults: data races within a block (no barrier between) and
// between blocks of a launch, addresses outside of allocated memory, reads of bytes that were never written, misaligned
// accesses, and use of bytes that an asynchronous copy may still write or a product may still read. The driver's order
// checker handles order between launches. Two bytes are the smallest unit.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_KERNEL_ACCESSCHECKER_H
#define PC_STANDIN_KERNEL_ACCESSCHECKER_H

#include "pcrt/host_image.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pc::standin {

/// The state of two bytes.
enum class ByteState : uint8_t { Unallocated, Allocated, Written, Pending /* an asynchronous copy will write them */ };

/// An access in the form of the driver's order checker.
struct AccessRange {
  const void *begin;
  size_t bytes;
  bool write;
};

/// The shadow memory. It is not thread-safe and handles one launch at a time. It costs about 8.5 bytes of memory for
/// each byte accessed.
class AccessChecker {
public:
  AccessChecker();
  ~AccessChecker();
  AccessChecker(const AccessChecker &) = delete;

  /// Adds an address range, all of it unallocated. Accesses outside of all regions are faults.
  void addRegion(const void *begin, size_t bytes);
  void removeRegion(const void *begin);
  /// Sets the state of the bytes that lie in a region; others are ignored. Copies, memsets and library calls set
  /// Written.
  void setState(const void *begin, size_t bytes, ByteState state);
  /// Whether a byte in a region is not Written; `first` gets its address.
  bool unwritten(const void *begin, size_t bytes, const void **first) const;

  /// The exact ranges in regions that the last launch read and wrote, ascending, reads and writes separately.
  std::vector<AccessRange> accesses() const;

  /// Names an address ("byte 12 of wte") for reports; without it, they have the offset in its region.
  std::function<std::string(const void *)> describe;

  // Called by the kernel library.
  void beginLaunch(const pcrt_host_module *module, const pcrt_host_kernel *kernel, const uint32_t block[3]);
  void beginBlock(const uint8_t *shared, uint32_t dynamicBytes, uint32_t blockIndex, const uint32_t grid[3]);
  void barrier();
  void warpCollective(unsigned warp, uint32_t lanes, bool whole);
  /// Checks and records. Returns "" or the fault.
  std::string access(unsigned thread, const void *address, uint32_t bytes, uint32_t kind, uint64_t value,
                     uint32_t site);
  /// Checks the target of an asynchronous copy, at its start (`done` false: a write that is pending) and end.
  std::string copyTarget(unsigned thread, const void *address, uint32_t bytes, uint32_t site, bool done);
  /// The thread's writes to shared memory become visible to the asynchronous proxy after the next barrier.
  void fenceProxy(unsigned thread);
  /// A read of shared memory by the asynchronous proxy (16 bytes), at its start (`done` false: from now on it may
  /// happen at any time) and end.
  std::string proxyRead(unsigned thread, const void *address, uint32_t site, bool done);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace pc::standin

#endif
