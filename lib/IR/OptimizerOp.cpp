//===- OptimizerOp.cpp - Verifies definitions of optimizers -------------------------------------===//
// A definition is read from a user's file, so every error names the op or the argument and what was expected.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/OptimizerOp.h"
#include "pc/IR/Groups.h"
#include "pc/IR/Parts.h"
#include "pcrt/average.h"
#include "pcrt/description.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace pc;

#define GET_OP_CLASSES
#include "pc/IR/PCDefinitionOps.cpp.inc"

SmallVector<StringRef> OptimizerOp::names(ArrayAttr of) {
  return llvm::map_to_vector(of.getAsRange<StringAttr>(), [](StringAttr name) { return name.getValue(); });
}

SmallVector<SmallVector<int, 3>> OptimizerOp::dimsOfStates() {
  SmallVector<StringRef> dims = names(getDims());
  SmallVector<SmallVector<int, 3>> result;
  for (size_t i = 0; i < getStates().size(); ++i)
    if (std::optional<ArrayAttr> over = getOver())
      result.push_back(llvm::map_to_vector<3>(names(cast<ArrayAttr>((*over)[i])), [&](StringRef name) {
        return static_cast<int>(llvm::find(dims, name) - dims.begin());
      }));
    else
      result.push_back(llvm::to_vector<3>(llvm::seq<int>(0, dims.size())));
  return result;
}

bool OptimizerOp::hasSums() {
  return llvm::any_of(getBlock().getOps<EinsumOp>(), [](EinsumOp einsum) {
    FactorRule rule = einsum.getFactorRule();
    return rule.results[0].size() < rule.factors.size();
  });
}

int pc::hyperNumber(StringRef scalar) {
  constexpr StringRef names[] = {"lr", "beta1", "beta2", "eps", "decay", "correction1", "correction2"};
  static_assert(PCRT_HYPER_LR == 0 && PCRT_HYPER_EPS == 3 && PCRT_HYPER_CORRECTION2 == 6);
  const auto *found = llvm::find(names, scalar);
  return found == std::end(names) ? -1 : static_cast<int>(found - names);
}

/// The dims of the result of an einsum. A factor is a dim of an operand or, if no operand has it, the name of a dim.
static FailureOr<SmallVector<int, 3>> dimsOfResult(EinsumOp einsum, ArrayRef<StringRef> names,
                                                   const DefinedDims &known) {
  FactorRule rule = einsum.getFactorRule();
  SmallVector<int> dims(rule.factors.size(), -1);
  for (auto [operand, factors] : llvm::zip_equal(einsum.getInputs(), rule.operands))
    for (auto [factor, dim] : llvm::zip_equal(factors, known.at(operand))) {
      if (dims[factor] >= 0 && dims[factor] != dim)
        return einsum.emitOpError() << "has '" << names[dims[factor]] << "' and '" << names[dim] << "' as factor '"
                                    << rule.factors[factor].name << "' (C6)";
      dims[factor] = dim;
    }
  SmallVector<int, 3> result;
  for (int factor : rule.results[0]) {
    StringRef name = rule.factors[factor].name;
    if (dims[factor] < 0)
      dims[factor] = static_cast<int>(llvm::find(names, name) - names.begin());
    if (dims[factor] == static_cast<int>(names.size()))
      return einsum.emitOpError() << "has a factor '" << name
                                  << "', but neither an operand nor the parameter has such a dim (C6)";
    result.push_back(dims[factor]);
  }
  return result;
}

FailureOr<DefinedDims> pc::dimsOf(OptimizerOp optimizer) {
  SmallVector<StringRef> names = optimizer.names(optimizer.getDims());
  DefinedDims known;
  for (BlockArgument argument : optimizer.getBlock().getArguments())
    known[argument] = llvm::to_vector<3>(llvm::seq<int>(0, cast<RankedTensorType>(argument.getType()).getRank()));
  for (auto [i, dims] : llvm::enumerate(optimizer.dimsOfStates()))
    known[optimizer.getBlock().getArgument(2 + i)] = dims;
  for (Operation &op : optimizer.getBlock().without_terminator()) {
    SmallVector<int, 3> &result = known[op.getResult(0)];
    if (auto einsum = dyn_cast<EinsumOp>(op)) {
      auto dims = dimsOfResult(einsum, names, known);
      if (failed(dims))
        return failure();
      known[op.getResult(0)] = *dims;
    } else if (op.getNumOperands()) {
      result = known.at(op.getOperand(0));
      for (Value operand : op.getOperands())
        if (known.at(operand) != result)
          return op.emitOpError() << "has operands with different dims (C6)";
    }
  }
  for (auto [i, value] : llvm::enumerate(optimizer.getBlock().getTerminator()->getOperands()))
    if (known.at(value) != known.at(optimizer.getBlock().getArgument(i ? i + 1 : 0)))
      return optimizer.emitOpError() << "yields a value with the wrong dims for "
                                     << (i ? optimizer.names(optimizer.getStates())[i - 1] : "the parameter")
                                     << " (C6)";
  return known;
}

/// Checks (C7).
static LogicalResult verifyOver(OptimizerOp optimizer, ArrayRef<StringRef> dims) {
  ArrayAttr over = optimizer.getOverAttr();
  if (!over)
    return success();
  bool isGood = over.size() == optimizer.getStates().size();
  for (Attribute entry : over) {
    auto list = dyn_cast<ArrayAttr>(entry);
    isGood = isGood && list && llvm::all_of(list, llvm::IsaPred<StringAttr>);
    const auto *at = dims.begin();
    for (size_t i = 0; isGood && i < list.size(); ++i) {
      at = std::find(at, dims.end(), cast<StringAttr>(list[i]).getValue());
      isGood = at != dims.end();
      if (isGood)
        ++at;
    }
  }
  if (isGood)
    return success();
  return optimizer.emitOpError() << "expects 'over' to list, for each of " << optimizer.getStates().size()
                                 << " states, some of the dims " << optimizer.getDims() << " in their order, got "
                                 << over << " (C7)";
}

/// Checks the body: its arguments, yielded values, names of states, ops, scalars and settings. (C1) to (C5) are the
/// constraints in the op's description.
LogicalResult OptimizerOp::verifyRegions() {
  SmallVector<StringRef> dims = names(getDims());
  if (dims != ArrayRef<StringRef>{"all"} && dims != ArrayRef<StringRef>{"stack", "rows", "columns"} &&
      dims != ArrayRef<StringRef>{"stack", "short", "long"})
    return emitOpError() << "expects dims [\"all\"], [\"stack\", \"rows\", \"columns\"] or [\"stack\", \"short\", "
                            "\"long\"], got "
                         << getDims() << " (C1)";
  if (failed(verifyOver(*this, dims)))
    return failure();
  Type f32 = Float32Type::get(getContext()), scalar = RankedTensorType::get({}, f32);
  auto typeOf = [&](size_t rank) {
    return RankedTensorType::get(SmallVector<int64_t>(rank, ShapedType::kDynamic), f32);
  };
  Type whole = typeOf(dims.size());
  size_t numTensors = 2 + getStates().size();
  SmallVector<Type> wanted(2, whole);
  for (ArrayRef<int> of : dimsOfStates())
    wanted.push_back(typeOf(of.size()));
  wanted.append(getScalars().size(), scalar);
  const char *shapes = getOver() ? ", except for states with fewer dims," : "";
  if (!llvm::equal(getBlock().getArgumentTypes(), wanted))
    return emitOpError() << "expects " << numTensors << " arguments of type " << whole << shapes << " and "
                         << getScalars().size() << " of type " << scalar
                         << ": the parameter, the gradient, the states and the scalars (C2)";
  Operation *yield = getBlock().empty() ? nullptr : &getBlock().back();
  wanted.erase(wanted.begin());
  if (!isa_and_nonnull<YieldOp>(yield) ||
      !llvm::equal(yield->getOperandTypes(), ArrayRef(wanted).take_front(numTensors - 1)))
    return emitOpError() << "must yield the parameter and " << getStates().size() << " states, of type " << whole
                         << (getOver() ? ", except for states with fewer dims" : "") << " (C3)";
  // These names are states that other features keep for a parameter in a checkpoint.
  llvm::StringSet<> taken{{PCRT_EMA}, {PCRT_EMA_BEGUN}, {maskState}, {maskAgeState}, {maskWaitState}};
  for (StringRef state : names(getStates()))
    if (state.ends_with(historySuffix) || !taken.insert(state).second)
      return emitOpError() << "has a state '" << state << "', but another state or --ema has the same name (C3)";
  for (Operation &op : getBlock().without_terminator())
    if (!isa<EinsumOp, ConstantOp>(op) && !op.hasTrait<Pointwise>())
      return op.emitOpError() << "is not allowed in a definition of an optimizer, which sees only its own parameter, "
                                 "gradient, states and scalars, and has only pointwise ops, einsums and constants (C4)";
  DictionaryAttr defaults = getSettingsAttr() ? getSettingsAttr() : DictionaryAttr::get(getContext());
  for (StringRef name : names(getScalars()))
    if (hyperNumber(name) < 0 && !defaults.getAs<FloatAttr>(name) &&
        !(isOfMatrices() ? name == "rows" || name == "columns" : name == "size"))
      return emitOpError() << "has a scalar '" << name << "' that is neither known nor a number in 'settings' (C5)";
  for (NamedAttribute setting : defaults)
    if (!llvm::is_contained(names(getScalars()), setting.getName().getValue()))
      return emitOpError() << "has a setting '" << setting.getName().getValue() << "' that is not a scalar (C5)";
  return success(succeeded(dimsOf(*this)));
}
