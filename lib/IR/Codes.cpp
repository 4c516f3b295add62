//===- Codes.cpp - Weights that are stored in 8 or 4 bits ----------------------------------===//
// Recognizes the ops that make numbers of codes. Only the text of a program matters, as for matrix products.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Codes.h"
#include "pcrt/description.h"

using namespace mlir;
using namespace pc;

/// The result has the dims of the codes, and the scales have some of them.
bool pc::isDecoding(EinsumOp op) {
  if (op.getInputs().size() != 2 || op.getMask() || !isCode(getElementTypeOrSelf(op.getInputs()[0].getType())))
    return false;
  FactorRule rule = op.getFactorRule();
  if (rule.operands.size() != 2 || rule.results.size() != 1 || rule.operands[0] != rule.results[0])
    return false;
  return llvm::all_of(rule.operands[1], [&](int factor) { return llvm::is_contained(rule.operands[0], factor); });
}

EinsumOp pc::decodingOf(Value value) {
  while (auto view = value.getDefiningOp<ReshapeOp>())
    value = view.getX();
  auto op = value.getDefiningOp<EinsumOp>();
  return op && isDecoding(op) ? op : EinsumOp();
}

StateOp pc::scalesOf(ParameterOp parameter) {
  for (auto state : parameter->getBlock()->getOps<StateOp>())
    if (state.getName() == PCRT_SCALE && state.getParameterAttr() == parameter.getNameAttr())
      return state;
  return {};
}

/// Moves may be in progress: then the value is the result of a wait.
int64_t pc::dimOfCodes(Value codes) {
  while (codes) {
    Operation *op = codes.getDefiningOp();
    if (auto parameter = dyn_cast_or_null<ParameterOp>(op)) {
      auto names = parameter.getDims().getAsValueRange<StringAttr>();
      auto found = llvm::find(names, nameOfCodes);
      return found == names.end() ? -1 : std::distance(names.begin(), found);
    }
    if (auto argument = dyn_cast<BlockArgument>(codes)) {
      auto start = dyn_cast_or_null<StartOp>(argument.getOwner()->getParentOp());
      codes = start ? start.getInputs()[argument.getArgNumber()] : Value();
    } else if (auto wait = dyn_cast<WaitOp>(op)) {
      codes = wait.getStart().getInputs()[cast<OpResult>(codes).getResultNumber()];
    } else {
      codes = isa<MoveOpInterface>(op) ? op->getOperand(0) : Value();
    }
  }
  return -1;
}
