//===- StepReader.cpp - Reads the calls of a step back -----------------------------------------===//
// Follows the blocks of a step function from its entry and collects its calls. It accepts exactly the control flow that
// a step may have (checks of statuses, one loop over microbatches, one choice by the first microbatch) and stops at any
// other op.
//===-----------------------------------------------------------------------------===//
#include "StepReader.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace pc;

static int64_t numberOf(Value value) {
  APInt number;
  return value && matchPattern(value, m_ConstantInt(&number)) ? number.getSExtValue() : StepReader::none;
}

/// The single index of an address, which is a value or a number.
static int64_t elementOf(LLVM::GEPOp address, Value &dynamic) {
  if (address.getIndices().size() != 1)
    return StepReader::none;
  auto index = address.getIndices()[0];
  if (auto known = llvm::dyn_cast_if_present<IntegerAttr>(index))
    return known.getInt();
  dynamic = llvm::cast<Value>(index);
  return numberOf(dynamic);
}

/// An offset in the arena, plus a stride per microbatch; `none` for any other form of address.
StepReader::At StepReader::addressOf(Value value) {
  if (value.getDefiningOp<LLVM::ZeroOp>())
    return {};
  auto address = value.getDefiningOp<LLVM::GEPOp>();
  if (!address || !address.getElemType().isInteger(8))
    return {none};
  Value dynamic;
  int64_t element = elementOf(address, dynamic);
  if (address.getBase() == function.getArgument(1))
    return {element == none || element < 0 ? none : element};
  At base = addressOf(address.getBase());
  auto product = dynamic ? dynamic.getDefiningOp<LLVM::MulOp>() : LLVM::MulOp();
  if (!product || product.getLhs() != microbatch || base.stride || base.offset < 0)
    return {none};
  return {base.offset, numberOf(product.getRhs())};
}

/// Returns true if `condition` is the test for microbatch 0.
bool StepReader::isFirst(Value condition) {
  auto compare = condition.getDefiningOp<LLVM::ICmpOp>();
  return compare && microbatch && compare.getPredicate() == LLVM::ICmpPredicate::eq && compare.getLhs() == microbatch &&
         numberOf(compare.getRhs()) == 0;
}

/// Reads a call with its numbers and addresses. One of the numbers may differ in the first microbatch.
bool StepReader::readCall(LLVM::CallOp op) {
  // The status of the previous call must be checked first, or this call would run after a failure.
  if (!op.getCallee() || unchecked || op.getNumOperands() == 0 || op.getOperand(0) != function.getArgument(0))
    return false;
  Call call;
  call.op = op;
  call.callee = *op.getCallee();
  call.when = when;
  for (auto [i, operand] : llvm::enumerate(op.getOperands())) {
    call.numbers.push_back(numberOf(operand));
    call.addresses.push_back(isa<LLVM::LLVMPointerType>(operand.getType()) && i ? addressOf(operand) : At{none});
    if (microbatch && operand == microbatch)
      call.loopNumber = static_cast<int>(i);
    // An operand of two values is the number of the call, which the accumulation makes different in the first
    // microbatch.
    auto select = operand.getDefiningOp<LLVM::SelectOp>();
    if (!select)
      continue;
    if (i != 1 || !isFirst(select.getCondition()))
      return false;
    call.numbers.back() = numberOf(select.getTrueValue());
    call.laterIndex = numberOf(select.getFalseValue());
  }
  // Stores before the call write its list of addresses, in order and without gaps.
  for (auto [element, at] : stored) {
    if (element != static_cast<int64_t>(call.list.size()))
      return false;
    call.list.push_back(at);
  }
  stored.clear();
  unchecked = op;
  calls->push_back(std::move(call));
  return true;
}

/// Reads calls, and stores of their arguments into the list. No other op may have an effect.
bool StepReader::readBlock(Block &block) {
  for (Operation &op : block.without_terminator()) {
    wrong = &op;
    if (auto call = dyn_cast<LLVM::CallOp>(op)) {
      if (!readCall(call))
        return false;
    } else if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
      auto slot = store.getAddr().getDefiningOp<LLVM::GEPOp>();
      Value dynamic, base = slot ? slot.getBase() : store.getAddr();
      int64_t element = slot ? elementOf(slot, dynamic) : 0;
      if (unchecked || base != buffers || element < 0 ||
          !stored.try_emplace(element, addressOf(store.getValue())).second)
        return false;
    } else if (auto array = dyn_cast<LLVM::AllocaOp>(op)) {
      if (buffers)
        return false;
      buffers = array;
    } else if (!isMemoryEffectFree(&op)) {
      return false;
    }
  }
  return true;
}

/// Reads both sides of a branch, each with one call, and returns the block after them.
Block *StepReader::choose(LLVM::CondBrOp branch) {
  Block *after = nullptr;
  for (auto [side, side_when] : {std::pair(branch.getTrueDest(), First), std::pair(branch.getFalseDest(), Later)}) {
    when = side_when;
    Block *block = side;
    while (block) {
      if (!readBlock(*block))
        return nullptr;
      auto jump = dyn_cast<LLVM::BrOp>(block->getTerminator());
      if (jump && !unchecked && jump.getDestOperands().empty()) {
        if (after && after != jump.getDest())
          return nullptr;
        after = jump.getDest();
        break;
      }
      block = isa<LLVM::CondBrOp>(block->getTerminator()) && unchecked ? follow(block->getTerminator()) : nullptr;
    }
    if (!block)
      return nullptr;
  }
  when = Always;
  return after;
}

/// The block in which the step continues: after the check of a status, into the loop, back to its start, or out of it.
Block *StepReader::follow(Operation *terminator) {
  wrong = terminator;
  if (auto jump = dyn_cast<LLVM::BrOp>(terminator)) { // into the loop
    bool enters = !unchecked && !microbatch && jump.getDestOperands().size() == 1 &&
                  numberOf(jump.getDestOperands()[0]) == 0 && jump.getDest() != exit;
    if (!enters)
      return nullptr;
    microbatch = jump.getDest()->getArgument(0);
    loopBegin = calls->size();
    return jump.getDest();
  }
  auto branch = dyn_cast<LLVM::CondBrOp>(terminator);
  auto compare = branch ? branch.getCondition().getDefiningOp<LLVM::ICmpOp>() : LLVM::ICmpOp();
  if (!compare)
    return nullptr;
  if (unchecked) { // ends the step if the call has failed
    Value status = unchecked->getResult(0);
    bool checks = compare.getPredicate() == LLVM::ICmpPredicate::eq && compare.getLhs() == status &&
                  numberOf(compare.getRhs()) == 0 && branch.getFalseDest() == exit &&
                  branch.getFalseDestOperands().size() == 1 && branch.getFalseDestOperands()[0] == status &&
                  branch.getTrueDestOperands().empty();
    unchecked = nullptr;
    return checks ? branch.getTrueDest() : nullptr;
  }
  if (isFirst(branch.getCondition()))
    return choose(branch);
  // At the end of the loop, jumps back while the next number is below the count.
  auto add = compare.getLhs().getDefiningOp<LLVM::AddOp>();
  bool goesOn = add && microbatch && compare.getPredicate() == LLVM::ICmpPredicate::slt && add.getLhs() == microbatch &&
                numberOf(add.getRhs()) == 1 && branch.getTrueDest() == microbatch.getParentBlock() &&
                branch.getTrueDestOperands().size() == 1 && branch.getTrueDestOperands()[0] == add.getResult() &&
                branch.getFalseDestOperands().empty();
  if (!goesOn)
    return nullptr;
  for (size_t i = loopBegin; i < calls->size(); ++i)
    (*calls)[i].times = numberOf(compare.getRhs());
  microbatch = {};
  return branch.getFalseDest();
}

/// The function's last block returns the status; all others belong to the control flow that is accepted.
bool StepReader::read(std::vector<Call> &found, Operation *&where) {
  calls = &found;
  for (Block &block : function.getBody())
    if (isa<LLVM::ReturnOp>(block.getTerminator()) && block.getNumArguments() == 1 &&
        block.getOperations().size() == 1 && block.getTerminator()->getOperand(0) == block.getArgument(0))
      exit = &block;
  Block *block = exit && function.getNumArguments() == 2 ? &function.getBody().front() : nullptr;
  const size_t most = function.getBody().getBlocks().size(); // computed once, because size() of a list counts
  for (size_t visited = 0; block && visited <= most; ++visited) {
    if (!readBlock(*block))
      break;
    auto jump = dyn_cast<LLVM::BrOp>(block->getTerminator());
    if (jump && jump.getDest() == exit && !unchecked && !microbatch && numberOf(jump.getDestOperands()[0]) == 0)
      return true;
    block = follow(block->getTerminator());
  }
  where = wrong;
  return false;
}
