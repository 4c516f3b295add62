//===- FewLayers.cpp - A model with fewer of its layers ------------------------------------===//
// Names of ops give their layers. All layers of a chain must compute the same, and read only the value of the previous
// layer. Then the last layers can be removed.
//===---------------------------------------------------------------------------------------===//
#include "FewLayers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/DimClasses.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Liveness.h"
#include <numeric>

using namespace mlir;
using namespace pc;

namespace {

/// One layer of a model.
struct Layer {
  SmallVector<Operation *> ops; ///< in program order
  SmallVector<Value> out;       ///< values that ops outside of the layer read
};

/// Layers that follow each other.
struct LayerChain {
  std::string name; ///< the name of its layers without their number
  std::vector<Layer> layers;
};

/// The text before the number of an op's layer, and the number, or -1.
std::pair<std::string, int64_t> layerName(Operation *op) {
  std::string name = sourceName(op);
  auto [chain, last] = layerOf(name).rsplit('.');
  int64_t number = -1;
  if (last.empty())
    std::swap(chain, last);
  return last.getAsInteger(10, number) ? std::pair(std::string(), int64_t(-1)) : std::pair(chain.str(), number);
}

/// Returns true if two names are equal, except that a parameter's name may have one more component in front.
bool areSame(StringRef a, StringRef b) {
  auto endsIn = [](StringRef whole, StringRef end) {
    return whole == end || (whole.ends_with(end) && whole.drop_back(end.size()).ends_with("."));
  };
  return endsIn(a, b) || endsIn(b, a);
}

/// Moves ops out of a layer if all layers read them and no layer before it computes them, such as biases of positions.
void takeOutShared(Layer &layer) {
  llvm::SmallPtrSet<Operation *, 32> of(layer.ops.begin(), layer.ops.end()), fixed;
  for (Operation *op : layer.ops)
    if (llvm::all_of(op->getOperands(), [&](Value value) { return fixed.contains(value.getDefiningOp()); }))
      fixed.insert(op);
  SmallVector<Operation *> shared;
  for (Operation *op : layer.ops)
    if (fixed.contains(op) && llvm::any_of(op->getUsers(), [&](Operation *user) { return !of.contains(user); }))
      shared.push_back(op);
  while (!shared.empty()) {
    Operation *op = shared.pop_back_val();
    llvm::erase(layer.ops, op);
    for (Value value : op->getOperands())
      shared.push_back(value.getDefiningOp());
  }
}

/// The chains of layers in order; empty if the numbers in a chain are not 0, 1, 2, ...
std::vector<LayerChain> findChains(ModuleOp model) {
  std::vector<LayerChain> chains;
  bool inOrder = true;
  // A layer may begin only after all layers of its chain with smaller numbers.
  model.walk([&](Operation *op) {
    auto [name, number] =
        isa<func::FuncOp, ModuleOp, ProgramOp>(op) ? std::pair(std::string(), int64_t(-1)) : layerName(op);
    if (number < 0)
      return;
    auto it = llvm::find_if(chains, [&, &name = name](const LayerChain &chain) { return areSame(chain.name, name); });
    if (it == chains.end())
      it = chains.insert(chains.end(), LayerChain{name, {}});
    inOrder &= number <= std::ssize(it->layers);
    if (!inOrder)
      return;
    it->layers.resize(std::max<size_t>(it->layers.size(), number + 1));
    it->layers[number].ops.push_back(op);
  });
  if (!inOrder)
    return {};
  for (LayerChain &chain : chains) {
    takeOutShared(chain.layers.front());
    for (Layer &one : chain.layers) {
      llvm::SmallPtrSet<Operation *, 32> of(one.ops.begin(), one.ops.end());
      // Values that later layers or other ops read are the results of a layer.
      for (Operation *op : one.ops)
        for (Value result : op->getResults())
          if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !of.contains(user); }))
            one.out.push_back(result);
    }
  }
  return chains;
}

/// Returns the attributes that say what an op computes, which are equal in all layers. The number of the layer and the
/// source of random words are left out. For a parameter, the attributes say whether it is trained.
DictionaryAttr computes(Operation *op) {
  NamedAttrList attributes(op->getAttrDictionary());
  if (auto parameter = dyn_cast<ParameterOp>(op)) {
    attributes.clear();
    if (parameter.getFrozen())
      attributes.set(parameter.getFrozenAttrName(), parameter.getFrozenAttr());
  }
  if (isa<TopKOp>(op))
    attributes.erase("layer");
  if (isa<InputOp>(op))
    attributes.erase("key");
  return attributes.getDictionary(op->getContext());
}

/// Returns true if two layers compute the same with different weights.
bool areAlike(const Layer &a, const Layer &b) {
  return llvm::equal(a.ops, b.ops, [](Operation *x, Operation *y) {
    return x->getName() == y->getName() && llvm::equal(x->getOperandTypes(), y->getOperandTypes()) &&
           llvm::equal(x->getResultTypes(), y->getResultTypes()) && computes(x) == computes(y);
  });
}

/// Returns true if an input has a batch dim. The random words of dropout do not.
bool hasBatch(InputOp input) {
  return !input.getDims().empty() && cast<StringAttr>(input.getDims()[0]).getValue() == "batch";
}

} // namespace

/// A layer must pass on exactly one value, of the same type in all layers of its chain. With several chains, the number
/// of layers is the greatest common divisor of their lengths.
std::optional<FewLayers> FewLayers::of(ModuleOp model) {
  std::vector<LayerChain> chains = findChains(model);
  int64_t count = 0;
  for (const LayerChain &chain : chains) {
    const Layer &first = chain.layers.front();
    for (const Layer &layer : chain.layers)
      if (layer.out.size() != 1 || layer.out[0].getType() != first.out[0].getType() || !areAlike(layer, first))
        return std::nullopt;
    count = std::gcd(count, std::ssize(chain.layers));
  }
  if (count < 2)
    return std::nullopt;
  return FewLayers(model, count, llvm::map_to_vector(chains, [&](const LayerChain &chain) {
                     return static_cast<int64_t>(chain.layers.size()) / count;
                   }));
}

int64_t FewLayers::layersOfChains() const {
  return count * std::accumulate(ofChain.begin(), ofChain.end(), int64_t(0));
}

double FewLayers::layerBytes() const {
  double bytes = 0;
  for (auto [chain, layers] : llvm::zip_equal(findChains(model), ofChain))
    bytes += static_cast<double>(layers * byteSize(chain.layers.front().out[0].getType()));
  return bytes;
}

/// Frozen parameters are left out, because data ranks send no gradients of them.
SmallVector<double> FewLayers::layerParameters() const {
  SmallVector<double> bytes;
  for (auto [chain, layers] : llvm::zip_equal(findChains(model), ofChain))
    for (const Layer &layer : ArrayRef(chain.layers).take_front(layers))
      for (Operation *op : layer.ops)
        if (auto parameter = dyn_cast<ParameterOp>(op); parameter && !parameter.getFrozen())
          bytes.push_back(static_cast<double>(byteSize(parameter.getValue().getType())));
  return bytes;
}

double FewLayers::layerParameterBytes() const {
  SmallVector<double> all = layerParameters();
  return std::accumulate(all.begin(), all.end(), 0.0);
}

/// Removes the last layers of each chain. The readers of the last layer then read the last layer that is kept.
ModuleOp FewLayers::cut(int64_t layers) const {
  OwningOpRef<ModuleOp> &few = cuts[layers];
  if (few)
    return *few;
  few = ModuleOp(model).clone();
  if (layers == count)
    return *few;
  for (auto [chain, each] : llvm::zip_equal(findChains(*few), ofChain)) {
    ArrayRef<Layer> all = chain.layers, kept = all.take_front(layers * each);
    Value(all.back().out[0]).replaceAllUsesWith(kept.back().out[0]);
    for (const Layer &layer : llvm::reverse(all.drop_front(kept.size())))
      for (Operation *op : llvm::reverse(layer.ops)) {
        op->dropAllUses();
        op->erase();
      }
  }
  return *few;
}

/// Resizes the batch dim everywhere in the program, by the class of dims that contains the batch of the inputs.
OwningOpRef<ModuleOp> FewLayers::take(int64_t layers, int64_t batch) const {
  OwningOpRef<ModuleOp> few(cut(layers).clone());
  DimClasses dims(*few);
  few->walk([&](InputOp input) {
    if (hasBatch(input))
      dims.resize(dims.classOf(input->getResult(0), 0), batch);
  });
  few->walk([&](ProgramOp program) { program.setBatch(batch); });
  return few;
}

int64_t pc::batchOf(ModuleOp model) {
  int64_t batch = 1;
  model.walk([&](InputOp input) {
    if (hasBatch(input))
      batch = cast<RankedTensorType>(input->getResult(0).getType()).getDimSize(0);
  });
  return batch;
}

bool pc::hasSequences(ModuleOp model) {
  return model.walk([](InputOp input) { return hasBatch(input) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Collects the sizes in all types. The search uses them to exclude sizes of axes that divide nothing.
std::set<int64_t> pc::dimsOf(ModuleOp model) {
  std::set<int64_t> dims;
  model.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type))
        dims.insert(tensor.getShape().begin(), tensor.getShape().end());
  });
  return dims;
}

/// Follows the batch dim from the inputs through the factors of ops. An op mixes sequences if it sums over the batch
/// and an op other than an output reads the sum.
bool pc::mixesSequences(ModuleOp model) {
  llvm::DenseMap<Value, int64_t> batchDims; // the batch dims of values that have the batch
  model.walk([&](InputOp input) {
    if (hasBatch(input))
      batchDims[input->getResult(0)] = 0;
  });
  return model
      .walk([&](FactorOpInterface op) {
        if (op->getNumResults() == 0)
          return WalkResult::advance();
        FactorRule rule = op.getFactorRule();
        for (auto [operand, factors] : llvm::zip_equal(op->getOperands(), rule.operands)) {
          auto it = batchDims.find(operand);
          if (it == batchDims.end())
            continue;
          const int batch = factors[it->second];
          for (auto [result, of] : llvm::zip_equal(op->getResults(), rule.results)) {
            const auto *at = llvm::find(of, batch);
            if (at != of.end())
              batchDims[result] = at - of.begin();
            else if (!llvm::all_of(result.getUsers(), [](Operation *user) { return isa<OutputOp>(user); }))
              return WalkResult::interrupt();
          }
        }
        return WalkResult::advance();
      })
      .wasInterrupted();
}
