//===- WarpOps.cpp - What the lanes of a warp do together -----------------===//
// shfl.sync, vote.sync and redux ("Data Movement", "Parallel Synchronization and Communication"), ldmatrix and mma.sync
// ("Warp Level Matrix Multiply-Accumulate Instructions" of the PTX ISA). Fragments are CUTLASS's
// (include/cute/atom/mma_traits_sm80.hpp, copy_traits_sm75.hpp).
//===----------------------------------------------------------------------===//
#include "Block.h"
#include "Layout.h"

#include <cstring>

using namespace pc::ptx;

namespace {

/// Lanes that a membermask names have to be at the instruction.
void requireMembers(const Warp &warp, const Operand &mask, uint32_t lanes) {
  forEach(lanes, [&](int lane) {
    auto members = uint32_t(warp.values(mask)[lane]);
    if (!(members >> lane & 1) || members & ~lanes)
      throw Fault{"divergent code: the mask names lanes that do not run this instruction"};
  });
}

enum Shuffle { Up, Down, Butterfly, Index };

/// shfl.sync d[|p], a, b, c, mask. `c`: the highest lane of a segment in bits 0 to 4, the segment's bits of a lane's
/// number in 8 to 12.
void shuffle(const Instruction &in, Warp &warp, uint32_t lanes) {
  requireMembers(warp, in.operands[4], lanes);
  Lanes from = warp.values(in.operands[1]);
  forEach(lanes, [&](int lane) {
    auto b = int(warp.values(in.operands[2])[lane] & 31), c = int(warp.values(in.operands[3])[lane]);
    int clamp = c & 31, segment = c >> 8 & 31;
    int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    int source = in.number == Up      ? lane - b
                 : in.number == Down  ? lane + b
                 : in.number == Index ? lowest | (b & ~segment)
                                      : lane ^ b;
    bool inside = in.number == Up ? source >= highest : source <= highest;
    if (!inside)
      source = lane;
    if (!(lanes >> source & 1))
      throw Fault{"a shuffle reads a lane that does not take part"};
    warp.lanes(in.operands[0])[lane] = from[source];
    if (in.operands[0].slots.size() > 1)
      warp.lanes(in.operands[0], 1)[lane] = inside;
  });
}

void decodeShuffle(Opcode &opcode, Instruction &in) {
  opcode.need("sync");
  in.number = opcode.takeOne({"up", "down", "bfly", "idx"});
  opcode.need("b32");
  if (in.number < 0 || in.operands.size() != 5)
    opcode.refuse();
  in.run = shuffle;
}

/// vote.sync.all | any | uni | ballot d, p, mask
void vote(const Instruction &in, Warp &warp, uint32_t lanes) {
  requireMembers(warp, in.operands[2], lanes);
  uint32_t ballot = 0;
  forEach(lanes, [&](int lane) {
    ballot |= uint32_t(bool(warp.values(in.operands[1])[lane]) != in.operands[1].negated) << lane;
  });
  uint64_t result = in.number == 0   ? ballot == lanes
                    : in.number == 1 ? ballot != 0
                    : in.number == 2 ? !ballot || ballot == lanes
                                     : ballot;
  forEach(lanes, [&](int lane) { warp.lanes(in.operands[0])[lane] = result; });
}

void decodeVote(Opcode &opcode, Instruction &in) {
  opcode.need("sync");
  in.number = opcode.takeOne({"all", "any", "uni", "ballot"});
  opcode.need(in.number == 3 ? "b32" : "pred");
  in.run = vote;
}

/// ldmatrix: lane 8 i + r has the address of row r of matrix i, 16 bytes. Lane t gets elements 2 t and 2 t + 1 of each
/// matrix, counted along rows (SM75_U32x4_LDSM_N: bit 32 t of 1024) or, with .trans, along columns (SM75_U16x8_LDSM_T).
void loadMatrix(const Instruction &in, Warp &warp, uint32_t lanes) {
  warp.requireWhole(in, lanes);
  for (size_t i = 0; i < in.operands[0].slots.size(); ++i) {
    uint16_t rows[8][8];
    for (int r = 0; r < 8; ++r) {
      int lane = int(i) * 8 + r;
      uint64_t address = warp.values(in.operands[1])[lane] + uint64_t(in.operands[1].offset);
      // Every lane receives from every row.
      memcpy(rows[r], warp.block.shared.access(Access::Read, address, 16, warp.now(lane)), 16);
    }
    Lanes &to = warp.lanes(in.operands[0], i);
    for (int t = 0; t < warpSize; ++t) {
      int major = 2 * t / 8, minor = 2 * t % 8;
      uint32_t low = in.flag ? rows[minor][major] : rows[major][minor];
      uint32_t high = in.flag ? rows[minor + 1][major] : rows[major][minor + 1];
      to[t] = low | high << 16;
    }
  }
}

void decodeLoadMatrix(Opcode &opcode, Instruction &in) {
  opcode.need("sync"), opcode.need("aligned"), opcode.need("m8n8");
  int count = opcode.number("x");
  in.flag = opcode.take("trans");
  if (!opcode.take("shared"))
    opcode.need("shared::cta");
  opcode.need("b16");
  if (count != int(in.operands[0].slots.size()))
    opcode.refuse();
  in.run = loadMatrix;
}

float bf16(uint64_t pair, int half) { return std::bit_cast<float>(uint32_t(pair >> 16 * half) << 16); }

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 d, a, b, c. The fragments are those of SM80_16x8x16 with 16-bit
/// operands: A (M, K), B (N, K), C (M, N).
void multiply(const Instruction &in, Warp &warp, uint32_t lanes) {
  static const Fragment a{16, {{4, 8}, {32, 1}}, {{2, 2, 2}, {16, 8, 128}}};
  static const Fragment b{8, {{4, 8}, {16, 1}}, {{2, 2}, {8, 64}}};
  static const Fragment c{16, {{4, 8}, {32, 1}}, {{2, 2}, {16, 8}}};
  warp.requireWhole(in, lanes);
  double left[16][16], right[8][16];
  for (int t = 0; t < warpSize; ++t) {
    for (int v = 0; v < 8; ++v)
      left[a.row(t, v)][a.column(t, v)] = bf16(warp.values(in.operands[1], v / 2)[t], v % 2);
    for (int v = 0; v < 4; ++v)
      right[b.row(t, v)][b.column(t, v)] = bf16(warp.values(in.operands[2], v / 2)[t], v % 2);
  }
  for (int t = 0; t < warpSize; ++t)
    for (int v = 0; v < 4; ++v) {
      double sum = std::bit_cast<float>(uint32_t(warp.values(in.operands[3], v)[t]));
      for (int k = 0; k < 16; ++k)
        sum += left[c.row(t, v)][k] * right[c.column(t, v)][k];
      warp.lanes(in.operands[0], v)[t] = std::bit_cast<uint32_t>(float(sum));
    }
}

void decodeMultiply(Opcode &opcode, Instruction &in) {
  for (const char *suffix : {"sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"})
    opcode.need(suffix);
  const size_t counts[] = {4, 4, 2, 4};
  for (int i = 0; i < 4; ++i)
    if (in.operands.at(i).slots.size() != counts[i])
      opcode.refuse();
  in.run = multiply;
}

} // namespace

const DecoderTable &pc::ptx::warpInstructions() {
  static const DecoderTable table = {
      {"shfl", decodeShuffle}, {"vote", decodeVote}, {"ldmatrix", decodeLoadMatrix}, {"mma", decodeMultiply}};
  return table;
}
