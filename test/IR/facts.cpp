//===- facts.cpp - The interfaces of ops tell the truth -------------------===//
// usage: pc-facts-test FACTS.mlir
// Walks all ops of the dialect. Each is pointwise, a move, or in one of the two lists below. FACTS.mlir has one of
// every pointwise op and every move. A pointwise op must have an evaluator, a kernel, and a gradient that agrees with
// finite differences. Each element of its result must depend only on elements at the same index, and it must be linear
// if and only if it is declared to be. A move must have traffic if and only if its row states so, and its result may
// share the operand's memory only if both have the same shape.
//===----------------------------------------------------------------------===//
#include "Autodiff/Gradients.h"
#include "Codegen/Emit/RowMath.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/Sharing.h"
#include "pc/Reference/Evaluate.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"
#include <random>

using namespace mlir;
using namespace pc;

namespace {

/// Ops with factors that have their own kernel, evaluator and, if they are differentiable, gradient.
const llvm::StringSet<> special = {"iota",
                                   "rope_table",
                                   "key_counts",
                                   "einsum",
                                   "dropout",
                                   "reduce_max",
                                   "softmax",
                                   "top_k",
                                   "top_groups",
                                   "admit",
                                   "round_of_rows",
                                   "columns",
                                   "recurrence",
                                   "recurrence_grad",
                                   "reshape",
                                   "stack",
                                   "unstack",
                                   "embedding",
                                   "embedding_grad",
                                   "layer_norm",
                                   "rms_norm",
                                   "layer_norm_grad",
                                   "rms_norm_grad",
                                   "rope",
                                   "attention",
                                   "attention_grad",
                                   "split_qkv",
                                   "join_qkv",
                                   "packed_attention",
                                   "packed_attention_grad",
                                   "sum_exp",
                                   "pick",
                                   "cross_entropy",
                                   "logsumexp",
                                   "merge_attention",
                                   "cache_write",
                                   "cached_attention",
                                   "gumbel",
                                   "sampling_threshold",
                                   "mask_padding",
                                   "resize",
                                   "adamw",
                                   "sgd",
                                   "cross_entropy_grad",
                                   "clip_coefficient",
                                   "encode",
                                   "decode",
                                   "encode_scaled",
                                   "max_magnitude",
                                   "float8_scale"};
/// Ops without factors: structure, leaves and sinks, ops of stages and streams, and codes of addends.
const llvm::StringSet<> structural = {
    "mesh",  "optimizer", "program", "plan",   "arena",    "accumulate", "fusion",        "yield",     "parameter",
    "state", "input",     "seed",    "update", "constant", "task",       "block_offset",  "call",      "output",
    "send",  "start",     "receive", "addend", "wait",     "microbatch", "encode_addend", "decode_sum"};
/// Pointwise ops of the backward pass, which nothing differentiates.
const llvm::StringSet<> backwardOnly = {"activation_grad", "clamp_grad"};
/// Pointwise ops whose result is constant in some places, if an operand changes a little.
const llvm::StringSet<> flatInPlaces = {"clamp", "clamp_grad", "select"};

int failures = 0;
void fail(StringRef op, const llvm::Twine &why) {
  llvm::outs() << "FAIL pc." << op << ": " << why << "\n";
  ++failures;
}

using Tensors = SmallVector<Tensor, 3>;
std::mt19937 random(1);

Tensor draw(Value value) {
  Tensor tensor{Shape(cast<RankedTensorType>(value.getType()).getShape())};
  for (double &x : tensor.data)
    x = std::uniform_real_distribution<>(0.5, 2)(random);
  return tensor;
}

/// Checks one pointwise op on random operands: its meaning, kernel, linearity and gradient.
class PointwiseCheck {
public:
  explicit PointwiseCheck(Operation *op) : op(op), name(op->getName().stripDialect()) {
    for (Value operand : op->getOperands())
      inputs.push_back(draw(operand));
  }

  void run() {
    if (failed(evaluate(inputs)))
      return fail(name, "has no meaning for the interpreter (lib/Reference/Evaluate.cpp)");
    if (!kernels::pointwiseMath(op))
      fail(name, "has no kernel (lib/Codegen/Emit/RowMath.cpp)");
    checkElements();
    SmallVector<unsigned> all = llvm::to_vector(llvm::seq(op->getNumOperands()));
    checkLinear(all);
    for (unsigned i : all)
      if (all.size() > 1)
        checkLinear(i);
    if (!backwardOnly.contains(name))
      checkGradient();
  }

private:
  FailureOr<Tensor> evaluate(const Tensors &in) { return evaluate(op, in); }
  static FailureOr<Tensor> evaluate(Operation *op, const Tensors &in) {
    EvaluateContext context;
    context.shapes.push_back(Shape(cast<RankedTensorType>(op->getResult(0).getType()).getShape()));
    auto results = pc::evaluate(op, llvm::to_vector(llvm::make_pointer_range(in)), context);
    return failed(results) ? FailureOr<Tensor>(failure()) : FailureOr<Tensor>((*results)[0]);
  }

  /// Checks that an element of an operand changes only the element of the result at its index.
  void checkElements() {
    Tensor before = *evaluate(inputs);
    for (unsigned i = 0; i < inputs.size(); ++i) {
      Tensors changed = inputs;
      changed[i][1] += 0.25;
      Tensor after = *evaluate(changed);
      for (int64_t e = 0; e < after.size(); ++e)
        if (e == 1 ? after[e] == before[e] && !flatInPlaces.contains(name) : after[e] != before[e])
          fail(name, "is not pointwise: element 1 of operand " + llvm::Twine(i) + " and element " + llvm::Twine(e) +
                         " of the result");
    }
  }

  /// Checks that f(a + b) = f(a) + f(b) if the operands outside of `group` are fixed.
  void checkLinear(ArrayRef<unsigned> group) {
    Tensors other = inputs, sum = inputs;
    for (unsigned i : group) {
      other[i] = draw(op->getOperand(i));
      for (int64_t e = 0; e < sum[i].size(); ++e)
        sum[i][e] += other[i][e];
    }
    Tensor a = *evaluate(inputs), b = *evaluate(other), both = *evaluate(sum);
    bool linear = true;
    for (int64_t e = 0; e < a.size(); ++e)
      linear &= std::abs(both[e] - a[e] - b[e]) < 1e-9;
    FactorRule rule = cast<FactorOpInterface>(op).getFactorRule();
    bool says = llvm::any_of(rule.linear, [&](const auto &g) { return ArrayRef<unsigned>(g) == group; });
    if (linear != says)
      fail(name, says ? "says that it is linear and is not" : "is linear and does not say so (PCOps.td)");
  }

  /// Compares the derivative of the sum of dy times the result with finite differences.
  void checkGradient() {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    llvm::DenseSet<Value> live(op->operand_begin(), op->operand_end());
    live.insert(op->getResult(0));
    Value dy = CopyOp::create(builder, op->getLoc(), op->getResult(0).getType(), op->getResult(0));
    Gradients gradients(builder, live);
    gradients.add(op->getResult(0), dy);
    if (failed(gradients.differentiate(op)))
      return fail(name, "has no gradient (lib/Autodiff/Gradients.cpp)");
    llvm::DenseMap<Value, Tensor> values{{op->getResult(0), *evaluate(inputs)}, {dy, draw(dy)}};
    for (auto [operand, tensor] : llvm::zip_equal(op->getOperands(), inputs))
      values[operand] = tensor;
    for (auto at = std::next(dy.getDefiningOp()->getIterator()); at != builder.getInsertionPoint(); ++at) {
      if (auto constant = dyn_cast<ConstantOp>(*at)) {
        values[constant.getValue()] = Tensor(Shape());
        values[constant.getValue()][0] = constant.getNumber().convertToDouble();
        continue;
      }
      Tensors in;
      for (Value operand : at->getOperands())
        in.push_back(values.lookup(operand));
      values[at->getResult(0)] = *evaluate(&*at, in);
    }
    for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
      Tensors more = inputs, less = inputs;
      constexpr double step = 1e-5;
      for (int64_t e = 0; e < inputs[i].size(); ++e) {
        more[i][e] += step;
        less[i][e] -= step;
      }
      // The gradient is 0 for an operand that only chooses between others.
      Tensor up = *evaluate(more), down = *evaluate(less), made(up.shape);
      if (Value gradient = gradients.of(operand))
        made = values.lookup(gradient);
      for (int64_t e = 0; e < up.size(); ++e)
        if (std::abs(made[e] - values[dy][e] * (up[e] - down[e]) / (2 * step)) > 1e-6)
          return fail(name, "has a gradient of operand " + llvm::Twine(i) + " that differences do not confirm");
    }
  }

  Operation *op;
  StringRef name;
  Tensors inputs;
};

void checkMove(MoveOpInterface move) {
  MoveKind kind = move.getMoveKind();
  StringRef name = move->getName().stripDialect();
  auto from = cast<RankedTensorType>(move->getOperand(0).getType());
  auto to = cast<RankedTensorType>(move->getResult(0).getType());
  if (moveName(kind) != name && moveName(kind).str() + "_rows" != name) // or a move of rows
    fail(name, "says that it is " + moveName(kind));
  if (hasTraffic(kind) != (trafficOf(move, meshOf(move), true).wire > 0))
    fail(name, "sends nothing, or more than its row says (lib/Cost/Cost.cpp)");
  bool hasDim = takesBlocks(kind) || makesBlocks(kind);
  if (hasDim != (move.getMoveDim() >= 0))
    fail(name, "has a dim, or none, other than its row says");
  if ((factsOf(kind).needs == PCRT_STATE_PARTIAL) != (move.getReduction() != PartialKind::None))
    fail(name, "reduces, or does not, other than its row says");
  if (mayShareHome(move, 0, 0) && from != to)
    fail(name, "is in place and changes the shape");
}

} // namespace

int main(int, char **arguments) {
  MLIRContext context;
  context.loadDialect<PCDialect, func::FuncDialect>();
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(arguments[1], ParserConfig(&context));
  if (!module)
    return 1;
  std::map<std::string, Operation *> examples;
  module->walk([&](Operation *op) { examples.try_emplace(op->getName().stripDialect().str(), op); });

  int ops = 0, pointwise = 0, moves = 0, own = 0, none = 0;
  for (RegisteredOperationName info : context.getRegisteredOperationsByDialect("pc")) {
    StringRef name = info.stripDialect();
    Operation *example = examples[name.str()];
    bool isPointwise = info.hasTrait<Pointwise>(), isMove = info.hasInterface<MoveOpInterface>();
    ++ops, pointwise += isPointwise, moves += isMove;
    own += special.contains(name), none += structural.contains(name);
    if (isPointwise + isMove + special.contains(name) + structural.contains(name) != 1)
      fail(name, "is not exactly one of pointwise, a move, an op of its own kind and one that computes nothing: say in "
                 "PCOps.td what it is like, or list it in test/IR/facts.cpp");
    else if (info.hasInterface<FactorOpInterface>() != (isPointwise || special.contains(name)))
      fail(name, "has factors, or none, other than its list says");
    else if (example && isPointwise)
      PointwiseCheck(example).run();
    else if (example && isMove)
      checkMove(cast<MoveOpInterface>(example));
    else if (isPointwise || isMove)
      fail(name, "has no example in " + llvm::Twine(arguments[1]));
  }
  llvm::outs() << ops << " ops: " << pointwise << " pointwise, " << moves << " moves, " << own << " of their own kind, "
               << none << " that compute nothing\n";
  return failures != 0;
}
