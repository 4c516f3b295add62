//===- CodeProduct.cpp - Products of codes, and the kernels that write these --------------===//
// Input: a fusion. Result: what it is, read from its ops, so no annotation by the fusing pass is needed.
//===-----------------------------------------------------------------------------===//
#include "CodeProduct.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Shapes.h"
#include "pcrt/pcrt.h"

using namespace mlir;
using namespace pc;

/// The elements of a block of a group of dims that is a run of the group's elements, or 0.
static int64_t runOf(ArrayRef<int64_t> sizes, ArrayRef<int64_t> block) {
  bool isWhole = true; // all inner dims are
  for (auto [size, part] : llvm::reverse(llvm::zip_equal(sizes, block))) {
    if (!isWhole && part != 1)
      return 0;
    isWhole &= part == size;
  }
  return ShapedType::getNumElements(block);
}

std::optional<CodeTile> pc::codeTile(ArrayRef<int64_t> shape, ArrayRef<int64_t> scales, size_t leading) {
  const int64_t rows = ShapedType::getNumElements(shape.take_front(leading)),
                columns = ShapedType::getNumElements(shape.drop_front(leading));
  if (scales.empty())
    return rows % CodeTile::unit == 0 && columns % CodeTile::unit == 0
               ? std::optional(CodeTile{rows, columns, rows, columns})
               : std::nullopt;
  std::optional<SmallVector<int64_t>> block = blockOf(shape, scales);
  if (!block)
    return std::nullopt;
  const ArrayRef<int64_t> sides(*block);
  CodeTile tile{rows, columns, runOf(shape.take_front(leading), sides.take_front(leading)),
                runOf(shape.drop_front(leading), sides.drop_front(leading))};
  auto isSide = [](int64_t size) { return size == 1 || size == CodeTile::side; };
  const bool fits = tile.rows % CodeTile::side == 0 && tile.columns % CodeTile::side == 0 && isSide(tile.blockRows) &&
                    isSide(tile.blockColumns) && tile.blockRows * tile.blockColumns > 1;
  return fits ? std::optional(tile) : std::nullopt;
}

size_t pc::turnedDims(EinsumOp transposition) {
  if (!isTransposition(transposition))
    return 0;
  FactorRule rule = transposition.getFactorRule();
  auto from = llvm::to_vector(rule.operands[0]), to = llvm::to_vector(rule.results[0]);
  auto *first = to.empty() ? from.end() : llvm::find(from, to.front());
  const size_t leading = first - from.begin();
  std::rotate(from.begin(), first, from.end());
  return from == to ? leading : 0;
}

std::optional<CodeProduct> pc::asCodeProduct(FusionOp fusion) {
  Block &body = fusion.getBody().front();
  auto product = dyn_cast_or_null<EinsumOp>(body.getTerminator()->getPrevNode());
  if (!product || fusion->getNumResults() != 1 || !multipliesCodes(product))
    return std::nullopt;
  CodeProduct found{product, {}};
  for (auto [i, input] : llvm::enumerate(product.getInputs())) {
    auto decode = input.getDefiningOp<DecodeOp>();
    Value scales = decode.getScales();
    if (auto turn = scales.getDefiningOp<EinsumOp>())
      scales = turn.getInputs()[0];
    auto codes = dyn_cast<BlockArgument>(decode.getCodes()), ofScales = dyn_cast<BlockArgument>(scales);
    if (!codes || !ofScales)
      return std::nullopt;
    const int64_t block = ShapedType::getNumElements(shapeOf(codes)) / ShapedType::getNumElements(shapeOf(ofScales));
    found.operands[i] = {fusion.getInputs()[codes.getArgNumber()], fusion.getInputs()[ofScales.getArgNumber()],
                         shapeOf(ofScales).empty() ? PCRT_SCALES_ONE
                         : block == CodeTile::side ? PCRT_SCALES_VECTORS
                                                   : PCRT_SCALES_SQUARES};
  }
  return found;
}

bool pc::isByElement(Operation *op) {
  if (op->getNumResults() != 1 || !op->getNumOperands())
    return false;
  auto einsum = dyn_cast<EinsumOp>(op);
  if (!isa<ActivationOp, ActivationGradOp, ScaleOp, CastOp>(op) && (!einsum || einsum.getMask()))
    return false;
  for (Value operand : op->getOperands())
    if (Type element = getElementTypeOrSelf(operand.getType());
        !(element.isF32() || element.isBF16()) || shapeOf(operand) != shapeOf(op->getResult(0)))
      return false;
  if (!einsum)
    return true;
  FactorRule rule = einsum.getFactorRule();
  return llvm::all_of(rule.operands,
                      [&](const auto &dims) { return ArrayRef<int>(dims) == ArrayRef<int>(rule.results[0]); });
}

/// The op that encodes a value and has `result` as a result, or null.
static Operation *encodingOf(Value result) {
  Operation *op = result.getDefiningOp();
  return op && isFloat8Encoding(op) ? op : nullptr;
}

std::optional<TiledCodes> pc::asTiledCodes(FusionOp fusion) {
  Block &body = fusion.getBody().front();
  size_t leading = 0;
  TiledCodes found;
  for (Operation &op : body.without_terminator()) {
    if (isFloat8Encoding(&op)) {
      if (found.value && found.value != op.getOperand(0))
        return std::nullopt;
      found.value = op.getOperand(0);
      found.encodings.push_back({&op, {}, {}});
      continue;
    }
    if (!found.value && isByElement(&op)) {
      found.computed.push_back(&op);
      continue;
    }
    auto turn = dyn_cast<EinsumOp>(op);
    const size_t dims = turn ? turnedDims(turn) : 0;
    if (!dims || (leading && dims != leading) || !encodingOf(turn.getInputs()[0]))
      return std::nullopt;
    leading = dims;
  }
  for (TiledCodes::Encoding &one : found.encodings) {
    auto blocks = dyn_cast<EncodeOp>(one.encode);
    std::optional<CodeTile> tile =
        codeTile(shapeOf(found.value), blocks ? shapeOf(blocks.getScales()) : ArrayRef<int64_t>(), leading);
    if (!tile || (!blocks && !isa<BlockArgument>(one.encode->getOperand(1))))
      return std::nullopt;
    one.tile = *tile;
  }
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    auto turn = value.getDefiningOp<EinsumOp>();
    Value made = turn && encodingOf(turn.getInputs()[0]) ? turn.getInputs()[0] : value;
    for (TiledCodes::Encoding &one : found.encodings)
      if (made.getDefiningOp() == one.encode)
        one.stored.push_back({made != one.encode->getResult(0), turn != nullptr, static_cast<unsigned>(i)});
    if (llvm::is_contained(found.computed, value.getDefiningOp()))
      found.kept.push_back({value, static_cast<unsigned>(i)});
  }
  return leading && !found.encodings.empty() ? std::optional(found) : std::nullopt;
}
