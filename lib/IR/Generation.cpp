//===- Generation.cpp - Ops of programs that generate text -----------------------------------===//
// Verifies attention to a cache, distinguishes steps that generate from steps that train, and recognizes the ops that
// make numbers of codes, which only steps that generate have.
//===-----------------------------------------------------------------------------------------===//
#include "pc/IR/Generation.h"
#include "pc/IR/Codes.h"
#include "pcrt/description.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

#define GET_OP_CLASSES
#include "pc/IR/PCGenerationOps.cpp.inc"

bool pc::generates(ModuleOp module) {
  return module.walk([](CacheWriteOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

bool pc::trains(ModuleOp module) {
  return !generates(module) && module.walk([](UpdateOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Checks the window, the cap, and the number of entries of a bias.
LogicalResult CachedAttentionOp::verify() {
  if (std::optional<int64_t> window = getWindow(); window && *window < 1)
    return emitOpError() << "has a window of " << *window << " (C1)";
  if (std::optional<llvm::APFloat> cap = getSoftcap(); cap && !(cap->convertToDouble() > 0))
    return emitOpError() << "must have a positive cap (C2)";
  auto keys = cast<RankedTensorType>(getKeys().getType());
  if (Value bias = getBias(); bias && keys.getRank() == 5) {
    auto type = cast<RankedTensorType>(bias.getType());
    if (type.getRank() != 3 || type.getDimSize(2) != 2 * keys.getDimSize(3) - 1)
      return emitOpError() << "has a bias of type " << type << ", which does not fit " << keys.getDimSize(3)
                           << " positions (C3)";
  }
  return success();
}

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
