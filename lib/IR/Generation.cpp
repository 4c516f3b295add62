//===- Generation.cpp - Ops of programs that generate text, and codes ------------------------===//
// Verifies attention to a cache and the ops that code blocks, distinguishes steps that generate from steps that train,
// and recognizes the ops that decode weights, which occur only in steps that generate.
//===-----------------------------------------------------------------------------------------===//
#include "pc/IR/Generation.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Shapes.h"
#include "pcrt/block_codes.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

#define GET_OP_CLASSES
#include "pc/IR/PCGenerationOps.cpp.inc"
#define GET_OP_CLASSES
#include "pc/IR/PCBlockCodesOps.cpp.inc"

std::optional<SmallVector<int64_t>> pc::blockOf(ArrayRef<int64_t> value, ArrayRef<int64_t> scales) {
  SmallVector<int64_t> block;
  if (value.size() != scales.size())
    return std::nullopt;
  for (auto [size, blocks] : llvm::zip_equal(value, scales)) {
    if (blocks < 1 || size % blocks)
      return std::nullopt;
    block.push_back(size / blocks);
  }
  return block;
}

/// With a square, both dims can be split among many ranks, and heads, of which there are few, are not divided into
/// blocks. If only the last dim is long enough, a block is a part of a row.
std::optional<SmallVector<int64_t>> pc::chooseBlock(ArrayRef<int64_t> shape,
                                                    llvm::function_ref<bool(ArrayRef<int64_t>)> fits) {
  constexpr int64_t side = 16;
  static_assert(side * side == PCRT_STATE_BLOCK);
  if (shape.empty())
    return std::nullopt;
  const int64_t last = std::ssize(shape) - 1;
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, last));
  llvm::stable_sort(order, [&](int64_t a, int64_t b) { return shape[a] > shape[b]; });
  auto divides = [&](ArrayRef<int64_t> block) {
    return llvm::all_of(llvm::zip_equal(shape, block),
                        [](auto pair) { return std::get<0>(pair) % std::get<1>(pair) == 0; }) &&
           fits(block);
  };
  for (int64_t dim : order) {
    SmallVector<int64_t> block(shape.size(), 1);
    block[dim] = block[last] = side;
    if (divides(block))
      return block;
  }
  SmallVector<int64_t> row(shape.size(), 1);
  row[last] = PCRT_STATE_BLOCK;
  return divides(row) ? std::optional(row) : std::nullopt;
}

DecodeOp pc::float8Of(Value value) {
  auto decode = value.getDefiningOp<DecodeOp>();
  return decode && decode.getIsFloat8() ? decode : DecodeOp();
}

bool pc::multipliesCodes(EinsumOp product) {
  return isa_and_nonnull<FusionOp>(product->getParentOp()) && product.getInputs().size() == 2 &&
         llvm::all_of(product.getInputs(), [](Value input) {
           auto decode = input.getDefiningOp<DecodeOp>();
           return decode && decode.getIsFloat8();
         });
}

SmallVector<int64_t> pc::shapeOfScales(ArrayRef<int64_t> shape, ArrayRef<int64_t> block) {
  SmallVector<int64_t> scales;
  for (auto [size, of] : llvm::zip_equal(shape, block))
    scales.push_back(size / of);
  return scales;
}

bool pc::hasWholeBlocks(RankedTensorType type, ArrayRef<int64_t> block, MeshAttr mesh) {
  PlaceAttr place = placement(type);
  for (auto [d, size, side] : llvm::enumerate(type.getShape(), block)) {
    const int64_t ranks = place && mesh ? mesh.size(place.axes(static_cast<int64_t>(d))) : 1;
    if (!ranks || size % (ranks * side))
      return false;
  }
  return true;
}

RankedTensorType pc::typeOfAddends(int64_t addends, ArrayRef<int64_t> shape, WireAttr wire) {
  SmallVector<int64_t> sizes{addends};
  llvm::append_range(sizes, shapeOfScales(shape, wire.getBlock()));
  sizes.push_back(wire.blockBytes());
  return RankedTensorType::get(sizes, IntegerType::get(wire.getContext(), 8));
}

WireAttr pc::wireOf(Value codes) {
  if (auto argument = dyn_cast<BlockArgument>(codes)) {
    auto start = dyn_cast_or_null<StartOp>(argument.getOwner()->getParentOp());
    codes = start ? start.getInputs()[argument.getArgNumber()] : Value();
  }
  auto encode = codes ? codes.getDefiningOp<EncodeAddendOp>() : EncodeAddendOp();
  return encode ? encode.getWire() : WireAttr();
}

/// Checks (C1) of ops that code addends.
static LogicalResult verifyAddends(Operation *op, Value value, Value codes, WireAttr wire, bool isOne) {
  auto type = cast<RankedTensorType>(value.getType()), ofCodes = cast<RankedTensorType>(codes.getType());
  const int64_t addends = ofCodes.getRank() ? ofCodes.getDimSize(0) : 0;
  if (type.getElementType().isF32() && wire.getBlock().size() == type.getShape().size() &&
      hasWholeBlocks(type, wire.getBlock(), {}) && addends >= 1 && (!isOne || addends == 1) &&
      withoutHome(ofCodes) == typeOfAddends(addends, type.getShape(), wire))
    return success();
  return op->emitOpError() << "has codes " << ofCodes << ", which are not " << wire.text() << " codes of "
                           << (isOne ? "one addend" : "addends") << " of type " << type << " (C1)";
}
LogicalResult EncodeAddendOp::verify() { return verifyAddends(*this, getX(), getCodes(), getWire(), /*isOne=*/true); }
LogicalResult DecodeSumOp::verify() { return verifyAddends(*this, getSum(), getCodes(), getWire(), /*isOne=*/false); }

std::optional<CodedAdamW> pc::codedAdamW(AdamWOp adamw) {
  auto decode = [&](Value state) {
    auto op = state.getDefiningOp<DecodeOp>();
    return op && op->hasOneUse() && op->getBlock() == adamw->getBlock() ? op : DecodeOp();
  };
  auto encode = [&](Value state) {
    auto op = state.hasOneUse() ? dyn_cast<EncodeOp>(*state.user_begin()) : EncodeOp();
    return op && op->getBlock() == adamw->getBlock() ? op : EncodeOp();
  };
  CodedAdamW coded{adamw, decode(adamw.getExpAvg()), decode(adamw.getExpAvgSq()), encode(adamw.getNewExpAvg()),
                   encode(adamw.getNewExpAvgSq())};
  if (!coded.first || !coded.second || !coded.newFirst || !coded.newSecond)
    return std::nullopt;
  ArrayRef<int64_t> scales = shapeOf(coded.first.getScales());
  for (Value other : {coded.second.getScales(), coded.newFirst.getScales(), coded.newSecond.getScales()})
    if (shapeOf(other) != scales)
      return std::nullopt;
  return coded;
}

std::optional<CodedAdamW> pc::asCodedAdamW(FusionOp fusion) {
  Block &body = fusion.getBody().front();
  auto all = body.getOps<AdamWOp>();
  if (all.empty() || body.getOperations().size() != 6) // with pc.yield
    return std::nullopt;
  return codedAdamW(*all.begin());
}

/// Checks (C1) to (C3) of ops that code blocks.
template <typename Op> static LogicalResult verifyBlocks(Op op, Value value, Value codes, Value scales) {
  auto type = cast<RankedTensorType>(value.getType()), ofCodes = cast<RankedTensorType>(codes.getType()),
       ofScales = cast<RankedTensorType>(scales.getType());
  Type code = ofCodes.getElementType();
  if (ofCodes.getShape() != type.getShape() || !(op.getIsFloat8() ? isFloat8(code) : code.isInteger(8)))
    return op.emitOpError() << "has codes " << ofCodes << ", which must be "
                            << (op.getIsFloat8() ? "f8E4M3FN or f8E5M2" : "i8") << " and have the shape of " << type
                            << " (C1)";
  const bool isOne = isa<DecodeOp>(op) && op.getIsFloat8() && !ofScales.getRank();
  if (!isOne && !blockOf(type.getShape(), ofScales.getShape()))
    return op.emitOpError() << "has scales " << ofScales << ", whose sizes must divide the sizes of " << type
                            << " (C2)";
  if ((op.getIsLinear() || op.getIsFloat8()) && op.getIsUnsigned())
    return op.emitOpError() << "has a code that is " << (op.getIsLinear() ? "linear" : "float8")
                            << " and unsigned, which does not exist (C3)";
  if (!op.getIsFloat8() && type.getElementType().isBF16())
    return op.emitOpError() << "has a value of type " << type << ", but only the value of float8 may be bf16 (C3)";
  return success();
}
LogicalResult EncodeOp::verify() { return verifyBlocks(*this, getX(), getCodes(), getScales()); }
LogicalResult DecodeOp::verify() { return verifyBlocks(*this, getResult(), getCodes(), getScales()); }
LogicalResult Float8ScaleOp::verify() {
  auto largest = cast<RankedTensorType>(getLargest().getType()), scale = cast<RankedTensorType>(getScale().getType());
  if (!largest.getRank() && !scale.getRank() && isFloat8(getFormat()))
    return success();
  return emitOpError() << "computes a scale of type " << scale << " for " << getFormat() << " from " << largest
                       << ", which must be scalars and a float of 8 bits (C1)";
}
LogicalResult EncodeScaledOp::verify() {
  auto type = cast<RankedTensorType>(getX().getType()), codes = cast<RankedTensorType>(getCodes().getType()),
       scale = cast<RankedTensorType>(getScale().getType());
  if (codes.getShape() == type.getShape() && isFloat8(codes.getElementType()) && !scale.getRank())
    return success();
  return emitOpError() << "rounds " << type << " with " << scale << " to " << codes
                       << ", but needs a scalar, and codes of this shape in f8E4M3FN or f8E5M2 (C1)";
}

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

/// A move may be in progress; the value is then the result of a wait.
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
