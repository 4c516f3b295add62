//===- MoveKernels.cpp - Small kernels between moves by NCCL --------------===//
// The PTX of Blocks.cu is part of the runtime. swapBlocks uses the widest unit (16, 4, 2 or 1 bytes) that divides both
// addresses and the width.
//===----------------------------------------------------------------------===//
#include "cuda/MoveKernels.h"
#include "cuda/HostWork.h"

#include <algorithm>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

namespace {

constexpr int64_t unitBytes[] = {16, 4, 2, 1};

const char blocksPtx[] =
#include "Blocks.ptx.inc"
    ;

/// The work of the two kernels on the stand-in.
struct HostNote {
  volatile uint32_t *to;
  uint32_t value;
  void run() const { *to = value; }
};
struct HostSwap {
  char *to;
  const char *from;
  int64_t rows, columns, width;
  void run() const {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        memcpy(to + (column * rows + row) * width, from + (row * columns + column) * width, size_t(width));
  }
};

} // namespace

MoveKernels::MoveKernels(Session &session) : session(session) {
  if (session.standin)
    return;
  session.check(session.driver.cuModuleLoadDataEx(&module, blocksPtx, 0, nullptr, nullptr),
                "load the kernels of moves");
  auto find = [&](Function *function, const char *name) {
    session.check(session.driver.cuModuleGetFunction(function, module, name), std::string("find kernel ") + name);
  };
  find(&noteKernel, "note");
  for (size_t i = 0; i < std::size(unitBytes); ++i)
    find(&swaps[i], ("swap_" + std::to_string(unitBytes[i])).c_str());
}

MoveKernels::~MoveKernels() {
  if (module)
    session.driver.cuModuleUnload(module);
}

Result MoveKernels::note(volatile uint32_t *to, uint32_t value, Stream stream) {
  if (session.standin) {
    enqueueOnHost(session, stream, "note", HostNote{to, value}, {{const_cast<const uint32_t *>(to), sizeof *to, 1}});
    return Success;
  }
  void *parameters[] = {&to, &value};
  return session.driver.cuLaunchKernel(noteKernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

Result MoveKernels::swapBlocks(void *to, const void *from, int64_t rows, int64_t columns, int64_t width,
                               const char *name, Stream stream) {
  int64_t bytes = rows * columns * width;
  if (bytes == 0)
    return Success;
  if (session.standin) {
    enqueueOnHost(session, stream, name,
                  HostSwap{static_cast<char *>(to), static_cast<const char *>(from), rows, columns, width},
                  {{from, bytes, 0}, {to, bytes, 1}});
    return Success;
  }
  Address places = addressOf(to) | addressOf(from) | Address(width);
  int unit = places % 16 == 0 ? 0 : places % 4 == 0 ? 1 : places % 2 == 0 ? 2 : 3;
  int64_t units = width / unitBytes[unit];
  constexpr int64_t threads = 256;
  int64_t blocks =
      std::min<int64_t>((rows * columns * units + threads - 1) / threads, int64_t(session.multiprocessors) * 16);
  void *parameters[] = {&from, &to, &rows, &columns, &units};
  return session.driver.cuLaunchKernel(swaps[unit], unsigned(blocks), 1, 1, threads, 1, 1, 0, stream, parameters,
                                       nullptr);
}
