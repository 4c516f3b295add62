//===- Warp.cpp - Warp-level instructions and asynchronous copies ---------===//
// A lane that arrives leaves its operands and waits; the last one computes the results of all. Semantics: PTX ISA,
// "warp level matrix instructions", "shfl.sync", "vote.sync", "match.sync", "redux.sync", "cp.async".
//===----------------------------------------------------------------------===//
#include "Meet.h"

#include <bit>
#include <cstring>

using namespace pc::standin;

/// The lane from which `lane` reads (itself if none is in range), and whether one is in range.
static std::pair<unsigned, bool> source(uint32_t kind, unsigned lane, uint32_t operand, uint32_t clampAndMask) {
  uint32_t clamp = clampAndMask & 31, segment = clampAndMask >> 8 & 31, offset = operand & 31;
  uint32_t highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
  int64_t from;
  bool inRange;
  switch (kind) {
  case PCRT_SHUFFLE_BFLY:
    from = lane ^ offset;
    inRange = from <= highest;
    break;
  case PCRT_SHUFFLE_UP:
    from = int64_t(lane) - offset;
    inRange = from >= highest;
    break;
  case PCRT_SHUFFLE_DOWN:
    from = lane + offset;
    inRange = from <= highest;
    break;
  default:
    from = lowest | (offset & ~segment);
    inRange = from <= highest;
  }
  return {inRange ? unsigned(from) : lane, inRange};
}

/// Emulates shfl.sync. The result has the value in its low word and the predicate in bit 32.
extern "C" uint64_t pc_shuffle(pcrt_host_thread *thread, uint32_t kind, uint32_t mask, uint32_t value, uint32_t operand,
                               uint32_t clamp, uint32_t site) {
  Fiber *me = fiberOf(thread);
  Warp &warp = me->worker->warps[me->worker->index(me) / warpSize];
  unsigned lane = thread->lane;
  warp.value[lane] = value;
  warp.lane[lane] = operand;
  warp.clamp[lane] = clamp;
  Worker &worker = *me->worker;
  meet(me, mask, site, [&worker, kind](Warp &warp, unsigned first) {
    for (unsigned lane = 0; lane < warpSize; ++lane)
      if (warp.needed >> lane & 1) {
        auto [from, inRange] = source(kind, lane, warp.lane[lane], warp.clamp[lane]);
        // The value of a lane that does not take part is undefined on the device.
        uint32_t value = warp.needed >> from & 1 ? warp.value[from] : 0xFFFFFFFFu;
        worker.fibers[first + lane].result = uint64_t(inRange) << 32 | value;
      }
  });
  return me->result;
}

extern "C" void pc_syncwarp(pcrt_host_thread *thread, uint32_t mask, uint32_t site) {
  Fiber *me = fiberOf(thread);
  if (site == me->worker->launch->skippedSite)
    return;
  meet(me, mask, site, [](Warp &, unsigned) {});
}

/// Runs any other collective: operands and results are in slots of 8 bytes; `compute` computes all lanes of `lanes`.
extern "C" void pc_warp(pcrt_host_thread *thread, uint32_t mask,
                        void (*compute)(uint64_t **in, uint64_t **out, uint32_t lanes), uint64_t *in, uint64_t *out,
                        uint32_t site) {
  Fiber *me = fiberOf(thread);
  Warp &warp = me->worker->warps[me->worker->index(me) / warpSize];
  warp.in[thread->lane] = in;
  warp.out[thread->lane] = out;
  meet(me, mask, site, [compute](Warp &warp, unsigned) { compute(warp.in, warp.out, warp.needed); });
}

//===-- Matrix products -----------------------------------------------------------------------===//

static float bf16(uint64_t word, int half) {
  return std::bit_cast<float>(half ? uint32_t(word) & 0xffff0000u : uint32_t(word) << 16);
}
static float f16(uint64_t word, int half) {
  _Float16 value;
  uint16_t bits = uint16_t(word >> (16 * half));
  std::memcpy(&value, &bits, 2);
  return float(value);
}
static float tf32(uint64_t word, int) { return std::bit_cast<float>(uint32_t(word) & 0xffffe000u); }
static float f32(uint64_t word) { return std::bit_cast<float>(uint32_t(word)); }

/// Computes m16n8kK with A by rows, B by columns, and sums in f32. One register holds `packed` elements of A or B.
template <int K, int packed, float (*element)(uint64_t, int)> static void mma(uint64_t **in, uint64_t **out) {
  constexpr int perThread = K / 4 / packed; // registers of B; A has twice as many
  float a[16][K], b[K][8];
  for (int lane = 0; lane < 32; ++lane) {
    int group = lane / 4, member = lane % 4;
    for (int h = 0; h < packed; ++h) {
      for (int r = 0; r < 2 * perThread; ++r)
        a[group + 8 * (r & 1)][packed * member + h + 4 * packed * (r / 2)] = element(in[lane][r], h);
      for (int r = 0; r < perThread; ++r)
        b[packed * member + h + 4 * packed * r][group] = element(in[lane][2 * perThread + r], h);
    }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < 4; ++r) {
      int row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
      float sum = f32(in[lane][3 * perThread + r]);
      for (int k = 0; k < K; ++k)
        sum += a[row][k] * b[k][column];
      out[lane][r] = std::bit_cast<uint32_t>(sum);
    }
}

extern "C" {
void pc_warp_mma_m16n8k16_row_col_bf16(uint64_t **in, uint64_t **out, uint32_t) { mma<16, 2, bf16>(in, out); }
void pc_warp_mma_m16n8k8_row_col_bf16(uint64_t **in, uint64_t **out, uint32_t) { mma<8, 2, bf16>(in, out); }
void pc_warp_mma_m16n8k16_row_col_f32_f32(uint64_t **in, uint64_t **out, uint32_t) { mma<16, 2, f16>(in, out); }
void pc_warp_mma_m16n8k8_row_col_tf32(uint64_t **in, uint64_t **out, uint32_t) { mma<8, 1, tf32>(in, out); }
void pc_warp_mma_m16n8k4_row_col_tf32(uint64_t **in, uint64_t **out, uint32_t) { mma<4, 1, tf32>(in, out); }
}

/// ldmatrix m8n8 b16: lanes 8i .. 8i+7 point to the rows of matrix i; lane l gets elements 2 (l % 4) and the next of
/// row l / 4 (of column l / 4, transposed).
static void loadMatrices(int count, bool transposed, uint64_t **in, uint64_t **out) {
  for (int matrix = 0; matrix < count; ++matrix) {
    uint16_t values[8][8];
    for (int row = 0; row < 8; ++row)
      std::memcpy(values[row], reinterpret_cast<const void *>(in[8 * matrix + row][0]), 16);
    for (int lane = 0; lane < 32; ++lane) {
      int row = lane / 4, column = 2 * (lane % 4);
      uint16_t low = transposed ? values[column][row] : values[row][column];
      uint16_t high = transposed ? values[column + 1][row] : values[row][column + 1];
      out[lane][matrix] = uint32_t(high) << 16 | low;
    }
  }
}

extern "C" {
void pc_warp_ldmatrix_x1(uint64_t **in, uint64_t **out, uint32_t) { loadMatrices(1, false, in, out); }
void pc_warp_ldmatrix_x2(uint64_t **in, uint64_t **out, uint32_t) { loadMatrices(2, false, in, out); }
void pc_warp_ldmatrix_x4(uint64_t **in, uint64_t **out, uint32_t) { loadMatrices(4, false, in, out); }
void pc_warp_ldmatrix_x1_trans(uint64_t **in, uint64_t **out, uint32_t) { loadMatrices(1, true, in, out); }
void pc_warp_ldmatrix_x2_trans(uint64_t **in, uint64_t **out, uint32_t) { loadMatrices(2, true, in, out); }
void pc_warp_ldmatrix_x4_trans(uint64_t **in, uint64_t **out, uint32_t) { loadMatrices(4, true, in, out); }
}

//===-- Votes and reductions: operands (mask, value) or, for redux, (value, mask) --------------===//

static uint32_t ballot(uint64_t **in, uint32_t lanes) {
  uint32_t votes = 0;
  for (unsigned i = 0; i < warpSize; ++i)
    if (lanes >> i & 1 && in[i][1] & 1)
      votes |= 1u << i;
  return votes;
}
static void all(uint64_t **out, uint32_t lanes, uint64_t value) {
  for (unsigned i = 0; i < warpSize; ++i)
    if (lanes >> i & 1)
      out[i][0] = value;
}
template <class T, class F> static void reduce(uint64_t **in, uint64_t **out, uint32_t lanes, F f) {
  T sum{};
  bool first = true;
  for (unsigned i = 0; i < warpSize; ++i)
    if (lanes >> i & 1) {
      sum = first ? T(in[i][0]) : T(f(sum, T(in[i][0])));
      first = false;
    }
  all(out, lanes, uint32_t(sum));
}

extern "C" {
void pc_warp_vote_ballot_sync(uint64_t **in, uint64_t **out, uint32_t lanes) { all(out, lanes, ballot(in, lanes)); }
void pc_warp_vote_any_sync(uint64_t **in, uint64_t **out, uint32_t lanes) { all(out, lanes, ballot(in, lanes) != 0); }
void pc_warp_vote_all_sync(uint64_t **in, uint64_t **out, uint32_t lanes) {
  all(out, lanes, ballot(in, lanes) == lanes);
}
void pc_warp_vote_uni_sync(uint64_t **in, uint64_t **out, uint32_t lanes) {
  uint32_t votes = ballot(in, lanes);
  all(out, lanes, votes == 0 || votes == lanes);
}
void pc_warp_match_any_sync_i32(uint64_t **in, uint64_t **out, uint32_t lanes) {
  for (unsigned i = 0; i < warpSize; ++i)
    if (lanes >> i & 1) {
      uint32_t same = 0;
      for (unsigned j = 0; j < warpSize; ++j)
        if (lanes >> j & 1 && uint32_t(in[j][1]) == uint32_t(in[i][1]))
          same |= 1u << j;
      out[i][0] = same;
    }
}
void pc_warp_redux_sync_add(uint64_t **in, uint64_t **out, uint32_t lanes) {
  reduce<uint32_t>(in, out, lanes, [](uint32_t a, uint32_t b) { return a + b; });
}
void pc_warp_redux_sync_umin(uint64_t **in, uint64_t **out, uint32_t lanes) {
  reduce<uint32_t>(in, out, lanes, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
}
void pc_warp_redux_sync_umax(uint64_t **in, uint64_t **out, uint32_t lanes) {
  reduce<uint32_t>(in, out, lanes, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}
void pc_warp_redux_sync_min(uint64_t **in, uint64_t **out, uint32_t lanes) {
  reduce<int32_t>(in, out, lanes, [](int32_t a, int32_t b) { return a < b ? a : b; });
}
void pc_warp_redux_sync_max(uint64_t **in, uint64_t **out, uint32_t lanes) {
  reduce<int32_t>(in, out, lanes, [](int32_t a, int32_t b) { return a > b ? a : b; });
}
void pc_warp_redux_sync_and(uint64_t **in, uint64_t **out, uint32_t lanes) {
  reduce<uint32_t>(in, out, lanes, [](uint32_t a, uint32_t b) { return a & b; });
}
void pc_warp_redux_sync_or(uint64_t **in, uint64_t **out, uint32_t lanes) {
  reduce<uint32_t>(in, out, lanes, [](uint32_t a, uint32_t b) { return a | b; });
}
void pc_warp_redux_sync_xor(uint64_t **in, uint64_t **out, uint32_t lanes) {
  reduce<uint32_t>(in, out, lanes, [](uint32_t a, uint32_t b) { return a ^ b; });
}
}

//===-- Asynchronous copies: done as late as a wait allows, so that a missing wait shows --------===//

static void target(Fiber *me, const AsyncCopy &copy, bool done) {
  Worker &worker = *me->worker;
  AccessChecker *checker = worker.launch->checker;
  if (!checker)
    return;
  std::string fault = checker->copyTarget(worker.index(me), copy.to, copy.bytes, copy.site, done);
  if (!fault.empty())
    worker.fail(me, std::move(fault));
}

extern "C" void pc_cp_async(pcrt_host_thread *thread, uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t source,
                            uint32_t site) {
  Fiber *me = fiberOf(thread);
  AsyncCopies &copies = me->worker->copies[me->worker->index(me)];
  AsyncCopy copy{to, from, bytes, source < bytes ? source : bytes, site, copies.group};
  if (me->worker->launch->checker && copy.source) {
    uint32_t log = uint32_t(std::countr_zero(bytes));
    pc_access(thread, from, copy.source, PCRT_ACCESS_READ | log << 8, 0, site);
  }
  target(me, copy, false);
  copies.pending.push_back(copy);
}

extern "C" void pc_cp_async_commit(pcrt_host_thread *thread) {
  Fiber *me = fiberOf(thread);
  ++me->worker->copies[me->worker->index(me)].group;
}

/// Completes all groups except the last `left`; with `uncommitted` also copies that no group has yet
/// (cp.async.wait_all).
extern "C" void pc_cp_async_wait(pcrt_host_thread *thread, uint32_t left, uint32_t uncommitted, uint32_t site) {
  Fiber *me = fiberOf(thread);
  if (site == me->worker->launch->skippedSite)
    return;
  AsyncCopies &copies = me->worker->copies[me->worker->index(me)];
  size_t kept = 0;
  for (size_t i = 0; i < copies.pending.size(); ++i) {
    AsyncCopy copy = copies.pending[i];
    if (!uncommitted && copy.group + left >= copies.group) {
      copies.pending[kept++] = copy;
      continue;
    }
    target(me, copy, true);
    std::memcpy(copy.to, copy.from, copy.source);
    std::memset(copy.to + copy.source, 0, copy.bytes - copy.source);
  }
  copies.pending.resize(kept);
}
