//===- StoreRoutedTokens.cpp - Stores only the routed tokens of values ------------------------------===//
// A value is stored by rows under two conditions. First, it is the result of a routed einsum, or of an elementwise op
// on such values. Second, all its readers are einsums routed by the same mask, or ops whose results are such values.
// The pass starts with all values that satisfy the first condition, and removes those with another reader until nothing
// changes. This is correct because entries for which the mask is 0 do not contribute to an einsum that is routed by the
// mask, so they need not exist.
//
// An all_to_all between tokens and experts reads rows and produces rows, and the mask is moved in the same way. Its
// operand is the mask of the whole group, which is gathered once.
//
// Functions of a pipeline's tasks pass rows to each other, together with their mask. The same conditions hold for
// arguments and results, for all calls of a function.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_STOREROWS
#include "pc/Codegen/Passes.h"

#include "Grouped.h"
#include "RoundExperts.h"
#include "pc/IR/Calls.h"
#include "pc/IR/MoveRows.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include <atomic>

using namespace mlir;
using namespace pc;

namespace {

/// A mask and the number of experts per token. Results of equal moves count as the same mask.
struct Choice {
  Value mask;
  uint64_t k = 0;
  bool operator==(const Choice &) const = default;
};

/// Two steps over all blocks of a program: find() takes all candidates and drops those that some reader needs in full,
/// until nothing changes; the rewrite then gives the remaining values row types. Invariant after find(): every reader
/// of a value in `stored` is routed by the same mask, or its result is also stored.
class RowStore {
public:
  RowStore(ArrayRef<Block *> blocks, bool cuda) : blocks(blocks), cuda(cuda) {}

  /// Finds the values that are stored by rows.
  void find() {
    // A routed einsum without weights becomes an elementwise product and, before or after it, an einsum with the mask.
    for (Block *block : blocks) {
      expandRouted(*block, [](EinsumOp op) { return !isOfExperts(op) && !isOfTokens(op); });
      for (auto call : block->getOps<CallOp>())
        calls[functions.of(call).body].push_back(call);
    }
    for (Block *block : blocks)
      for (Operation &op : *block)
        if (EinsumOp einsum = asRouted(&op))
          choiceOf(einsum);
    for (Block *block : blocks)
      if (!calls.contains(block))
        propose(*block);
    for (bool isStable = false; !isStable;) {
      isStable = true;
      // The order is reversed, because an op that converts rows back to all entries reads rows but produces none.
      SmallVector<Value> values = llvm::to_vector(llvm::make_first_range(stored));
      for (Value value : llvm::reverse(values))
        if (!isMadeSo(value) || !llvm::all_of(value.getUsers(), [&](Operation *user) { return isReadSo(value, user); }))
          isStable &= !stored.erase(value);
    }
    for (auto &[value, choice] : stored)
      if (auto move = value.getDefiningOp<AllToAllOp>()) {
        moved.insert(choice.mask);
        moved.insert(stored.find(move.getX())->second.mask);
      }
  }

  /// Divides groups that would have more than `limit` rows into rounds; the groups then have to be found again. Returns
  /// false after an error.
  bool divide(int64_t limit, llvm::function_ref<bool()> isFirst) {
    llvm::MapVector<Value, uint64_t> choices;
    for (auto &[value, choice] : stored)
      choices.insert({choice.mask, choice.k});
    SmallVector<Operation *> done;
    for (auto &[mask, k] : choices) {
      const Choice choice{mask, k};
      const int64_t most = mostRows(choice, !moved.contains(mask));
      if (most <= limit)
        continue;
      if (moved.contains(mask)) {
        if (isFirst())
          emitError(mask.getLoc()) << "ranks exchange up to " << most
                                   << " routed tokens at once, but --experts-limit=" << limit
                                   << " needs ranks that gather all tokens; use --expert-exchange=gather";
        return false;
      }
      auto areRows = [&](Value value) { return isStored(value, choice); };
      auto areOne = [&](Value a, Value b) { return isSame(a, b); };
      for (Block *block : blocks)
        if (!roundExperts(*block,
                          {areRows, areOne, limit, static_cast<int64_t>(llvm::divideCeil(most, limit)), isFirst}, done))
          return false;
    }
    for (Operation *op : llvm::reverse(done))
      op->erase();
    return true;
  }

  /// Writes the result into types, and adds the ops that rows need.
  void store() {
    for (auto &[value, choice] : stored)
      value.setType(withEncoding(value.getType(),
                                 RowsAttr::get(value.getContext(), mostRows(choice, !moved.contains(choice.mask)),
                                               cast<RankedTensorType>(choice.mask.getType()).getRank())));
    isRewriting = true;
    for (Block *block : blocks) {
      if (calls.contains(block))
        cast<func::FuncOp>(block->getParentOp())
            .setType(FunctionType::get(block->getParentOp()->getContext(), block->getArgumentTypes(),
                                       block->getTerminator()->getOperandTypes()));
      for (auto move : llvm::make_early_inc_range(block->getOps<AllToAllOp>()))
        if (stored.contains(move.getResult()))
          exchangeRows(move);
    }
    for (Block *block : blocks)
      for (auto move : llvm::make_early_inc_range(block->getOps<AllToAllOp>()))
        takeFromGathered(move);
  }

private:
  /// The most rows that can exist. This is the number of choices that tokens can make and, if `byCapacity`, at most the
  /// number of tokens that experts accept. Each row of the mask is a sequence or a rank's part of one, from which an
  /// expert accepts at most its capacity.
  int64_t mostRows(const Choice &choice, bool byCapacity) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(choice.mask.getType()).getShape();
    int64_t experts = shape.back(), tokens = llvm::product_of(shape.drop_back());
    if (auto round = choice.mask.getDefiningOp<RoundOfRowsOp>()) {
      auto limit = static_cast<int64_t>(round.getLimit()), before = static_cast<int64_t>(round.getRound()) * limit;
      const int64_t left = std::max<int64_t>(mostRows({round.getX(), choice.k}, byCapacity) - before, 1);
      return round.getRound() + 1 == round.getRounds() ? left : std::min(left, limit);
    }
    int64_t rows = tokens * std::min<int64_t>(static_cast<int64_t>(choice.k), experts);
    int64_t capacity = byCapacity ? capacityOf(choice.mask) : 0;
    if (!capacity)
      return rows;
    int64_t length = shape.end()[-2];
    return std::min(rows, tokens / length * std::min(capacity, length) * experts);
  }
  /// The capacity of experts, in tokens per sequence, for a mask that `pc.admit` computed, possibly moved; 0:
  /// unlimited.
  int64_t capacityOf(Value mask) {
    while (Operation *op = (mask = origin(mask)).getDefiningOp()) {
      if (auto admit = dyn_cast<AdmitOp>(op))
        return static_cast<int64_t>(admit.getCapacity());
      auto move = dyn_cast<MoveOpInterface>(op);
      if (!move || move.getReduction() != PartialKind::None || op->getNumOperands() != 1)
        return 0;
      mask = op->getOperand(0);
    }
    return 0;
  }

  /// Returns true if values per token are copied to the token's rows, or added up from them.
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

  ArrayRef<CallOp> callsOf(Block *body) const {
    auto it = calls.find(body);
    return it == calls.end() ? ArrayRef<CallOp>() : ArrayRef<CallOp>(it->second);
  }
  /// Returns the value in another function that the argument always receives: the same result of that function in all
  /// calls of the step, and from the same call as all other arguments that come from that function. Returns null if
  /// there is none.
  Value outside(BlockArgument argument) {
    OpResult first;
    for (CallOp call : callsOf(argument.getOwner())) {
      auto made = dyn_cast<OpResult>(call.getInputs()[argument.getArgNumber()]);
      auto maker = made ? dyn_cast<CallOp>(made.getOwner()) : CallOp();
      auto isOfOther = [&](Value input) {
        auto other = input.getDefiningOp<CallOp>();
        return other && other != maker && other.getCallee() == maker.getCallee();
      };
      if (!maker || llvm::any_of(call.getInputs(), isOfOther) ||
          (first && (made.getResultNumber() != first.getResultNumber() ||
                     maker.getCallee() != cast<CallOp>(first.getOwner()).getCallee())))
        return {};
      first = first ? first : made;
    }
    return first;
  }
  /// Follows a value through arguments and results of calls to the value inside a function that it comes from, for the
  /// current microbatch.
  Value origin(Value value) {
    if (isRewriting)
      return value;
    auto [it, isNew] = origins.try_emplace(value, value);
    if (!isNew)
      return it->second;
    Value from;
    if (auto argument = dyn_cast<BlockArgument>(value))
      from = outside(argument);
    else if (auto call = value.getDefiningOp<CallOp>())
      from = functions.of(call).results()[cast<OpResult>(value).getResultNumber()];
    return from ? origins[value] = origin(from) : value;
  }

  /// A gathered mask: `value` gathered along `dim`, or `value` itself if `dim` is -1.
  struct Gathered {
    Value value;
    int64_t dim;
  };
  /// The mask of this rank and the dim along which ranks have parts of it, which is -1 if the mask is already whole.
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

  /// If `move`, of a value with mask `from`, is between tokens and experts, returns the mask of its result.
  Value movedMask(AllToAllOp move, Value from) {
    int64_t experts = cast<RankedTensorType>(from.getType()).getRank() - 1;
    auto out = static_cast<int64_t>(move.getFrom()), in = static_cast<int64_t>(move.getTo());
    if (std::max(out, in) != experts || std::min(out, in) == experts)
      return {};
    Gathered all = gathered(origin(from), out, move.getAxes());
    for (Value to : masks) {
      Gathered other = gathered(origin(to), in, move.getAxes());
      if (other.dim == all.dim && isSame(other.value, all.value) && fits(to, move.getResult()))
        return to;
    }
    return {};
  }
  /// Returns true if the first dims of a value are those of a mask.
  static bool fits(Value mask, Value value) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(mask.getType()).getShape();
    return cast<RankedTensorType>(value.getType()).getShape().take_front(shape.size()) == shape;
  }

  /// The mask of the whole group, gathered once for all moves over it.
  Value gatherMask(Gathered what, ArrayAttr axes) {
    if (what.dim < 0)
      return what.value;
    for (auto &[known, mask] : gatheredMasks)
      if (mask.getParentBlock() == what.value.getParentBlock() && isSame(known.value, what.value) &&
          known.dim == what.dim && cast<AllGatherOp>(mask.getDefiningOp()).getAxes() == axes)
        return mask;
    OpBuilder builder(what.value.getContext());
    if (isa<BlockArgument>(what.value))
      builder.setInsertionPointToStart(what.value.getParentBlock());
    else
      builder.setInsertionPointAfter(what.value.getDefiningOp());
    auto type = cast<RankedTensorType>(what.value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[what.dim] *= meshOf(what.value.getParentBlock()->getParentOp()).size(axisList(axes));
    Value mask = AllGatherOp::create(builder, what.value.getLoc(), RankedTensorType::get(shape, type.getElementType()),
                                     what.value, what.dim, axes);
    gatheredMasks.push_back({what, mask});
    return mask;
  }

  /// Replaces the all_to_all of all entries by one that sends only the rows.
  void exchangeRows(AllToAllOp move) {
    const Choice from = stored.find(move.getX())->second;
    auto out = static_cast<int64_t>(move.getFrom());
    Value mask =
        gatherMask(gathered(locals.lookup({move->getBlock(), from.mask}), out, move.getAxes()), move.getAxes());
    OpBuilder builder(move);
    auto rows = AllToAllRowsOp::create(builder, move.getLoc(), move.getResult().getType(), move.getX(), mask, from.k,
                                       move.getFrom(), move.getTo(), move.getAxes());
    // `stored` and later moves use values as keys, so the new value replaces the old one there.
    Choice to = stored.find(move.getResult())->second;
    stored[rows.getResult()] = to;
    move.getResult().replaceAllUsesWith(rows.getResult());
    move.erase();
  }

  /// If a mask has been gathered, a part of it is sliced from there instead of being sent.
  void takeFromGathered(AllToAllOp move) {
    for (auto &[known, mask] : gatheredMasks)
      if (mask.getParentBlock() == move->getBlock() && isSame(known.value, move.getX()) &&
          known.dim == static_cast<int64_t>(move.getFrom()) &&
          cast<AllGatherOp>(mask.getDefiningOp()).getAxes() == move.getAxes()) {
        OpBuilder builder(move);
        Value part = SliceOp::create(builder, move.getLoc(), move.getResult().getType(), mask, move.getTo(),
                                     move.getAxes(), 0, ArrayAttr());
        move.getResult().replaceAllUsesWith(part);
        move.erase();
        return;
      }
  }

  /// Returns true if an operand or the result has experts but no tokens.
  static bool isOfExperts(EinsumOp op) {
    FactorRule rule = op.getFactorRule();
    ArrayRef<int> mask = rule.operands.back();
    auto is = [&](ArrayRef<int> dims) {
      return llvm::is_contained(dims, mask.back()) &&
             llvm::none_of(mask.drop_back(), [&](int f) { return llvm::is_contained(dims, f); });
    };
    return is(rule.results[0]) || llvm::any_of(rule.operands, is);
  }
  /// The first mask that was computed by the same moves as `mask`.
  Value first(Value mask) {
    Value &known = firsts[mask];
    if (known)
      return known;
    auto *same = llvm::find_if(masks, [&](Value other) { return isSame(other, mask); });
    known = same == masks.end() ? mask : *same;
    if (known == mask)
      masks.push_back(mask);
    locals.try_emplace({mask.getParentBlock(), known}, mask);
    return known;
  }
  /// Values are the same if they have the same origin, or come from equal moves of the same value.
  bool isSame(Value a, Value b) {
    a = origin(a), b = origin(b);
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

  /// Returns true if `op` computes its result elementwise from values whose first dims are those of the mask.
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

  void propose(Block &block) {
    for (Operation &op : block)
      if (auto call = dyn_cast<CallOp>(op))
        proposeCall(call);
      else
        propose(&op);
  }
  /// Proposes values inside the called function as well, at its first call.
  void proposeCall(CallOp call) {
    const TaskFunction &called = functions.of(call);
    auto take = [&](ValueRange from, ValueRange to) {
      for (auto [value, other] : llvm::zip_equal(from, to))
        if (auto it = stored.find(value); it != stored.end())
          stored.insert({other, Choice(it->second)});
    };
    if (callsOf(called.body).front() == call) {
      take(call.getInputs(), called.body->getArguments());
      propose(*called.body);
    }
    take(called.results(), call.getResults());
  }
  /// Marks the result as stored by rows if `op` could produce rows. Whether its readers can read rows is checked later.
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
      if (!locals.contains({op->getBlock(), choice.mask})) // the runtime cannot send it from here
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
  /// CPUs convert values with one number per entry to rows and back only in f32. Device kernels do not support values
  /// with one line per expert.
  bool isGrouped(EinsumOp op) {
    Choice choice = choiceOf(op);
    std::optional<Grouped> grouped = asGrouped(op, [&](Value v) { return isStored(v, choice); });
    if (!grouped)
      return false;
    const int32_t kind = grouped->desc.grouped;
    const bool packs = kind == PCRT_GROUPED_PACK || kind == PCRT_GROUPED_UNPACK;
    if (cuda)
      return kind != PCRT_GROUPED_SPREAD && kind != PCRT_GROUPED_SUM;
    const Type from = elementOf(op.getInputs()[0]), to = elementOf(op.getResult());
    return !packs || (isOfTokens(op) ? kind == PCRT_GROUPED_UNPACK || from == to : from.isF32() && to.isF32());
  }

  /// Returns true if the op that computes `value` can store it by rows.
  bool isMadeSo(Value value) {
    const Choice choice = stored.find(value)->second;
    if (auto argument = dyn_cast<BlockArgument>(value))
      return llvm::all_of(callsOf(argument.getOwner()),
                          [&](CallOp call) { return isStored(call.getInputs()[argument.getArgNumber()], choice); });
    Operation *op = value.getDefiningOp();
    if (auto call = dyn_cast<CallOp>(op))
      return isStored(functions.of(call).results()[cast<OpResult>(value).getResultNumber()], choice);
    EinsumOp einsum = asRouted(op);
    if (isa<AllToAllOp>(op))
      return stored.contains(op->getOperand(0));
    return einsum ? isGrouped(einsum) : areStored(op->getOperands(), choice);
  }
  /// Returns true if `user` can read `value` by rows.
  bool isReadSo(Value value, Operation *user) {
    Choice choice = stored.find(value)->second;
    if (EinsumOp einsum = asRouted(user))
      return einsum.getMask() != value && choiceOf(einsum) == choice && isGrouped(einsum);
    // A value that a call passes or a function returns must also be stored by rows on the other side.
    auto isPassed = [&](ValueRange others) {
      return llvm::all_of(llvm::zip_equal(user->getOperands(), others),
                          [&](auto pair) { return std::get<0>(pair) != value || isStored(std::get<1>(pair), choice); });
    };
    if (auto call = dyn_cast<CallOp>(user))
      return isPassed(functions.of(call).body->getArguments());
    if (ArrayRef<CallOp> all = callsOf(user->getBlock()); !all.empty() && isa<func::ReturnOp>(user))
      return llvm::all_of(all, [&](CallOp call) { return isPassed(call.getResults()); });
    if (user->getBlock() != value.getParentBlock())
      return false;
    if (isa<AllToAllOp>(user))
      return stored.contains(user->getResult(0));
    return user->getNumResults() == 1 && isStored(user->getResult(0), choice);
  }

  SmallVector<Block *> blocks;
  const bool cuda;
  TaskFunctions functions;
  bool isRewriting = false;                           ///< ops in other blocks may have been erased
  llvm::DenseMap<Block *, SmallVector<CallOp>> calls; ///< calls of functions, keyed by body
  llvm::DenseMap<Value, Value> origins;
  SmallVector<Value> masks;
  llvm::DenseMap<Value, Value> firsts;
  llvm::DenseMap<std::pair<Block *, Value>, Value> locals; ///< by block and mask of `masks`: the block's version of it
  llvm::MapVector<Value, Choice> stored;
  llvm::DenseSet<Value> moved; ///< masks of rows that are sent, for which the runtime needs memory for all choices
  SmallVector<std::pair<Gathered, Value>> gatheredMasks;
};

/// The pass pc-store-rows. With a limit, it first divides experts into rounds; these change the program, so rows are
/// found again.
struct StoreRows : pc::impl::StoreRowsBase<StoreRows> {
  using StoreRowsBase::StoreRowsBase;
  /// True if a stage has reported why there are no rounds. Stages run in parallel and all have the same reason.
  std::shared_ptr<std::atomic<bool>> isTold = std::make_shared<std::atomic<bool>>(false);

  void runOnOperation() override {
    SmallVector<Block *> blocks;
    getOperation().walk([&](Block *block) {
      if (!isa<ModuleOp, FusionOp>(block->getParentOp()))
        blocks.push_back(block);
    });
    if (limit < 0) {
      getOperation().emitError() << "pc-store-rows: limit must not be negative, got " << int64_t(limit)
                                 << "; 0 means no limit";
      return signalPassFailure();
    }
    if (limit > 0) {
      RowStore whole(blocks, target == "cuda");
      whole.find();
      if (!whole.divide(limit, [&] { return !isTold->exchange(true); }))
        return signalPassFailure();
    }
    RowStore rows(blocks, target == "cuda");
    rows.find();
    rows.store();
  }
};

} // namespace
