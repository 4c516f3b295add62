//===- StackUpdates.cpp - One product for the matrices of many updates ------------------------===//
// Finds the products of each update and the ops between them, groups updates in which these are equal, and replaces
// each group by the same ops on stacks of the operands.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_STACKUPDATES
#include "pc/Tactics/Passes.h"

#include "pc/IR/Contraction.h"
#include "pc/IR/DimClasses.h"
#include "pc/IR/Shapes.h"
#include "pc/Shard/PlacementGraph.h"

#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;

namespace {
/// The products of one update, and the ops between them.
struct Products {
  SmallVector<Operation *> ops;   ///< in program order
  llvm::SetVector<Value> inputs;  ///< values that they read
  llvm::SetVector<Value> outputs; ///< their results that other ops read
};

/// Names of dims, which come from the leaves.
class DimNames {
public:
  explicit DimNames(ModuleOp module) : classes(module) {
    module.walk([&](Operation *op) {
      if (ArrayAttr dims = leafDims(op))
        for (auto [d, name] : llvm::enumerate(dims))
          names.try_emplace(classes.classOf(op->getResult(0), static_cast<int64_t>(d)), name);
    });
  }
  Attribute of(Value value, int64_t dim) { return names.lookup(classes.classOf(value, dim)); }

private:
  DimClasses classes;
  llvm::DenseMap<unsigned, Attribute> names;
};
} // namespace

static bool isProduct(Operation *op) {
  auto einsum = dyn_cast<EinsumOp>(op);
  return einsum && einsum.getInputs().size() > 1 && !Contraction(einsum).summed.empty();
}

/// The ops between products, the products, and ops that read only these.
static llvm::SetVector<Operation *> findProducts(ArrayRef<Operation *> ops) {
  llvm::DenseSet<Operation *> after, before;
  auto makes = [](const llvm::DenseSet<Operation *> &set) {
    return [&set](Value value) { return set.contains(value.getDefiningOp()); };
  };
  for (Operation *op : ops)
    if (isProduct(op) || llvm::any_of(op->getOperands(), makes(after)))
      after.insert(op);
  for (Operation *op : llvm::reverse(ops))
    if (isProduct(op) || llvm::any_of(op->getUsers(), [&](Operation *user) { return before.contains(user); }))
      before.insert(op);
  llvm::SetVector<Operation *> found;
  for (Operation *op : ops) {
    auto isFound = [&](Value operand) { return found.contains(operand.getDefiningOp()); };
    bool reads = op->getNumOperands() && llvm::all_of(op->getOperands(), isFound);
    if (op->getNumResults() && ((after.contains(op) && before.contains(op)) || reads))
      found.insert(op);
  }
  return found;
}

/// Groups the ops by update: those of one update are connected.
static SmallVector<Products> divide(const llvm::SetVector<Operation *> &ops) {
  llvm::EquivalenceClasses<Operation *> connected;
  for (Operation *op : ops) {
    connected.insert(op);
    for (Value operand : op->getOperands())
      if (ops.contains(operand.getDefiningOp()))
        connected.unionSets(op, operand.getDefiningOp());
  }
  llvm::MapVector<Operation *, Products> updates;
  for (Operation *op : ops) {
    Products &update = updates[connected.getLeaderValue(op)];
    update.ops.push_back(op);
    for (Value operand : op->getOperands())
      if (!ops.contains(operand.getDefiningOp()))
        update.inputs.insert(operand);
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !ops.contains(user); }))
        update.outputs.insert(result);
  }
  return llvm::map_to_vector(updates, [](auto &update) { return std::move(update.second); });
}

/// Whether a matrix is multiplied. Stacking needs a copy of the operands, which is not worth it for sums of squares,
/// such as Adafactor's.
static bool multipliesMatrices(const Products &update) {
  return llvm::any_of(update.ops, [](Operation *op) {
    auto einsum = dyn_cast<EinsumOp>(op);
    return einsum && Contraction(einsum).isMatrixProduct();
  });
}

/// A text that is equal for updates that may be stacked; empty if an op cannot work on stacks.
static std::string keyOf(const Products &update, DimNames &names) {
  if (!multipliesMatrices(update))
    return "";
  std::string key;
  llvm::raw_string_ostream os(key);
  llvm::DenseMap<Value, unsigned> numbers;
  for (Value input : update.inputs) {
    os << numbers.try_emplace(input, numbers.size()).first->second << ':' << input.getType();
    for (int64_t d = 0; d < std::ssize(shapeOf(input)); ++d)
      os << ' ' << names.of(input, d);
  }
  for (Operation *op : update.ops) {
    auto einsum = dyn_cast<EinsumOp>(op);
    if (op->getNumResults() != 1 || (!op->hasTrait<Pointwise>() && (!einsum || einsum.getMask())))
      return "";
    os << op->getName() << op->getPropertiesAsAttribute() << op->getResult(0).getType();
    for (Value operand : op->getOperands())
      os << ' ' << numbers.lookup(operand);
    numbers.try_emplace(op->getResult(0), numbers.size());
  }
  return key;
}

/// "a b, c b -> a c" with the dim `layers` before the others of each value.
static std::string stackedSpec(StringRef spec) {
  auto withLayers = [](StringRef dims) { return dims.trim().empty() ? "layers" : ("layers " + dims.trim()).str(); };
  auto [left, right] = spec.split("->");
  SmallVector<StringRef> operands;
  left.split(operands, ',');
  return llvm::join(llvm::map_range(operands, withLayers), ", ") + " -> " + withLayers(right);
}

/// Writes the ops of the last update on stacks, and replaces the ops of all updates.
static void stack(ArrayRef<Products> updates, int64_t multiple) {
  const auto entries = static_cast<int64_t>(llvm::alignTo(updates.size(), multiple));
  auto stackedType = [&](Value value) -> Type {
    SmallVector<int64_t> shape(shapeOf(value));
    shape.insert(shape.begin(), entries);
    return RankedTensorType::get(shape, getElementTypeOrSelf(value));
  };
  OpBuilder builder(updates.back().ops.front());
  IRMapping stacks;
  for (auto [i, input] : llvm::enumerate(updates.back().inputs)) {
    auto all = llvm::map_to_vector(updates, [i = i](const Products &update) { return update.inputs[i]; });
    stacks.map(input, StackOp::create(builder, input.getLoc(), stackedType(input), all).getResult());
  }
  for (Operation *op : updates.back().ops) {
    Operation *copy = builder.clone(*op, stacks);
    copy->getResult(0).setType(stackedType(op->getResult(0)));
    if (auto einsum = dyn_cast<EinsumOp>(copy))
      einsum.setSpec(stackedSpec(einsum.getSpec()));
  }
  for (auto [i, output] : llvm::enumerate(updates.back().outputs))
    for (auto [index, update] : llvm::enumerate(updates)) {
      Value own = update.outputs[i];
      own.replaceAllUsesWith(
          UnstackOp::create(builder, own.getLoc(), own.getType(), stacks.lookup(output), static_cast<int64_t>(index)));
    }
  for (const Products &update : updates)
    for (Operation *op : llvm::reverse(update.ops))
      op->erase();
}

namespace {
struct StackUpdates : pc::impl::StackUpdatesBase<StackUpdates> {
  using StackUpdatesBase::StackUpdatesBase;

  /// Products before the clip coefficient belong to the norm, not to an update.
  void runOnOperation() override {
    auto step = getOperation().lookupSymbol<func::FuncOp>("step");
    if (!step)
      return;
    Block &block = step.getBody().front();
    SmallVector<Operation *> ops;
    for (Operation &op : llvm::reverse(block)) {
      if (isa<ClipCoefficientOp>(op))
        break;
      ops.push_back(&op);
    }
    std::reverse(ops.begin(), ops.end());
    DimNames names(getOperation());
    llvm::MapVector<StringAttr, SmallVector<Products>> kinds;
    for (Products &update : divide(findProducts(ops)))
      if (std::string key = keyOf(update, names); !key.empty())
        kinds[StringAttr::get(&getContext(), key)].push_back(std::move(update));
    for (auto &[key, updates] : kinds)
      if (updates.size() > 1)
        stack(updates, multiple);
    sortTopologically(&block); // ops that read the results of earlier updates follow the stacks
  }
};
} // namespace
