//===- Zigzag.cpp - Orders the sequence to balance causal attention --------------------------===//
// The sequence is permuted in the whole program: in all dims of the classes (DimClasses.h) of the sequence of tokens
// and targets. The result does not change if no op depends on the order of these dims and no parameter has such a dim.
// Otherwise, an error names the op or the parameter.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_ZIGZAG
#include "pc/Tactics/Passes.h"

#include "pc/IR/DimClasses.h"
#include "pc/IR/MoveRows.h"
#include "llvm/ADT/TypeSwitch.h"
#include <set>

using namespace mlir;
using namespace pc;

namespace {

int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

/// Returns true if an input has one number per token or target, which the runtime writes in the order of the program.
bool isOfTokens(InputOp input) { return input.getKind() != InputKind::Hyper && input.getKind() != InputKind::Random; }

/// Reports the first op, leaf or output whose value would change in another order.
class Order {
public:
  Order(ModuleOp module, int64_t chunks) : module(module), classes(module), chunks(chunks) {}

  LogicalResult check(ProgramOp program) {
    WalkResult inputs = module.walk([&](InputOp input) {
      return isOfTokens(input) ? WalkResult(addSequence(input, program.getSequence())) : WalkResult::advance();
    });
    WalkResult ops =
        inputs.wasInterrupted() ? inputs : module.walk([&](Operation *op) { return WalkResult(check(op)); });
    return failure(ops.wasInterrupted());
  }

private:
  bool has(Value value, int64_t dim) { return sequences.count(classes.classOf(value, dim)); }
  bool hasAny(Value value) {
    return llvm::any_of(llvm::seq(rankOf(value)), [&](int64_t dim) { return has(value, dim); });
  }
  bool hasOther(Value value, int64_t than) {
    return llvm::any_of(llvm::seq(rankOf(value)), [&](int64_t dim) { return dim != than && has(value, dim); });
  }

  /// Files of named inputs have their own order, so these inputs must not have the sequence as a dim.
  LogicalResult addSequence(InputOp input, int64_t length) {
    if (input.getKind() == InputKind::Data)
      return refuseOrder(input, "'" + *input.getName() + "' is read from files in their own order");
    auto type = cast<RankedTensorType>(input.getValue().getType());
    if (!type.getRank() || type.getShape().back() != length)
      return refuseOrder(input,
                         "has sequences whose length is not " + Twine(length) + ", the length of the tokens' sequence");
    sequences.insert(classes.classOf(input.getValue(), type.getRank() - 1));
    return success();
  }

  LogicalResult refuseOrder(Operation *op, const Twine &why) {
    return op->emitError()
           << "pc-zigzag: '" << op->getName() << "' op " << why
           << "; ring attention reorders the sequence, so use --context-parallel=heads, which keeps its order";
  }

  /// Ops fall into three kinds: ops that are checked here one by one, ops with factor rules, and ops that work on whole
  /// rows in any order.
  LogicalResult check(Operation *op) {
    // In zigzag order, an op is right only if it does not depend on the order of its tokens, or knows it.
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<ParameterOp, StateOp>([&](auto leaf) { return checkLeaf(leaf, leaf.getValue(), leaf.getDims()); })
        .Case([&](InputOp input) {
          if (hasOther(input.getValue(), isOfTokens(input) ? rankOf(input.getValue()) - 1 : -1))
            return refuseOrder(input, "has the sequence in a dim that should not be the sequence");
          return success();
        })
        .Case([&](RopeTableOp table) {
          if (!has(table.getValue(), 0) || has(table.getValue(), 1))
            return refuseOrder(table, "has positions that do not belong to the tokens' sequence");
          return success();
        })
        .Case([&](IotaOp iota) { // it counts positions
          if (!has(iota.getValue(), 0) || iota.getPieces())
            return refuseOrder(iota, "counts something that is not the positions of the sequence");
          return success();
        })
        .Case([&](OutputOp output) {
          bool isLogits = output.getKind() == OutputKind::Logits;
          if (hasOther(output.getValue(), isLogits ? 1 : -1) || (isLogits && !hasSequence(output.getValue(), 1)))
            return refuseOrder(output, isLogits ? "outputs logits whose second dim is not the tokens' sequence"
                                                : "outputs a value per token");
          return success();
        })
        .Case<AttentionOp, AttentionGradOp>([&](auto attention) { return checkAttention(attention); })
        .Case([&](DropoutOp dropout) {
          if (!has(dropout.getX(), 1) || hasOther(dropout.getX(), 1))
            return refuseOrder(dropout,
                               "applies dropout to a value whose second dim, and no other, should be the sequence");
          return success();
        })
        .Case([&](AdmitOp admit) {
          if (!has(admit.getX(), 1) || hasOther(admit.getX(), 1))
            return refuseOrder(admit, "admits tokens along a dim that is not the sequence");
          return success();
        })
        .Case<SoftmaxOp, LayerNormOp, LayerNormGradOp, RMSNormOp, RMSNormGradOp>(
            [](Operation *) { return success(); }) // whole rows, in any order
        .Case([&](FactorOpInterface factored) { return checkFactors(factored); })
        .Default([](Operation *) { return success(); });
  }

  bool hasSequence(Value value, int64_t dim) { return rankOf(value) > dim && has(value, dim); }

  LogicalResult checkLeaf(Operation *leaf, Value value, ArrayAttr names) {
    for (auto [dim, name] : llvm::enumerate(names.getAsValueRange<StringAttr>()))
      if (has(value, dim))
        return refuseOrder(leaf, "'" + sourceName(leaf) + "' has an entry for each token of the sequence (dim " +
                                     Twine(dim) + ", '" + name + "')");
    return success();
  }

  /// Checks that only the position dims of queries and keys are the sequence.
  template <typename Op> LogicalResult checkAttention(Op op) {
    if (op.getWindow() || op.getBias() || op.hasSinks() || op.getStarts())
      return op.emitError()
             << "pc-zigzag: attention "
             << (op.getWindow()  ? "with a sliding window"
                 : op.getBias()  ? "with a bias"
                 : op.hasSinks() ? "with sinks"
                                 : "within documents")
             << " needs the sequence in its original order; use --context-parallel=heads, which keeps it";
    if (!has(op.getQ(), 1) || !has(op.getK(), 1) || hasOther(op.getQ(), 1) || hasOther(op.getK(), 1))
      return refuseOrder(op, "has queries or keys whose dim is not the tokens' sequence");
    return success();
  }

  /// An op does not depend on the order of a dim unless it needs the dim whole or reads its index.
  LogicalResult checkFactors(FactorOpInterface op) {
    FactorRule rule = op.getFactorRule();
    auto indexed = dyn_cast<IndexedOpInterface>(op.getOperation());
    auto values =
        llvm::concat<const Value>(SmallVector<Value>(op->getOperands()), SmallVector<Value>(op->getResults()));
    auto dims = llvm::concat<const SmallVector<int, 6>>(rule.operands, rule.results);
    for (auto [value, factors] : llvm::zip(values, dims))
      for (auto [dim, factor] : llvm::enumerate(factors)) {
        bool counts = indexed && value == indexed.getIndexedDim().value && int64_t(dim) == indexed.getIndexedDim().dim;
        if (has(value, dim) && (rule.factors[factor].whole || isDivided(op, rule, factor) || counts))
          return refuseOrder(op, "depends on the order of the sequence, which is dim " + Twine(dim) + " of " +
                                     (llvm::is_contained(op->getResults(), value) ? "its result" : "an operand"));
        const int64_t blocks = cast<RankedTensorType>(value.getType()).getDimSize(dim);
        if (has(value, dim) && blocks % chunks)
          return refuseOrder(op, "has scales for " + Twine(blocks) + " blocks of tokens, which " + Twine(chunks) +
                                     " chunks of the sequence would divide");
      }
    auto choice = dyn_cast<TopKOp>(op.getOperation());
    if (choice && choice.getLayer() && (!has(choice.getX(), 1) || hasOther(choice.getX(), 1)))
      return refuseOrder(op, "chooses experts along a dim that is not the tokens' sequence");
    return success();
  }

  ModuleOp module;
  DimClasses classes;
  int64_t chunks;               ///< of the sequence, whose tokens stay together
  std::set<unsigned> sequences; ///< the classes
};

/// The pass pc-zigzag. All checks come before the first change.
struct Zigzag : pc::impl::ZigzagBase<Zigzag> {
  using ZigzagBase::ZigzagBase;

  /// Each rank gets two chunks, so the sequence must be a multiple of twice the ranks. The order is an attribute of the
  /// program; it changes no op.
  void runOnOperation() override {
    constexpr int64_t mostRanks = 1 << 20;
    if (ranks < 1 || ranks > mostRanks) {
      getOperation().emitError() << "pc-zigzag: ranks must be from 1 to " << mostRanks << ", got " << int64_t(ranks);
      return signalPassFailure();
    }
    for (auto program : getOperation().getOps<ProgramOp>()) {
      int64_t length = program.getSequence(), unit = 2 * ranks;
      if (length % unit) {
        InFlightDiagnostic diagnostic =
            program.emitError() << "pc-zigzag: a sequence of " << length << " does not divide into " << unit
                                << " chunks, two for each of " << int64_t(ranks) << " ranks; nearest legal sizes: ";
        diagnostic << (length > unit ? std::to_string(length / unit * unit) + " and " : "")
                   << (length / unit + 1) * unit;
        return signalPassFailure();
      }
      if (failed(Order(getOperation(), unit).check(program)))
        return signalPassFailure();
      program.setZigzag(ranks);
      return;
    }
    getOperation().emitError() << "pc-zigzag: the module has no pc.program";
    signalPassFailure();
  }
};
} // namespace
