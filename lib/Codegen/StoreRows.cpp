//===- StoreRows.cpp - Of routed values only what exists is stored --------------------------===//
// Which values: those that routed einsums make or that are made of such ones entry by entry, and that nothing reads but
// einsums routed by the same mask and ops that make such values. First all are taken that are made so; then each that
// is read in another way is left out, until no more are. It is right because entries where the mask is 0 count for
// nothing in an einsum that is routed by it: so it does not matter what they are, or that they are nowhere.
//
// An all_to_all between tokens and experts takes rows and makes rows, of the mask that is moved likewise. It is given
// the mask of the whole group, which is gathered for it once.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_STOREROWS
#include "pc/Codegen/Passes.h"

#include "Grouped.h"
#include "pc/IR/MoveRows.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// A mask, up to moves that bring the same one, and how many experts a token has.
struct Choice {
  Value mask;
  uint64_t k = 0;
  bool operator==(const Choice &) const = default;
};

class RowStore {
public:
  RowStore(Block &block, bool cuda) : block(block), cuda(cuda) {}

  void run() {
    // What is not of weights is a product entry by entry, with what is made rows in front or what they are brought back
    // to behind.
    expandRouted(block, [](EinsumOp op) { return !isOfExperts(op) && !isOfTokens(op); });
    for (Operation &op : block)
      if (EinsumOp einsum = asRouted(&op))
        choiceOf(einsum);
    for (Operation &op : block)
      propose(&op);
    for (bool isStable = false; !isStable;) {
      isStable = true;
      // The last ones first: what brings rows back to all entries makes no rows, but takes some.
      SmallVector<Value> values = llvm::to_vector(llvm::make_first_range(stored));
      for (Value value : llvm::reverse(values))
        if (!isMadeSo(value) || !llvm::all_of(value.getUsers(), [&](Operation *user) { return isReadSo(value, user); }))
          isStable &= !stored.erase(value);
    }
    for (auto &[value, choice] : stored) {
      auto mask = cast<RankedTensorType>(choice.mask.getType());
      int64_t experts = mask.getShape().back(), tokens = mask.getNumElements() / experts;
      auto rows = RowsAttr::get(value.getContext(), tokens * std::min<int64_t>(static_cast<int64_t>(choice.k), experts),
                                mask.getRank());
      value.setType(withEncoding(value.getType(), rows));
    }
    for (auto move : llvm::make_early_inc_range(block.getOps<AllToAllOp>()))
      if (stored.contains(move.getResult()))
        exchangeRows(move);
    for (auto move : llvm::make_early_inc_range(block.getOps<AllToAllOp>()))
      takeFromGathered(move);
  }

private:
  /// Whether the numbers of a token go to each of its rows, or are added up from them.
  static bool isOfTokens(EinsumOp op) {
    FactorRule rule = op.getFactorRule();
    ArrayRef<int> mask = rule.operands.back(), all = rule.operands[0], few = rule.results[0];
    if (rule.operands.size() != 2)
      return false;
    if (all.size() < few.size())
      std::swap(all, few);
    return few.size() == mask.size() && all.size() == mask.size() + 1 && all.take_front(mask.size()) == mask &&
           few.drop_back() == mask.drop_back() && few.back() == all.back();
  }

  /// A mask as it is when it has been gathered along a dim: `value`, gathered along `dim`, or `value` itself (-1).
  struct Gathered {
    Value value;
    int64_t dim;
  };
  static Gathered gathered(Value mask, int64_t dim, ArrayAttr axes) {
    Operation *op = mask.getDefiningOp();
    if (auto move = dyn_cast_or_null<AllToAllOp>(op);
        move && move.getAxes() == axes && static_cast<int64_t>(move.getTo()) == dim)
      return {move.getX(), static_cast<int64_t>(move.getFrom())};
    auto slice = dyn_cast_or_null<SliceOp>(op);
    if (!slice || slice.getAxes() != axes || static_cast<int64_t>(slice.getDim()) != dim || slice.getShift() ||
        slice.getWith())
      return {mask, dim};
    auto gather = slice.getX().getDefiningOp<AllGatherOp>();
    if (gather && gather.getAxes() == axes)
      return {gather.getX(), static_cast<int64_t>(gather.getDim())};
    return {slice.getX(), -1};
  }

  /// Whether `move`, of a value with `from` for a mask, is between tokens and experts; then the mask of its result.
  Value movedMask(AllToAllOp move, Value from) {
    int64_t experts = cast<RankedTensorType>(from.getType()).getRank() - 1;
    auto out = static_cast<int64_t>(move.getFrom()), in = static_cast<int64_t>(move.getTo());
    if (std::max(out, in) != experts || std::min(out, in) == experts)
      return {};
    Gathered all = gathered(from, out, move.getAxes());
    for (Value to : masks) {
      Gathered other = gathered(to, in, move.getAxes());
      if (other.dim == all.dim && isSame(other.value, all.value) && fits(to, move.getResult()))
        return to;
    }
    return {};
  }
  /// Whether a value has the dims of a mask in front.
  static bool fits(Value mask, Value value) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(mask.getType()).getShape();
    return cast<RankedTensorType>(value.getType()).getShape().take_front(shape.size()) == shape;
  }

  /// The mask of the whole group, gathered once for all moves over it.
  Value gatherMask(Gathered what, ArrayAttr axes) {
    if (what.dim < 0)
      return what.value;
    for (auto &[known, mask] : gatheredMasks)
      if (isSame(known.value, what.value) && known.dim == what.dim &&
          cast<AllGatherOp>(mask.getDefiningOp()).getAxes() == axes)
        return mask;
    OpBuilder builder(block.getParentOp()->getContext());
    if (isa<BlockArgument>(what.value))
      builder.setInsertionPointToStart(&block);
    else
      builder.setInsertionPointAfter(what.value.getDefiningOp());
    auto type = cast<RankedTensorType>(what.value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[what.dim] *= meshOf(block.getParentOp()).size(axisList(axes));
    Value mask = AllGatherOp::create(builder, what.value.getLoc(), RankedTensorType::get(shape, type.getElementType()),
                                     what.value, what.dim, axes);
    gatheredMasks.push_back({what, mask});
    return mask;
  }

  void exchangeRows(AllToAllOp move) {
    const Choice &from = stored.find(move.getX())->second;
    auto out = static_cast<int64_t>(move.getFrom());
    Value mask = gatherMask(gathered(from.mask, out, move.getAxes()), move.getAxes());
    OpBuilder builder(move);
    auto rows = AllToAllRowsOp::create(builder, move.getLoc(), move.getResult().getType(), move.getX(), mask, from.k,
                                       move.getFrom(), move.getTo(), move.getAxes());
    // `stored` and later moves go by values: this one takes the place of the other.
    Choice to = stored.find(move.getResult())->second;
    stored.insert({rows.getResult(), to});
    move.getResult().replaceAllUsesWith(rows.getResult());
    move.erase();
  }

  /// A part of a mask that has been gathered needs not be sent.
  void takeFromGathered(AllToAllOp move) {
    for (auto &[known, mask] : gatheredMasks)
      if (isSame(known.value, move.getX()) && known.dim == static_cast<int64_t>(move.getFrom()) &&
          cast<AllGatherOp>(mask.getDefiningOp()).getAxes() == move.getAxes()) {
        OpBuilder builder(move);
        Value part = SliceOp::create(builder, move.getLoc(), move.getResult().getType(), mask, move.getTo(),
                                     move.getAxes(), 0, ArrayAttr());
        move.getResult().replaceAllUsesWith(part);
        move.erase();
        return;
      }
  }

  /// Whether an operand or the result is of experts and not of tokens.
  static bool isOfExperts(EinsumOp op) {
    FactorRule rule = op.getFactorRule();
    ArrayRef<int> mask = rule.operands.back();
    auto is = [&](ArrayRef<int> dims) {
      return llvm::is_contained(dims, mask.back()) &&
             llvm::none_of(mask.drop_back(), [&](int f) { return llvm::is_contained(dims, f); });
    };
    return is(rule.results[0]) || llvm::any_of(rule.operands, is);
  }
  /// The first mask that was brought here as `mask` is.
  Value first(Value mask) {
    for (Value known : masks)
      if (isSame(known, mask))
        return known;
    masks.push_back(mask);
    return mask;
  }
  static bool isSame(Value a, Value b) {
    if (a == b)
      return true;
    Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
    return isa_and_nonnull<MoveOpInterface>(x) && y && x->getName() == y->getName() && a.getType() == b.getType() &&
           x->getNumOperands() == 1 && x->getAttrDictionary() == y->getAttrDictionary() &&
           isSame(x->getOperand(0), y->getOperand(0));
  }
  Choice choiceOf(EinsumOp op) { return {first(op.getMask()), *op.getRouted()}; }
  static EinsumOp asRouted(Operation *op) {
    auto einsum = dyn_cast<EinsumOp>(op);
    return einsum && einsum.getMask() ? einsum : EinsumOp();
  }

  /// Whether `op` makes its result entry by entry of values that have the dims of the mask in front.
  static bool isByEntry(Operation *op, size_t dims) {
    if (op->getNumResults() != 1 || op->getNumOperands() == 0)
      return false;
    if (op->hasTrait<Pointwise>())
      return !isa<MaskPaddingOp>(op);
    auto einsum = dyn_cast<EinsumOp>(op);
    if (!einsum || einsum.getMask())
      return false;
    FactorRule rule = einsum.getFactorRule();
    ArrayRef<int> front = ArrayRef(rule.results[0]).take_front(dims);
    auto begins = [&](ArrayRef<int> all) {
      return all.size() >= dims && all.take_front(dims) == front &&
             llvm::none_of(all.drop_front(dims), [&](int f) { return llvm::is_contained(front, f); });
    };
    return begins(rule.results[0]) && llvm::all_of(rule.operands, begins);
  }

  void propose(Operation *op) {
    if (EinsumOp einsum = asRouted(op)) {
      FactorRule rule = einsum.getFactorRule();
      ArrayRef<int> mask = rule.operands.back(), result = rule.results[0];
      if (hasType(einsum.getResult()) && result.take_front(std::min(mask.size(), result.size())) == mask)
        stored[einsum.getResult()] = choiceOf(einsum);
      return;
    }
    auto it = op->getNumOperands() ? stored.find(op->getOperand(0)) : stored.end();
    if (it == stored.end() || op->getNumResults() != 1 || !hasType(op->getResult(0)))
      return;
    Choice choice = it->second;
    if (auto move = dyn_cast<AllToAllOp>(op)) {
      if (cuda || !elementOf(move.getResult()).isF32()) // which the runtime does not send
        return;
      if (Value mask = movedMask(move, choice.mask))
        stored[move.getResult()] = {mask, choice.k};
      return;
    }
    if (isByEntry(op, cast<RankedTensorType>(choice.mask.getType()).getRank()) && areStored(op->getOperands(), choice))
      stored[op->getResult(0)] = choice;
  }

  bool isStored(Value value, const Choice &choice) {
    auto it = stored.find(value);
    return it != stored.end() && it->second == choice;
  }
  bool areStored(ValueRange values, const Choice &choice) {
    return llvm::all_of(values, [&](Value v) { return isStored(v, choice); });
  }
  static Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }
  static bool hasType(Value value) { return isa<FloatType>(elementOf(value)); }
  /// CPUs bring rows of f32 alone to tokens and back; kernels of devices have no lines of experts, nor numbers of
  /// tokens that go to their rows without a product.
  bool isGrouped(EinsumOp op) {
    Choice choice = choiceOf(op);
    std::optional<Grouped> grouped = asGrouped(op, [&](Value v) { return isStored(v, choice); });
    if (!grouped)
      return false;
    const int32_t kind = grouped->desc.grouped;
    const bool packs = kind == PCRT_GROUPED_PACK || kind == PCRT_GROUPED_UNPACK;
    if (cuda)
      return packs ? !isOfTokens(op) : kind != PCRT_GROUPED_SPREAD && kind != PCRT_GROUPED_SUM;
    return !packs || (elementOf(op.getInputs()[0]).isF32() && elementOf(op.getResult()).isF32());
  }

  bool isMadeSo(Value value) {
    Operation *op = value.getDefiningOp();
    EinsumOp einsum = asRouted(op);
    if (isa<AllToAllOp>(op))
      return stored.contains(op->getOperand(0));
    return einsum ? isGrouped(einsum) : areStored(op->getOperands(), stored.find(value)->second);
  }
  bool isReadSo(Value value, Operation *user) {
    Choice choice = stored.find(value)->second;
    if (EinsumOp einsum = asRouted(user))
      return einsum.getMask() != value && choiceOf(einsum) == choice && isGrouped(einsum);
    if (isa<AllToAllOp>(user))
      return user->getBlock() == &block && stored.contains(user->getResult(0));
    return user->getBlock() == &block && user->getNumResults() == 1 && isStored(user->getResult(0), choice);
  }

  Block &block;
  const bool cuda;
  SmallVector<Value> masks;
  llvm::MapVector<Value, Choice> stored;
  SmallVector<std::pair<Gathered, Value>> gatheredMasks;
};

struct StoreRows : pc::impl::StoreRowsBase<StoreRows> {
  using StoreRowsBase::StoreRowsBase;

  void runOnOperation() override {
    getOperation().walk([&](Block *block) {
      if (!isa<ModuleOp, FusionOp>(block->getParentOp()))
        RowStore(*block, target == "cuda").run();
    });
  }
};

} // namespace
