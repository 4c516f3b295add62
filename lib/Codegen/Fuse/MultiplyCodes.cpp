//===- MultiplyCodes.cpp - Products of codes instead of decoded operands ------------------===//
// Input: einsums of two operands that are decoded from floats of 8 bits. Result: fusions that are products of cuBLASLt
// (asCodeProduct), and fusions that encode a value in the orders that its products read (asTiledCodes). Orders are
// transpositions in the program, which the interpreter computes and the proof compares. Products that do not fit decode
// their operands as before.
//
// On compute capability 9.0, and on no other, cuBLASLt multiplies blocks of 128. (It multiplies operands with one scale
// each on 8.9 and later, but this pass runs for 9.0 only.) The library requires: the contracted dim contiguous in both
// operands; pointers and rows at multiples of 16 bytes; scales of 128 x 128 elements in at most one operand, and
// one scale in none or both; E4M3 in at least one (cuBLAS 12.9 documentation, "Tensorwide Scaling For FP8 Data Types",
// "128-element 1D and 128x128 2D Block Scaling For FP8 Data Types", and the tables of cublasLtMatmul). With blocks,
// dims of products here are multiples of 128, so that kernels which write codes work on whole squares.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_MULTIPLYCODES
#include "pc/Codegen/Passes.h"

#include "CodeProduct.h"
#include "MakeFusion.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Shapes.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

template <typename T> static SmallVector<T> rotated(ArrayRef<T> list, size_t leading) {
  SmallVector<T> result(list);
  std::rotate(result.begin(), result.begin() + static_cast<int64_t>(leading), result.end());
  return result;
}

namespace {

/// An operand of a product, as a matrix of two groups of dims.
struct Reading {
  mutable DecodeOp decode;
  SmallVector<int> outer, contracted; ///< factors
  bool turned = false;                ///< contracted dims are the first ones, so codes have to be stored transposed
  bool isMatrix = false;              ///< a scale belongs to 128 x 128 elements

  bool hasOneScale() const { return shapeOf(decode.getScales()).empty(); }
  size_t leading() const { return turned ? contracted.size() : outer.size(); }
};

/// Returns std::nullopt if the dims are not two such groups, or if blocks are not runs of 128 contracted elements. With
/// one scale, sizes are multiples of 16.
std::optional<Reading> readingOf(Value operand, ArrayRef<int> factors, ArrayRef<int> k) {
  Reading reading{float8Of(operand), {}, {}};
  for (int factor : factors)
    (llvm::is_contained(k, factor) ? reading.contracted : reading.outer).push_back(factor);
  if (reading.contracted.empty() || reading.outer.empty())
    return std::nullopt;
  reading.turned = reading.contracted.front() == factors.front();
  SmallVector<int> inOrder = reading.turned ? reading.contracted : reading.outer;
  inOrder.append(reading.turned ? reading.outer : reading.contracted);
  std::optional<CodeTile> tile =
      codeTile(shapeOf(reading.decode.getCodes()), shapeOf(reading.decode.getScales()), reading.leading());
  if (ArrayRef<int>(inOrder) != factors || !tile)
    return std::nullopt;
  if (reading.hasOneScale())
    return reading;
  reading.isMatrix = tile->blockRows == tile->blockColumns;
  const int64_t along = reading.turned ? tile->blockRows : tile->blockColumns;
  return along == CodeTile::side ? std::optional(reading) : std::nullopt;
}

/// Rewrites the products of one module.
class CodeMultiplier {
public:
  explicit CodeMultiplier(MLIRContext *context) : builder(context) {}

  void run(ModuleOp module) {
    SmallVector<EinsumOp> products;
    module.walk([&](EinsumOp op) {
      if (op.getInputs().size() == 2 && !op.getMask() && llvm::all_of(op.getInputs(), float8Of))
        products.push_back(op);
    });
    numProducts = products.size();
    for (EinsumOp product : products)
      numMultiplied += multiply(product);
    // Encodings of one value with different given scales are separate, because a scale may be computed after the first
    // encoding.
    llvm::MapVector<std::tuple<Value, Block *, size_t, Value>, SmallVector<Operation *>> groups;
    for (auto &[encode, turns] : turnsOf)
      groups[{encode->getOperand(0), encode->getBlock(), turnedDims(turns.front()),
              isa<EncodeScaledOp>(encode) ? encode->getOperand(1) : Value()}]
          .push_back(encode);
    for (auto &[key, encodes] : groups)
      fuseEncodings(encodes);
  }

  size_t numProducts = 0, numMultiplied = 0;

private:
  /// Replaces a product by a fusion that is one call of the library. Returns false if the library has no such product.
  bool multiply(EinsumOp product) {
    FactorRule rule = product.getFactorRule();
    Contraction factors(rule);
    if (!factors.isMatrixProduct() || !factors.batch.empty() || !factors.alone.empty())
      return false;
    SmallVector<Reading, 2> readings;
    for (auto [operand, dims] : llvm::zip_equal(product.getInputs(), rule.operands)) {
      std::optional<Reading> reading = readingOf(operand, dims, factors.k);
      if (!reading)
        return false;
      readings.push_back(std::move(*reading));
    }
    auto isE5M2 = [](const Reading &of) { return isa<Float8E5M2Type>(getElementTypeOrSelf(of.decode.getCodes())); };
    auto isResult = [&](const Reading &rows, const Reading &columns) {
      SmallVector<int> dims(rows.outer);
      dims.append(columns.outer);
      return ArrayRef<int>(dims) == ArrayRef<int>(rule.results[0]);
    };
    if (readings[0].hasOneScale() != readings[1].hasOneScale() || (readings[0].isMatrix && readings[1].isMatrix) ||
        (isE5M2(readings[0]) && isE5M2(readings[1])) || readings[0].contracted != readings[1].contracted ||
        (!isResult(readings[0], readings[1]) && !isResult(readings[1], readings[0])))
      return false;
    SmallVector<Operation *> ops;
    SmallVector<Value> operands;
    for (const Reading &reading : readings)
      operands.push_back(read(reading, product, ops));
    builder.setInsertionPoint(product);
    ops.push_back(EinsumOp::create(builder, product.getLoc(), product.getResult().getType(), specOf(product, readings),
                                   operands));
    product.getResult().replaceAllUsesWith(ops.back()->getResult(0));
    makeFusion(ops, product);
    product.erase();
    for (const Reading &reading : readings)
      if (reading.decode->use_empty())
        reading.decode->erase();
    return true;
  }

  /// Decodes an operand in the order of the library, before `product`. The new ops are appended to `ops`. One scale has
  /// no order.
  /// Scales of vectors are stored transposed: those of all rows for the first 128 contracted elements come first.
  /// Scales of squares are stored by rows of squares (cuBLAS documentation, "Scaling factors layouts").
  Value read(const Reading &reading, EinsumOp product, SmallVectorImpl<Operation *> &ops) {
    DecodeOp decode = reading.decode;
    Value codes = decode.getCodes(), scales = decode.getScales();
    const size_t leading = reading.leading(), rank = shapeOf(codes).size();
    if (reading.turned)
      codes = ordered(codes, leading, product);
    builder.setInsertionPoint(product);
    if (reading.hasOneScale()) {
      // as it is
    } else if (reading.isMatrix) {
      scales = reading.turned ? ordered(scales, leading, product) : scales;
    } else {
      // Stored in the order of contracted dims, then outer ones, which is the order of a value that is turned.
      scales = reading.turned ? scales : ordered(scales, leading, product);
      builder.setInsertionPoint(product);
      scales = turn(scales, reading.turned ? leading : rank - leading, product.getLoc()).getResult();
      ops.push_back(scales.getDefiningOp());
    }
    builder.setInsertionPoint(product);
    auto type = RankedTensorType::get(shapeOf(codes), getElementTypeOrSelf(decode.getResult()));
    ops.push_back(DecodeOp::create(builder, decode.getLoc(), type, codes, scales, /*is_unsigned=*/false,
                                   /*is_linear=*/false, /*is_float8=*/true));
    return ops.back()->getResult(0);
  }

  /// The spec of `product` with its turned operands.
  static std::string specOf(EinsumOp product, ArrayRef<Reading> readings) {
    auto [inputs, output] = product.getSpec().split("->");
    SmallVector<StringRef> texts;
    SmallVector<std::string> operands;
    inputs.split(texts, ',');
    for (auto [text, reading] : llvm::zip_equal(texts, readings)) {
      SmallVector<StringRef> words;
      text.split(words, ' ', -1, /*KeepEmpty=*/false);
      operands.push_back(llvm::join(reading.turned ? rotated<StringRef>(words, reading.leading()) : words, " "));
    }
    return llvm::join(operands, ", ") + " -> " + output.trim().str();
  }

  /// The transposition at the insertion point that moves the first `leading` dims to the end.
  EinsumOp turn(Value value, size_t leading, Location loc) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<std::string> names;
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      names.push_back("x" + std::to_string(dim));
    return EinsumOp::create(
        builder, loc, RankedTensorType::get(rotated<int64_t>(type.getShape(), leading), type.getElementType()),
        llvm::join(names, " ") + " -> " + llvm::join(rotated<std::string>(names, leading), " "), ValueRange{value});
  }

  /// Codes or scales in the order of a product. They are transposed where they are encoded or, if they come from
  /// another rank or task, before their first reader in a block.
  Value ordered(Value value, size_t leading, EinsumOp reader) {
    Operation *encode = value.getDefiningOp();
    encode = encode && isFloat8Encoding(encode) ? encode : nullptr;
    Value &known = orders[{value, encode ? encode->getBlock() : reader->getBlock(), leading}];
    if (known)
      return known;
    if (encode)
      builder.setInsertionPointAfter(encode);
    else
      builder.setInsertionPoint(reader);
    EinsumOp made = turn(value, leading, (encode ? encode : reader.getOperation())->getLoc());
    if (encode)
      turnsOf[encode].push_back(made);
    return known = made.getResult();
  }

  /// The ops by element that compute `value` only for ops before which their kernel is placed, in block order. Results
  /// that the backward pass also reads are kept in any case.
  void addProducers(Value value, Operation *at, llvm::SetVector<Operation *> &ops) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != at->getBlock() || !isByElement(op) || ops.contains(op) || !inOnePass(op, at))
      return;
    for (Operation *user : op->getUsers()) {
      Operation *inBlock = at->getBlock()->findAncestorOpInBlock(*user);
      const bool isInside =
          inBlock && (ops.contains(inBlock) || (isFloat8Encoding(inBlock) && !inBlock->isBeforeInBlock(at)));
      if (!isInside && inBlock && (!at->isBeforeInBlock(inBlock) || inOnePass(at, inBlock)))
        return;
    }
    ops.insert(op);
    for (Value operand : op->getOperands())
      addProducers(operand, at, ops);
  }

  /// Fuses the encodings of one value, which one kernel computes from one read of it, or from one read of the operands
  /// of the ops that compute it.
  void fuseEncodings(ArrayRef<Operation *> encodes) {
    SmallVector<Operation *> inOrder(encodes);
    llvm::sort(inOrder, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    while (!inOrder.empty()) {
      // Codes of the backward pass are not computed in the forward pass, where they would be kept.
      Operation *first = inOrder.front();
      // With a given scale, the first pass stores the value, because the scale or the history follows from all of it.
      // Recomputation must round where the first pass does, so it stores the value, too.
      llvm::SetVector<Operation *> producers;
      if (isa<EncodeOp>(first))
        addProducers(first->getOperand(0), first, producers);
      SmallVector<Operation *> ops = producers.takeVector();
      llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
      size_t taken = 0;
      for (Operation *encode : inOrder) {
        if (!inOnePass(first, encode))
          break;
        ops.push_back(encode);
        llvm::append_range(ops, turnsOf[encode]);
        ++taken;
      }
      makeFusion(ops, first);
      inOrder.erase(inOrder.begin(), inOrder.begin() + static_cast<int64_t>(taken));
    }
  }
  static bool inOnePass(Operation *first, Operation *last) {
    for (Operation *op = first; op != last; op = op->getNextNode())
      if (isa<TaskOp, SeedOp>(op))
        return false;
    return true;
  }

  OpBuilder builder;
  llvm::MapVector<Operation *, SmallVector<EinsumOp>> turnsOf; ///< the transpositions next to an encoding
  llvm::DenseMap<std::tuple<Value, Block *, size_t>, Value> orders;
};

/// The pass pc-multiply-codes.
struct MultiplyCodes : pc::impl::MultiplyCodesBase<MultiplyCodes> {
  void runOnOperation() override {
    CodeMultiplier multiplier(&getContext());
    multiplier.run(getOperation());
    if (size_t kept = multiplier.numProducts - multiplier.numMultiplied)
      getOperation().emitRemark() << "pc-multiply-codes: " << kept << " of " << multiplier.numProducts
                                  << " products with operands in fp8 decode them to bf16, because their dims on a rank "
                                     "are not multiples of 128 (of 16, with one scale per operand)";
  }
};

} // namespace
