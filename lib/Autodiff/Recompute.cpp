//===- Recompute.cpp - Activation checkpointing: compute values again, keep fewer ------===//
// Values of the forward pass that the backward pass reads are live during both passes. This pass clones the ops that
// compute these values, right before their first reader in the backward pass. Each value then has two short live ranges
// instead of one long one.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_RECOMPUTE
#include "pc/Autodiff/Passes.h"

#include "pc/Cost/Cost.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/MoveRows.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// Returns true if the op costs more than reading its operands: a matrix product or attention.
bool isExpensive(Operation *op) { return flopsOf(op) > 0; }

/// Returns true if the op is never computed again, because different rounding of its operand could lead to different
/// choices. It is enough to test these two ops: all others get the choices from an AdmitOp. A scale is one number, for
/// which ranks would have to compare their maxima again.
bool isKept(Operation *op) { return isa<TopKOp, AdmitOp, Float8ScaleOp>(op); }

/// Input: the body of a step and the layers to recompute. full() and selective() choose values of a layer, and clones
/// of their ops replace them in the backward pass. Leaves and values that another layer reads are kept.
class Recomputer {
public:
  /// Works on the layers whose number `chosen` accepts.
  Recomputer(Block &body, llvm::function_ref<bool(int64_t)> chosen) : body(body) {
    std::map<std::string, int64_t> numbers;
    for (Operation &op : body) {
      if (isa<SeedOp>(op))
        break;
      forward.insert(&op);
      if (std::string layer = layerOf(sourceName(&op)).str(); !layer.empty()) {
        auto [number, isNew] = numbers.try_emplace(layer, numbers.size());
        if (chosen(number->second))
          layers[layer].push_back(&op);
        layerOfOp[&op] = layer;
      }
    }
    numLayers = static_cast<int64_t>(numbers.size());
  }

  /// mode=full: recomputes all values of a layer that the backward pass reads, except those that other layers read.
  void full() {
    for (auto &[layer, ops] : layers) {
      llvm::SetVector<Value> kept;
      for (Operation *op : ops)
        for (Value value : op->getResults())
          if (isReadBackward(value) && !leavesLayer(value) && !isKept(op))
            kept.insert(value);
      auto stop = [&, &layer = layer](Value value) {
        Operation *op = value.getDefiningOp();
        return !op || layerOfOp.lookup(op) != layer || leavesLayer(value) || isKept(op);
      };
      again(kept.getArrayRef(), stop);
    }
  }

  /// mode=selective: recomputes results of cheap ops (norms, activations) whose inputs are kept anyway or are smaller.
  void selective() {
    llvm::DenseSet<Value> kept;
    SmallVector<SmallVector<Value>> cheap; // the results of each op, which one clone of it computes
    for (auto &[layer, ops] : layers)
      for (Operation *op : ops) {
        SmallVector<Value> results;
        for (Value value : op->getResults())
          if (isReadBackward(value)) {
            kept.insert(value);
            if (!isExpensive(op) && !leavesLayer(value) && !isKept(op))
              results.push_back(value);
          }
        if (!results.empty())
          cheap.push_back(std::move(results));
      }
    for (ArrayRef<Value> results : cheap) {
      auto stop = [&](Value v) {
        Operation *op = v.getDefiningOp();
        return !op || !layerOfOp.count(op) || isExpensive(op) || isKept(op) || leavesLayer(v) ||
               (!llvm::is_contained(results, v) && kept.contains(v));
      };
      int64_t more = 0, less = 0;
      const SmallVector<Value> from = sources(results.front(), stop);
      for (Value source : from)
        if (Operation *op = source.getDefiningOp(); op && op->getBlock() == &body && !kept.contains(source))
          more += byteSize(source.getType());
      for (Value value : results)
        less += byteSize(value.getType());
      if (more >= less)
        continue;
      again(results, stop);
      for (Value value : results)
        kept.erase(value);
      kept.insert(from.begin(), from.end());
    }
  }

  int64_t numLayers; ///< the number of layers of the model

private:
  using Stop = llvm::function_ref<bool(Value)>;

  bool isReadBackward(Value value) const {
    return llvm::any_of(value.getUsers(), [&](Operation *user) { return !forward.contains(user); });
  }
  /// Returns true if an op of the forward pass that belongs to another layer, or to none, reads the value.
  bool leavesLayer(Value value) const {
    std::string own = layerOfOp.lookup(value.getDefiningOp());
    return llvm::any_of(value.getUsers(),
                        [&](Operation *user) { return forward.contains(user) && layerOfOp.lookup(user) != own; });
  }

  /// The values at which the chain of ops before `value` stops. Each value is visited only once, because the number of
  /// paths to it can grow exponentially: it doubles at each op that reads a value twice.
  SmallVector<Value> sources(Value value, Stop stop) const {
    llvm::SetVector<Value> found;
    llvm::DenseSet<Value> visited;
    SmallVector<Value> work(value.getDefiningOp()->getOperands());
    while (!work.empty()) {
      Value next = work.pop_back_val();
      if (!visited.insert(next).second)
        continue;
      if (stop(next))
        found.insert(next);
      else
        llvm::append_range(work, next.getDefiningOp()->getOperands());
    }
    return found.takeVector();
  }

  /// Clones the ops that make `values`, as far back as `stop`, before the first reader in the backward pass.
  /// Readers in the backward pass then read the clones.
  void again(ArrayRef<Value> values, Stop stop) {
    llvm::SetVector<Operation *> ops;
    SmallVector<Operation *> work;
    // Clones are inserted before the first reader in the backward pass, as late as possible.
    Operation *first = nullptr;
    for (Value value : values) {
      work.push_back(value.getDefiningOp());
      for (Operation *user : value.getUsers())
        if (!forward.contains(user) && (!first || user->isBeforeInBlock(first)))
          first = user;
    }
    if (!first)
      return;
    while (!work.empty()) {
      Operation *op = work.pop_back_val();
      if (!ops.insert(op))
        continue;
      for (Value operand : op->getOperands())
        if (!stop(operand))
          work.push_back(operand.getDefiningOp());
    }
    SmallVector<Operation *> inOrder = ops.takeVector();
    llvm::sort(inOrder, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    OpBuilder builder(first);
    IRMapping mapping;
    for (Operation *op : inOrder)
      copies.insert(builder.clone(*op, mapping));
    for (Value value : values)
      value.replaceUsesWithIf(mapping.lookup(value), [&](OpOperand &use) {
        return !forward.contains(use.getOwner()) && !copies.contains(use.getOwner());
      });
  }

  Block &body;
  llvm::DenseSet<Operation *> forward, copies; ///< ops of the forward pass; clones
  llvm::MapVector<std::string, SmallVector<Operation *>, std::map<std::string, unsigned>>
      layers; ///< the layers of the forward pass
  llvm::DenseMap<Operation *, std::string> layerOfOp;
};

/// The pass pc-recompute. Without the option `layers` it works on all layers.
struct Recompute : pc::impl::RecomputeBase<Recompute> {
  using RecomputeBase::RecomputeBase;

  /// Reads the list of layers, and recomputes in each step that has a backward pass.
  void runOnOperation() override {
    if (mode != "full" && mode != "selective") {
      getOperation().emitError() << "pc-recompute: unknown mode '" << mode << "' (full, selective)";
      return signalPassFailure();
    }
    SmallVector<std::pair<int64_t, int64_t>> ranges; // first and last
    int64_t last = -1;
    for (StringRef text : layers) {
      auto [from, to] = text.split('-');
      std::pair<int64_t, int64_t> range;
      if (from.getAsInteger(10, range.first) || (to.empty() ? from : to).getAsInteger(10, range.second) ||
          range.first < 0 || range.second < range.first) {
        getOperation().emitError() << "pc-recompute: '" << text
                                   << "' is neither a layer nor a range of layers; expected a list such as 0-3,7";
        return signalPassFailure();
      }
      ranges.push_back(range);
      last = std::max(last, range.second);
    }
    auto chosen = [&](int64_t layer) {
      return ranges.empty() ||
             llvm::any_of(ranges, [&](auto range) { return range.first <= layer && layer <= range.second; });
    };
    SmallVector<AccumulateOp> bodies;
    getOperation().walk([&](AccumulateOp op) { bodies.push_back(op); });
    for (AccumulateOp accumulate : bodies) {
      Block &body = accumulate.getBody().front();
      if (llvm::none_of(body, [](Operation &op) { return isa<SeedOp>(op); }))
        continue; // there is no backward pass
      Recomputer recomputer(body, chosen);
      if (last >= recomputer.numLayers) {
        getOperation().emitError() << "pc-recompute: layer " << last << " does not exist; the model has "
                                   << recomputer.numLayers << " layers, numbered from 0";
        return signalPassFailure();
      }
      if (mode == "full")
        recomputer.full();
      else
        recomputer.selective();
    }
    if (bodies.empty()) {
      getOperation().emitError() << "pc-recompute: this module has no pc.accumulate; run pc-differentiate first";
      signalPassFailure();
    }
  }
};

} // namespace
