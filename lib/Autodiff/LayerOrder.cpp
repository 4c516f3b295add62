//===- LayerOrder.cpp - The ops of a model in the order of its layers ------------------------===//
// Finds the layers by the names in locations, orders them so that each follows the layers that it reads (by number if
// several orders are possible), and sorts the ops stably by layer. Ops outside of layers follow the last layer that
// they read.
//===-----------------------------------------------------------------------------===//
#include "LayerOrder.h"

#include "pc/IR/Layers.h"
#include "pc/IR/PC.h"
#include "llvm/ADT/SetVector.h"

#include <map>

using namespace mlir;
using namespace pc;

namespace {

/// The layers of a model by name, in the order in which they appear.
struct Layers {
  /// Numbers the layers in the order of their first ops.
  explicit Layers(Block &model) {
    for (Operation &op : model)
      if (op.getNumOperands() && op.getNumResults())
        if (std::string name = layerOf(sourceName(&op)).str(); !name.empty())
          of[&op] = number.try_emplace(name, number.size()).first->second;
  }

  /// Returns true if the ops of the layers already come in the layers' order.
  bool areInOrder(Block &model) const {
    size_t now = 0;
    for (Operation &op : model)
      if (auto it = of.find(&op); it != of.end()) {
        if (it->second < now)
          return false;
        now = it->second;
      }
    return true;
  }

  std::map<std::string, size_t> number;
  llvm::DenseMap<Operation *, size_t> of; ///< ops of layers
};

/// The position of each layer in the new order: after the layers that it reads, directly or through ops outside of
/// layers. The result is empty if two layers read each other.
SmallVector<size_t> placesOf(const Layers &layers, Block &model) {
  size_t count = layers.number.size();
  SmallVector<llvm::SetVector<size_t>> reads(count);
  // An op outside of layers depends on the layers that its operands depend on.
  llvm::DenseMap<Operation *, llvm::SetVector<size_t>> after; // for each op outside of layers, the layers that it reads
  for (Operation &op : model) {
    llvm::SetVector<size_t> from;
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp()) {
        if (auto it = layers.of.find(source); it != layers.of.end())
          from.insert(it->second);
        else
          from.insert_range(after[source]);
      }
    if (auto it = layers.of.find(&op); it != layers.of.end())
      reads[it->second].insert_range(from);
    else
      after[&op] = std::move(from);
  }
  // Each turn takes the first layer in program order that depends only on layers with a place. So layers that are
  // independent keep their order.
  SmallVector<size_t> places(count, count);
  for (size_t next = 0; next < count; ++next) {
    auto isReady = [&](size_t layer) {
      return places[layer] == count &&
             llvm::all_of(reads[layer], [&](size_t from) { return from == layer || places[from] < count; });
    };
    size_t layer = 0;
    while (layer < count && !isReady(layer))
      ++layer;
    if (layer == count)
      return {};
    places[layer] = next;
  }
  return places;
}

} // namespace

/// Ops keep their order within a layer.
void pc::sortByLayers(Block &model) {
  Layers layers(model);
  if (layers.areInOrder(model))
    return;
  SmallVector<size_t> places = placesOf(layers, model);
  if (places.empty())
    return;
  llvm::DenseMap<Operation *, size_t> place; // 0: before all layers
  SmallVector<Operation *> ops;
  for (Operation &op : model.without_terminator()) {
    size_t own = 0;
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp())
        own = std::max(own, place.lookup(source));
    if (auto it = layers.of.find(&op); it != layers.of.end())
      own = places[it->second] + 1;
    place[&op] = own;
    ops.push_back(&op);
  }
  llvm::stable_sort(ops, [&](Operation *a, Operation *b) { return place.lookup(a) < place.lookup(b); });
  for (Operation *op : ops)
    op->moveBefore(&model, model.without_terminator().end());
}
