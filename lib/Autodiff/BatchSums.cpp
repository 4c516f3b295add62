//===- BatchSums.cpp - Whether a model can be computed by microbatches -----------------------===//
// Input: a model program. The pass that divides a step into microbatches sums their losses and gradients. This is
// correct only if the loss is a sum over sequences that do not depend on each other. Each value is classified in
// program order (Part), from the factor rules of the ops. The check refuses the first output of the wrong kind, at the
// op that caused it.
//===-----------------------------------------------------------------------------===//
#include "BatchSums.h"

using namespace mlir;
using namespace pc;

namespace {

int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

/// The relation between a value of the whole batch and its microbatches.
struct Part {
  /// The dependence of a value on the batch.
  enum Kind {
    Same, ///< the value does not depend on the batch
    Rows, ///< a microbatch has the rows of its sequences, and these do not depend on other sequences
    Sum,  ///< an addend: the value is the sum over microbatches
    Other ///< none of these, from op `at` on, because of `why`
  } kind = Same;
  Operation *at = nullptr;
  std::string why = "";
  /// For a value that is computed from sums: if every token is repeated k times, the value becomes k^degree times as
  /// large.
  std::optional<int> degree = std::nullopt;
  /// The value is a sum of choices of experts, or was divided by such a sum. With degree 0, it is a mean over the
  /// tokens of a microbatch.
  bool ofChoices = false;
  bool isMeanLoad() const { return kind == Other && ofChoices && degree == 0; }
};

/// Classifies the values of a model, one op at a time. State: the Part of every value seen so far. `batch` are the
/// classes of dims that are the batch.
class Parts {
public:
  Parts(DimClasses &classes, const std::set<unsigned> &batch) : classes(classes), batch(batch) {}

  Part of(Value value) const {
    auto it = parts.find(value);
    return it == parts.end() ? Part() : it->second;
  }

  /// Reads an op, after the ops of its operands.
  void add(Operation *op) {
    auto factored = dyn_cast<FactorOpInterface>(op);
    if (isa<InputOp, ParameterOp, ConstantOp>(op) || !factored) {
      for (Value result : op->getResults())
        parts[result] = {hasBatch(result) ? Part::Rows : Part::Same};
      return;
    }
    SmallVector<unsigned> sums;
    std::optional<Part> broken = findSums(op, sums);
    FactorRule rule = factored.getFactorRule();
    std::set<int> factors;
    auto collect = [&](Value value, ArrayRef<int> dims) {
      for (auto [dim, factor] : llvm::enumerate(dims))
        if (batch.count(classes.classOf(value, dim)))
          factors.insert(factor);
    };
    for (auto [value, dims] : llvm::zip(op->getOperands(), rule.operands))
      collect(value, dims);
    for (auto [value, dims] : llvm::zip(op->getResults(), rule.results))
      collect(value, dims);
    for (auto [result, dims] : llvm::zip(op->getResults(), rule.results)) {
      bool keeps = factors.size() == 1 && llvm::is_contained(dims, *factors.begin());
      parts[result] = broken && !broken->isMeanLoad() ? withDegree(op, *broken)
                      : factors.empty()               ? ofSums(op, rule, sums)
                      : factors.size() > 1            ? other(op, "combines different sequences of the batch")
                      : !sums.empty() ? other(op, "uses a sum over the batch in each sequence of the batch")
                                      : ofRows(op, rule, *factors.begin(), keeps);
    }
  }

private:
  bool hasBatch(Value value) {
    return llvm::any_of(llvm::seq(rankOf(value)),
                        [&](int64_t dim) { return batch.count(classes.classOf(value, dim)) > 0; });
  }

  static Part other(Operation *op, StringRef why) { return {Part::Other, op, why.str()}; }

  /// Finds the operands that are sums, or returns the first operand that is Other.
  std::optional<Part> findSums(Operation *op, SmallVectorImpl<unsigned> &numbers) const {
    for (OpOperand &operand : op->getOpOperands()) {
      Part part = of(operand.get());
      if (part.kind == Part::Other)
        return part;
      if (part.kind == Part::Sum)
        numbers.push_back(operand.getOperandNumber());
    }
    return std::nullopt;
  }

  /// The degree of the result of `op`, and whether it depends on choices.
  Part withDegree(Operation *op, Part part) const {
    SmallVector<Part> operands = llvm::map_to_vector(op->getOperands(), [&](Value value) { return of(value); });
    auto degreeOf = [](const Part &one) { return one.kind == Part::Same ? std::optional<int>(0) : one.degree; };
    bool allOfChoices = llvm::all_of(operands, [](const Part &one) { return one.ofChoices; });
    part.degree = std::nullopt;
    part.ofChoices = false;
    if (operands.empty())
      return part;
    // The balancing loss divides sums by sums of choices. If the degrees cancel, it is a mean over the microbatch's own
    // tokens, which is allowed although it is not a sum.
    if (isa<RecipOp>(op) && allOfChoices && operands[0].degree) {
      part.degree = -*operands[0].degree;
      part.ofChoices = true;
    } else if (isa<EinsumOp>(op)) {
      part.degree = 0;
      for (const Part &one : operands) {
        std::optional<int> degree = degreeOf(one);
        part.degree = part.degree && degree ? std::optional(*part.degree + *degree) : std::nullopt;
        part.ofChoices |= one.ofChoices;
      }
    } else if (isa<AddOp, ScaleOp, CastOp, CopyOp>(op)) {
      bool same = llvm::all_of(operands, [&](const Part &one) { return one.degree == operands[0].degree; });
      part.degree = same ? operands[0].degree : std::nullopt;
      part.ofChoices = allOfChoices;
    }
    return part;
  }

  /// Classifies an op that has no dim of the batch. `sums` are its operands that are sums.
  Part ofSums(Operation *op, const FactorRule &rule, ArrayRef<unsigned> sums) const {
    if (sums.empty())
      return {Part::Same};
    if (llvm::any_of(rule.linear, [&](const auto &group) { return ArrayRef<unsigned>(group) == sums; }))
      return withDegree(op, {Part::Sum});
    bool adds = isa<AddOp, SubOp>(op);
    return withDegree(op, other(op, adds ? "adds a value that does not depend on the batch to a sum over the batch, so "
                                           "each microbatch would add it again"
                                         : "is not linear in a sum over the batch"));
  }

  /// Classifies an op whose factor `rows` is the batch, which this result keeps or sums over.
  Part ofRows(Operation *op, const FactorRule &rule, int rows, bool keeps) const {
    if (rule.factors[rows].whole || isDivided(op, rule, rows) || readsIndex(op, rule, rows))
      return other(op, "depends on the index of a sequence in the batch");
    if (keeps)
      return {Part::Rows};
    if (rule.reduction != PartialKind::Sum)
      return other(op, "takes the maximum over the batch");
    Part sum{Part::Sum};
    sum.degree = 1;
    auto isChoice = [](Value value) {
      auto choice = value.getDefiningOp<TopKOp>();
      return choice && choice.getLayer();
    };
    sum.ofChoices = llvm::all_of(op->getOperands(), isChoice);
    return sum;
  }

  /// Returns true if the op reads the index of the batch. (Dropout and attention get the first row of a microbatch as
  /// an operand.)
  static bool readsIndex(Operation *op, const FactorRule &rule, int rows) {
    if (isa<RopeTableOp>(op))
      return true;
    auto factorAt = [&](Value value, int64_t dim) {
      for (auto [operand, dims] : llvm::zip(op->getOperands(), rule.operands))
        if (operand == value)
          return dims[dim];
      for (auto [result, dims] : llvm::zip(op->getResults(), rule.results))
        if (result == value)
          return dims[dim];
      return -1;
    };
    if (auto drawn = dyn_cast<DrawnOpInterface>(op); drawn && drawn.getDropAttr())
      for (const IndexedDim &dim : llvm::drop_begin(drawn.getDrawnDims()))
        if (factorAt(dim.value, dim.dim) == rows)
          return true;
    auto indexed = dyn_cast<IndexedOpInterface>(op);
    return indexed && factorAt(indexed.getIndexedDim().value, indexed.getIndexedDim().dim) == rows;
  }

  DimClasses &classes;
  const std::set<unsigned> &batch;
  llvm::DenseMap<Value, Part> parts;
};

bool isByToken(InputOp input) { return input.getKind() != InputKind::Hyper && input.getKind() != InputKind::Random; }

} // namespace

/// The classes of the batch dims of all inputs by token.
std::set<unsigned> pc::batchClasses(func::FuncOp model, DimClasses &classes) {
  std::set<unsigned> batch;
  model.walk([&](InputOp input) {
    if (isByToken(input) && rankOf(input.getValue()))
      batch.insert(classes.classOf(input.getValue(), 0));
  });
  return batch;
}

/// Checks that the batch is the first dim of inputs, and no other dim of leaves.
static LogicalResult checkLeaf(Operation *leaf, DimClasses &classes, const std::set<unsigned> &batch) {
  auto input = dyn_cast<InputOp>(leaf);
  Value value = leaf->getResult(0);
  for (int64_t dim = input && isByToken(input) ? 1 : 0; dim < rankOf(value); ++dim)
    if (batch.count(classes.classOf(value, dim)))
      return leaf->emitError() << "'" << leaf->getName() << "' op has the batch as dim " << dim
                               << ", so the model cannot be computed by microbatches; use --microbatches=1";
  return success();
}

/// Outputs must be sums over the batch or have its rows; leaves may have the batch only as an input's first dim.
LogicalResult pc::checkBatchSums(func::FuncOp model, DimClasses &classes, const std::set<unsigned> &batch,
                                 int64_t microbatches) {
  Parts parts(classes, batch);
  auto refuse = [&](Operation *op) { return op->emitError() << "'" << op->getName() << "' op "; };
  StringRef how = "; use --microbatches=1";
  for (Operation &op : model.getBody().front()) {
    if (isa<InputOp, ParameterOp>(op)) {
      if (failed(checkLeaf(&op, classes, batch)))
        return failure();
    }
    auto output = dyn_cast<OutputOp>(op);
    if (!output) {
      parts.add(&op);
      continue;
    }
    bool isLoss = output.getKind() == OutputKind::Loss;
    Part part = parts.of(output.getValue());
    if (part.kind == (isLoss ? Part::Sum : Part::Rows))
      continue;
    StringRef what = isLoss ? "the loss" : "an output";
    if (part.kind == Part::Other)
      return refuse(part.at) << part.why << ", so the sum over " << microbatches << " microbatches would not be "
                             << what << " of the batch" << how;
    if (isLoss)
      return refuse(output) << "outputs a loss that does not depend on the batch, so each of " << microbatches
                            << " microbatches would add it again" << how;
  }
  return success();
}
