//===- MemoryUse.cpp - What lies in the arena when it is fullest -------------------------------===//
// Values at one offset whose lifetimes touch are one buffer (the planner let them share it). A sweep over the buffers
// finds the fullest moment; what is live then is booked by what it is.
//===-----------------------------------------------------------------------------===//
#include "MemoryUse.h"
#include "pc/IR/Liveness.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <map>
#include <tuple>

using namespace mlir;
using namespace pc;

namespace {

enum class Kind { Workspace, Activation, Communication, Gradient }; // a buffer is the highest of what its values are

struct Buffer {
  int64_t offset = 0, bytes = 0;
  Lifetime life;
  Kind kind = Kind::Workspace;
};

/// The gradients: yielded tensors, results of accumulations, and what moves make of these.
llvm::DenseSet<Value> findGradients(Block &body) {
  llvm::DenseSet<Value> gradients;
  auto isTensor = [](Value value) { return cast<RankedTensorType>(value.getType()).getRank() > 0; };
  for (Operation &op : body) {
    if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
      for (Value value : accumulate.getBody().front().getTerminator()->getOperands())
        if (isTensor(value))
          gradients.insert(value);
      for (Value value : accumulate.getResults())
        if (isTensor(value))
          gradients.insert(value);
    } else if (isa<MoveOpInterface>(op) && gradients.contains(op.getOperand(0))) {
      gradients.insert(op.getResult(0));
    }
  }
  return gradients;
}

Kind kindOf(Value value, const llvm::DenseSet<Value> &gradients) {
  if (gradients.contains(value))
    return Kind::Gradient;
  Operation *op = value.getDefiningOp();
  if (isa<AllGatherOp, AllToAllOp>(op) ||
      (value.hasOneUse() && isa<ReduceScatterOp, AllToAllOp>(*value.getUsers().begin())))
    return Kind::Communication;
  return isa<AccumulateOp>(op->getParentOp()) ? Kind::Activation : Kind::Workspace;
}

int64_t homeOf(Value value) {
  auto home = dyn_cast_or_null<HomeAttr>(cast<RankedTensorType>(value.getType()).getEncoding());
  return home ? home.getOffset() : 0;
}

} // namespace

MemoryUse pc::memoryUse(Block &body, int64_t arenaBytes) {
  Liveness liveness(body);
  llvm::DenseSet<Value> gradients = findGradients(body);
  MemoryUse use;
  SmallVector<Buffer> single;
  llvm::DenseSet<int64_t> leafHomes;
  for (Value value : liveness.values())
    if (isLeaf(value.getDefiningOp())) {
      int64_t bytes = llvm::alignTo(byteSize(value.getType()), 64);
      leafHomes.insert(homeOf(value));
      if (isa<ParameterOp>(value.getDefiningOp()))
        use.parameters += bytes;
      else if (isa<StateOp>(value.getDefiningOp()))
        use.optimizer += bytes;
    }
  for (Value value : liveness.values())
    if (!leafHomes.contains(homeOf(value))) // an updated leaf lies in the leaf's home
      single.push_back({homeOf(value), static_cast<int64_t>(llvm::alignTo(byteSize(value.getType()), 64)),
                        liveness.lifetime(value), kindOf(value, gradients)});

  auto key = [](const Buffer &b) { return std::tuple(b.offset, b.life.first, b.life.last, b.kind, b.bytes); };
  llvm::sort(single, [&](const Buffer &a, const Buffer &b) { return key(a) < key(b); });
  SmallVector<Buffer> buffers;
  for (const Buffer &next : single) {
    if (!buffers.empty() && buffers.back().offset == next.offset && next.life.first <= buffers.back().life.last) {
      Buffer &last = buffers.back();
      last.life.last = std::max(last.life.last, next.life.last);
      last.kind = std::max(last.kind, next.kind);
    } else {
      buffers.push_back(next);
    }
  }

  std::map<int64_t, int64_t> change;
  for (const Buffer &buffer : buffers) {
    change[buffer.life.first] += buffer.bytes;
    change[buffer.life.last + 1] -= buffer.bytes;
  }
  int64_t live = 0, most = -1, peak = 0;
  for (auto [position, bytes] : change)
    if ((live += bytes) > most) {
      most = live;
      peak = position;
    }
  for (const Buffer &buffer : buffers) {
    if (buffer.life.first > peak || buffer.life.last < peak)
      continue;
    if (buffer.kind == Kind::Gradient)
      use.gradients += buffer.bytes;
    else if (buffer.kind == Kind::Communication)
      use.communication += buffer.bytes;
    else if (buffer.kind == Kind::Activation)
      use.activations += buffer.bytes;
  }
  use.workspace = arenaBytes - use.parameters - use.gradients - use.optimizer - use.activations - use.communication;
  return use;
}
