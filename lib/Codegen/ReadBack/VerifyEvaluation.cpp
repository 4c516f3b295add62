//===- VerifyEvaluation.cpp - Compares the evaluation with the step ----------------------------------===//
// The calls of the evaluation are also read back. They must be calls of the step, in their order, except that kernels
// with dropout are replaced by kernels without dropout. They must include all calls that the loss needs, including
// messages from other stages. None may write to the home of a parameter or a state, except into a cache.
//===-----------------------------------------------------------------------------===//
#include "../Emit/Kernel.h"
#include "../Fuse/WithoutDropping.h"
#include "TableCheck.h"
#include "pc/IR/Generation.h"
#include "pc/IR/Liveness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace pc;
using At = StepReader::At;
using Call = StepReader::Call;

/// Returns true if the evaluation shows an output: the loss, and generated tokens, except outputs of the part for
/// prompts, whose names end with ".chunk".
static bool isOfEvaluation(OutputOp output) {
  return output.getKind() == OutputKind::Loss ||
         (output.getKind() == OutputKind::Generated && !output.getName().ends_with(".chunk"));
}

static bool isSameCall(const Call &a, const Call &b) {
  return a.callee == b.callee && a.numbers == b.numbers && a.addresses == b.addresses && a.list == b.list &&
         a.laterIndex == b.laterIndex && a.loopNumber == b.loopNumber && a.when == b.when && a.times == b.times;
}

/// Skips calls [begin, end) of the step, if they are the next ones of the evaluation.
bool TableCheck::takes(std::pair<size_t, size_t> range) {
  auto [begin, end] = range;
  if (begin == end || evaluationCalls.size() - taken < end - begin ||
      !std::equal(calls.begin() + begin, calls.begin() + end, evaluationCalls.begin() + taken, isSameCall))
    return false;
  taken += end - begin;
  return true;
}

/// Skips the calls of an op that drops elements in training. In the evaluation, the kernels of the op without dropout
/// are used instead.
bool TableCheck::takesWithoutDropping(Operation *op) {
  OwningOpRef<Operation *> keeps = withoutDropping(op);
  SmallVector<At> values;
  for (Value value : llvm::concat<Value>(llvm::to_vector(keeps->getOperands()), llvm::to_vector(keeps->getResults())))
    values.push_back(homeOf(value));
  SmallVector<At> buffers = piecesOf(*keeps, values);
  if (cuda && kernelWorkspaceBytes(*keeps))
    buffers.push_back({program.workspace_offset, 0});
  for (unsigned part = 0, count = numKernels(*keeps, cuda); part < count; ++part, ++taken) {
    const Call *call = taken < evaluationCalls.size() ? &evaluationCalls[taken] : nullptr;
    if (!call || call->callee != "pcrt_launch" || call->list != buffers ||
        call->times != calls[madeBy.lookup(op).first].times || !isKernelOf(*keeps, call->number(1), part))
      return false;
  }
  return true;
}

/// Skips calls that make single moves of a start, in their order.
void TableCheck::takeMoves(StartOp start) {
  const Call &whole = calls[madeBy.lookup(start).first];
  for (OpOperand &input : start->getOpOperands()) {
    unsigned i = input.getOperandNumber(), count = start->getNumOperands();
    if (taken == evaluationCalls.size())
      return;
    const Call &call = evaluationCalls[taken];
    if (call.callee != "pcrt_move" || call.number(1) != whole.number(1) + i || call.address(2) != whole.list[i] ||
        call.address(3) != whole.list[count + i] || call.times != whole.times || call.when != whole.when)
      continue;
    evaluatedMoves.insert(&input);
    ++taken;
  }
}

/// Finds the ops that are part of the evaluation. An op is part of it if the op's calls are the next ones of the
/// evaluation.
void TableCheck::evaluateBlock(Block &block) {
  for (Operation &op : block) {
    if (auto loop = dyn_cast<AccumulateOp>(op)) {
      current = loop;
      evaluateBlock(loop.getBody().front());
      for (OpOperand &use : loop.getBody().front().getTerminator()->getOpOperands())
        if (!addedAfter(use) && takes(summedBy.lookup(&use)))
          evaluatedSums.insert(&use);
      current = {};
    } else if (Operation *leader = sharesKernelOf.lookup(&op)) {
      if (evaluated.contains(leader))
        evaluated.insert(&op);
    } else if (drops(&op) ? takesWithoutDropping(&op) : takes(madeBy.lookup(&op))) {
      evaluated.insert(&op);
    } else if (auto start = dyn_cast<StartOp>(op)) {
      takeMoves(start);
    }
    for (OpOperand &use : op.getUses())
      if (addedAfter(use) && takes(summedBy.lookup(&use)))
        evaluatedSums.insert(&use);
  }
}

/// Returns true if the home of `value` holds it in the evaluation: the evaluation has computed it, or it was there from
/// the start.
bool TableCheck::isEvaluated(Value value) {
  auto result = dyn_cast<OpResult>(value);
  if (!result || isa<ParameterOp, StateOp, InputOp, RopeTableOp, MicrobatchOp>(result.getOwner()))
    return true;
  if (auto wait = dyn_cast<WaitOp>(result.getOwner()))
    if (evaluatedMoves.contains(&wait.getStart()->getOpOperand(result.getResultNumber())))
      return true;
  auto loop = dyn_cast<AccumulateOp>(result.getOwner());
  if (!loop)
    return evaluated.contains(result.getOwner());
  OpOperand &yielded = loop.getBody().front().getTerminator()->getOpOperand(result.getResultNumber());
  bool lies = loop.getMicrobatches() == 1 && homeOrNone(yielded.get()) == homeOrNone(result);
  return (lies || evaluatedSums.contains(&yielded)) && isEvaluated(yielded.get());
}

/// The evaluation must make the calls that the step makes for the ops that the loss needs, in the same order.
bool TableCheck::checkEvaluation() {
  auto step = planned.lookupSymbol<func::FuncOp>("step");
  auto function = kernels.lookupSymbol<LLVM::LLVMFuncOp>("pc_evaluate" + suffix);
  StringRef wanted = function ? function.getSymName() : "";
  if (TableReader::nameOf(program.evaluate) != wanted)
    return refuse(step, "has the evaluation function of another program");
  if (!function)
    return true;
  Operation *wrong = nullptr;
  if (!StepReader(function).read(evaluationCalls, wrong)) {
    (wrong ? wrong : step.getOperation())->emitError() << "must be a plain sequence of calls to the runtime";
    return false;
  }
  evaluateBlock(step.getBody().front());
  if (taken < evaluationCalls.size())
    return refuse(step, "makes a call of @" + evaluationCalls[taken].callee +
                            " in its evaluation that does not belong there");
  // An evaluation must not change training, so no result of it may overlap a parameter or a state. Leaves do not
  // overlap, so only the last one that begins before a value's end can overlap the value.
  std::map<int64_t, int64_t> leaves; // ends of leaves, by their starts
  step.walk([&](Operation *op) {
    if (isa<ParameterOp, StateOp>(op))
      leaves[homeOrNone(op->getResult(0))] = homeOrNone(op->getResult(0)) + byteSize(op->getResult(0).getType());
  });
  auto isFree = [&](Value value) {
    int64_t begin = homeOrNone(value), end = begin + byteSize(value.getType());
    auto after = leaves.lower_bound(end);
    return after == leaves.begin() || std::prev(after)->second <= begin;
  };
  // Checks each op: outputs are shown as they must be; moves and ops read values that the evaluation has computed, and
  // overwrite no leaf. Messages between stages are collected, and compared after all stages.
  return !step.walk([&](Operation *op) {
                auto output = dyn_cast<OutputOp>(op);
                bool isThere = evaluated.contains(op), isLoss = output && isOfEvaluation(output);
                if (isLoss ? !isThere : isThere && isa<OutputOp, UpdateOp>(op)) {
                  refuse(op, isLoss ? "is an output that the evaluation does not show"
                                    : "is an output or update that the evaluation must not have");
                  return WalkResult::interrupt();
                }
                auto start = dyn_cast<StartOp>(op);
                for (OpOperand &input : op->getOpOperands())
                  if (evaluatedMoves.contains(&input) &&
                      (!isEvaluated(input.get()) || !isFree(start.getWait().getResult(input.getOperandNumber())))) {
                    refuse(op, "has a move in the evaluation that reads a missing value, or overwrites a parameter "
                               "or state");
                    return WalkResult::interrupt();
                  }
                if (!isThere)
                  return WalkResult::advance();
                bool whole = llvm::all_of(op->getOperands(), [&](Value value) { return isEvaluated(value); }) &&
                             (!start || evaluated.contains(start.getWait()));
                bool harmless = isa<CacheWriteOp>(op) || llvm::all_of(op->getResults(), [&](Value value) {
                                  return isa<TicketType>(value.getType()) || isFree(value);
                                });
                if (!whole || !harmless) {
                  refuse(op, whole ? "changes a parameter or state in the evaluation"
                                   : "reads a value in the evaluation that was not computed there");
                  return WalkResult::interrupt();
                }
                auto here = static_cast<uint64_t>(stageOf(planned));
                if (auto send = dyn_cast<SendOp>(op))
                  sent.insert({here, send.getStage(), send.getFlow(), send.getMessage()});
                if (auto receive = dyn_cast<ReceiveOp>(op))
                  received.insert({receive.getStage(), here, receive.getFlow(), receive.getMessage()});
                return WalkResult::advance();
              })
              .wasInterrupted();
}
