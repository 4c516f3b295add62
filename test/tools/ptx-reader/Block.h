//===- Block.h - Runs the threads of one block ----------------------------===//
// Warps run one after the other up to the next barrier. The lanes of a warp run together. Those that a branch separates
// run one part after the other, up to the first instruction that all of them reach (Flow.cpp).
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_PTX_READER_BLOCK_H
#define PC_TEST_PTX_READER_BLOCK_H

#include "SharedMemory.h"

#include <bit>

namespace pc::ptx {

/// The parameters of cuLaunchKernel.
struct Launch {
  const Kernel *kernel = nullptr;
  std::array<uint32_t, 3> grid{}, block{};
  uint64_t dynamicShared = 0;
  std::vector<uint64_t> parameters; ///< the bytes of all, by their offsets

  /// Copies the parameters, whose addresses are given.
  void copyParameters(void *const *values);
};

class Block;

/// The instruction that the calling thread runs, for reports of invalid addresses.
extern thread_local const Instruction *runningInstruction;

/// An asynchronous copy that a thread has started.
struct AsyncCopy {
  uint64_t to, from;
  int bytes, read; ///< bytes beyond `read` become zero
  int64_t group;
};

/// One product of wgmma that a warp has started: all warps of a warpgroup have to start the same product.
struct StartedProduct {
  int line;
  uint64_t a, b;
  bool operator==(const StartedProduct &) const = default;
};

class Warp {
public:
  Warp(Block &block, int number);

  /// Runs to a barrier of the block or to the end.
  void run();
  bool isDone() const { return paths.empty(); }
  void passBarrier();

  Lanes &lanes(const Operand &operand, size_t i = 0) { return registers[operand.slots[i]]; }
  const Lanes &values(int slot) const;
  const Lanes &values(const Operand &operand, size_t i = 0) const { return values(operand.slots[i]); }
  When now(int lane) const;
  /// Throws a Fault unless all threads of the warp run the instruction together.
  void requireWhole(const Instruction &instruction, uint32_t lanes) const;
  /// bar.warp.sync
  void orderLanes() { ++barriers; }

  Block &block;
  const int number;

  // cp.async, by lane.
  std::array<std::vector<AsyncCopy>, warpSize> copies;
  std::array<int64_t, warpSize> copyGroup{};

  // wgmma. Registers are in flight from a product that writes or reads them to the wait for its group.
  struct InFlight {
    std::vector<int> sums, fragments;
    int64_t group;
  };
  std::vector<InFlight> products;
  std::vector<StartedProduct> started;
  int64_t productGroup = 0;

  struct RegisterState {
    bool defined = false;
    /// Whether wgmma.fence came after the last instruction, other than a product, that uses the register.
    bool fenced = false;
  };
  std::vector<RegisterState> states;

private:
  /// Lanes that run together up to `join`, where the lanes of the path before this one continue.
  struct Path {
    int at;
    uint32_t lanes;
    int join;
  };
  void step(Path &path);
  void branch(uint32_t taken, const Instruction &instruction);
  void checkRegisters(const Instruction &instruction);
  void settle();

  const Kernel &kernel;
  std::vector<Lanes> registers;
  std::vector<Path> paths; ///< the last path runs; each path also has the lanes of the paths after it
  uint32_t living;
  uint32_t barriers = 0;
  bool waiting = false;
};

class Block {
public:
  Block(const Launch &launch, std::array<uint32_t, 3> place);
  void run();

  const Launch &launch;
  const std::array<uint32_t, 3> place;
  SharedMemory shared;
  uint32_t barriers = 0;
  int threads;

private:
  std::vector<std::unique_ptr<Warp>> warps;
};

/// Calls `run(lane)` for each lane of a mask.
template <class Run> void forEach(uint32_t lanes, Run run) {
  for (; lanes; lanes &= lanes - 1)
    run(std::countr_zero(lanes));
}

} // namespace pc::ptx

#endif
