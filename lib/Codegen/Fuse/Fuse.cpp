//===- Fuse.cpp - Group ops that become one kernel into pc.fusion -----------------------===//
// In each block, fuses fixed patterns around matrix products and embedding gradients, then groups row ops (RowFuser).
// Invariants, and why the result is correct:
//  1. Only pure ops are fused. Moves (except carries), tasks and updates keep their order, and a fusion is in one task.
// 2. A fusion computes its ops in their original order. It is placed after all its inputs and before all readers of its
//     results. Patterns choose such a place, and groups keep `position` valid.
//  3. A group has a row space with at least one split that all of its ops allow.
//  4. An op joins the group of an operand in one of two ways. The op moves up to `position` if its operands are
//     computed before that, or the group moves down to the op if no op in between reads the group. So 2 holds after
//     each join.
//  5. The pass ends: each op is visited once and joins at most one group; only mask_padding is cloned, once per group.
// In exact arithmetic the results are the same; bf16 values that stay inside of a fusion are no longer rounded.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_FUSE
#include "pc/Codegen/Passes.h"

#include "Gemm.h"
#include "MakeFusion.h"
#include "RowSpace.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/MoveRows.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Debug.h"

#define DEBUG_TYPE "pc-fuse"

using namespace mlir;
using namespace pc;

/// The most ops that a group of row ops may have, without constants.
static constexpr size_t mostOps = 64;

namespace {

/// Replaces a product with codes, and the ops after it that the product's kernel also computes, by one fusion before
/// `anchor`. Other readers of the matrix keep their own copies of the decoding ops.
void fuseProduct(EinsumOp product, ArrayRef<Operation *> after, Operation *anchor) {
  SmallVector<Operation *> ops;
  for (Operation *op : decodingOps(product)) {
    if (!op->hasOneUse() || op->getBlock() != product->getBlock()) {
      Operation *copy = OpBuilder(product).clone(*op);
      auto reads = [&](OpOperand &use) { return use.getOwner() == product; };
      op->getResult(0).replaceUsesWithIf(copy->getResult(0), reads);
      op = copy;
    }
    ops.push_back(op);
  }
  ops.push_back(product);
  ops.append(after.begin(), after.end());
  makeFusion(ops, anchor);
}

/// Fuses products with the ops that compute one of their matrices from codes.
void fuseCodes(Block &block) {
  for (EinsumOp product : llvm::to_vector(block.getOps<EinsumOp>()))
    if (!decodingOps(product).empty())
      fuseProduct(product, {}, product);
}

/// Splits a sum over all dims into two sums. The larger one is a row op. For example, "x0 x1, x0 x1 ->" becomes "x0 x1,
/// x0 x1 -> x0" and "x0 ->".
void splitFullSums(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    auto sum = dyn_cast<EinsumOp>(op);
    if (!sum || cast<RankedTensorType>(sum.getResult().getType()).getRank() || sum.getInputs().empty())
      continue;
    FactorRule rule = sum.getFactorRule();
    ArrayRef<int> dims = rule.operands[0];
    if (dims.size() < 2 || !llvm::all_of(rule.operands, [&](const auto &d) { return ArrayRef<int>(d) == dims; }))
      continue;
    OpBuilder builder(sum);
    std::string row = rule.factors[dims[0]].name;
    StringRef left = sum.getSpec().split("->").first.trim();
    auto type = cast<RankedTensorType>(sum.getResult().getType());
    Value rows = EinsumOp::create(builder, sum.getLoc(),
                                  RankedTensorType::get({rule.factors[dims[0]].size}, type.getElementType()),
                                  (left + " -> " + row).str(), sum.getInputs());
    Value total = EinsumOp::create(builder, sum.getLoc(), type, row + " ->", ValueRange{rows});
    sum.getResult().replaceAllUsesWith(total);
    sum.erase();
  }
}

/// Rounds the bias of a bf16 product where it is defined, next to the other weights, so that one kernel rounds all of
/// them.
void roundBias(BiasedGemm &biased) {
  Value bias = biased.broadcast.getInputs()[0];
  auto type = cast<RankedTensorType>(bias.getType());
  OpBuilder builder(bias.getContext());
  builder.setInsertionPointAfterValue(bias);
  Type rounded = RankedTensorType::get(type.getShape(), builder.getBF16Type());
  biased.broadcast->setOperand(0, CastOp::create(builder, bias.getLoc(), rounded, bias));
}

/// The first gelu_tanh of `sum` if the sum also has other readers; else null. Later ones are recomputed, so that their
/// results are not kept until then.
ActivationOp geluBeside(AddOp sum) {
  ActivationOp first;
  for (Operation *user : sum->getUsers())
    if (auto gelu = dyn_cast<ActivationOp>(user); gelu && gelu->getBlock() == sum->getBlock() && !sum->hasOneUse() &&
                                                  biasedGeluOf(gelu) && (!first || gelu->isBeforeInBlock(first)))
      first = gelu;
  return first;
}

/// Fuses products with the addition of their bias, if nothing else reads the product; on CUDA devices also with the
/// gelu of that sum.
void fuseBiases(Block &block, bool cuda) {
  for (AddOp sum : llvm::to_vector(block.getOps<AddOp>())) {
    std::optional<BiasedGemm> biased = asBiasedGemm(sum);
    if (!biased || !biased->product->hasOneUse() || !biased->broadcast->hasOneUse() ||
        biased->product->getBlock() != &block || biased->broadcast->getBlock() != &block)
      continue;
    auto elementOf = [](Value v) { return getElementTypeOrSelf(v.getType()); };
    if (cuda && elementOf(biased->product) != elementOf(sum))
      continue;
    if (cuda && elementOf(biased->broadcast.getInputs()[0]).isF32() && elementOf(sum).isBF16())
      roundBias(*biased);
    if (!takesBias(*biased, cuda))
      continue;
    SmallVector<Operation *> after = {biased->broadcast, sum};
    if (ActivationOp gelu = cuda ? geluBeside(sum) : nullptr)
      after.push_back(gelu);
    fuseProduct(biased->product, after, sum);
  }
}

/// CUDA: fuses products with the epilogues of cuBLASLt for the backward pass: the derivative of gelu, the gradient of a
/// bias.
void fuseGradients(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block))
    if (auto gradient = dyn_cast<ActivationGradOp>(op))
      if (EinsumOp product = geluGradOf(gradient); product && product->hasOneUse() && product->getBlock() == &block)
        makeFusion({product, gradient}, gradient);
  SmallVector<EinsumOp> sums;
  for (auto sum : block.getOps<EinsumOp>())
    if (sum.getInputs().size() == 1)
      sums.push_back(sum);
  for (EinsumOp sum : sums)
    if (EinsumOp product = biasGradOf(sum)) {
      // Places the fusion at the earlier of the two, if the operands of the other one are computed before it.
      bool sumFirst = sum->isBeforeInBlock(product);
      Operation *first = sumFirst ? sum : product;
      bool there = llvm::all_of(product->getOperands(), [&](Value operand) {
        Operation *definition = operand.getDefiningOp();
        return !definition || definition->getBlock() != &block || definition->isBeforeInBlock(first);
      });
      if (there)
        makeFusion({product, sum}, first);
    }
}

/// Returns true if no task of a pipeline's schedule begins between two ops of a block.
bool inOneTask(Operation *first, Operation *last) {
  for (Operation *op = first; op != last; op = op->getNextNode())
    if (isa<TaskOp>(op))
      return false;
  return true;
}

/// Fuses gradients of embeddings with their addition to another value (the gradient of a tied head, the sum over
/// earlier microbatches): their rows are added in place, without a separate table.
void fuseTableSums(Block &block) {
  auto isF32 = [](Value v) { return getElementTypeOrSelf(v.getType()).isF32(); };
  for (AddOp sum : llvm::to_vector(block.getOps<AddOp>()))
    for (Value addend : sum->getOperands()) {
      auto gradient = addend.getDefiningOp<EmbeddingGradOp>();
      if (!gradient || !addend.hasOneUse() || gradient->getBlock() != &block ||
          !llvm::all_of(sum->getOperands(), isF32) || !isF32(sum))
        continue;
      if (!inOneTask(gradient, sum))
        continue;
      makeFusion({gradient, sum}, sum);
      break;
    }
}

/// Fuses AdamW with the ops that decode and encode its states, so that these exist in f32 for one block at a time.
void fuseStates(Block &block) {
  for (AdamWOp adamw : llvm::to_vector(block.getOps<AdamWOp>()))
    if (std::optional<CodedAdamW> coded = codedAdamW(adamw); coded && inOneTask(coded->first, coded->newSecond))
      makeFusion(coded->ops(), adamw);
}

/// Returns true if `product` may accumulate into the buffer of `base`. It may if `base` is the result of an earlier
/// product, or an argument of a task's function that the function returns with the product added (`sum`).
bool isSumSoFar(Value base, EinsumOp product, AddOp sum, bool cuda) {
  if (auto argument = dyn_cast<BlockArgument>(base))
    return argument.getOwner() == product->getBlock() && sum.getResult().hasOneUse() &&
           isa<func::ReturnOp>(*sum.getResult().user_begin());
  Operation *before = base.getDefiningOp();
  if (before->getBlock() != product->getBlock() || !before->isBeforeInBlock(product))
    return false;
  auto einsum = dyn_cast<EinsumOp>(before);
  auto fusion = dyn_cast<FusionOp>(before);
  return (einsum && asGemm(einsum)) || (fusion && asFusedProduct(fusion, cuda));
}

/// Fuses a product with its addition to an earlier product that has no other reader (steps of a collective matmul,
/// microbatches). The product then accumulates in place and its own result is not stored.
void fuseSums(Block &block, bool cuda) {
  for (AddOp sum : llvm::to_vector(block.getOps<AddOp>())) {
    std::optional<SummedGemm> summed = asSummedGemm(sum);
    if (summed && summed->product->getBlock() == &block && summed->base.hasOneUse() &&
        isSumSoFar(summed->base, summed->product, sum, cuda) && inOneTask(summed->product, sum))
      fuseProduct(summed->product, {sum}, summed->product);
  }
}

/// Moves the seed of the backward pass, and what is computed from it for each token, before the ops that compute the
/// loss from the logits, so that one kernel can compute the loss and the gradient of the logits. The gradient takes the
/// place of the logits, so this needs no memory. Moves between ranks and tasks keep their order.
void hoistSeeds(Block &block) {
  for (auto gradient : block.getOps<CrossEntropyGradOp>()) {
    Value logits = gradient.getLogits();
    for (Operation *op = logits.getDefiningOp(); op && op->getBlock() == &block && rowSpace(op) && op->getNumOperands();
         op = logits.getDefiningOp())
      logits = op->getOperand(0);
    Operation *before = logits.getDefiningOp();
    if (!before || before->getBlock() != &block)
      continue;
    before = before->getNextNode();
    SmallVector<Operation *> hoisted;
    bool isOrdered = false; // whether a move, a task or a round comes before the gradient
    for (Operation *op = before; op && op != gradient; op = op->getNextNode()) {
      isOrdered |= isa<MoveOpInterface, TaskOp, RoundOfRowsOp>(op);
      bool followsSeed = isa<SeedOp>(op), isReady = true;
      for (Value operand : op->getOperands()) {
        Operation *definition = operand.getDefiningOp();
        bool isHoisted = llvm::is_contained(hoisted, definition);
        followsSeed |= isHoisted;
        isReady &= isHoisted || !definition || definition->getBlock() != &block || definition->isBeforeInBlock(before);
      }
      if (followsSeed && isReady)
        hoisted.push_back(op);
    }
    if (!isOrdered)
      for (Operation *op : hoisted)
        op->moveBefore(before);
  }
}

/// While it exists, carries of pc-offload divide no ops: those of leaves come first, and readers of an activation read
/// the activation itself. So ops are fused as without offload, and results have the same bits. In the end, carries from
/// elsewhere are before their first readers. Readers of an activation after the seed of the backward pass, or in a
/// later task, read what has come back.
class HiddenCarries {
public:
  explicit HiddenCarries(Block &block) : block(block) {
    for (CarryOp carry : llvm::to_vector(block.getOps<CarryOp>())) {
      if (isAway(carry))
        continue;
      Operation *source = carry.getX().getDefiningOp();
      if (auto away = dyn_cast_or_null<CarryOp>(source); away && away->getBlock() == &block && away->hasOneUse()) {
        carry.getResult().replaceAllUsesWith(away.getX());
        activations.push_back({away, carry});
      } else {
        source && source->getBlock() == &block ? carry->moveAfter(source) : carry->moveBefore(&block, block.begin());
        leaves.push_back(carry);
      }
    }
  }
  ~HiddenCarries() {
    // All readers come first, because MLIR numbers the block again after each move.
    auto readers = llvm::map_to_vector(leaves, [&](CarryOp carry) { return firstReader(carry); });
    for (auto [carry, first] : llvm::zip_equal(leaves, readers))
      if (first)
        carry->moveBefore(first);
    for (auto [away, back] : activations)
      restore(away, back);
  }

  /// Whether `op` takes an activation away. (An update reads a carry of a new value.)
  static bool isAwayOfActivation(Operation *op) {
    auto carry = dyn_cast<CarryOp>(op);
    return carry && isAway(carry) && llvm::none_of(carry->getUsers(), llvm::IsaPred<UpdateOp>);
  }

private:
  static bool isAway(CarryOp carry) { return spaceOf(carry.getResult()) != Space::Device; }

  Operation *firstReader(CarryOp carry) {
    Operation *first = nullptr;
    for (Operation *user : carry->getUsers())
      if (Operation *at = block.findAncestorOpInBlock(*user); !first || at->isBeforeInBlock(first))
        first = at;
    return first;
  }

  void restore(CarryOp away, CarryOp back) {
    Value value = away.getX();
    if (Operation *op = value.getDefiningOp(); op && op->getBlock() == &block && !op->isBeforeInBlock(away))
      away->moveAfter(op);
    Operation *end = away; // of the forward pass
    while (end && !isa<SeedOp, TaskOp>(end))
      end = end->getNextNode();
    value.replaceUsesWithIf(back.getResult(), [&](OpOperand &use) {
      return end && end->isBeforeInBlock(block.findAncestorOpInBlock(*use.getOwner()));
    });
    if (Operation *first = firstReader(back); !first) { // a fusion with the value's op has all readers
      back.erase();
      away.erase();
    } else if (first->isBeforeInBlock(back)) {
      back->moveBefore(first);
    }
  }

  Block &block;
  SmallVector<CarryOp> leaves;
  SmallVector<std::pair<CarryOp, CarryOp>> activations;
};

/// A growing group of row ops and the position (op number in the block) at which it will be placed.
struct RowGroup {
  SmallVector<Operation *> ops;
  RowSpace space;
  unsigned position;
};

/// Groups the row ops of one block and writes the fusions. State: for each op, its number and the numbers of moves,
/// tasks, seeds and rounds before it, which determine where a group may be placed; and the group of each op that has
/// joined one.
class RowFuser {
public:
  RowFuser(Block &block, bool cuda) : block(block), cuda(cuda) {}

  /// Numbers the ops, then visits them in order, and finally writes a fusion for each group of several ops.
  void run() {
    unsigned number = 0, moves = 0, task = 0, seeds = 0, rounds = 0;
    for (Operation &op : block) {
      order[&op] = number++;
      movesBefore.push_back(moves);
      moves += isa<MoveOpInterface>(op) && !isa<CarryOp>(op);
      task += isa<TaskOp>(op);
      tasksBefore.push_back(task);
      seeds += isa<SeedOp>(op);
      seedsBefore.push_back(seeds);
      rounds += isa<RoundOfRowsOp>(op);
      roundsBefore.push_back(rounds);
    }
    StepPhase phase = StepPhase::Forward;
    for (Operation &op : block) {
      phase = phaseBegunBy(&op).value_or(phase);
      visit(&op, phase == StepPhase::Optimizer);
    }
    for (MaskPaddingOp mask : llvm::to_vector(block.getOps<MaskPaddingOp>()))
      repeat(mask);
    for (RowGroup &group : groups)
      if (group.ops.size() > 1 && !group.space.shape.empty())
        takeConstants(group);
    for (RowGroup &group : groups)
      if (group.ops.size() > 1)
        makeFusion(group.ops, anchors.lookup(group.position));
    for (ConstantOp constant : llvm::make_early_inc_range(block.getOps<ConstantOp>()))
      if (constant->use_empty())
        constant->erase();
  }

private:
  /// Adds an op to the group of one of its operands, or begins a new group. In the optimizer, the groups of its other
  /// operands become a part of that group, so that the update of a parameter and its states is one kernel.
  void visit(Operation *op, bool isOptimizer) {
    anchors[order[op]] = op;
    std::optional<RowSpace> space = rowSpace(op);
    if (!space || (!cuda && !columnSumsOf(op).empty()))
      return;
    // Candidates are the groups of the operands, latest first.
    SmallVector<unsigned> candidates;
    for (Value operand : op->getOperands())
      if (auto it = groupOf.find(operand.getDefiningOp()); operand.getDefiningOp() && it != groupOf.end())
        if (!llvm::is_contained(candidates, it->second))
          candidates.push_back(it->second);
    llvm::sort(candidates, std::greater<>());
    for (unsigned id : candidates)
      if (join(groups[id], op, *space)) {
        groupOf[op] = id;
        LLVM_DEBUG(llvm::dbgs() << op->getName() << " joins group " << id << " at " << groups[id].position << "\n");
        for (unsigned other : candidates)
          if (isOptimizer && other != id && merge(groups[id], groups[other]))
            for (Operation *moved : std::exchange(groups[other].ops, {}))
              groupOf[moved] = id;
        return;
      }
    LLVM_DEBUG(llvm::dbgs() << op->getName() << " begins group " << groups.size() << "; " << candidates.size()
                            << " refused\n");
    groupOf[op] = groups.size();
    groups.push_back({{op}, *space, order[op]});
  }

  /// Returns true if one kernel can compute the group's ops and then `op`, row by row. If so, `op` becomes a member.
  bool join(RowGroup &group, Operation *op, const RowSpace &space) {
    // A kernel must not span two tasks of a pipeline's schedule.
    if (tasksBefore[order[op]] != tasksBefore[group.position])
      return false;
    // The results of a round of rows are added to those of earlier rounds before the next round, and then freed.
    if (roundsBefore[order[op]] != roundsBefore[group.position])
      return false;
    // A sum over rows is complete only after the kernel has ended, and values of other rows may not be computed yet.
    for (OpOperand &operand : op->getOpOperands())
      if (Operation *definition = operand.get().getDefiningOp();
          definition && isMember(group, definition) &&
          (llvm::is_contained(columnSumsOf(definition), operand.get()) || !readsOwnRow(operand)))
        return false;
    RowSpace merged = group.space;
    if (space.shape == group.space.shape) {
      merged.splits &= space.splits;
    } else if (space.isPointwise() && !space.shape.empty() &&
               ArrayRef(space.shape) == ArrayRef(group.space.shape).take_front(space.shape.size())) {
      merged.splits &= uint64_t(1) << space.shape.size(); // the op works only on rows
    } else {
      return false;
    }
    if (!merged.splits || group.ops.size() >= mostOps)
      return false;
    // Move the op up to the group if its operands are computed before the group; else move the group down to the op if
    // nothing in between reads the group.
    unsigned here = order[op], position = group.position;
    if (definedBefore(op, group)) {
      // An op of the backward pass does not move into the forward pass, because its result would then be kept during
      // both.
      if (seedsBefore[here] != seedsBefore[position])
        return false;
      // The gradient of the logits takes their place, so it must not move before their other readers.
      if (auto gradient = dyn_cast<CrossEntropyGradOp>(op);
          gradient && llvm::any_of(gradient.getLogits().getUsers(), [&](Operation *user) {
            return user != op && !isMember(group, user) && positionOf(user) >= position;
          }))
        return false;
    } else {
      // A gathered value is freed after its reader, so a reader must not move down across another move.
      if (movesBefore[here] != movesBefore[position] && readsGathered(group))
        return false;
      for (Operation *member : group.ops)
        for (Operation *user : member->getUsers())
          if (Operation *at = block.findAncestorOpInBlock(*user);
              !at ||
              (at != op && positionOf(at) < here && !isMember(group, at) && !HiddenCarries::isAwayOfActivation(at)))
            return false;
      position = here;
    }
    group.ops.push_back(op);
    group.space = merged;
    group.position = position;
    return true;
  }

  /// Whether one kernel can compute both groups. If so, `group` becomes that kernel, at the later position. Its members
  /// read no sums, so any order in which operands come first is correct.
  bool merge(RowGroup &group, const RowGroup &other) {
    const RowGroup &first = group.position < other.position ? group : other;
    unsigned position = std::max(group.position, other.position);
    auto isBetween = [&](Operation *user) {
      return positionOf(user) < position && !isMember(group, user) && !isMember(other, user) &&
             !HiddenCarries::isAwayOfActivation(user);
    };
    if (group.space.shape != other.space.shape || !group.space.isPointwise() || !other.space.isPointwise() ||
        group.ops.size() + other.ops.size() > mostOps || tasksBefore[first.position] != tasksBefore[position] ||
        roundsBefore[first.position] != roundsBefore[position] ||
        (movesBefore[first.position] != movesBefore[position] && readsGathered(first)))
      return false;
    for (Operation *member : first.ops)
      for (Operation *user : member->getUsers())
        if (Operation *at = block.findAncestorOpInBlock(*user); !at || isBetween(at))
          return false;
    group.ops.append(other.ops.begin(), other.ops.end());
    llvm::sort(group.ops, [&](Operation *a, Operation *b) { return order[a] < order[b]; });
    group.space.splits &= other.space.splits;
    group.position = position;
    return true;
  }

  /// Clones the scalar constants that a group reads into it.
  void takeConstants(RowGroup &group) {
    llvm::SetVector<Operation *> constants;
    for (Operation *op : group.ops)
      for (Value operand : op->getOperands())
        if (auto constant = operand.getDefiningOp<ConstantOp>();
            constant && cast<RankedTensorType>(operand.getType()).getRank() == 0)
          constants.insert(constant);
    for (Operation *constant : constants) {
      Operation *copy = OpBuilder(constant).clone(*constant);
      for (Operation *op : group.ops)
        op->replaceUsesOfWith(constant->getResult(0), copy->getResult(0));
      group.ops.insert(group.ops.begin(), copy);
    }
  }

  /// Clones `mask` into each other group that reads it. Masking again is cheaper than storing and reading masked
  /// logits, and avoids a second copy of the logits in memory.
  void repeat(MaskPaddingOp mask) {
    unsigned home = groupOf.lookup(mask);
    for (unsigned id = 0; id < groups.size(); ++id) {
      SmallVector<Operation *> &ops = groups[id].ops;
      auto *reader =
          llvm::find_if(ops, [&](Operation *op) { return llvm::is_contained(op->getOperands(), mask.getResult()); });
      if (id == home || reader == ops.end() || groups[id].space.shape != groups[home].space.shape)
        continue;
      Operation *copy = OpBuilder(*reader).clone(*mask);
      for (Operation *op : ops)
        op->replaceUsesOfWith(mask.getResult(), copy->getResult(0));
      ops.insert(reader, copy);
    }
  }

  /// The position at which `op` will be. This is the position of its group, if it is in one.
  unsigned positionOf(Operation *op) {
    auto it = groupOf.find(op);
    return it == groupOf.end() ? order[op] : groups[it->second].position;
  }
  bool isMember(const RowGroup &group, Operation *op) {
    auto it = groupOf.find(op);
    return it != groupOf.end() && &groups[it->second] == &group;
  }
  /// Returns true if all operands of `op` are defined before the group's position.
  bool definedBefore(Operation *op, const RowGroup &group) {
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      Operation *definition = operand.getDefiningOp();
      if (!definition || definition->getBlock() != &block || isMember(group, definition))
        return true;
      return positionOf(definition) < group.position;
    });
  }

  static bool readsGathered(const RowGroup &group) {
    return llvm::any_of(group.ops, [](Operation *op) {
      return llvm::any_of(op->getOperands(), [](Value operand) { return operand.getDefiningOp<AllGatherOp>(); });
    });
  }

  Block &block;
  const bool cuda;
  SmallVector<unsigned> movesBefore, tasksBefore, seedsBefore, roundsBefore; ///< by op number
  llvm::DenseMap<Operation *, unsigned> order, groupOf;
  llvm::DenseMap<unsigned, Operation *> anchors;
  std::vector<RowGroup> groups;
};

/// The pass pc-fuse. Blocks of tasks and of the step are fused separately.
struct Fuse : pc::impl::FuseBase<Fuse> {
  using FuseBase::FuseBase;

  void runOnOperation() override {
    SmallVector<Block *> blocks;
    WalkResult placed = getOperation().walk([&](Operation *op) -> WalkResult {
      if (llvm::none_of(op->getResultTypes(), [](Type type) { return placement(type); }))
        return WalkResult::advance();
      return op->emitOpError() << "has a placement, but kernels need a local program; run pc-localize first";
    });
    if (placed.wasInterrupted())
      return signalPassFailure();
    getOperation().walk([&](Block *block) {
      if (!isa<ModuleOp, FusionOp>(block->getParentOp()))
        blocks.push_back(block);
    });
    for (Block *block : blocks) {
      HiddenCarries carries(*block);
      // The other fusions look for certain ops. Row fusions take any row op, so they come last.
      splitFullSums(*block);
      if (target == "cuda") // these are products of our own kernels, which have no library epilogues
        fuseCodes(*block);
      fuseBiases(*block, target == "cuda");
      if (target == "cuda")
        fuseGradients(*block);
      fuseTableSums(*block);
      fuseSums(*block, target == "cuda");
      if (target != "cuda")
        fuseCodes(*block);
      fuseStates(*block);
      hoistSeeds(*block);
      RowFuser(*block, target == "cuda").run();
    }
  }
};

} // namespace
