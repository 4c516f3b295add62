//===- Order.cpp - The order of the sequence in a step program -------------------------------===//
// A program in zigzag order permutes the sequence. This check shows that the one-device program computes the same in
// zigzag order, if positions and tokens are permuted in the same way. So every op must either work on each position
// separately, or read positions as values. Attention by order of keys (windows, starts) is refused. Neighbouring tokens
// may be one entry of a dim, because zigzag order permutes whole chunks.
//===-----------------------------------------------------------------------------===//
#include "Order.h"
#include "Rules.h"
#include "pc/IR/MoveRows.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

namespace {

int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

/// Finds all dims of a step program that are the sequence. The sequence may be permuted if each op computes the
/// permuted result from permuted operands.
class Sequence {
public:
  Sequence(ModuleOp step, ProgramOp program)
      : step(step), length(static_cast<int64_t>(program.getSequence())), chunks(2 * *program.getZigzag()) {}

  LogicalResult find() {
    WalkResult joined = step.walk([&](Operation *op) { return WalkResult(joinDims(op)); });
    WalkResult checked =
        joined.wasInterrupted() ? joined : step.walk([&](Operation *op) { return WalkResult(check(op)); });
    return failure(checked.wasInterrupted());
  }

  bool has(Value value, int64_t dim) const {
    return llvm::any_of(tokens, [&](const Dim &one) {
      return one == Dim{value.getAsOpaquePointer(), dim} ||
             classes.isEquivalent(one, {value.getAsOpaquePointer(), dim});
    });
  }

private:
  using Dim = std::pair<void *, int64_t>;

  void join(Value a, int64_t dimA, Value b, int64_t dimB) {
    classes.unionSets({a.getAsOpaquePointer(), dimA}, {b.getAsOpaquePointer(), dimB});
  }
  void joinAll(Value a, Value b, int64_t skipOfA) {
    for (int64_t dim : llvm::seq(rankOf(b)))
      join(a, dim + skipOfA, b, dim);
  }

  /// Joins dims that an op relates: the dims of a stack, without the first one, and the dims of its elements; the dims
  /// of addends and sums; and, in all other ops, dims with the same letter.
  LogicalResult joinDims(Operation *op) {
    if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
      for (auto [stack, element] : llvm::zip(accumulate.getInputs(), accumulate.getBody().getArguments()))
        joinAll(stack, element, 1);
      for (auto [addend, sum] :
           llvm::zip(accumulate.getBody().front().getTerminator()->getOperands(), accumulate.getResults()))
        joinAll(addend, sum, 0);
    } else if (auto input = dyn_cast<InputOp>(op)) {
      if (input.getKind() == InputKind::Data)
        return refuse(op, "is read from files in their own order");
      if (isByToken(input) && rankOf(input.getValue()))
        tokens.push_back({input.getValue().getAsOpaquePointer(), rankOf(input.getValue()) - 1});
    } else if (op->getNumResults() && !isa<ParameterOp, StateOp, ConstantOp, RopeTableOp, SeedOp>(op)) {
      std::optional<Rule> rule = ruleOf(op);
      if (!rule)
        return refuse(op, "might depend on the order of the sequence");
      (void)forEachDim(op, *rule, [&](Value value, int64_t dim, int letter, Value first, int64_t firstDim) {
        join(first, firstDim, value, dim);
        return success();
      });
    }
    return success();
  }

  static bool isByToken(InputOp input) {
    return input.getKind() != InputKind::Hyper && input.getKind() != InputKind::Random;
  }

  /// Calls f for every dim of operands and results, with its letter and the first dim of that letter.
  static LogicalResult forEachDim(Operation *op, const Rule &rule,
                                  llvm::function_ref<LogicalResult(Value, int64_t, int, Value, int64_t)> f) {
    std::vector<std::pair<Value, int64_t>> first(rule.names.size());
    auto visit = [&](Value value, ArrayRef<int> letters) -> LogicalResult {
      for (auto [dim, letter] : llvm::enumerate(letters)) {
        auto &[at, atDim] = first[letter];
        if (!at)
          at = value, atDim = static_cast<int64_t>(dim);
        if (failed(f(value, static_cast<int64_t>(dim), letter, at, atDim)))
          return failure();
      }
      return success();
    };
    for (auto [value, letters] : llvm::zip(op->getOperands(), rule.operands))
      if (failed(visit(value, letters)))
        return failure();
    for (auto [value, letters] : llvm::zip(op->getResults(), rule.results))
      if (failed(visit(value, letters)))
        return failure();
    return success();
  }

  static LogicalResult refuse(Operation *op, const Twine &why) {
    return op->emitError()
           << "'" << op->getName() << "' op " << why
           << ", so the step program would compute something else with the sequence in zigzag order (check: order)";
  }

  /// Checks that exactly the dims `must` of `value` are the sequence.
  LogicalResult expect(Operation *op, Value value, ArrayRef<int64_t> must) {
    for (int64_t dim : llvm::seq(rankOf(value)))
      if (has(value, dim) != llvm::is_contained(must, dim))
        return refuse(op, (has(value, dim) ? "has the sequence as dim " : "does not have the sequence as dim ") +
                              Twine(dim));
      else if (has(value, dim) && sizeOf(value, dim) != length)
        return refuse(op, "has groups of tokens as dim " + Twine(dim));
    return success();
  }

  /// Ops that read or count positions are checked one by one; any other op must not need the order of the sequence.
  LogicalResult check(Operation *op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<ParameterOp, StateOp>([&](auto leaf) { return expect(leaf, leaf.getValue(), {}); })
        .Case([&](InputOp input) {
          SmallVector<int64_t> must;
          if (isByToken(input))
            must.push_back(rankOf(input.getValue()) - 1);
          return expect(input, input.getValue(), must);
        })
        // Tables and counters contain positions, so they are permuted with the sequence.
        .Case([&](RopeTableOp table) { return expect(table, table.getValue(), {0}); })
        .Case([&](IotaOp iota) { return expect(iota, iota.getValue(), {0}); })
        .Case([&](OutputOp output) {
          bool isLogits = output.getKind() == OutputKind::Logits;
          return expect(output, output.getValue(), isLogits ? ArrayRef<int64_t>{1} : ArrayRef<int64_t>());
        })
        .Case([&](UpdateOp update) { return expect(update, update.getValue(), {}); })
        .Case<AttentionOp, AttentionGradOp>([&](auto attention) {
          if (attention.getWindow() || attention.getBias() || attention.hasSinks() || attention.getStarts())
            return refuse(attention, "depends on the order of its keys");
          return success(succeeded(expect(attention, attention.getQ(), {1})) &&
                         succeeded(expect(attention, attention.getK(), {1})));
        })
        .Case([&](DropoutOp dropout) { return expect(dropout, dropout.getX(), {1}); })
        .Case([&](AdmitOp admit) { return expect(admit, admit.getX(), {1}); })
        .Case([&](TopKOp choice) { return choice.getLayer() ? expect(choice, choice.getX(), {1}) : checkRule(choice); })
        .Case<SoftmaxOp, LayerNormOp, LayerNormGradOp, RMSNormOp, RMSNormGradOp>([](auto) { return success(); })
        .Case<AccumulateOp, YieldOp, ConstantOp, SeedOp, ProgramOp, ModuleOp>([](auto) { return success(); })
        .Default([&](Operation *other) { return other->getNumResults() ? checkRule(other) : success(); });
  }

  static int64_t sizeOf(Value value, int64_t dim) { return cast<RankedTensorType>(value.getType()).getDimSize(dim); }

  /// Whether dims of these sizes are permuted in the same way. Only a reshape has a letter with two sizes: an entry of
  /// the smaller dim is a group of neighbours along the larger one. Chunks of zigzag order must have whole groups.
  bool permuteAlike(int64_t a, int64_t b) const { return a == b || std::min(a, b) % chunks == 0; }

  /// If a letter must stay whole or is used as an index, the op depends on the order of this dim.
  LogicalResult checkRule(Operation *op) {
    std::optional<Rule> rule = ruleOf(op);
    return forEachDim(op, *rule, [&](Value value, int64_t dim, int letter, Value first, int64_t firstDim) {
      bool ordered =
          rule->whole[letter] || letter == rule->indexed || !permuteAlike(sizeOf(value, dim), sizeOf(first, firstDim));
      return ordered && has(value, dim) ? refuse(op, "reads the sequence by index (" + rule->names[letter] + ")")
                                        : success();
    });
  }

  ModuleOp step;
  int64_t length, chunks; ///< tokens of the sequence; chunks of its zigzag order
  llvm::EquivalenceClasses<Dim> classes;
  SmallVector<Dim> tokens;
};

} // namespace

LogicalResult pc::proof::checkOrder(ModuleOp step) {
  for (ProgramOp program : step.getOps<ProgramOp>())
    if (program.getZigzag().value_or(0) > 0)
      return Sequence(step, program).find();
  return success();
}
