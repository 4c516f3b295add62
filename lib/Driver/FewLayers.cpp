//===- FewLayers.cpp - A model with fewer of its layers ------------------------------------===//
#include "FewLayers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/DimClasses.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Liveness.h"
#include <numeric>

using namespace mlir;
using namespace pc;

namespace {

struct Layer {
  SmallVector<Operation *> ops; ///< in program order
  SmallVector<Value> out;       ///< what ops outside of it read
};

/// The number at the end of a layer's name, or -1.
int64_t numberOf(Operation *op) {
  std::string name = sourceName(op);
  int64_t number = -1;
  StringRef last = layerOf(name).rsplit('.').second;
  if (StringRef layer = layerOf(name); !layer.contains('.'))
    last = layer;
  return last.getAsInteger(10, number) ? -1 : number;
}

/// The layers in their order; empty where their numbers are not 0, 1, 2, ...
std::vector<Layer> findLayers(ModuleOp model) {
  std::vector<Layer> layers;
  DenseMap<Operation *, int64_t> layer;
  bool inOrder = true;
  model.walk([&](Operation *op) {
    int64_t number = isa<func::FuncOp, ModuleOp, ProgramOp>(op) ? -1 : numberOf(op);
    if (number < 0)
      return;
    inOrder &= number <= std::ssize(layers);
    if (!inOrder)
      return;
    layers.resize(std::max<size_t>(layers.size(), number + 1));
    layers[number].ops.push_back(op);
    layer[op] = number + 1;
  });
  if (!inOrder)
    return {};
  for (auto [number, one] : llvm::enumerate(layers))
    for (Operation *op : one.ops)
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return layer.lookup(user) != int64_t(number) + 1; }))
          one.out.push_back(result);
  return layers;
}

/// What an op says of what it computes, which is the same in all layers: not which of them it is, nor where its random
/// words come from.
DictionaryAttr computes(Operation *op) {
  NamedAttrList attributes(op->getAttrDictionary());
  if (isa<TopKOp>(op))
    attributes.erase("layer");
  if (isa<InputOp>(op))
    attributes.erase("key");
  return attributes.getDictionary(op->getContext());
}

/// Whether two layers compute the same of other weights.
bool areAlike(const Layer &a, const Layer &b) {
  return llvm::equal(a.ops, b.ops, [](Operation *x, Operation *y) {
    return x->getName() == y->getName() && llvm::equal(x->getOperandTypes(), y->getOperandTypes()) &&
           llvm::equal(x->getResultTypes(), y->getResultTypes()) && (isa<ParameterOp>(x) || computes(x) == computes(y));
  });
}

/// Not so: the words that dropout draws from.
bool hasBatch(InputOp input) {
  return !input.getDims().empty() && cast<StringAttr>(input.getDims()[0]).getValue() == "batch";
}

} // namespace

std::optional<FewLayers> FewLayers::of(ModuleOp model) {
  std::vector<Layer> layers = findLayers(model);
  if (layers.size() < 2)
    return std::nullopt;
  for (const Layer &layer : layers)
    if (layer.out.size() != 1 || layer.out[0].getType() != layers[0].out[0].getType() || !areAlike(layer, layers[0]))
      return std::nullopt;
  return FewLayers(model, std::ssize(layers));
}

double FewLayers::layerBytes() const {
  return static_cast<double>(byteSize(findLayers(model).front().out[0].getType()));
}

SmallVector<double> FewLayers::layerParameters() const {
  SmallVector<double> bytes;
  std::vector<Layer> all = findLayers(model);
  for (Operation *op : all.front().ops)
    if (auto parameter = dyn_cast<ParameterOp>(op))
      bytes.push_back(static_cast<double>(byteSize(parameter.getValue().getType())));
  return bytes;
}

double FewLayers::layerParameterBytes() const {
  SmallVector<double> all = layerParameters();
  return std::accumulate(all.begin(), all.end(), 0.0);
}

ModuleOp FewLayers::cut(int64_t layers) const {
  OwningOpRef<ModuleOp> &few = cuts[layers];
  if (few)
    return *few;
  few = ModuleOp(model).clone();
  if (layers == count)
    return *few;
  std::vector<Layer> all = findLayers(*few);
  all.back().out[0].replaceAllUsesWith(all[layers - 1].out[0]);
  for (int64_t layer = count - 1; layer >= layers; --layer)
    for (Operation *op : llvm::reverse(all[layer].ops)) {
      op->dropAllUses();
      op->erase();
    }
  return *few;
}

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

std::set<int64_t> pc::dimsOf(ModuleOp model) {
  std::set<int64_t> dims;
  model.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type))
        dims.insert(tensor.getShape().begin(), tensor.getShape().end());
  });
  return dims;
}

bool pc::mixesSequences(ModuleOp model) {
  llvm::DenseMap<Value, int64_t> batchDims; // of values that have the batch
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
