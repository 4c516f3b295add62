//===- StoreRows.cpp - Of routed values only what exists is stored --------------------------===//
// Which values: those that routed einsums make or that are made of such ones entry by entry, and that nothing reads but
// einsums routed by the same mask and ops that make such values. First all are taken that are made so; then each that
// is read in another way is left out, until no more are. It is right because entries where the mask is 0 count for
// nothing in an einsum that is routed by it: so it does not matter what they are, or that they are nowhere.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_STOREROWS
#include "pc/Codegen/Passes.h"

#include "Grouped.h"

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
  explicit RowStore(Block &block) : block(block) {}

  void run() {
    // What is not of weights is a product entry by entry, with what is made rows in front or what they are brought back
    // to behind.
    expandRouted(block, [](EinsumOp op) { return !isOfExperts(op); });
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
  }

private:
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
    auto isF32 = [](Value v) { return cast<RankedTensorType>(v.getType()).getElementType().isF32(); };
    if (EinsumOp einsum = asRouted(op)) {
      FactorRule rule = einsum.getFactorRule();
      ArrayRef<int> mask = rule.operands.back(), result = rule.results[0];
      if (isF32(einsum.getResult()) && result.take_front(std::min(mask.size(), result.size())) == mask)
        stored[einsum.getResult()] = choiceOf(einsum);
      return;
    }
    auto it = op->getNumOperands() ? stored.find(op->getOperand(0)) : stored.end();
    if (it == stored.end() || op->getNumResults() != 1 || !isF32(op->getResult(0)))
      return;
    Choice choice = it->second;
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
  bool isGrouped(EinsumOp op) {
    Choice choice = choiceOf(op);
    return asGrouped(op, [&](Value v) { return isStored(v, choice); }).has_value();
  }

  bool isMadeSo(Value value) {
    Operation *op = value.getDefiningOp();
    EinsumOp einsum = asRouted(op);
    return einsum ? isGrouped(einsum) : areStored(op->getOperands(), stored.find(value)->second);
  }
  bool isReadSo(Value value, Operation *user) {
    Choice choice = stored.find(value)->second;
    if (EinsumOp einsum = asRouted(user))
      return einsum.getMask() != value && choiceOf(einsum) == choice && isGrouped(einsum);
    return user->getBlock() == &block && user->getNumResults() == 1 && isStored(user->getResult(0), choice);
  }

  Block &block;
  SmallVector<Value> masks;
  llvm::MapVector<Value, Choice> stored;
};

struct StoreRows : pc::impl::StoreRowsBase<StoreRows> {
  void runOnOperation() override {
    getOperation().walk([&](Block *block) {
      if (!isa<ModuleOp, FusionOp>(block->getParentOp()))
        RowStore(*block).run();
    });
  }
};

} // namespace
