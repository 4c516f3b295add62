//===- move-kernels.cpp - The runtime's own kernels from their PTX --------===//
// usage: move-kernels Blocks.ptx Reduce.ptx Codes.ptx Rows.ptx
// On the stand-in, functions of the host do the work of these kernels, so nothing else runs them without a GPU. Here
// the reader runs them, and the results are compared with simple loops (runtime/cuda/Blocks.cu, Reduce.cu).
//===----------------------------------------------------------------------===//
#include "Block.h"
#include "comm/CodeBlocks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

using namespace pc::ptx;

static Module read(const char *file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  return parse(text.str());
}

/// Runs a kernel with two blocks of 64 threads.
static void launch(const Module &module, const std::string &name, std::vector<void *> parameters) {
  Launch launch;
  launch.kernel = module.kernels.at(name).get();
  launch.grid = {2, 1, 1}, launch.block = {64, 1, 1};
  launch.copyParameters(parameters.data());
  for (uint32_t x = 0; x < 2; ++x)
    Block(launch, {x, 0, 0}).run();
}

static int wrong = 0;

static void expect(const std::string &what, bool good) {
  if (!good)
    printf("%s: wrong\n", what.c_str());
  wrong += !good;
}

/// to[column][row] = from[row][column], for blocks of `width` units of `unit` bytes.
static void testSwap(const Module &module, int unit) {
  int64_t rows = 5, columns = 7, width = 6;
  std::vector<uint64_t> from(rows * columns * width * unit / 8 + 2), to(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i)
    from[i] = (i + 1) * 0x9e3779b97f4a7c15u;
  auto aligned = [](auto &words) {
    return reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(words.data()) + 15) / 16 * 16);
  };
  char *source = aligned(from), *target = aligned(to);
  std::vector<char> expected(rows * columns * width * unit);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      memcpy(&expected[(column * rows + row) * width * unit], source + (row * columns + column) * width * unit,
             width * unit);
  std::string name = "swap_" + std::to_string(unit);
  launch(module, name, {&source, &target, &rows, &columns, &width});
  expect(name, memcmp(target, expected.data(), expected.size()) == 0);
}

static float bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }
static uint16_t toBf16(float x) {
  auto bits = std::bit_cast<uint32_t>(x);
  return std::isnan(x) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/// As in Reduce.cu.
struct Arguments {
  const void *ins[32];
  void *outs[32];
  int64_t rows, width, inPitch, inShift, outPitch, outShift;
  int32_t numIns, numOuts;
};

/// `combine` of two elements, which gives that of all in order.
template <class T>
static void testReduce(const Module &module, const std::string &name, const std::vector<T> &special,
                       std::function<T(const std::vector<T> &)> combine) {
  constexpr int64_t rows = 9, width = 17, inPitch = 20, outPitch = 23, inShift = 3, outShift = 4;
  std::vector<T> ins[3], outs[2];
  Arguments arguments{{}, {}, rows, width, inPitch, inShift, outPitch, outShift, 3, 2};
  for (int k = 0; k < 3; ++k) {
    for (int64_t i = 0; i < inShift + rows * inPitch; ++i)
      ins[k].push_back(special[size_t(i * (k + 3) + k) % special.size()]);
    arguments.ins[k] = ins[k].data();
  }
  for (int k = 0; k < 2; ++k) {
    outs[k].assign(outShift + rows * outPitch, T());
    arguments.outs[k] = outs[k].data();
  }
  std::vector<T> wanted = outs[0];
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < width; ++column) {
      int64_t from = inShift + row * inPitch + column;
      wanted[outShift + row * outPitch + column] = combine({ins[0][from], ins[1][from], ins[2][from]});
    }
  launch(module, name, {&arguments});
  for (auto &out : outs)
    expect(name, memcmp(out.data(), wanted.data(), wanted.size() * sizeof(T)) == 0);
}

/// Codes of two members, and their sum; the last block is shorter. Devices must compute the bits of hosts.
static void testCodes(const Module &module, float largest) {
  constexpr int64_t elements = 2 * PCRT_CODES_BLOCK + 37;
  int64_t bytesOfMember = 4 * pcrt_code_words(elements), members = 2, count = elements;
  std::vector<char> codes(members * bytesOfMember), wanted(codes.size());
  std::vector<float> from(elements), sums(elements), wantedSums(elements);
  for (int64_t member = 0; member < members; ++member) {
    for (int64_t i = 0; i < elements; ++i)
      from[i] = float((i * 7919 + member * 31) % 1009 - 504) * 1e-3f;
    from[PCRT_CODES_BLOCK + 3] = largest;
    const float *source = from.data();
    char *to = codes.data() + member * bytesOfMember, *own = wanted.data() + member * bytesOfMember;
    launch(module, "encode", {&source, &to, &count});
    for (int64_t first = 0; first < elements; first += PCRT_CODES_BLOCK) {
      const int64_t here = std::min<int64_t>(PCRT_CODES_BLOCK, elements - first);
      char *block = own + first / PCRT_CODES_BLOCK * pcrt::codeBlockBytes;
      pcrt::encodeBlock(source + first, here, block);
      pcrt::decodeBlock(block, 0, here, member > 0, wantedSums.data() + first);
    }
  }
  const char *all = codes.data();
  float *to = sums.data();
  launch(module, "add_decoded", {&all, &to, &count, &members, &bytesOfMember});
  auto isNan = [](float x) { return std::isnan(x); };
  bool same = std::isfinite(largest) ? codes == wanted && !memcmp(to, wantedSums.data(), elements * sizeof(float))
                                     : std::count_if(sums.begin(), sums.end(), isNan) == PCRT_CODES_BLOCK;
  expect("codes with " + std::to_string(largest), same);
}

/// The rows of each expert, by chunk of 256 tokens, of two blocks of tokens.
static void testRows(const Module &module) {
  int64_t blocks = 2, tokens = 300, experts = 5, ofChunk = 256, chunks = 2;
  std::vector<float> mask(blocks * tokens * experts);
  std::vector<int32_t> counts(blocks * chunks * experts, -1), wanted(counts.size(), 0);
  for (int64_t i = 0; i < int64_t(mask.size()); ++i) {
    const int64_t expert = i % experts, token = i / experts % tokens, block = i / experts / tokens;
    mask[i] = i * 7919 % 13 < 3 + expert ? 0.5f : 0;
    wanted[(block * chunks + token / ofChunk) * experts + expert] += mask[i] != 0;
  }
  const float *from = mask.data();
  int32_t *to = counts.data();
  launch(module, "count_rows", {&from, &to, &blocks, &tokens, &experts, &ofChunk});
  expect("count_rows", counts == wanted);
}

static float sum(const std::vector<float> &x) { return x[0] + x[1] + x[2]; }
/// A NaN survives.
static float maximum(const std::vector<float> &x) {
  float result = x[0];
  for (float y : {x[1], x[2]})
    result = result > y || result != result ? result : y;
  return result;
}

static void test(char **argv) {
  Module blocks = read(argv[1]), reduce = read(argv[2]), codes = read(argv[3]);
  testRows(read(argv[4]));
  for (float largest : {0.75f, 3e38f, 1e-40f, INFINITY})
    testCodes(codes, largest);
  for (int unit : {1, 2, 4, 16})
    testSwap(blocks, unit);
  uint32_t noted = 0, value = 42, *note = &noted;
  launch(blocks, "note", {&note, &value});
  expect("note", noted == 42);
  const std::vector<float> floats = {1, -2.5f, 1e-3f, 3e38f, -1e30f, 0.1f, 7, -0.3f, 1e-20f, 12.75f, -8};
  std::vector<uint16_t> halves;
  for (float x : floats)
    halves.push_back(toBf16(x));
  halves.push_back(0x7fc0);
  const std::vector<int32_t> integers = {1, -2, 2147483647, 5, -2147483647, 100, 7};
  auto inFloats = [](float (*f)(const std::vector<float> &)) {
    return [f](const std::vector<uint16_t> &x) { return toBf16(f({bf16(x[0]), bf16(x[1]), bf16(x[2])})); };
  };
  testReduce<float>(reduce, "reduce_f32_sum", floats, sum);
  testReduce<float>(reduce, "reduce_f32_max", floats, maximum);
  testReduce<uint16_t>(reduce, "reduce_bf16_sum", halves, inFloats(sum));
  testReduce<uint16_t>(reduce, "reduce_bf16_max", halves, inFloats(maximum));
  testReduce<int32_t>(reduce, "reduce_i32_sum", integers, [](const std::vector<int32_t> &x) {
    return int32_t(uint32_t(x[0]) + uint32_t(x[1]) + uint32_t(x[2]));
  });
  testReduce<int32_t>(reduce, "reduce_i32_max", integers,
                      [](const std::vector<int32_t> &x) { return std::max(std::max(x[0], x[1]), x[2]); });
}

int main(int, char **argv) {
  try {
    test(argv);
  } catch (const Fault &fault) {
    expect(fault.text, false);
  }
  return wrong ? 1 : 0;
}
