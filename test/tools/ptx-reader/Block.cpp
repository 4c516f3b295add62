//===- Block.cpp - Runs the threads of one block --------------------------===//
// "Control Flow Instructions", "Parallel Synchronization and Communication Instructions: bar" and the rules for
// registers of asynchronous products ("wgmma.fence", "wgmma.wait_group") of the PTX ISA.
//===----------------------------------------------------------------------===//
#include "Block.h"

#include <algorithm>
#include <cstring>

using namespace pc::ptx;

thread_local const Instruction *pc::ptx::runningInstruction = nullptr;

void Launch::copyParameters(void *const *values) {
  for (size_t i = 0; i < kernel->parameters.size(); ++i) {
    const Parameter &one = kernel->parameters[i];
    parameters.resize((one.offset + one.bytes + 7) / 8);
    memcpy(reinterpret_cast<char *>(parameters.data()) + one.offset, values[i], one.bytes);
  }
}

Warp::Warp(Block &block, int number)
    : block(block), number(number), states(block.launch.kernel->registerBits.size()), kernel(*block.launch.kernel),
      registers(kernel.registerBits.size()) {
  int threads = std::min(block.threads - number * warpSize, warpSize);
  living = threads == warpSize ? ~0u : (1u << threads) - 1;
  paths.push_back({0, living, int(kernel.code.size())});
  for (size_t i = 0; i < registers.size(); ++i) // NaNs
    registers[i].fill(~uint64_t(0) >> (64 - kernel.registerBits[i]));
  const auto &size = block.launch.block;
  for (const auto &[name, slot] : kernel.specials) {
    states[slot].defined = true;
    for (uint32_t lane = 0; lane < warpSize; ++lane) {
      uint32_t thread = uint32_t(number) * warpSize + lane;
      uint32_t places[3] = {thread % size[0], thread / size[0] % size[1], thread / (size[0] * size[1])};
      int dim = name.back() - 'x';
      registers[slot][lane] = name == "%laneid"            ? lane
                              : name.starts_with("%tid")   ? places[dim]
                              : name.starts_with("%ntid")  ? size[dim]
                              : name.starts_with("%ctaid") ? block.place[dim]
                                                           : block.launch.grid[dim];
    }
  }
}

const Lanes &Warp::values(int slot) const { return slot < 0 ? kernel.constants[-1 - slot] : registers[slot]; }

When Warp::now(int lane) const { return {number * warpSize + lane, block.barriers, barriers}; }

void Warp::requireWhole(const Instruction &instruction, uint32_t lanes) const {
  if (lanes != ~0u)
    throw Fault{"only some threads of a warp run " + instruction.text};
}

void Warp::passBarrier() {
  waiting = false;
  ++paths.back().at;
  settle();
}

void Warp::run() {
  while (!paths.empty() && !waiting)
    step(paths.back());
}

/// Runs one instruction.
void Warp::step(Path &path) {
  if (path.at >= int(kernel.code.size()))
    throw Fault{"a thread runs past the end of the kernel"};
  const Instruction &instruction = kernel.code[path.at];
  runningInstruction = &instruction;
  try {
    uint32_t lanes = path.lanes;
    if (instruction.guard >= 0) {
      const Lanes &guard = registers[instruction.guard];
      for (int lane = 0; lane < warpSize; ++lane)
        if (bool(guard[lane]) == instruction.guardNegated)
          lanes &= ~(1u << lane);
    }
    if (lanes)
      checkRegisters(instruction);
    switch (instruction.flow) {
    case Instruction::Next:
      if (lanes)
        instruction.run(instruction, *this, lanes);
      ++path.at;
      break;
    case Instruction::Branch:
      branch(lanes, instruction);
      break;
    case Instruction::Barrier:
      if (lanes != living)
        throw Fault{"a barrier in divergent code: only some threads of a warp reach it"};
      waiting = true;
      return;
    case Instruction::Exit:
      living &= ~lanes;
      ++path.at;
      for (Path &one : paths)
        one.lanes &= ~lanes;
      break;
    }
    settle();
  } catch (const Fault &fault) {
    throw Fault{"line " + std::to_string(instruction.line) + " (" + instruction.text + "): " + fault.text};
  }
}

void Warp::branch(uint32_t taken, const Instruction &instruction) {
  Path &path = paths.back();
  int next = path.at + 1;
  uint32_t others = path.lanes & ~taken;
  if (!taken || !others) {
    path.at = taken ? instruction.target : next;
    return;
  }
  path.at = instruction.join;
  paths.push_back({next, others, instruction.join});
  paths.push_back({instruction.target, taken, instruction.join});
}

/// Ends paths that have reached their join, or whose lanes have all ended.
void Warp::settle() {
  while (!paths.empty() && (!paths.back().lanes || (paths.size() > 1 && paths.back().at == paths.back().join)))
    paths.pop_back();
}

/// Reports reads of registers that nothing wrote, and uses of those that a product in flight writes or reads. LLVM
/// leaves halves of packed registers undefined if no result depends on them, so a mov may copy undefined halves.
void Warp::checkRegisters(const Instruction &instruction) {
  auto isUndefined = [&](int slot) { return slot >= 0 && !states[slot].defined; };
  const auto &operands = instruction.operands;
  bool defines = !instruction.moves || !std::all_of(operands[1].slots.begin(), operands[1].slots.end(), isUndefined);
  for (size_t i = instruction.isProduct; i < operands.size(); ++i)
    for (int slot : operands[i].slots) {
      if (slot < 0)
        continue;
      bool isResult = int(i) < instruction.results;
      if (!isResult && !instruction.moves && isUndefined(slot))
        throw Fault{"a register is read that was never written"};
      states[slot].defined |= isResult && defines;
      if (!instruction.isProduct)
        states[slot].fenced = false;
      auto uses = [&](const std::vector<int> &all) { return std::find(all.begin(), all.end(), slot) != all.end(); };
      for (const InFlight &product : products)
        if (uses(product.sums) || (isResult && uses(product.fragments)))
          throw Fault{"missing wait: a product in flight uses a register of this instruction"};
    }
}

Block::Block(const Launch &launch, std::array<uint32_t, 3> place)
    : launch(launch), place(place), shared(*launch.kernel, launch.dynamicShared),
      threads(int(launch.block[0] * launch.block[1] * launch.block[2])) {
  for (int i = 0; i * warpSize < threads; ++i)
    warps.push_back(std::make_unique<Warp>(*this, i));
}

void Block::run() {
  for (;;) {
    size_t done = 0;
    for (auto &warp : warps) {
      warp->run();
      done += warp->isDone();
    }
    if (done == warps.size())
      break;
    if (done)
      throw Fault{"a barrier in divergent code: some warps have ended, others wait"};
    ++barriers;
    for (auto &warp : warps)
      warp->passBarrier();
  }
  for (auto &warp : warps) {
    for (const auto &copies : warp->copies)
      if (!copies.empty())
        throw Fault{"missing wait: a thread ends with a copy in flight"};
    if (!warp->products.empty())
      throw Fault{"missing wait: a warp ends with a product in flight"};
    if (warp->started != warps[warp->number / 4 * 4]->started)
      throw Fault{"the warps of a warpgroup start different products"};
  }
}
