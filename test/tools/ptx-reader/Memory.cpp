//===- Memory.cpp - Loads, stores, asynchronous copies, atomics -----------===//
// "Data Movement and Conversion Instructions" of the PTX ISA: ld, st, cvta, cp.async and its waits, atom, red; and
// "Parallel Synchronization and Communication Instructions": bar, fence. Orderings weaker than a barrier have no effect
// here, because threads see memory in order.
//===----------------------------------------------------------------------===//
#include "Block.h"

#include <algorithm>
#include <cstring>

using namespace pc::ptx;

namespace {

/// Generic addresses of shared memory begin here. No host address does.
constexpr uint64_t sharedWindow = uint64_t(1) << 62;

enum Space { Generic, Global, Shared, Parameters };

uint64_t addressOf(const Warp &warp, const Operand &operand, int lane) {
  return warp.values(operand)[lane] + uint64_t(operand.offset);
}

/// The host's address of `bytes` bytes in a state space.
uint8_t *place(Warp &warp, int lane, int space, uint64_t address, int bytes, Access access) {
  if (space == Generic && address >= sharedWindow)
    return warp.block.shared.access(access, address - sharedWindow, bytes, warp.now(lane));
  if (space == Shared)
    return warp.block.shared.access(access, address, bytes, warp.now(lane));
  if (space == Parameters) {
    for (const Parameter &one : warp.block.launch.kernel->parameters)
      if (uint64_t at = address - parameterWindow - one.offset; at < one.bytes && at + bytes <= one.bytes)
        return reinterpret_cast<uint8_t *>(const_cast<uint64_t *>(warp.block.launch.parameters.data())) + one.offset +
               at;
    throw Fault{"access outside of the parameters"};
  }
  if (address % bytes)
    throw Fault{"misaligned access of " + std::to_string(bytes) + " bytes at address " + std::to_string(address)};
  return reinterpret_cast<uint8_t *>(address);
}

/// A vector is aligned to its whole size. A signed value is extended to the register.
void load(const Instruction &in, Warp &warp, uint32_t lanes) {
  const Operand &to = in.operands[0];
  int width = in.type.bits / 8, count = int(to.slots.size());
  forEach(lanes, [&](int lane) {
    uint64_t address = addressOf(warp, in.operands[1], lane);
    const uint8_t *from = place(warp, lane, in.number, address, width * count, Access::Read);
    for (int i = 0; i < count; ++i) {
      uint64_t value = 0;
      memcpy(&value, from + i * width, width);
      if (in.type.kind == 's' && width < 8) {
        int bits = warp.block.launch.kernel->registerBits[to.slots[i]], unused = 64 - in.type.bits;
        value = uint64_t(int64_t(value << unused) >> unused) & (~uint64_t(0) >> (64 - bits));
      }
      warp.lanes(to, i)[lane] = value;
    }
  });
}

void store(const Instruction &in, Warp &warp, uint32_t lanes) {
  const Operand &from = in.operands[1];
  int width = in.type.bits / 8, count = int(from.slots.size());
  forEach(lanes, [&](int lane) {
    uint64_t address = addressOf(warp, in.operands[0], lane);
    uint8_t *to = place(warp, lane, in.number, address, width * count, Access::Write);
    for (int i = 0; i < count; ++i)
      memcpy(to + i * width, &warp.values(from, i)[lane], width);
  });
}

int takeSpace(Opcode &opcode) {
  opcode.takeOne({"weak", "volatile"});
  int space = opcode.takeOne({"global", "shared", "shared::cta", "const", "param"});
  return space < 0 ? Generic : space == 0 || space == 3 ? Global : space == 4 ? Parameters : Shared;
}

void loadOrStore(Opcode &opcode, Instruction &in) {
  bool isLoad = opcode.name() == "ld";
  in.number = takeSpace(opcode);
  if (isLoad && in.number == Global)
    opcode.take("nc");
  opcode.takeOne({"L1::evict_first", "L1::no_allocate", "L1::evict_last"}); // hints
  int count = opcode.number("v");
  in.type = opcode.type();
  in.results = isLoad;
  const Operand &address = in.operands.at(isLoad ? 1 : 0), &values = in.operands.at(isLoad ? 0 : 1);
  if (!address.address || int(values.slots.size()) != std::max(count, 1) || (!isLoad && in.number == Parameters))
    opcode.refuse();
  in.run = isLoad ? load : store;
}

/// cvta.<space> makes a generic address of one in the space, cvta.to.<space> the opposite.
void convertAddress(Opcode &opcode, Instruction &in) {
  bool to = opcode.take("to");
  bool shared = takeSpace(opcode) == Shared;
  opcode.need("u64");
  in.number = shared ? (to ? -1 : 1) : 0;
  in.run = [](const Instruction &in, Warp &warp, uint32_t lanes) {
    forEach(lanes, [&](int lane) {
      warp.lanes(in.operands[0])[lane] =
          warp.values(in.operands[1])[lane] + uint64_t(int64_t(in.number)) * sharedWindow;
    });
  };
}

/// cp.async.ca | .cg: 4, 8 or 16 bytes from global to shared memory, at any time until a wait. With a fourth operand,
/// only so many are read and the rest is zero.
void startCopy(const Instruction &in, Warp &warp, uint32_t lanes) {
  int bytes = int(warp.values(in.operands[2])[0]);
  forEach(lanes, [&](int lane) {
    AsyncCopy copy{addressOf(warp, in.operands[0], lane), addressOf(warp, in.operands[1], lane), bytes, bytes,
                   warp.copyGroup[lane]};
    if (in.operands.size() > 3)
      copy.read = int(uint32_t(warp.values(in.operands[3])[lane]));
    if (copy.read > bytes)
      throw Fault{"cp.async reads more bytes than it copies"};
    place(warp, lane, Global, copy.from, bytes, Access::Read);
    warp.block.shared.startCopy(copy.to, bytes, warp.now(lane));
    warp.copies[lane].push_back(copy);
  });
}

void finishCopies(Warp &warp, int lane, int64_t groups) {
  auto &copies = warp.copies[lane];
  size_t done = 0;
  for (; done < copies.size() && copies[done].group < groups; ++done) {
    const AsyncCopy &copy = copies[done];
    warp.block.shared.endCopy(copy.to, copy.bytes, warp.now(lane));
    uint8_t *to = warp.block.shared.access(Access::Write, copy.to, copy.bytes, warp.now(lane));
    memset(to, 0, copy.bytes);
    memcpy(to, reinterpret_cast<const void *>(copy.from), copy.read);
  }
  copies.erase(copies.begin(), copies.begin() + int64_t(done));
}

/// cp.async.wait_group N: all groups but the last N are done; wait_all: so are copies of no group.
void waitForCopies(const Instruction &in, Warp &warp, uint32_t lanes) {
  forEach(lanes, [&](int lane) {
    int64_t left = in.flag ? -1 : int64_t(warp.values(in.operands[0])[lane]);
    finishCopies(warp, lane, warp.copyGroup[lane] - left);
  });
}

void asyncCopy(Opcode &opcode, Instruction &in) {
  opcode.need("async");
  in.results = 0;
  if (opcode.take("commit_group")) {
    in.run = [](const Instruction &, Warp &warp, uint32_t lanes) {
      forEach(lanes, [&](int lane) { ++warp.copyGroup[lane]; });
    };
    return;
  }
  in.flag = opcode.take("wait_all");
  if (in.flag || opcode.take("wait_group")) {
    in.run = waitForCopies;
    return;
  }
  int caches = opcode.takeOne({"ca", "cg"});
  if (!opcode.take("shared"))
    opcode.need("shared::cta");
  opcode.need("global");
  opcode.takeOne({"L2::64B", "L2::128B", "L2::256B"}); // hints
  bool sized = in.operands.size() >= 3 && in.operands[2].slot() < 0;
  if (caches < 0 || !sized)
    opcode.refuse();
  in.run = startCopy;
}

/// bar.sync 0: all threads of the block; bar.warp.sync: lanes of a warp, which are together here.
void barrier(Opcode &opcode, Instruction &in) {
  in.results = 0;
  if (opcode.take("warp")) {
    opcode.need("sync");
    in.run = [](const Instruction &in, Warp &warp, uint32_t lanes) {
      if (uint32_t(warp.values(in.operands[0])[std::countr_zero(lanes)]) & ~lanes)
        throw Fault{"a warp barrier in divergent code: a lane of its mask is elsewhere"};
      warp.orderLanes();
    };
    return;
  }
  opcode.take("cta");
  opcode.need("sync");
  if (opcode.name() == "barrier")
    opcode.need("aligned");
  if (in.operands.size() != 1 || in.operands[0].slot() >= 0)
    throw Fault{"the reader knows only barriers of a whole block"};
  in.flow = Instruction::Barrier;
}

/// fence.proxy.async: orders writes of the thread before accesses of the asynchronous proxy. Others order memory for
/// threads elsewhere.
void fence(Opcode &opcode, Instruction &in) {
  in.results = 0;
  if (opcode.take("proxy")) {
    opcode.need("async");
    opcode.takeOne({"shared::cta"});
    in.run = [](const Instruction &, Warp &warp, uint32_t lanes) {
      forEach(lanes, [&](int lane) { warp.block.shared.fenceProxy(warp.now(lane)); });
    };
    return;
  }
  if (opcode.takeOne({"acq_rel", "sc"}) >= 0)
    opcode.takeOne({"cta", "gpu", "sys", "cluster"});
  else if (opcode.takeOne({"gl", "cta", "sys"}) < 0)
    opcode.refuse();
  in.run = [](const Instruction &, Warp &, uint32_t) {};
}

} // namespace

const DecoderTable &pc::ptx::memoryInstructions() {
  static const DecoderTable table = {{"ld", loadOrStore}, {"st", loadOrStore}, {"cvta", convertAddress},
                                     {"cp", asyncCopy},   {"bar", barrier},    {"barrier", barrier},
                                     {"fence", fence},    {"membar", fence}};
  return table;
}
