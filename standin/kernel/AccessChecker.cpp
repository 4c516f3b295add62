//===- AccessChecker.cpp - Shadow memory of kernels -----------------------===//
// A clock counts barriers, warp collectives and block starts. Shadow memory keeps, for every two bytes, when and where
// they were last written and read. Two accesses are ordered if a barrier (or, within a warp, a collective) came
// between. Blocks run one after the other, so "since this block began" and "since this launch began" are also
// comparisons of times.
//===----------------------------------------------------------------------===//
#include "AccessChecker.h"
#include "Worker.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace pc::standin {
namespace {

// The bits of an access: time 36, thread 11, atomic 1, site 16.
enum : uint32_t { severalOfWarp = 1024, severalBlocks = 2046, severalWarps = 2047, unknownSite = 0xffff };
struct Access {
  uint64_t bits;
  uint64_t time() const { return bits >> 28; }
  uint32_t who() const { return bits >> 17 & 0x7ff; }
  bool atomic() const { return bits >> 16 & 1; }
  uint32_t site() const { return bits & 0xffff; }
  static Access make(uint64_t time, uint32_t who, bool atomic, uint32_t site) {
    return {time << 28 | uint64_t(who) << 17 | uint64_t(atomic) << 16 | std::min<uint32_t>(site, unknownSite)};
  }
};

/// Shadow of two bytes.
struct Cell {
  Access write, read;
  bool operator==(const Cell &other) const { return write.bits == other.write.bits && read.bits == other.read.bits; }
};

constexpr size_t lineBytes = 256;
/// The reserved bytes and no more, because other memory may follow.
constexpr size_t sharedBytes = sharedCapacity;

template <class T> T *reserve(size_t count) {
  void *p = mmap(nullptr, std::max<size_t>(count * sizeof(T), 1), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("stand-in: cannot reserve shadow memory");
    std::abort();
  }
  return static_cast<T *>(p);
}

/// Memory whose accesses are checked, with its shadow.
struct Region {
  const uint8_t *begin;
  size_t bytes;
  Cell *cells;
  ByteState *states; ///< For bytes that are Unallocated here, the state is `base`.
  ByteState base = ByteState::Unallocated;
  uint8_t *touched; ///< a line: 1 if the last launch was there

  Region(const void *begin, size_t bytes)
      : begin(static_cast<const uint8_t *>(begin)), bytes(bytes), cells(reserve<Cell>(bytes / 2 + 1)),
        states(reserve<ByteState>(bytes / 2 + 1)), touched(reserve<uint8_t>(bytes / lineBytes + 1)) {}
  Region(const Region &) = delete;
  ~Region() {
    munmap(cells, (bytes / 2 + 1) * sizeof(Cell));
    munmap(states, bytes / 2 + 1);
    munmap(touched, bytes / lineBytes + 1);
  }
  ByteState stateOf(size_t i) const { return states[i] == ByteState::Unallocated ? base : states[i]; }
  /// Sets states; a region whose bytes all have the same state only has `base`, without memory for each byte.
  void setStates(size_t first, size_t end, ByteState value) {
    size_t all = (bytes + 1) / 2;
    if (first == 0 && end == all) {
      base = value;
      madvise(states, bytes / 2 + 1, MADV_DONTNEED);
      return;
    }
    if (value == ByteState::Unallocated && base != ByteState::Unallocated) {
      for (size_t i = 0; i < all; ++i)
        states[i] = stateOf(i);
      base = ByteState::Unallocated;
    }
    std::memset(states + first, int(value), end - first);
  }
  bool holds(const uint8_t *p, size_t n) const { return p >= begin && n <= bytes && p <= begin + (bytes - n); }
};

/// What is wrong with an access to a cell.
struct Finding {
  enum Fault { None, Unusable /* by its ByteState */, AfterWrite, AfterRead } fault = None;
  size_t cell = 0;
};

} // namespace

/// The regions, and the times that order the accesses of the launch in progress.
struct AccessChecker::State {
  std::vector<std::unique_ptr<Region>> regions;
  Region *last = nullptr;                         ///< the region of the last access
  std::vector<std::pair<Region *, size_t>> lines; ///< touched in this launch

  uint64_t now = 1, launchStart = 1, blockStart = 1, sectionStart = 1;
  std::array<uint64_t, 32> warpTime{}; ///< the last collective of all lanes
  /// The time of the last partial collective in which both lanes took part; empty until there is one in this block.
  std::array<std::vector<uint64_t>, 32> pairTime;
  std::vector<std::pair<uint64_t, uint32_t>> blocks; ///< the blocks of this launch: start and index
  const pcrt_host_module *module = nullptr;
  const pcrt_host_kernel *kernel = nullptr;
  uint32_t block[3] = {}, grid[3] = {};
  const uint8_t *shared = nullptr;
  size_t sharedUsed = 0;
  Region sharedShadow{nullptr, sharedBytes};
  /// A thread's last fence.proxy.async, and its last one before the barrier.
  std::array<uint64_t, maxThreads> fenced{}, visible{};
  /// For each 16 bytes, the products that may read them.
  std::vector<uint16_t> reading = std::vector<uint16_t>(sharedBytes / 16 + 1);
  size_t numReading = 0;

  Finding record(Region &region, size_t first, size_t end, Access mine, uint32_t kind, bool same, bool isShared) const;

  Region *find(const uint8_t *p, size_t n) {
    if (last && last->holds(p, n))
      return last;
    for (auto &region : regions)
      if (region->holds(p, n))
        return last = region.get();
    return nullptr;
  }

  std::string dims(uint64_t linear, const uint32_t d[3]) const {
    if (!d[0] || !d[1])
      return std::to_string(linear);
    return std::to_string(linear % d[0]) + "," + std::to_string(linear / d[0] % d[1]) + "," +
           std::to_string(linear / d[0] / d[1]);
  }

  std::string siteText(uint32_t site) const {
    return site < module->num_sites && site != unknownSite ? module->sites[site].text : "an unknown place";
  }

  /// The thread and place of an earlier access.
  std::string name(Access access) const {
    std::string text;
    if (access.who() < severalOfWarp)
      text = "thread " + dims(access.who(), block);
    else if (access.who() < severalBlocks)
      text = "several threads of warp " + std::to_string(access.who() - severalOfWarp);
    else
      text = "several threads";
    if (access.who() == severalBlocks) {
      text += " of several blocks";
    } else if (access.time() < blockStart) {
      auto it = std::upper_bound(blocks.begin(), blocks.end(), std::pair(access.time(), ~0u));
      if (it != blocks.begin())
        text += " of block " + dims(std::prev(it)->second, grid);
    }
    return text + " (" + siteText(access.site()) + ")";
  }

  /// Returns true if an access of `thread` that begins now is not ordered after `earlier`.
  bool unordered(Access earlier, unsigned thread, bool atomic, bool isShared) const {
    uint64_t time = earlier.time();
    if (time < launchStart || (atomic && earlier.atomic()))
      return false;
    uint32_t who = earlier.who();
    if (time < blockStart || who == severalBlocks)
      return !isShared;
    if (time < sectionStart)
      return false;
    if (who == thread)
      return false;
    if (who == severalWarps)
      return true;
    unsigned warp = who < severalOfWarp ? who / 32 : who - severalOfWarp;
    if (warp != thread / 32)
      return true;
    if (time < warpTime[warp])
      return false;
    return who >= severalOfWarp || pairTime[warp].empty() || time >= pairTime[warp][who % 32 * 32 + thread % 32];
  }

  /// The reader to remember after `mine` has read the same bytes as `earlier`.
  Access merge(Access earlier, Access mine, unsigned thread, bool isShared) const {
    uint64_t time = earlier.time();
    if (time < launchStart)
      return mine;
    auto with = [&](uint32_t who) { return Access::make(mine.time(), who, mine.atomic(), mine.site()); };
    if (time < blockStart || earlier.who() == severalBlocks)
      return isShared ? mine : with(severalBlocks);
    uint32_t who = earlier.who();
    if (time < sectionStart || who == thread)
      return mine;
    if (who == severalWarps)
      return with(severalWarps);
    unsigned warp = who < severalOfWarp ? who / 32 : who - severalOfWarp;
    if (warp != thread / 32)
      return with(severalWarps);
    return time < warpTime[warp] ? mine : with(severalOfWarp + warp);
  }
};

AccessChecker::AccessChecker() : state(std::make_unique<State>()) {}
AccessChecker::~AccessChecker() = default;

void AccessChecker::addRegion(const void *begin, size_t bytes) {
  state->regions.push_back(std::make_unique<Region>(begin, bytes));
}

void AccessChecker::removeRegion(const void *begin) {
  state->last = nullptr;
  state->lines.clear();
  std::erase_if(state->regions, [&](const auto &region) { return region->begin == begin; });
}

void AccessChecker::setState(const void *begin, size_t bytes, ByteState value) {
  auto *from = static_cast<const uint8_t *>(begin);
  for (auto &region : state->regions) {
    const uint8_t *low = std::max(from, region->begin), *high = std::min(from + bytes, region->begin + region->bytes);
    if (low < high) {
      size_t first = size_t(low - region->begin) / 2, end = (size_t(high - region->begin) + 1) / 2;
      region->setStates(first, end, value);
    }
  }
}

bool AccessChecker::unwritten(const void *begin, size_t bytes, const void **first) const {
  auto *p = static_cast<const uint8_t *>(begin);
  Region *region = state->find(p, bytes);
  if (!region)
    return false;
  for (size_t i = size_t(p - region->begin) / 2, end = (size_t(p - region->begin) + bytes + 1) / 2; i < end; ++i)
    if (region->stateOf(i) != ByteState::Written) {
      if (first)
        *first = region->begin + 2 * i;
      return true;
    }
  return false;
}

std::vector<AccessRange> AccessChecker::accesses() const {
  auto lines = state->lines;
  std::sort(lines.begin(), lines.end(), [](const auto &a, const auto &b) {
    return a.first->begin + a.second * lineBytes < b.first->begin + b.second * lineBytes;
  });
  std::vector<AccessRange> reads, writes;
  auto add = [](std::vector<AccessRange> &ranges, const uint8_t *p, bool write) {
    if (!ranges.empty() && static_cast<const uint8_t *>(ranges.back().begin) + ranges.back().bytes == p)
      ranges.back().bytes += 2;
    else
      ranges.push_back({p, 2, write});
  };
  for (auto [region, line] : lines)
    for (size_t i = line * lineBytes / 2; i < (line + 1) * lineBytes / 2 && 2 * i < region->bytes; ++i) {
      if (region->cells[i].read.time() >= state->launchStart)
        add(reads, region->begin + 2 * i, false);
      if (region->cells[i].write.time() >= state->launchStart)
        add(writes, region->begin + 2 * i, true);
    }
  reads.insert(reads.end(), writes.begin(), writes.end());
  return reads;
}

void AccessChecker::beginLaunch(const pcrt_host_module *module, const pcrt_host_kernel *kernel,
                                const uint32_t block[3]) {
  State &s = *state;
  for (auto [region, line] : s.lines)
    region->touched[line] = 0;
  s.lines.clear();
  s.launchStart = ++s.now;
  s.blocks.clear();
  s.module = module;
  s.kernel = kernel;
  std::copy_n(block, 3, s.block);
}

void AccessChecker::beginBlock(const uint8_t *shared, uint32_t dynamicBytes, uint32_t blockIndex,
                               const uint32_t grid[3]) {
  State &s = *state;
  s.blockStart = s.sectionStart = ++s.now;
  s.warpTime.fill(s.now);
  for (auto &pairs : s.pairTime)
    pairs.clear();
  s.fenced.fill(0);
  s.visible.fill(0);
  if (s.numReading)
    std::fill(s.reading.begin(), s.reading.end(), 0);
  s.numReading = 0;
  s.blocks.push_back({s.now, blockIndex});
  std::copy_n(grid, 3, s.grid);
  s.shared = shared;
  s.sharedUsed = s.kernel->shared_extent + dynamicBytes;
  s.sharedShadow.begin = shared;
  ByteState *states = s.sharedShadow.states;
  std::memset(states, int(ByteState::Unallocated), s.sharedUsed / 2 + 1);
  auto allocate = [&](uint32_t offset, uint32_t bytes) {
    std::memset(states + offset / 2, int(ByteState::Allocated), (bytes + 1) / 2);
  };
  for (uint32_t i = 0; i < s.kernel->num_shared; ++i)
    allocate(s.kernel->shared[i].offset, s.kernel->shared[i].bytes);
  allocate(s.kernel->shared_extent, dynamicBytes);
}

void AccessChecker::barrier() {
  state->sectionStart = ++state->now;
  state->visible = state->fenced;
}

void AccessChecker::fenceProxy(unsigned thread) { state->fenced[thread] = ++state->now; }

void AccessChecker::warpCollective(unsigned warp, uint32_t lanes, bool whole) {
  State &s = *state;
  ++s.now;
  if (whole) {
    s.warpTime[warp] = s.now;
    return;
  }
  auto &pairs = s.pairTime[warp];
  pairs.resize(32 * 32);
  for (unsigned a = 0; a < 32; ++a)
    for (unsigned b = 0; b < 32; ++b)
      if (lanes >> a & lanes >> b & 1)
        pairs[a * 32 + b] = s.now;
}

/// Checks an access to cells from `first` on and records it. Has no text, so that its loop is fast.
Finding AccessChecker::State::record(Region &region, size_t first, size_t end, Access mine, uint32_t kind, bool same,
                                     bool isShared) const {
  const bool write = kind & PCRT_ACCESS_WRITE, read = kind & PCRT_ACCESS_READ, atomic = mine.atomic();
  const unsigned thread = mine.who();
  for (size_t i = first; i < end;) {
    const Cell before = region.cells[i];
    const ByteState stored = region.states[i], known = region.stateOf(i);
    if (known == ByteState::Unallocated || known == ByteState::Pending || (read && known == ByteState::Allocated))
      return {Finding::Unusable, i};
    if (unordered(before.write, thread, atomic, isShared) && !(write && same))
      return {Finding::AfterWrite, i};
    if (write && !same && unordered(before.read, thread, atomic, isShared))
      return {Finding::AfterRead, i};
    const Cell after{write ? mine : before.write,
                     read && !atomic ? merge(before.read, mine, thread, isShared) : before.read};
    do { // most cells of an access have equal shadows
      region.cells[i] = after;
      if (write)
        region.states[i] = ByteState::Written;
      ++i;
    } while (i < end && region.cells[i] == before && region.states[i] == stored);
  }
  return {};
}

std::string AccessChecker::access(unsigned thread, const void *address, uint32_t bytes, uint32_t kind, uint64_t value,
                                  uint32_t site) {
  if (!bytes)
    return "";
  State &s = *state;
  auto *p = static_cast<const uint8_t *>(address);
  bool isShared = p >= s.shared && p < s.shared + sharedBytes && s.shared;
  Region *region = isShared ? &s.sharedShadow : s.find(p, bytes);
  auto place = [&](const uint8_t *at) {
    if (isShared)
      return "byte " + std::to_string(at - s.shared) + " of shared memory";
    if (describe)
      return describe(at);
    char hex[24];
    std::snprintf(hex, sizeof hex, "%#llx", (unsigned long long)(uintptr_t)at);
    return region ? "byte " + std::to_string(at - region->begin) + " of global memory" : "address " + std::string(hex);
  };
  auto report = [&](const char *fault, const uint8_t *at, const std::string &more) {
    return std::string(fault) + ": " +
           (kind & PCRT_ACCESS_ATOMIC  ? "updates "
            : kind & PCRT_ACCESS_WRITE ? "writes "
                                       : "reads ") +
           std::to_string(bytes) + " bytes at " + place(p) + (at != p ? ", including " + place(at) : "") + " (" +
           s.siteText(site) + ")" + more;
  };
  if (!region || (isShared && size_t(p - s.shared) + bytes > s.sharedUsed))
    return report("out of bounds", p, region ? ", past the end of shared memory" : ", which is not allocated");
  if (reinterpret_cast<uintptr_t>(p) & ((uintptr_t(1) << (kind >> 8)) - 1))
    return report("misaligned", p, ", compiled for a multiple of " + std::to_string(1u << (kind >> 8)));
  if (kind & PCRT_ACCESS_WRITE && isShared && s.numReading)
    for (size_t chunk = size_t(p - s.shared) / 16; chunk <= (size_t(p - s.shared) + bytes - 1) / 16; ++chunk)
      if (s.reading[chunk])
        return report("missing wait", p, ", while a matrix product may still read there");
  // Threads that store the same value do not race.
  const bool same = (kind & PCRT_ACCESS_VALUE) && !std::memcmp(p, &value, bytes);
  const size_t offset = size_t(p - region->begin);
  const Finding found = s.record(*region, offset / 2, (offset + bytes + 1) / 2,
                                 Access::make(s.now, thread, kind & PCRT_ACCESS_ATOMIC, site), kind, same, isShared);
  if (found.fault != Finding::None) {
    const uint8_t *at = std::max(p, region->begin + 2 * found.cell);
    const Cell &cell = region->cells[found.cell];
    if (found.fault == Finding::AfterWrite)
      return report("data race", at, ", unordered with a write of " + s.name(cell.write));
    if (found.fault == Finding::AfterRead)
      return report("data race", at, ", unordered with a read of " + s.name(cell.read));
    switch (region->stateOf(found.cell)) {
    case ByteState::Unallocated:
      return report("out of bounds", at, ", where nothing is allocated");
    case ByteState::Pending:
      return report("missing wait", at, ", while an asynchronous copy may still write there: " + s.name(cell.write));
    default:
      return report("never written", at, ", before anything was written there");
    }
  }
  if (!isShared)
    for (size_t line = offset / lineBytes; line <= (offset + bytes - 1) / lineBytes; ++line)
      if (!region->touched[line]) {
        region->touched[line] = 1;
        s.lines.push_back({region, line});
      }
  return "";
}

std::string AccessChecker::copyTarget(unsigned thread, const void *address, uint32_t bytes, uint32_t site, bool done) {
  State &s = *state;
  auto *p = static_cast<const uint8_t *>(address);
  auto setShared = [&](ByteState value) {
    std::memset(s.sharedShadow.states + (p - s.shared) / 2, int(value), bytes / 2);
  };
  uint32_t log = 0;
  while (2u << log <= bytes)
    ++log;
  if (done)
    setShared(ByteState::Written); // the copy is no longer pending; its write happens now
  std::string fault = access(thread, address, bytes, PCRT_ACCESS_WRITE | log << 8, 0, site);
  if (fault.empty() && !done)
    setShared(ByteState::Pending);
  return fault;
}

std::string AccessChecker::proxyRead(unsigned thread, const void *address, uint32_t site, bool done) {
  State &s = *state;
  auto *p = static_cast<const uint8_t *>(address);
  std::string fault = access(thread, p, 16, PCRT_ACCESS_READ | 4 << 8, 0, site);
  if (!fault.empty())
    return fault;
  auto at = size_t(p - s.shared);
  for (size_t i = at / 2; i < at / 2 + 8 && !done; ++i) {
    Access write = s.sharedShadow.cells[i].write;
    if (write.time() >= s.visible[write.who()])
      return "missing fence.proxy.async: reads 16 bytes at byte " + std::to_string(at) +
             " of shared memory through the asynchronous proxy (" + s.siteText(site) +
             "), which does not yet see the write of " + s.name(write);
  }
  s.reading[at / 16] += done ? -1 : 1;
  s.numReading += done ? -1 : 1;
  return "";
}

} // namespace pc::standin
