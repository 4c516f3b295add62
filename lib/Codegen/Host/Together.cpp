//===- Together.cpp - Ops of a CUDA step that share one kernel ------------------------===//
// Updates of many small parameters, casts of weights and sums of squares would each need a launch of a few
// microseconds. Each find* function collects consecutive ops of one of these kinds that do not overlap in memory, and
// writes one kernel for all of them.
//===-----------------------------------------------------------------------------===//
#include "Together.h"
#include "../Fuse/Grouped.h"
#include "../Kernels/MultiTensor.h"
#include "Description.h"

using namespace mlir;
using namespace pc;

using IsIdle = llvm::function_ref<bool(Operation *)>;
using IsInEvaluation = llvm::function_ref<bool(Operation *)>;

static bool isF32(Value value) { return cast<RankedTensorType>(value.getType()).getElementType().isF32(); }
static int64_t elementsOf(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

/// The arena offsets of an optimizer op's buffers, by role (parameter, gradient, ...); empty if it does not work in
/// place.
static SmallVector<int64_t> inPlace(AdamWOp op) {
  if (homeOf(op.getParameter()) != homeOf(op.getNewParameter()) ||
      homeOf(op.getExpAvg()) != homeOf(op.getNewExpAvg()) || homeOf(op.getExpAvgSq()) != homeOf(op.getNewExpAvgSq()))
    return {};
  return {homeOf(op.getParameter()), homeOf(op.getGradient()), homeOf(op.getExpAvg()), homeOf(op.getExpAvgSq())};
}
static SmallVector<int64_t> inPlace(SGDOp op) {
  if (homeOf(op.getParameter()) != homeOf(op.getNewParameter()))
    return {};
  return {homeOf(op.getParameter()), homeOf(op.getGradient())};
}

static void emit(AdamWOp op, kernels::SimtEmitter &e, Value arena, const kernels::TensorList &tensors) {
  kernels::emitAdamW(e, arena, tensors, homeOf(op.getCoefficient()), homeOf(op.getHyper()));
}
static void emit(SGDOp op, kernels::SimtEmitter &e, Value arena, const kernels::TensorList &tensors) {
  kernels::emitSGD(e, arena, tensors, homeOf(op.getCoefficient()), homeOf(op.getHyper()));
}

/// Collects updates as long as they have the same kind and coefficients, and work in place on different memory.
template <typename OpT>
static std::optional<Together> findOptimizer(Block::iterator first, KernelSet &kernels, IsIdle isIdle) {
  auto leader = cast<OpT>(*first);
  kernels::TensorList tensors;
  Block::iterator after = first;
  for (auto it = first, end = first->getBlock()->end(); it != end; ++it) {
    auto op = dyn_cast<OpT>(*it);
    SmallVector<int64_t> roles = op ? inPlace(op) : SmallVector<int64_t>();
    // All ops of the kernel share its scalars.
    if (!roles.empty() && op.getCoefficient() == leader.getCoefficient() && op.getHyper() == leader.getHyper() &&
        llvm::all_of(op->getOperands(), isF32)) {
      tensors.add(elementsOf(op.getParameter()), roles);
      after = std::next(it);
    } else if (!isIdle(&*it)) {
      break;
    }
  }
  if (tensors.elements.size() < 2)
    return std::nullopt;
  std::string name = leader->getName().stripDialect().str();
  KernelSet::Info info = kernels.add(name + "_all", "optimizer", 1, [&](kernels::SimtEmitter &e, ValueRange buffers) {
    emit(leader, e, buffers[0], tensors);
  });
  return Together{after, {}, {{name + " of all parameters", info}}};
}

/// Finds consecutive casts of weights from f32 to bf16. The evaluation needs all of them, or none.
static std::optional<Together> findRounding(Block::iterator first, KernelSet &kernels, IsIdle isIdle,
                                            IsInEvaluation isInEvaluation) {
  kernels::TensorList tensors;
  SmallVector<std::pair<int64_t, int64_t>> read, written;
  auto clashes = [](ArrayRef<std::pair<int64_t, int64_t>> ranges, std::pair<int64_t, int64_t> range) {
    return llvm::any_of(ranges, [&](auto r) { return range.first < r.second && r.first < range.second; });
  };
  Block::iterator after = first;
  for (auto it = first, end = first->getBlock()->end(); it != end; ++it) {
    auto op = dyn_cast<CastOp>(*it);
    if (!op || hasRows(op)) {
      if (isIdle(&*it))
        continue;
      break;
    }
    Value from = op.getX(), to = op.getResult();
    auto rangeOf = [](Value v) { return std::pair(homeOf(v), homeOf(v) + bytesOf(v.getType())); };
    // Thread blocks run in any order, so no result may overlap any operand.
    if (!isF32(from) || !cast<RankedTensorType>(to.getType()).getElementType().isBF16() ||
        clashes(written, rangeOf(from)) || clashes(read, rangeOf(to)) || rangeOf(from).first == rangeOf(to).first ||
        isInEvaluation(op) != isInEvaluation(&*first))
      break;
    read.push_back(rangeOf(from));
    written.push_back(rangeOf(to));
    tensors.add(elementsOf(from), {homeOf(from), homeOf(to)});
    after = std::next(it);
  }
  if (tensors.elements.size() < 2)
    return std::nullopt;
  KernelSet::Info info = kernels.add("round_all", "optimizer", 1, [&](kernels::SimtEmitter &e, ValueRange buffers) {
    kernels::emitRounding(e, buffers[0], tensors);
  });
  return Together{after, {}, {{"cast of the weights", info}}};
}

/// The scalar sum of squares that `op` computes, alone or with the next op; null if it does not compute one. Sets `end`
/// to the last op of the computation.
static Value squareSum(EinsumOp op, Operation *&end) {
  if (op.getInputs().size() != 2 || op.getInputs()[0] != op.getInputs()[1] || !isF32(op.getInputs()[0]))
    return {};
  FactorRule rule = op.getFactorRule();
  ArrayRef<int> dims = rule.operands[0];
  bool noDiagonal = llvm::all_of(dims, [&](int f) { return llvm::count(dims, f) == 1; });
  if (!noDiagonal || ArrayRef<int>(rule.operands[1]) != dims)
    return {};
  end = op;
  if (elementsOf(op.getResult()) == 1 && rule.results[0].empty())
    return op.getResult();
  // The sum may have two steps: sums per row, then the sum of these.
  ArrayRef<int> rows = rule.results[0];
  if (!op.getResult().hasOneUse() || rows.size() > dims.size() || dims.take_front(rows.size()) != rows)
    return {};
  auto total = dyn_cast<EinsumOp>(*op->user_begin());
  if (!total || total != op->getNextNode() || total.getInputs().size() != 1 ||
      cast<RankedTensorType>(total.getResult().getType()).getRank())
    return {};
  end = total;
  return total.getResult();
}

/// Finds consecutive sums of squares of tensors, such as those of gradients for their norm.
static std::optional<Together> findSquares(Block::iterator first, KernelSet &kernels, int64_t partials,
                                           int64_t partialBytes, IsIdle isIdle) {
  kernels::TensorList tensors;
  SmallVector<std::pair<int64_t, int64_t>> read; // homes of the values that are read
  SmallVector<Operation *> shown;
  Block::iterator after = first;
  for (auto it = first, blockEnd = first->getBlock()->end(); it != blockEnd; ++it) {
    if (isa<OutputOp>(*it)) {
      shown.push_back(&*it);
      continue;
    }
    auto op = dyn_cast<EinsumOp>(*it);
    Operation *end = nullptr;
    Value sum = op ? squareSum(op, end) : Value();
    if (!sum) {
      if (isIdle(&*it))
        continue;
      break;
    }
    // The kernel reads all tensors before it writes any sum, and a sum must not overlap a tensor.
    Value x = op.getInputs()[0];
    read.push_back({homeOf(x), homeOf(x) + bytesOf(x.getType())});
    int64_t home = homeOf(sum);
    auto clashes = [&](int64_t at) {
      return llvm::any_of(read, [&](auto range) { return at + 4 > range.first && at < range.second; });
    };
    if (clashes(home) || llvm::any_of(tensors.offsets, [&](const auto &roles) { return clashes(roles[1]); }))
      break;
    tensors.add(elementsOf(x), {homeOf(x), home});
    it = Block::iterator(end);
    after = std::next(it);
  }
  if (tensors.elements.size() < 2 || tensors.numBlocks() * 4 > partialBytes)
    return std::nullopt;
  // Outputs between the ops are observed before the kernel. Outputs after the last op do not belong to the group.
  llvm::erase_if(shown, [&](Operation *output) { return !output->isBeforeInBlock(&*std::prev(after)); });
  KernelSet::Info parts = kernels.add("squares", "optimizer", 1, [&](kernels::SimtEmitter &e, ValueRange buffers) {
    kernels::emitSquares(e, buffers[0], tensors, partials);
  });
  KernelSet::Info totals = kernels.add("square_sums", "optimizer", 1, [&](kernels::SimtEmitter &e, ValueRange buffers) {
    kernels::emitSquareTotals(e, buffers[0], tensors, partials);
  });
  return Together{after, shown, {{"squares of the gradients", parts}, {"sums of the squares", totals}}};
}

/// The kind of the first op decides which search runs.
std::optional<Together> pc::findTogether(Block::iterator first, KernelSet &kernels, int64_t partials,
                                         int64_t partialBytes, IsIdle isIdle, IsInEvaluation isInEvaluation) {
  if (isa<AdamWOp>(*first))
    return findOptimizer<AdamWOp>(first, kernels, isIdle);
  if (isa<SGDOp>(*first))
    return findOptimizer<SGDOp>(first, kernels, isIdle);
  if (isa<CastOp>(*first))
    return findRounding(first, kernels, isIdle, isInEvaluation);
  if (isa<EinsumOp>(*first))
    return findSquares(first, kernels, partials, partialBytes, isIdle);
  return std::nullopt;
}
