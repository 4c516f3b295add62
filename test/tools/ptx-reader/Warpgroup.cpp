//===- Warpgroup.cpp - wgmma ----------------------------------------------===//
// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" of the PTX ISA, for m64nNk16 with bf16
// operands and f32 sums. Each warp computes its 16 rows. Fragments are CUTLASS's CLayout_64xN and ALayout_64x16
// (include/cute/atom/mma_traits_sm90_gmma.hpp), the fields of descriptors its GmmaDescriptor
// (include/cute/arch/mma_sm90_desc.hpp), matrices in shared memory the canonical layouts of make_gmma_desc.
//===----------------------------------------------------------------------===//
#include "Block.h"
#include "Layout.h"

#include <algorithm>
#include <cstring>

using namespace pc::ptx;

namespace {

constexpr int depth = 16; ///< of the summed dim, K

/// A matrix of `rows` x 16 elements in shared memory, by its descriptor.
class Matrix {
public:
  Matrix(uint64_t descriptor, bool byRows);
  /// The chunk of 16 bytes with eight elements of (row, k): along k or, by rows (MN-major), along the rows.
  uint64_t chunk(int row, int k) const;
  bool byRows;

private:
  uint64_t start;
  int leading, stride; ///< in units of 16 bytes, as are the canonical layouts
  int width = 0;       ///< of the swizzle: 1 (none), 2, 4 or 8 chunks
};

Matrix::Matrix(uint64_t descriptor, bool byRows) : byRows(byRows) {
  auto field = [&](int from, int bits) { return descriptor >> from & ((uint64_t(1) << bits) - 1); };
  start = field(0, 14), leading = int(field(16, 14)), stride = int(field(32, 14));
  const int widths[] = {1, 8, 4, 2}; // LayoutType: INTERLEAVE, B128, B64, B32
  width = widths[field(62, 2)];
  if (field(14, 2) || field(30, 2) || field(46, 3) || field(52, 10))
    throw Fault{"unused bits of a descriptor are set"};
  // A pattern of the swizzle repeats after 8 rows; its first row has bits 7 to 9 of base_offset, 0 here.
  if (field(49, 3) || (start * 16 >> 7) % width)
    throw Fault{"a descriptor does not begin at a row of a swizzled pattern whose base offset it states"};
}

uint64_t Matrix::chunk(int row, int k) const {
  int at;
  if (!byRows) // K-major: ((8, m), 2) : ((width, SBO), 1), without a swizzle ((1, SBO), LBO)
    at = row % 8 * width + row / 8 * stride + k / 8 * (width == 1 ? leading : 1);
  else if (width == 1) // MN-major: ((1, m), (8, k)) : ((X, SBO), (1, LBO))
    at = row / 8 * stride + k % 8 + k / 8 * leading;
  else // ((width, m), (8, k)) : ((1, LBO), (width, SBO))
    at = row / 8 % width + row / 8 / width * leading + k % 8 * width + k / 8 * stride;
  // Swizzle<log2(width), 4, 3> of the byte address: the lowest bits of the chunk, by those three places above.
  uint64_t place = start + uint64_t(int64_t(at));
  return (place ^ (place >> 3 & uint64_t(width - 1))) * 16;
}

/// Elements [row][k] of `count` rows from `first` on.
std::vector<float> readMatrix(Warp &warp, uint64_t descriptor, bool byRows, int first, int count) {
  Matrix matrix(descriptor, byRows);
  std::vector<float> elements(size_t(count) * depth);
  auto read = [&](int row, int k, auto use) {
    uint16_t values[8];
    memcpy(values, warp.block.shared.access(Access::ProxyRead, matrix.chunk(first + row, k), 16, warp.now(0)), 16);
    for (int i = 0; i < 8; ++i)
      use(i) = std::bit_cast<float>(uint32_t(values[i]) << 16);
  };
  if (byRows)
    for (int row = 0; row < count; row += 8)
      for (int k = 0; k < depth; ++k)
        read(row, k, [&](int i) -> float & { return elements[(row + i) * depth + k]; });
  else
    for (int row = 0; row < count; ++row)
      for (int k = 0; k < depth; k += 8)
        read(row, k, [&](int i) -> float & { return elements[row * depth + k + i]; });
  return elements;
}

/// Reads a value that the ISA requires to be equal in all lanes.
uint64_t common(const Warp &warp, const Operand &operand, const char *what) {
  const Lanes &lanes = warp.values(operand);
  if (std::adjacent_find(lanes.begin(), lanes.end(), std::not_equal_to<>()) != lanes.end())
    throw Fault{std::string("the lanes of a warp have different ") + what};
  return lanes[0];
}

/// (thread of a warpgroup, value) to (row, column): CLayout_64xN, and ALayout_64x16 for 16 columns.
Fragment fragment(int columns) { return {64, {{4, 8, 4}, {128, 1, 16}}, {{2, 2, columns / 8}, {64, 8, 512}}}; }

/// Registers of sums and of A must not have been used since the last wgmma.fence.
void requireFence(Warp &warp, const Operand &registers) {
  for (int slot : registers.slots)
    if (!warp.states[slot].fenced)
      throw Fault{"missing wgmma.fence: a register was used after the last one"};
}

/// wgmma.mma_async d, a, b, scale-d, imm-scale-a, imm-scale-b[, imm-trans-a], imm-trans-b. `number` is N, `flag`: A is
/// in registers.
void multiply(const Instruction &in, Warp &warp, uint32_t lanes) {
  warp.requireWhole(in, lanes);
  int columns = in.number, quarter = warp.number % 4;
  const Operand &d = in.operands[0], &a = in.operands[1], &b = in.operands[2];
  bool adds = common(warp, in.operands[3], "scale-d");
  auto constant = [&](size_t i) { return warp.values(in.operands[i])[0]; };
  requireFence(warp, d);
  Fragment sums = fragment(columns), left = fragment(depth);
  std::vector<float> rows(16 * depth);
  if (in.flag) {
    requireFence(warp, a);
    for (int lane = 0; lane < warpSize; ++lane)
      for (int v = 0; v < 8; ++v) {
        int thread = quarter * warpSize + lane;
        auto bits = uint32_t(warp.values(a, v / 2)[lane] >> 16 * (v % 2)) << 16;
        rows[left.row(thread, v) % 16 * depth + left.column(thread, v)] = std::bit_cast<float>(bits);
      }
  } else {
    rows = readMatrix(warp, common(warp, a, "descriptors"), constant(6), 16 * quarter, 16);
  }
  uint64_t descriptor = common(warp, b, "descriptors");
  auto sign = double(int64_t(constant(4)) * int64_t(constant(5))); // of imm-scale, 1 or -1
  std::vector<float> other = readMatrix(warp, descriptor, constant(in.operands.size() - 1), 0, columns);
  warp.started.push_back({in.line, in.flag ? 0 : warp.values(a)[0], descriptor});
  for (int v = 0; v < columns / 2; ++v) {
    int slot = d.slots[v];
    if (adds && !warp.states[slot].defined)
      throw Fault{"a product adds to a register that was never written"};
    warp.states[slot].defined = true;
    for (int lane = 0; lane < warpSize; ++lane) {
      int thread = quarter * warpSize + lane;
      const float *x = &rows[sums.row(thread, v) % 16 * depth], *y = &other[sums.column(thread, v) * depth];
      double sum = adds ? std::bit_cast<float>(uint32_t(warp.lanes(d, v)[lane])) : 0;
      for (int k = 0; k < depth; ++k)
        sum += sign * x[k] * y[k];
      warp.lanes(d, v)[lane] = std::bit_cast<uint32_t>(float(sum));
    }
  }
  warp.products.push_back({d.slots, in.flag ? a.slots : std::vector<int>(), warp.productGroup});
}

void decodeProduct(Opcode &opcode, Instruction &in) {
  opcode.need("sync"), opcode.need("aligned");
  in.number = -1;
  for (int columns = 8; columns <= 256 && in.number < 0; columns += 8)
    if (opcode.take("m64n" + std::to_string(columns) + "k16"))
      in.number = columns;
  opcode.need("f32"), opcode.need("bf16"), opcode.need("bf16");
  in.flag = in.operands.at(1).slots.size() == 4;
  if (in.number < 0 || in.operands.size() != (in.flag ? 7 : 8) || int(in.operands[0].slots.size()) != in.number / 2 ||
      in.operands[3].negated)
    opcode.refuse();
  in.isProduct = true;
  in.run = multiply;
}

/// wgmma.wait_group N: all groups but the last N are done.
void wait(const Instruction &in, Warp &warp, uint32_t lanes) {
  warp.requireWhole(in, lanes);
  int64_t done = warp.productGroup - int64_t(warp.values(in.operands[0])[0]);
  std::erase_if(warp.products, [&](const Warp::InFlight &product) { return product.group < done; });
}

void decode(Opcode &opcode, Instruction &in) {
  in.results = 0;
  int kind = opcode.takeOne({"mma_async", "fence", "commit_group", "wait_group"});
  if (kind == 0)
    return decodeProduct(opcode, in);
  opcode.need("sync"), opcode.need("aligned");
  if (kind == 1)
    in.run = [](const Instruction &in, Warp &warp, uint32_t lanes) {
      warp.requireWhole(in, lanes);
      for (auto &state : warp.states)
        state.fenced = true;
    };
  else if (kind == 2)
    in.run = [](const Instruction &in, Warp &warp, uint32_t lanes) {
      warp.requireWhole(in, lanes);
      ++warp.productGroup;
    };
  else if (kind == 3)
    in.run = wait;
  else
    opcode.refuse();
}

} // namespace

const DecoderTable &pc::ptx::warpgroupInstructions() {
  static const DecoderTable table = {{"wgmma", decode}};
  return table;
}
