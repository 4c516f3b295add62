//===- StoreCodes.cpp - Stores the matrices of a step that generates in 8 or 4 bits -----------------===//
// A matrix becomes codes and scales, which an einsum multiplies before each product that reads it. The pass does not
// depend on the plan, so that every plan stores the same numbers: scales belong to whole rows of the contracted dims,
// or to groups that no plan cuts.
//===--------------------------------------------------------------------------------------------===//
#define GEN_PASS_DEF_STORECODES
#include "pc/Autodiff/Passes.h"

#include "pc/IR/Codes.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Dispatch.h"
#include "pc/IR/Generation.h"
#include "pc/IR/Parts.h"
#include "pcrt/description.h"
#include "pcrt/weights.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

namespace {

/// How the codes of a matrix are stored: their bits, and how many share a scale (0: those of a row).
struct CodeForm {
  unsigned bits;
  int64_t group;
};

/// Rewrites one parameter. State: its dims that products contract.
class CodeWriter {
public:
  CodeWriter(ParameterOp parameter, CodeForm form)
      : parameter(parameter), form(form), builder(parameter), type(cast<RankedTensorType>(parameter.getType())) {}

  /// Returns true if only products of a matrix with activations read the parameter, and all contract the same dims.
  bool canStore();

  LogicalResult store();

private:
  bool isProductOf(OpOperand &use);
  bool isProductOfExperts(OpOperand &use);
  LogicalResult divideIntoGroups();
  void decodeFor(OpOperand &use, Value scales);

  ParameterOp parameter;
  const CodeForm form;
  OpBuilder builder;
  RankedTensorType type;           ///< the type of the matrix, as products read it
  SmallVector<bool> isContracted;  ///< for each dim of the matrix, whether products sum over it
  int64_t grouped = -1;            ///< the dim that is divided into groups
  SmallVector<int64_t> shape;      ///< the shape of the codes
  SmallVector<bool> sharesScale;   ///< for each dim of the codes, whether codes along it share a scale
  SmallVector<int64_t> scaledDims; ///< dims of the codes that the scales have
};

/// The pass pc-store-codes.
struct StoreCodes : pc::impl::StoreCodesBase<StoreCodes> {
  using StoreCodesBase::StoreCodesBase;

  void runOnOperation() override {
    std::optional<CodeForm> form = StringSwitch<std::optional<CodeForm>>(weights)
                                       .Case("int8", CodeForm{8, 0})
                                       .Case("int4", CodeForm{4, 32})
                                       .Case("int4:64", CodeForm{4, 64})
                                       .Default(std::nullopt);
    auto step = getOperation().lookupSymbol<func::FuncOp>("step");
    if (!form || !step || step.getOps<CacheWriteOp>().empty()) {
      getOperation().emitError() << "pc-store-codes: "
                                 << (form ? "this module has no step that generates text; run pc-generate-steps first"
                                          : "unknown weights '" + weights + "' (int8, int4, int4:64)");
      return signalPassFailure();
    }
    bool any = false;
    for (ParameterOp parameter : llvm::to_vector(step.getOps<ParameterOp>())) {
      CodeWriter writer(parameter, *form);
      if (!writer.canStore())
        continue;
      any = true;
      if (failed(writer.store()))
        return signalPassFailure();
    }
    if (any)
      return;
    step.emitError() << "pc-store-codes: no matrix of this model can be stored as " << weights
                     << "; leave out --weights";
    signalPassFailure();
  }
};

} // namespace

/// A product contracts dims that follow each other, the last ones of the activations and the first or last ones of the
/// matrix, and its result ends with the other dims of the matrix. Kernels and library calls need this order.
bool CodeWriter::isProductOf(OpOperand &use) {
  auto product = dyn_cast<EinsumOp>(use.getOwner());
  if (!product || product.getMask() || product.getInputs().size() != 2)
    return false;
  FactorRule rule = product.getFactorRule();
  Contraction factors(rule);
  if (!factors.isMatrixProduct() || !factors.batch.empty() || !factors.alone.empty() || isOfRouter(product.getResult()))
    return false;
  ArrayRef<int> matrix = rule.operands[use.getOperandNumber()], x = rule.operands[1 - use.getOperandNumber()],
                result = rule.results[0];
  SmallVector<int> contracted, kept;
  SmallVector<bool> contracts;
  for (int factor : matrix) {
    contracts.push_back(!llvm::is_contained(result, factor));
    (contracts.back() ? contracted : kept).push_back(factor);
  }
  // A sum over experts without other contracted dims adds biases of experts, multiplied by the experts' weights.
  for (auto [contracted, name] : llvm::zip_equal(contracts, parameter.getDims().getAsValueRange<StringAttr>()))
    if (contracted && name == "experts")
      return false;
  SmallVector<bool> sorted = contracts;
  bool isLast = contracts.back();
  llvm::sort(sorted, [&](bool a, bool b) { return isLast ? a < b : a > b; });
  if (kept.empty() || sorted != contracts || (!isContracted.empty() && isContracted != contracts) ||
      x.take_back(contracted.size()) != ArrayRef(contracted) || result.take_back(kept.size()) != ArrayRef(kept))
    return false;
  isContracted = contracts;
  return true;
}

/// A routed product multiplies the rows of each expert by its matrix. The dim of experts is the first one, or follows
/// that of the result.
bool CodeWriter::isProductOfExperts(OpOperand &use) {
  auto product = dyn_cast<EinsumOp>(use.getOwner());
  if (!product || !product.getMask() || product.getInputs().size() != 3 || use.getOperandNumber() > 1 ||
      type.getRank() != 3)
    return false;
  FactorRule rule = product.getFactorRule();
  ArrayRef<int> matrix = rule.operands[use.getOperandNumber()], x = rule.operands[1 - use.getOperandNumber()],
                result = rule.results[0];
  const int *expert = llvm::find(matrix, rule.operands[2].back()), *in = llvm::find(matrix, x.back()),
            *out = llvm::find(matrix, result.back());
  const int *end = matrix.end(), *first = matrix.begin();
  if (expert == end || in == end || out == end || in == out || in == expert || out == expert ||
      llvm::is_contained(result, *in) || (expert != first && (expert != first + 1 || out != first)) ||
      (parameter.getAlong() && static_cast<int64_t>(*parameter.getAlong()) != expert - first))
    return false;
  SmallVector<bool> contracts(3);
  contracts[in - first] = true;
  if (!isContracted.empty() && isContracted != contracts)
    return false;
  isContracted = contracts;
  return true;
}

/// Tables of words are not rounded, also if they are the head: rounding them changes the chosen tokens most.
bool CodeWriter::canStore() {
  auto names = parameter.getDims().getAsValueRange<StringAttr>();
  auto isFirst = [&](StringRef prefix) { return partsOf(parameter)[0].source.getTensor().starts_with(prefix); };
  return !parameter.use_empty() && !llvm::is_contained(names, "vocab") && !isFirst(pcrt::adapterPrefix) &&
         llvm::all_of(parameter->getUses(), [&](OpOperand &use) {
           return isProductOfExperts(use) || (!parameter.getParts() && isProductOf(use));
         });
}

/// Divides the innermost contracted dim.
LogicalResult CodeWriter::divideIntoGroups() {
  SmallVector<Attribute> names(parameter.getDims().getValue());
  for (auto [d, contracted] : llvm::enumerate(isContracted))
    grouped = contracted ? static_cast<int64_t>(d) : grouped;
  if (shape[grouped] % form.group)
    return parameter.emitError() << "pc-store-codes: '" << parameter.getName() << "' has rows of " << shape[grouped]
                                 << " numbers in dim '" << cast<StringAttr>(names[grouped]).getValue()
                                 << "', which are not a multiple of the group of " << form.group
                                 << "; use --weights=int8";
  shape[grouped] /= form.group;
  shape.insert(shape.begin() + grouped + 1, form.group);
  names.insert(names.begin() + grouped + 1, builder.getStringAttr(nameOfCodes));
  sharesScale.assign(shape.size(), false);
  sharesScale[grouped + 1] = true;
  parameter.setDimsAttr(builder.getArrayAttr(names));
  return success();
}

LogicalResult CodeWriter::store() {
  shape.assign(type.getShape().begin(), type.getShape().end());
  sharesScale = isContracted;
  if (form.group && failed(divideIntoGroups()))
    return failure();
  SmallVector<int64_t> sizes;
  for (auto [d, shares] : llvm::enumerate(sharesScale))
    if (!shares) {
      scaledDims.push_back(static_cast<int64_t>(d));
      sizes.push_back(shape[d]);
    }
  builder.setInsertionPointAfter(parameter);
  Value scales = StateOp::create(builder, parameter.getLoc(), RankedTensorType::get(sizes, builder.getF32Type()),
                                 builder.getStringAttr(PCRT_SCALE), parameter.getNameAttr(),
                                 namesOfState(parameter, scaledDims), nullptr, nullptr, nullptr);
  parameter.getValue().setType(RankedTensorType::get(shape, builder.getIntegerType(form.bits)));
  for (OpOperand &use : llvm::make_early_inc_range(parameter->getUses()))
    decodeFor(use, scales);
  return success();
}

/// Each product gets a separate decoding op, and the two become one call.
void CodeWriter::decodeFor(OpOperand &use, Value scales) {
  auto lettersOf = [](auto &&dims) {
    return llvm::join(llvm::map_range(dims, [](int64_t d) { return "d" + std::to_string(d); }), " ");
  };
  auto all = llvm::to_vector(llvm::seq<int64_t>(0, std::ssize(shape)));
  std::string codes = lettersOf(all);
  builder.setInsertionPoint(use.getOwner());
  Location loc = parameter.getLoc();
  Value matrix =
      EinsumOp::create(builder, loc, RankedTensorType::get(shape, builder.getF32Type()),
                       codes + ", " + lettersOf(scaledDims) + " -> " + codes, ValueRange{parameter.getValue(), scales});
  if (grouped >= 0) {
    SmallVector<std::string> merged;
    for (int64_t d : all)
      if (d == grouped)
        merged.push_back("(d" + std::to_string(d) + " d" + std::to_string(d + 1) + ")");
      else if (d != grouped + 1)
        merged.push_back("d" + std::to_string(d));
    matrix = ReshapeOp::create(builder, loc, RankedTensorType::get(type.getShape(), builder.getF32Type()),
                               codes + " -> " + llvm::join(merged, " "), matrix);
  }
  use.set(matrix);
}
