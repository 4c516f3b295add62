//===- move-kernels.cpp - The runtime's own kernels from their PTX --------===//
// usage: move-kernels Blocks.ptx Reduce.ptx
// On the stand-in, functions of the host do the work of these kernels, so nothing else runs them without a GPU. Here
// the reader does, beside loops that say what they compute (runtime/cuda/Blocks.cu, Reduce.cu).
//===----------------------------------------------------------------------===//
#include "Block.h"

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

static float sum(const std::vector<float> &x) { return x[0] + x[1] + x[2]; }
/// A NaN survives.
static float maximum(const std::vector<float> &x) {
  float result = x[0];
  for (float y : {x[1], x[2]})
    result = result > y || result != result ? result : y;
  return result;
}

static void test(char **argv) {
  Module blocks = read(argv[1]), reduce = read(argv[2]);
  for (int unit : {2, 4, 16})
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
