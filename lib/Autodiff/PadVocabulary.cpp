//===- PadVocabulary.cpp - Pad dims named "vocab" to a multiple ------------------------===//
// Input: a model and a multiple. All dims named "vocab", and those that share a factor with them, are resized to the
// next multiple, so that ranks can split them evenly. `valid` keeps the real size for checkpoints and outputs, and the
// logits of padding are masked to -1e30. The pass refuses a program in which padding would reach a sum.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_PADVOCABULARY
#include "pc/Autodiff/Passes.h"

#include "mlir/IR/Builders.h"
#include "pc/IR/DimClasses.h"

using namespace mlir;
using namespace pc;

namespace {

/// Checks that padding of these classes does not reach a sum: the padded entries and their gradients are 0 or unused.
class Padding {
public:
  Padding(DimClasses &classes, const llvm::SmallDenseSet<unsigned> &padded) : classes(classes), padded(padded) {}

  /// Reads an op, after the ops of its operands. Returns false if padding has an effect.
  bool staysOut(Operation *op) {
    auto factored = dyn_cast<FactorOpInterface>(op);
    if (isa<ParameterOp>(op))
      zero.insert(op->getResult(0));
    if (auto input = dyn_cast<InputOp>(op)) // files have no padding
      return llvm::none_of(llvm::seq<int64_t>(0, cast<RankedTensorType>(input.getValue().getType()).getRank()),
                           [&](int64_t dim) { return padded.contains(classes.classOf(input.getValue(), dim)); });
    if (!factored || isa<CrossEntropyOp, LogSumExpOp>(op)) // whose logits are masked
      return true;
    FactorRule rule = factored.getFactorRule();
    SmallVector<bool> isPadded(rule.factors.size()), isKept(rule.factors.size());
    for (auto [value, dims] : llvm::zip(op->getOperands(), rule.operands))
      mark(value, dims, isPadded);
    for (auto [value, dims] : llvm::zip(op->getResults(), rule.results)) {
      mark(value, dims, isPadded);
      for (int factor : dims)
        isKept[factor] = true;
    }
    for (auto [factor, of] : llvm::enumerate(rule.factors))
      if (isPadded[factor] && (of.whole || isDivided(op, rule, static_cast<int>(factor)) ||
                               (!isKept[factor] && !sumsZeros(op, rule, static_cast<int>(factor)))))
        return false;
    if (op->getNumResults() == 1 && makesZeros(op))
      zero.insert(op->getResult(0));
    return true;
  }

private:
  void mark(Value value, ArrayRef<int> dims, MutableArrayRef<bool> isPadded) {
    for (auto [dim, factor] : llvm::enumerate(dims))
      isPadded[factor] |= padded.contains(classes.classOf(value, dim));
  }

  /// Returns true if the sum over `factor` adds only zeros for padding. Ids of tables are never padding. A product of
  /// two zeros is 0, and so are the gradients of its operands.
  bool sumsZeros(Operation *op, const FactorRule &rule, int factor) const {
    if (auto embedding = dyn_cast<EmbeddingOp>(op))
      return rule.operands[0][embedding.getBatch()] == factor;
    unsigned factors = 0;
    for (auto [value, dims] : llvm::zip(op->getOperands(), rule.operands)) {
      if (!llvm::is_contained(dims, factor))
        continue;
      ++factors;
      if (!zero.contains(value))
        return false;
    }
    return isa<EinsumOp>(op) && factors > 1;
  }

  /// Returns true if the result is 0 at padding if the operands are.
  bool makesZeros(Operation *op) const {
    auto isZero = [&](Value value) { return zero.contains(value); };
    if (isa<EinsumOp>(op)) {
      auto hasDim = [&](Value value) {
        int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
        return llvm::any_of(llvm::seq(rank), [&](int64_t dim) { return padded.contains(classes.classOf(value, dim)); });
      };
      return llvm::any_of(op->getOperands(), [&](Value value) { return isZero(value) && hasDim(value); });
    }
    auto activation = dyn_cast<ActivationOp>(op);
    bool keepsZero = isa<AddOp, SubOp, ScaleOp, CastOp, CopyOp>(op) ||
                     (activation && activation.getKind() != ActivationKind::Sigmoid);
    return keepsZero && llvm::all_of(op->getOperands(), isZero);
  }

  DimClasses &classes;
  const llvm::SmallDenseSet<unsigned> &padded;
  llvm::DenseSet<Value> zero; ///< values that are 0 at padding, if they have a padded dim
};

/// The pass pc-pad-vocabulary. It finds the classes of dims to pad, checks that padding has no effect, and resizes
/// them.
struct PadVocabulary : pc::impl::PadVocabularyBase<PadVocabulary> {
  using PadVocabularyBase::PadVocabularyBase;

  /// Finds the dims of the vocabulary whose size is not a multiple, refuses ops that would include the padding, records
  /// the valid part of outputs, and resizes all dims of the class.
  void runOnOperation() override {
    if (multiple < 1) {
      getOperation().emitError() << "pc-pad-vocabulary: multiple must be positive, got " << int64_t(multiple);
      return signalPassFailure();
    }
    DimClasses classes(getOperation());
    SmallVector<std::pair<unsigned, int64_t>> padded;
    getOperation().walk([&](ParameterOp parameter) {
      auto type = cast<RankedTensorType>(parameter.getValue().getType());
      for (auto [d, name] : llvm::enumerate(parameter.getDims().getAsValueRange<StringAttr>()))
        if (name == "vocab" && type.getDimSize(d) % multiple) {
          padded.push_back({classes.classOf(parameter.getValue(), d), llvm::alignTo(type.getDimSize(d), multiple)});
          if (!parameter.getValid())
            parameter.setValid(type.getShape());
        }
    });
    if (padded.empty())
      return;
    llvm::SmallDenseSet<unsigned> ids;
    for (auto [id, size] : padded)
      ids.insert(id);
    Padding padding(classes, ids);
    WalkResult reached = getOperation().walk([&](Operation *op) -> WalkResult {
      if (padding.staysOut(op))
        return WalkResult::advance();
      return op->emitError()
             << "pc-pad-vocabulary: '" << op->getName()
             << "' op would include the padding that makes the vocabulary a multiple of " << int64_t(multiple)
             << "; use a model whose vocabulary is such a multiple, or a plan that does not split the vocabulary";
    });
    if (reached.wasInterrupted())
      return signalPassFailure();
    getOperation().walk([&](OutputOp output) {
      auto type = cast<RankedTensorType>(output.getValue().getType());
      for (int64_t d = 0; d < type.getRank() && !output.getValid(); ++d)
        for (auto [id, size] : padded)
          if (classes.classOf(output.getValue(), d) == id && type.getDimSize(d) != size)
            output.setValid(type.getShape());
    });
    // The size before the resize shows which losses read padded logits.
    auto sizeOf = [](Operation *loss) {
      return cast<RankedTensorType>(loss->getOperand(0).getType()).getShape().back();
    };
    SmallVector<std::pair<Operation *, int64_t>> losses;
    getOperation().walk([&](Operation *op) {
      if (isa<CrossEntropyOp, LogSumExpOp>(op))
        losses.emplace_back(op, sizeOf(op));
    });
    for (auto [id, size] : padded)
      classes.resize(id, size);
    for (auto [loss, valid] : losses) {
      if (sizeOf(loss) == valid)
        continue;
      OpBuilder builder(loss);
      Value logits = loss->getOperand(0);
      loss->setOperand(0, MaskPaddingOp::create(builder, loss->getLoc(), logits.getType(), logits,
                                                builder.getI64IntegerAttr(valid), builder.getF64FloatAttr(-1e30),
                                                Value()));
    }
  }
};
} // namespace
