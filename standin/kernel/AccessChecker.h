//===- AccessChecker.h - Shadow memory of kernels -------------------------===//
// Finds, in one run and in any order of threads: data races within a block (no barrier between) and between blocks of a
// launch, addresses outside of what is allocated, reads of bytes nobody wrote, misaligned accesses, use of bytes that
// an asynchronous copy may still write, or a product may still read. Order between launches is the driver's business.
// Two bytes are the smallest unit.
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

/// What the checker knows of two bytes.
enum class ByteState : uint8_t { Unallocated, Allocated, Written, Pending /* an asynchronous copy will write them */ };

/// An access as the driver's order checker wants it.
struct AccessRange {
  const void *begin;
  size_t bytes;
  bool write;
};

/// Not thread-safe: one launch at a time. Costs about 8.5 bytes of memory for each byte touched.
class AccessChecker {
public:
  AccessChecker();
  ~AccessChecker();
  AccessChecker(const AccessChecker &) = delete;

  /// Makes an address range known, all of it unallocated. Accesses outside of all regions are faults.
  void addRegion(const void *begin, size_t bytes);
  void removeRegion(const void *begin);
  /// Sets the state of what lies in a region; the rest is ignored. Copies, memsets and library calls set Written.
  void setState(const void *begin, size_t bytes, ByteState state);
  /// True where a byte in a region is not Written; `first` gets its address.
  bool unwritten(const void *begin, size_t bytes, const void **first) const;

  /// Exact ranges in regions that the last launch read and wrote, ascending, reads and writes apart.
  std::vector<AccessRange> accesses() const;

  /// Says what an address is ("byte 12 of wte"), for reports; without it, the offset in its region.
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
  /// What the thread has written to shared memory becomes visible to the asynchronous proxy after the next barrier.
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
