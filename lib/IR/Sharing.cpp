//===- Sharing.cpp - When a result may be written over an operand ----------------------===//
// Input: an op, an operand and a result. The answer is yes only if every kernel of the op reads an element of the
// operand before it writes that element of the result, whichever kernel is chosen later. Memory planning relies on it.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Sharing.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Generation.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace pc;

static bool sameShapeAndWidth(Value a, Value b) {
  auto s = cast<RankedTensorType>(a.getType()), t = cast<RankedTensorType>(b.getType());
  return s.getShape() == t.getShape() && rowsOf(s) == rowsOf(t) &&
         s.getElementTypeBitWidth() == t.getElementTypeBitWidth();
}

/// The index at which an elementwise op reads an operand: the index of the result, the index of a broadcast operand, or
/// any other index.
enum class Read { Same, Broadcast, Other };
/// The index at which a loop over the result reads operand `i`.
static Read readOf(FactorOpInterface op, const FactorRule &rule, unsigned i) {
  if (i >= op.getNumElementwise())
    return Read::Broadcast; // at any index
  if (i >= rule.operands.size() || rule.results.empty())
    return Read::Other;
  ArrayRef<int> from = rule.operands[i], to = rule.results[0];
  for (auto [d, f] : llvm::enumerate(to)) // not for a diagonal
    if (llvm::is_contained(to.drop_front(d + 1), f))
      return Read::Other;
  if (from == to)
    return Read::Same;
  size_t at = 0;
  for (int f : from) { // a subsequence of the result's dims
    while (at < to.size() && to[at] != f)
      ++at;
    if (at++ >= to.size())
      return Read::Other;
  }
  return Read::Broadcast;
}

/// Returns true if an einsum may become a library matrix product (with m, n or k of 1), which may not work in place.
/// Outside of a fusion, this is an einsum that broadcasts. In a fusion, where it may get a bias, it is an einsum that
/// broadcasts a single element.
static bool mayBecomeProduct(FactorOpInterface op, const FactorRule &rule) {
  auto fusion = dyn_cast_or_null<FusionOp>(op->getParentOp());
  constexpr size_t most = 5; // a product, its epilogue and the yield
  if (!isa<EinsumOp>(op) || op->getNumOperands() < 2 ||
      (fusion && fusion.getBody().front().getOperations().size() > most))
    return false;
  bool inKernel = fusion != nullptr;
  for (unsigned i = 0, e = op->getNumOperands(); i < e; ++i)
    if (readOf(op, rule, i) == Read::Broadcast &&
        (!inKernel || cast<RankedTensorType>(op->getOperand(i).getType()).getNumElements() == 1))
      return true;
  return false;
}

/// Returns true if a kernel whose loop runs over `shape` may hold `op`: it sums nothing, and no value has more dims
/// than the loop.
static bool fitsLoop(Operation *op, ArrayRef<int64_t> shape) {
  if (isa<ConstantOp>(op))
    return true;
  auto factored = dyn_cast<FactorOpInterface>(op);
  if (!factored || !factored.getNumElementwise())
    return false;
  FactorRule rule = factored.getFactorRule();
  for (unsigned i = 0, e = op->getNumOperands(); i < e; ++i)
    if (readOf(factored, rule, i) == Read::Other)
      return false;
  if (mayBecomeProduct(factored, rule))
    return false;
  int64_t elements = 1;
  for (int64_t size : shape)
    elements *= size;
  return llvm::all_of(op->getResults(), [&](Value result) {
    auto type = cast<RankedTensorType>(result.getType());
    return type.getNumElements() < elements || type.getShape() == shape;
  });
}

/// The value that a fusion of one op and a sum adds to its argument `base`, which nothing else in the fusion reads;
/// null if the fusion has another form.
static Value addendOnto(FusionOp fusion, BlockArgument base) {
  Block &body = fusion.getBody().front();
  if (fusion.getNumResults() != 1 || body.getOperations().size() != 3 || !base.hasOneUse())
    return {};
  auto sum = body.getTerminator()->getOperand(0).getDefiningOp<AddOp>();
  if (!sum || (sum.getA() != base && sum.getB() != base))
    return {};
  return sum.getA() == base ? sum.getB() : sum.getA();
}

/// Looks for an embedding gradient that the fusion adds to one of its operands.
std::optional<TableSum> pc::asTableSum(FusionOp fusion) {
  for (BlockArgument base : fusion.getBody().front().getArguments())
    if (Value addend = addendOnto(fusion, base))
      if (auto gradient = addend.getDefiningOp<EmbeddingGradOp>())
        return TableSum{gradient, base};
  return std::nullopt;
}

/// Returns true if a fusion is a matrix product and its sum with `operand`, to which the product adds in place.
static bool isProductOnto(FusionOp fusion, unsigned operand) {
  Value addend = addendOnto(fusion, fusion.getBody().front().getArgument(operand));
  auto product = addend ? addend.getDefiningOp<EinsumOp>() : EinsumOp();
  if (!product || product.getInputs().size() != 2)
    return false;
  // Each operand has a dim of the result that the other one lacks, so this is not a row kernel.
  Contraction factors(product);
  return !factors.m.empty() && !factors.n.empty();
}

/// Returns true if the op reduces each row of its first operand to one value, as the parts of the loss do.
static bool reducesRows(Operation *op) {
  if (auto max = dyn_cast<ReduceMaxOp>(op)) {
    FactorRule rule = max.getFactorRule();
    return ArrayRef<int>(rule.results[0]) == ArrayRef<int>(rule.operands[0]).drop_back();
  }
  return isa<SumExpOp, PickOp>(op);
}

/// Returns true if `last` is computed after all reductions of its fusion have read the row. This is the case if `last`
/// depends on a reduction (so it is not in the first pass over the row), and every reduction either is an input of
/// `last` or depends on no other reduction (so it is in the first pass).
static bool followsReductions(Operation *last) {
  llvm::DenseSet<Operation *> needed = {last}, afterReduction;
  Block &body = *last->getBlock();
  for (Operation &op : llvm::reverse(body.without_terminator()))
    if (llvm::any_of(op.getUsers(), [&](Operation *user) { return needed.contains(user); }))
      needed.insert(&op);
  for (Operation &op : body.without_terminator()) {
    bool isAfter = llvm::any_of(op.getOperands(), [&](Value value) {
      Operation *from = value.getDefiningOp();
      return from && (reducesRows(from) || afterReduction.contains(from));
    });
    if (isAfter)
      afterReduction.insert(&op);
    if (reducesRows(&op) && isAfter && !needed.contains(&op))
      return false;
  }
  return afterReduction.contains(last);
}

/// A fusion may write over an operand that it reads only at the index that it writes. Reductions must have read the
/// whole rows before.
static bool mayShareInFusion(FusionOp fusion, unsigned operand, unsigned result) {
  if (std::optional<TableSum> sum = asTableSum(fusion))
    return sum->base.getArgNumber() == operand;
  if (isProductOnto(fusion, operand))
    return true;
  if (asCodedAdamW(fusion)) // reads a block before it writes it
    return true;
  Block &body = fusion.getBody().front();
  auto shape = cast<RankedTensorType>(fusion.getResult(result).getType()).getShape();
  bool reduces = false;
  for (Operation &op : body.without_terminator()) {
    bool reducesThese = reducesRows(&op) && cast<RankedTensorType>(op.getOperand(0).getType()).getShape() == shape;
    if (!reducesThese && !fitsLoop(&op, shape))
      return false;
    reduces |= reducesThese;
  }
  Operation *written = body.getTerminator()->getOperand(result).getDefiningOp();
  if (reduces && !(written && followsReductions(written)))
    return false;
  for (OpOperand &use : body.getArgument(operand).getUses()) {
    Operation *user = use.getOwner();
    if (isa<YieldOp>(user) || (reducesRows(user) && use.getOperandNumber() == 0))
      continue; // copied element by element, or read before the row is written
    auto factored = cast<FactorOpInterface>(user);
    if (readOf(factored, factored.getFactorRule(), use.getOperandNumber()) != Read::Same)
      return false;
  }
  return true;
}

/// Asks in this order: views, moves, inserts, fusions, and then ops that read each element only for the same element of
/// the result.
bool pc::mayShareHome(Operation *op, unsigned operand, unsigned result) {
  if (auto view = dyn_cast<ReshapeOp>(op)) // the kernel copies nothing if both have the same home
    return view.getX().getType().getElementTypeBitWidth() == view.getResult().getType().getElementTypeBitWidth();
  if (!sameShapeAndWidth(op->getOperand(operand), op->getResult(result)))
    return false;
  if (auto move = dyn_cast<MoveOpInterface>(op); move && factsOf(move.getMoveKind()).flags & PCRT_MOVE_IN_PLACE)
    return true;
  if (isa<InsertOp>(op))
    return operand == 1;
  if (auto fusion = dyn_cast<FusionOp>(op))
    return mayShareInFusion(fusion, operand, result);
  // b_t and dh_t are read in the step that writes h_t and db_t, and not again.
  if (isa<RecurrenceOp>(op))
    return operand == 1;
  if (isa<RecurrenceGradOp>(op))
    return operand == 2 && result == 1;
  if (isa<CacheWriteOp>(op))
    return operand == 0;
  if (!fitsLoop(op, cast<RankedTensorType>(op->getResult(result).getType()).getShape()))
    return false;
  auto factored = cast<FactorOpInterface>(op);
  return readOf(factored, factored.getFactorRule(), operand) == Read::Same;
}
