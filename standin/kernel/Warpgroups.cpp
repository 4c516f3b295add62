//===- Warpgroups.cpp - Products of matrices by warpgroups of four warps --===//
// Chunks of A and B are found by their matrix descriptors; a warp computes its 16 rows when a wait needs them. The
// access checker is told when a product may read shared memory.
//===----------------------------------------------------------------------===//
#include "Warpgroups.h"
#include "Meet.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pc::standin {

// A NaN that stands for a result that is not computed yet. Its bits have the product's number in the warp and the index
// of the lane's sum.
constexpr uint32_t standing = 0xFFC00000u, mostNumber = 0x7ffe;
static uint32_t standIn(uint32_t number, uint32_t sum) { return standing | number << 7 | sum; }

/// The number of completed products whose results a later product may still use.
constexpr size_t keptParts = 64;

Warpgroups::Part *Warpgroups::resultOf(WarpState &warp, uint32_t bits) {
  if ((bits & standing) != standing)
    return nullptr;
  auto found = std::find_if(warp.parts.rbegin(), warp.parts.rend(), [&](const Part &part) {
    return part.number == (bits >> 7 & 0x7fff) && (bits & 0x7f) < part.n / 2;
  });
  return found == warp.parts.rend() ? nullptr : &*found;
}

void Warpgroups::fence(Fiber *me) { ordered[worker.index(me)] = true; }

/// The chunks of 16 bytes of 16 x `rows` elements, from row `from` on. Each row has two chunks for its 16 elements. If
/// the operand is transposed, each element of the summed dim has the chunks of all rows. The descriptor is that of the
/// PTX ISA ("matrix descriptor"). Bits 0 to 13 are the address, 16 to 29 the leading offset, and 32 to 45 the stride
/// offset, all in units of 16 bytes. Bits 62 and 63 are the swizzle, where 1 is that of 128 bytes: then bits 4 to 6 of
/// an address are exclusive-ored with bits 7 to 9.
std::vector<const uint8_t *> Warpgroups::chunks(Fiber *me, const Part &part, uint64_t descriptor, bool transposed,
                                                unsigned from, unsigned rows) const {
  uint64_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
  uint64_t stride = (descriptor >> 32 & 0x3fff) << 4, swizzle = descriptor >> 62;
  if (swizzle > 1 || descriptor >> 49 & 7)
    worker.fail(me, worker.siteText(part.site) + ": this swizzle or base offset is not supported by the stand-in");
  std::vector<const uint8_t *> all;
  auto add = [&](uint64_t at) { all.push_back(worker.shared + (swizzle ? at ^ (at >> 7 & 7) << 4 : at)); };
  if (transposed)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned j = from / 8; j < (from + rows) / 8; ++j)
        add(start + (swizzle ? j % 8 * 16 + j / 8 * leading + k % 8 * 128 + k / 8 * stride
                             : j * stride + k % 8 * 16 + k / 8 * leading));
  else
    for (unsigned row = from; row < from + rows; ++row)
      for (unsigned half = 0; half < 2; ++half)
        add(start + row / 8 * stride + (swizzle ? row % 8 * 128 + half * 16 : row % 8 * 16 + half * leading));
  return all;
}

void Warpgroups::start(Fiber *me, WarpgroupProduct product, uint64_t *in, uint64_t *out) {
  unsigned thread = worker.index(me);
  if (worker.threads % (4 * warpSize))
    worker.fail(me, worker.siteText(product.site) + ": the block size is not a multiple of a warpgroup of 128 threads");
  if (!ordered[thread])
    worker.fail(me, "missing wgmma.fence: registers may have changed since the last wait or group of products (" +
                        worker.siteText(product.site) + ")");
  Warp &warp = worker.warps[thread / warpSize];
  warp.in[thread % warpSize] = in;
  warp.out[thread % warpSize] = out;
  meet(me, ~0u, product.site, [&](Warp &lanes, unsigned first) { startWhole(me, lanes, first, product); });
}

void Warpgroups::startWhole(Fiber *me, Warp &lanes, unsigned first, const WarpgroupProduct &product) {
  unsigned number = first / warpSize, sums = product.n / 2;
  WarpState &warp = warps[number];
  bool registers = product.flags & PCRT_WGMMA_REGISTERS;
  Part part{product, 0, warp.group, {}, {}, {}, {}};
  uint64_t a = registers ? 0 : lanes.in[0][sums], b = lanes.in[0][sums + (registers ? 4 : 1)];
  for (unsigned lane = 0; lane < warpSize; ++lane) {
    uint64_t *in = lanes.in[lane];
    if ((!registers && in[sums] != a) || in[sums + (registers ? 4 : 1)] != b)
      worker.fail(me, worker.siteText(product.site) + ": lanes of a warp have different descriptors");
    for (unsigned i = 0; registers && i < 4; ++i)
      part.a[lane][i] = uint32_t(in[sums + i]);
    for (unsigned i = 0; i < sums; ++i) {
      part.sums.push_back(uint32_t(in[i]));
      if (Part *before = resultOf(warp, uint32_t(in[i])); before && (product.flags & PCRT_WGMMA_ADDS))
        before->claimed = true;
    }
  }
  // All warps of the warpgroup start the same products in the same order.
  auto &log = started[number / 4];
  if (warp.started == log.size())
    log.push_back({product, a, b});
  const Started &others = log[warp.started++];
  if (others.product.site != product.site || others.a != a || others.b != b)
    worker.fail(me, "warps of a warpgroup start different products: this one " + worker.siteText(product.site) +
                        ", others " + worker.siteText(others.product.site));
  if (!registers)
    part.rowsOfA = chunks(me, part, a, product.flags & PCRT_WGMMA_A_TRANSPOSED, 16 * (number % 4), 16);
  part.ofB = chunks(me, part, b, product.flags & PCRT_WGMMA_B_TRANSPOSED, 0, product.n);
  read(me, part, false);
  warp.last = warp.last % mostNumber + 1;
  part.number = warp.last;
  for (unsigned lane = 0; lane < warpSize; ++lane)
    for (unsigned i = 0; i < sums; ++i)
      lanes.out[lane][i] = standIn(part.number, i);
  warp.parts.push_back(std::move(part));
}

void Warpgroups::read(Fiber *me, const Part &part, bool done) {
  AccessChecker *checker = worker.launch->checker;
  for (const auto *list : {&part.rowsOfA, &part.ofB})
    for (const uint8_t *chunk : *list) {
      if (chunk + 16 > worker.shared + worker.sharedBytes)
        worker.fail(me, "out of bounds: past the end of shared memory (" + worker.siteText(part.site) + ")");
      if (!checker)
        continue;
      std::string fault = checker->proxyRead(worker.index(me), chunk, part.site, done);
      if (!fault.empty())
        worker.fail(me, std::move(fault));
    }
}

static float bf16(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

/// rows[k][i] of 16 x `count` elements.
static void elements(const std::vector<const uint8_t *> &chunks, bool transposed, unsigned count, float *rows) {
  for (size_t c = 0; c < chunks.size(); ++c) {
    uint16_t values[8];
    std::memcpy(values, chunks[c], sizeof values);
    for (unsigned e = 0; e < 8; ++e) {
      size_t k = transposed ? c / (count / 8) : c % 2 * 8 + e, i = transposed ? c % (count / 8) * 8 + e : c / 2;
      rows[k * count + i] = bf16(values[e]);
    }
  }
}

void Warpgroups::finish(Fiber *me, Part &part) {
  read(me, part, true);
  unsigned n = part.n, sums = n / 2;
  WarpState &warp = warps[worker.index(me) / warpSize];
  std::vector<float> a(16 * 16), b(16 * n), d(16 * n);
  elements(part.ofB, part.flags & PCRT_WGMMA_B_TRANSPOSED, n, b.data());
  if (!part.rowsOfA.empty())
    elements(part.rowsOfA, part.flags & PCRT_WGMMA_A_TRANSPOSED, 16, a.data());
  // The layout is that of mma.sync: a lane has two rows and two of eight columns. This also holds for A in registers.
  auto place = [](unsigned lane, unsigned i, unsigned columns) {
    return (lane / 4 + i / 2 % 2 * 8) * columns + i / 4 * 8 + lane % 4 * 2 + i % 2;
  };
  for (unsigned lane = 0; lane < warpSize; ++lane) {
    for (unsigned i = 0; part.rowsOfA.empty() && i < 8; ++i) {
      unsigned at = place(lane, i, 16);
      a[at % 16 * 16 + at / 16] = bf16(part.a[lane][i / 2] >> i % 2 * 16 & 0xffff);
    }
    for (unsigned i = 0; i < sums && (part.flags & PCRT_WGMMA_ADDS); ++i) {
      uint32_t bits = part.sums[lane * sums + i];
      if (Part *before = resultOf(warp, bits))
        bits = before->sums[lane * before->n / 2 + (bits & 0x7f)];
      d[place(lane, i, n)] = std::bit_cast<float>(bits);
    }
  }
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned k = 0; k < 16; ++k) {
      float factor = a[k * 16 + row], *to = &d[row * n], *from = &b[k * n];
      for (unsigned column = 0; column < n; ++column)
        to[column] += factor * from[column];
    }
  for (unsigned lane = 0; lane < warpSize; ++lane)
    for (unsigned i = 0; i < sums; ++i)
      part.sums[lane * sums + i] = std::bit_cast<uint32_t>(d[place(lane, i, n)]);
  part.done = true;
}

void Warpgroups::commit(Fiber *me) {
  unsigned thread = worker.index(me);
  ordered[thread] = false; // registers may change while the group is in flight
  if (thread % warpSize == 0)
    ++warps[thread / warpSize].group;
}

void Warpgroups::wait(Fiber *me, uint32_t left, uint64_t *slots, uint32_t count, uint32_t site) {
  unsigned thread = worker.index(me);
  ordered[thread] = false;
  worker.warps[thread / warpSize].in[thread % warpSize] = slots;
  meet(me, ~0u, site, [&](Warp &lanes, unsigned first) {
    WarpState &warp = warps[first / warpSize];
    std::vector<Part *> now;
    for (Part &part : warp.parts)
      if (!part.done && part.group + left < warp.group) {
        finish(me, part);
        now.push_back(&part);
      }
    for (unsigned lane = 0; lane < warpSize; ++lane)
      for (unsigned i = 0; i < count; ++i)
        if (Part *part = resultOf(warp, uint32_t(lanes.in[lane][i])); part && part->done) {
          part->claimed = true;
          lanes.in[lane][i] = part->sums[lane * part->n / 2 + (lanes.in[lane][i] & 0x7f)];
        }
    for (Part *part : now)
      if (!part->claimed)
        worker.fail(me, "missing wait: the results of " + worker.siteText(part->site) +
                            " are not among the registers of its wait (" + worker.siteText(site) + ")");
    while (warp.parts.size() > keptParts && warp.parts.front().done)
      warp.parts.pop_front();
  });
}

std::string Warpgroups::unfinished() const {
  for (unsigned i = 0; i < maxWarps; ++i)
    for (const Part &part : warps[i].parts)
      if (!part.done)
        return "missing wait: thread " + std::to_string(i * warpSize) + " and its warp ended before " +
               worker.siteText(part.site);
  for (unsigned i = 0; i < worker.threads / warpSize; ++i)
    if (warps[i].started != started[i / 4].size())
      return "warps of a warpgroup start different products: thread " + std::to_string(i * warpSize) +
             " and its warp did not reach " + worker.siteText(started[i / 4][warps[i].started].product.site);
  return "";
}

static Warpgroups &warpgroupsOf(Fiber *me) {
  Worker &worker = *me->worker;
  if (!worker.warpgroups)
    worker.warpgroups = std::make_unique<Warpgroups>(worker);
  return *worker.warpgroups;
}

} // namespace pc::standin

using namespace pc::standin;

extern "C" {
void pc_wgmma_fence(pcrt_host_thread *thread, uint32_t site) {
  if (Fiber *me = fiberOf(thread); site != me->worker->launch->skippedSite)
    warpgroupsOf(me).fence(me);
}
void pc_wgmma(pcrt_host_thread *thread, uint32_t n, uint32_t flags, uint64_t *in, uint64_t *out, uint32_t site) {
  warpgroupsOf(fiberOf(thread)).start(fiberOf(thread), {n, flags, site}, in, out);
}
void pc_wgmma_commit(pcrt_host_thread *thread) { warpgroupsOf(fiberOf(thread)).commit(fiberOf(thread)); }
void pc_wgmma_wait(pcrt_host_thread *thread, uint32_t left, uint64_t *slots, uint32_t count, uint32_t site) {
  if (Fiber *me = fiberOf(thread); site != me->worker->launch->skippedSite)
    warpgroupsOf(me).wait(me, left, slots, count, site);
}
void pc_fence_proxy_async(pcrt_host_thread *thread, uint32_t site) {
  Fiber *me = fiberOf(thread);
  if (AccessChecker *checker = me->worker->launch->checker; checker && site != me->worker->launch->skippedSite)
    checker->fenceProxy(me->worker->index(me));
}
}
