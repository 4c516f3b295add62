//===- Float8Products.cpp - Products of layers with operands of 8 bits ---------------------===//
// An operand of a product becomes pc.decode of pc.encode. A matrix is encoded once per step, before the accumulation,
// and an activation before its first reader. Blocks depend only on the shapes of the step, so every plan rounds the
// same elements together. With one scale per operand (Float8Scales.cpp), both products of an operand share its codes.
// Reference: DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.3.
//===------------------------------------------------------------------------------------===//
#include "Float8Products.h"
#include "Float8Scales.h"

#include "pc/Autodiff/Optimizers.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Dispatch.h"

using namespace mlir;
using namespace pc;

namespace {

/// Elements along the contracted dims that share a scale, and along the other dims of a matrix.
constexpr int64_t side = 128;

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The parameter that `value` is, maybe rounded to bf16, if it is a matrix of a layer. Otherwise null.
ParameterOp matrixOf(Value value) {
  while (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getX();
  auto parameter = value.getDefiningOp<ParameterOp>();
  auto isOther = [](StringRef dim) { return dim == "vocab" || dim == "experts"; };
  return parameter && !isTable(parameter) && llvm::none_of(parameter.getDims().getAsValueRange<StringAttr>(), isOther)
             ? parameter
             : ParameterOp();
}

/// One product, c[m, n] = sum over k of a[m, k] b[k, n].
struct ProductOperands {
  mutable EinsumOp op;
  FactorRule rule;
  Contraction factors;

  explicit ProductOperands(EinsumOp op) : op(op), rule(op.getFactorRule()), factors(rule) {}

  bool canHave() const {
    return op.getInputs().size() == 2 && !op.getMask() && factors.isMatrixProduct() && factors.batch.empty() &&
           factors.alone.empty() && !isOfRouter(op.getResult()) &&
           llvm::all_of(op.getInputs(), [](Value x) { return typeOf(x).getElementType().isBF16(); });
  }

  /// Sets the sizes of blocks in the dims of operand `i` that are in `group`: together `side` elements, of the
  /// innermost dims. Returns false if the dims cannot be divided in this way.
  bool divide(unsigned i, ArrayRef<int> group, MutableArrayRef<int64_t> block, bool inOneDim = false) const {
    int64_t rest = side;
    for (size_t dim = rule.operands[i].size(); dim-- > 0;) {
      const int factor = rule.operands[i][dim];
      if (!llvm::is_contained(group, factor))
        continue;
      const int64_t size = rule.factors[factor].size, part = rest % size == 0 ? size : rest;
      if (size % part || (inOneDim && rest != side && part != 1))
        return false;
      block[dim] = part;
      rest /= part;
    }
    return rest == 1;
  }

  /// The block of operand `i`, which has the contracted dims in the same blocks as the other operand. With `isMatrix`,
  /// its other dims are also divided.
  std::optional<SmallVector<int64_t>> blockOf(unsigned i, bool isMatrix, bool inOneDim = false) const {
    SmallVector<int64_t> block(rule.operands[i].size(), 1), other(rule.operands[1 - i].size(), 1);
    if (!divide(i, factors.k, block, inOneDim) || !divide(1 - i, factors.k, other, inOneDim) ||
        (isMatrix && !divide(i, i ? factors.n : factors.m, block)))
      return std::nullopt;
    for (auto [size, factor] : llvm::zip_equal(other, rule.operands[1 - i]))
      if (const int *at = llvm::find(rule.operands[i], factor);
          at != rule.operands[i].end() && block[at - rule.operands[i].begin()] != size)
        return std::nullopt;
    return block;
  }
};

/// A value as codes, and their scales.
struct Codes {
  Value codes, scales;

  explicit Codes(EncodeOp op) : codes(op.getCodes()), scales(op.getScales()) {}
  explicit Codes(EncodeScaledOp op) : codes(op.getCodes()), scales(op.getScale()) {}
};

class Rounder {
public:
  Rounder(Block &body, Type ofGradients, Float8Scales *oneScale)
      : body(body), builder(body.getParentOp()->getContext()), e4m3(builder.getType<Float8E4M3FNType>()),
        ofGradients(ofGradients), oneScale(oneScale) {}

  RoundedProducts run() {
    std::vector<ProductOperands> gradients;
    for (auto op : llvm::to_vector(body.getOps<EinsumOp>())) {
      ProductOperands product(op);
      if (!product.canHave())
        continue;
      std::optional<unsigned> matrix;
      for (unsigned i : {0, 1})
        if (matrixOf(op.getInputs()[i]))
          matrix = i;
      if (matrix)
        ofMatrix(product, *matrix);
      else
        gradients.push_back(std::move(product));
    }
    // Products of an activation and a gradient that products of matrices read are gradients of matrices.
    for (const ProductOperands &product : gradients)
      for (unsigned i : {0, 1})
        if (activations.count(product.op.getInputs()[i]) && gradientsOfResults.contains(product.op.getInputs()[1 - i]))
          ofGradient(product, i);
    return done;
  }

private:
  void ofMatrix(const ProductOperands &product, unsigned i) {
    EinsumOp op = product.op;
    Value x = op.getInputs()[1 - i];
    const bool isForward = stepPhase(op) == StepPhase::Forward;
    auto block = product.blockOf(i, /*isMatrix=*/true), ofX = product.blockOf(1 - i, /*isMatrix=*/false);
    if (!oneScale && (!block || !ofX)) {
      ++done.kept;
      return;
    }
    ++done.rounded;
    ParameterOp parameter = matrixOf(op.getInputs()[i]);
    const auto operand = isForward ? Float8Operand::Input : Float8Operand::Gradient;
    const Type element = isForward ? e4m3 : ofGradients;
    Codes codes = oneScale ? encode(parameter.getValue(), e4m3, Float8Operand::Matrix, parameter, parameter.getLoc())
                           : (builder.setInsertionPointAfter(parameter),
                              encode(parameter.getValue(), *block, e4m3, parameter.getLoc()));
    Codes ofActivation = oneScale ? encode(x, element, operand, parameter, op.getLoc())
                                  : (builder.setInsertionPoint(op), encode(x, *ofX, element, op.getLoc()));
    if (isForward)
      activations.try_emplace(x, ofActivation);
    else
      gradientsOfResults.try_emplace(x, ofActivation);
    decode(op, i, codes);
    decode(op, 1 - i, ofActivation);
  }

  void ofGradient(const ProductOperands &product, unsigned i) {
    EinsumOp op = product.op;
    Value x = op.getInputs()[i], dy = op.getInputs()[1 - i];
    if (oneScale) {
      ++done.rounded;
      decode(op, i, activations.find(x)->second);
      decode(op, 1 - i, gradientsOfResults.find(dy)->second);
      return;
    }
    // Sequences are not rounded together, so that ranks can have any of them.
    auto ofActivation = product.blockOf(i, /*isMatrix=*/false, /*inOneDim=*/true),
         ofGradient = product.blockOf(1 - i, /*isMatrix=*/false, /*inOneDim=*/true);
    if (!ofActivation || !ofGradient) {
      ++done.kept;
      return;
    }
    ++done.rounded;
    // The forward pass encodes the activation, so that only its codes are kept for the backward pass.
    Operation *inForward = activations.find(x)->second.codes.getDefiningOp();
    builder.setInsertionPointAfter(inForward);
    Codes codes = encode(x, *ofActivation, e4m3, inForward->getLoc());
    builder.setInsertionPoint(op);
    decode(op, i, codes);
    builder.setInsertionPoint(op);
    decode(op, 1 - i, encode(dy, *ofGradient, ofGradients, op.getLoc()));
  }

  /// Encodes `value` with one scale right after its definition, or returns the codes if it is encoded already.
  Codes encode(Value value, Type element, Float8Operand operand, ParameterOp matrix, Location product) {
    for (Operation *user : value.getUsers())
      if (auto known = dyn_cast<EncodeScaledOp>(user); known && typeOf(known.getCodes()).getElementType() == element) {
        oneScale->addReader(product, value, operand, matrix);
        return Codes(known);
      }
    builder.setInsertionPointAfterValue(value);
    Value scale = oneScale->scaleOf(builder, product, value, element, operand, matrix);
    auto type = RankedTensorType::get(typeOf(value).getShape(), element);
    return Codes(EncodeScaledOp::create(builder, product, type, value, scale));
  }

  /// Encodes `value` in blocks at the insertion point, or returns the codes if it is encoded already.
  Codes encode(Value value, ArrayRef<int64_t> block, Type element, Location loc) {
    for (Operation *user : value.getUsers())
      if (auto known = dyn_cast<EncodeOp>(user);
          known && typeOf(known.getCodes()).getElementType() == element &&
          typeOf(known.getScales()).getShape() == ArrayRef(shapeOfScales(typeOf(value).getShape(), block)))
        return Codes(known);
    ArrayRef<int64_t> shape = typeOf(value).getShape();
    auto codes = RankedTensorType::get(shape, element),
         scales = RankedTensorType::get(shapeOfScales(shape, block), builder.getF32Type());
    return Codes(EncodeOp::create(builder, loc, TypeRange{codes, scales}, value, /*is_unsigned=*/false,
                                  /*is_linear=*/false, /*is_float8=*/true));
  }

  /// Lets operand `i` of `op` read `codes`. Readers in one pass share the decoded value. The reader that is found first
  /// may not be the first one in the program, so codes with one scale are decoded as early as possible.
  void decode(EinsumOp op, unsigned i, const Codes &codes) {
    Value &decoded = values[{codes.codes, unsigned(stepPhase(op))}];
    Value read = op.getInputs()[i];
    if (!decoded) {
      Operation *made = codes.codes.getDefiningOp();
      builder.setInsertionPoint(op);
      if (oneScale && made->getBlock() == &body && stepPhase(made) == stepPhase(op))
        builder.setInsertionPointAfter(made);
      decoded =
          DecodeOp::create(builder, op.getLoc(), RankedTensorType::get(typeOf(read).getShape(), builder.getBF16Type()),
                           codes.codes, codes.scales, /*is_unsigned=*/false, /*is_linear=*/false,
                           /*is_float8=*/true);
    }
    op->setOperand(i, decoded);
    if (auto cast = read.getDefiningOp<CastOp>(); cast && cast->use_empty())
      cast.erase();
  }

  Block &body;
  OpBuilder builder;
  Type e4m3, ofGradients;
  Float8Scales *oneScale; ///< null: scales per block
  RoundedProducts done;
  llvm::MapVector<Value, Codes> activations;       ///< operands of products in the forward pass, with their codes
  llvm::DenseMap<Value, Codes> gradientsOfResults; ///< operands of products with matrices in the backward pass
  llvm::DenseMap<std::pair<Value, unsigned>, Value> values;
};

} // namespace

RoundedProducts pc::roundProducts(Block &body, Type ofGradients, Float8Scales *scales) {
  return Rounder(body, ofGradients, scales).run();
}
