//===- Fuse.cpp - Group ops that become one kernel into pc.fusion -----------------------===//
#include "Gemm.h"
#include "RowSpace.h"
#include "pc/Codegen/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace pc {
#define GEN_PASS_DEF_FUSE
#include "pc/Codegen/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

namespace {

/// Replaces `ops` (in block order) by one fusion at the place of `anchor`.
void makeFusion(ArrayRef<Operation *> ops, Operation *anchor) {
  llvm::DenseSet<Operation *> inside(ops.begin(), ops.end());
  SmallVector<Value> inputs, outputs;
  llvm::DenseSet<Value> seen;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (!inside.contains(operand.getDefiningOp()) && seen.insert(operand).second)
        inputs.push_back(operand);
  for (Operation *op : ops)
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !inside.contains(user); }))
        outputs.push_back(result);
  OpBuilder builder(anchor);
  // The name of a fusion is that of its last op: what it is there for.
  OperationState state(ops.back()->getLoc(), FusionOp::getOperationName());
  state.addOperands(inputs);
  state.addTypes(ValueRange(outputs).getTypes());
  state.addRegion();
  auto fusion = cast<FusionOp>(builder.create(state));
  Block *body = new Block;
  fusion.getBody().push_back(body);
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, body->addArgument(input.getType(), input.getLoc()));
  OpBuilder inner(fusion.getContext());
  inner.setInsertionPointToStart(body);
  for (Operation *op : ops)
    inner.clone(*op, mapping);
  SmallVector<Value> yields;
  for (Value output : outputs)
    yields.push_back(mapping.lookup(output));
  YieldOp::create(inner, fusion.getLoc(), yields);
  for (auto [output, result] : llvm::zip(outputs, fusion.getResults()))
    output.replaceAllUsesWith(result);
  for (Operation *op : llvm::reverse(ops))
    op->erase();
}

/// "x0 x1, x0 x1 ->" becomes "x0 x1, x0 x1 -> x0" and "x0 ->".
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

/// Rounds the bias of a bf16 product where it is made: a kernel for all weights that are rounded does it, too.
void roundBias(BiasedGemm &biased) {
  Value bias = biased.broadcast.getInputs()[0];
  auto type = cast<RankedTensorType>(bias.getType());
  OpBuilder builder(bias.getContext());
  builder.setInsertionPointAfterValue(bias);
  Type rounded = RankedTensorType::get(type.getShape(), builder.getBF16Type());
  biased.broadcast->setOperand(0, CastOp::create(builder, bias.getLoc(), rounded, bias));
}

/// gelu_tanh of `sum`, where something else reads the sum, too; null if there is none.
ActivationOp geluBeside(AddOp sum) {
  for (Operation *user : sum->getUsers())
    if (auto gelu = dyn_cast<ActivationOp>(user);
        gelu && gelu->getBlock() == sum->getBlock() && !sum->hasOneUse() && biasedGeluOf(gelu))
      return gelu;
  return nullptr;
}

/// Products whose result is only read by the sum with their bias, and on CUDA devices their gelu.
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
    SmallVector<Operation *> ops = {biased->product, biased->broadcast, sum};
    if (ActivationOp gelu = cuda ? geluBeside(sum) : nullptr)
      ops.push_back(gelu);
    makeFusion(ops, sum);
  }
}

/// CUDA: what cuBLASLt does with a product's result or operand while it has it at hand.
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
      // Where the first of the two stands, if the other one can: results are wanted early, operands are there.
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

/// Whether no task of a pipeline's schedule begins between two ops of a block.
bool inOneTask(Operation *first, Operation *last) {
  for (Operation *op = first; op != last; op = op->getNextNode())
    if (isa<TaskOp>(op))
      return false;
  return true;
}

/// The gradient of an embedding that is added to another value (the gradient of a tied head, those of earlier
/// microbatches) is added row by row and needs no table of its own.
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

/// Whether `base` is a sum that `product` may add to in place: what a product in front of it has made, or the sum over
/// microbatches so far that a function of a task is given and gives back (`sum` is returned).
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

/// Sums of products, of a window's steps or of microbatches for example: the later one adds to what the earlier one
/// made and nothing else reads, and does not exist by itself.
void fuseSums(Block &block, bool cuda) {
  for (AddOp sum : llvm::to_vector(block.getOps<AddOp>())) {
    std::optional<SummedGemm> summed = asSummedGemm(sum);
    if (summed && summed->product->getBlock() == &block && summed->base.hasOneUse() &&
        isSumSoFar(summed->base, summed->product, sum, cuda) && inOneTask(summed->product, sum))
      makeFusion({summed->product, sum}, summed->product);
  }
}

/// A growing group of row ops and the position (op number in the block) where it will stand.
struct Group {
  SmallVector<Operation *> ops;
  RowSpace space;
  unsigned position;
};

class RowFuser {
public:
  explicit RowFuser(Block &block) : block(block) {}

  void run() {
    unsigned number = 0, moves = 0, task = 0, seeds = 0;
    for (Operation &op : block) {
      order[&op] = number++;
      movesBefore.push_back(moves);
      moves += isa<MoveOpInterface>(op);
      task += isa<TaskOp>(op);
      tasksBefore.push_back(task);
      seeds += isa<SeedOp>(op);
      seedsBefore.push_back(seeds);
    }
    for (Operation &op : block)
      visit(&op);
    for (MaskPaddingOp mask : llvm::to_vector(block.getOps<MaskPaddingOp>()))
      repeat(mask);
    for (Group &group : groups)
      if (group.ops.size() > 1)
        makeFusion(group.ops, anchors.lookup(group.position));
  }

private:
  void visit(Operation *op) {
    anchors[order[op]] = op;
    std::optional<RowSpace> space = rowSpace(op);
    if (!space)
      return;
    // The group of an operand, latest first.
    SmallVector<unsigned> candidates;
    for (Value operand : op->getOperands())
      if (auto it = groupOf.find(operand.getDefiningOp()); operand.getDefiningOp() && it != groupOf.end())
        if (!llvm::is_contained(candidates, it->second))
          candidates.push_back(it->second);
    llvm::sort(candidates, std::greater<>());
    for (unsigned id : candidates)
      if (join(groups[id], op, *space)) {
        groupOf[op] = id;
        return;
      }
    groupOf[op] = groups.size();
    groups.push_back({{op}, *space, order[op]});
  }

  bool join(Group &group, Operation *op, const RowSpace &space) {
    // A kernel belongs to one task of a pipeline's schedule.
    if (tasksBefore[order[op]] != tasksBefore[group.position])
      return false;
    RowSpace merged = group.space;
    if (space.shape == group.space.shape) {
      merged.splits &= space.splits;
    } else if (space.isPointwise() && !space.shape.empty() &&
               ArrayRef(space.shape) == ArrayRef(group.space.shape).take_front(space.shape.size())) {
      merged.splits &= uint64_t(1) << space.shape.size(); // works on the rows only
    } else {
      return false;
    }
    if (!merged.splits || group.ops.size() >= 64)
      return false;
    // Hoist the op to the group if all it needs is there already; else sink the group to the op if nobody needs the
    // group before.
    unsigned here = order[op], position = group.position;
    if (definedBefore(op, group)) {
      // What the backward pass computes again is not kept from the forward pass.
      if (seedsBefore[here] != seedsBefore[position])
        return false;
    } else {
      // A gathered value is there for its reader alone and freed after it: the reader does not wait for the next move.
      if (movesBefore[here] != movesBefore[position] && readsGathered(group))
        return false;
      for (Operation *member : group.ops)
        for (Operation *user : member->getUsers())
          if (Operation *at = block.findAncestorOpInBlock(*user);
              !at || (at != op && positionOf(at) < here && !isMember(group, at)))
            return false;
      position = here;
    }
    group.ops.push_back(op);
    group.space = merged;
    group.position = position;
    return true;
  }

  /// Gives each other group that reads `mask` one of its own: to mask what is masked costs less than to write it and to
  /// read it again, and of logits there is one copy in memory instead of two.
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

  /// Where an op will stand: with its group, if it is in one.
  unsigned positionOf(Operation *op) {
    auto it = groupOf.find(op);
    return it == groupOf.end() ? order[op] : groups[it->second].position;
  }
  bool isMember(const Group &group, Operation *op) {
    auto it = groupOf.find(op);
    return it != groupOf.end() && &groups[it->second] == &group;
  }
  bool definedBefore(Operation *op, const Group &group) {
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      Operation *definition = operand.getDefiningOp();
      if (!definition || definition->getBlock() != &block || isMember(group, definition))
        return true;
      return positionOf(definition) < group.position;
    });
  }

  static bool readsGathered(const Group &group) {
    return llvm::any_of(group.ops, [](Operation *op) {
      return llvm::any_of(op->getOperands(), [](Value operand) { return operand.getDefiningOp<AllGatherOp>(); });
    });
  }

  Block &block;
  SmallVector<unsigned> movesBefore, tasksBefore, seedsBefore; ///< by op number
  llvm::DenseMap<Operation *, unsigned> order, groupOf;
  llvm::DenseMap<unsigned, Operation *> anchors;
  std::vector<Group> groups;
};

struct Fuse : pc::impl::FuseBase<Fuse> {
  using FuseBase::FuseBase;

  void runOnOperation() override {
    SmallVector<Block *> blocks;
    WalkResult placed = getOperation().walk([&](Operation *op) {
      if (llvm::none_of(op->getResultTypes(), [](Type type) { return placement(type); }))
        return WalkResult::advance();
      op->emitOpError() << "has a placement; kernels are made of local programs (pc-localize)";
      return WalkResult::interrupt();
    });
    if (placed.wasInterrupted())
      return signalPassFailure();
    getOperation().walk([&](Block *block) {
      if (!isa<ModuleOp, FusionOp>(block->getParentOp()))
        blocks.push_back(block);
    });
    for (Block *block : blocks) {
      splitFullSums(*block);
      fuseBiases(*block, target == "cuda");
      if (target == "cuda")
        fuseGradients(*block);
      fuseTableSums(*block);
      fuseSums(*block, target == "cuda");
      RowFuser(*block).run();
    }
  }
};

} // namespace
