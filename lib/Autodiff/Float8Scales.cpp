//===- Float8Scales.cpp - Scales of whole tensors for operands of 8 bits -------------------===//
// The largest magnitude of a tensor is a maximum over all its dims, so it is the same on every plan: where ranks have
// parts of the tensor, placement adds an all_reduce of one number. A history is a vector with one magnitude per step,
// the last one first. Zeros mean that there was no step yet.
// Reference: NVIDIA, Transformer Engine, recipes Float8CurrentScaling and DelayedScaling.
//===------------------------------------------------------------------------------------===//
#include "Float8Scales.h"

#include "Gradients.h"
#include "pc/Autodiff/Optimizers.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Parts.h"
#include "pc/IR/Shapes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace pc;

/// The name of the state for an operand.
static std::string nameOf(Float8Operand operand) {
  StringRef kind = operand == Float8Operand::Matrix ? "matrix" : operand == Float8Operand::Input ? "input" : "gradient";
  return ("fp8_" + kind + historySuffix).str();
}

Float8Scales::Float8Scales(AccumulateOp accumulate, Float8Scaling how)
    : accumulate(accumulate), how(how), builder(accumulate), loc(accumulate.getLoc()) {}

RankedTensorType Float8Scales::f32(ArrayRef<int64_t> shape) const {
  return RankedTensorType::get(shape, OpBuilder(accumulate->getContext()).getF32Type());
}

Value Float8Scales::number(double value, ArrayRef<int64_t> shape) {
  return ConstantOp::create(builder, loc, f32(shape), builder.getF64FloatAttr(value));
}

/// " x0 x1": the first `n` dims.
static std::string dims(size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i)
    text += " x" + std::to_string(i);
  return text;
}

/// Two maxima, so that the first one has enough rows for all threads.
Value Float8Scales::largest(Value x) {
  constexpr int64_t enough = 64;
  ArrayRef<int64_t> shape = shapeOf(x);
  size_t kept = 0;
  for (int64_t rows = 1; kept + 1 < shape.size() && rows < enough; ++kept)
    rows *= shape[kept];
  Value rows = MaxMagnitudeOp::create(builder, loc, f32(shape.take_front(kept)),
                                      dims(shape.size()).substr(1) + " ->" + dims(kept), x);
  return kept ? ReduceMaxOp::create(builder, loc, f32({}), dims(kept).substr(1) + " ->", rows).getResult() : rows;
}

/// The magnitude, or 0 if it is not finite.
Value Float8Scales::finite(Value magnitude) {
  return SelectOp::create(builder, loc, magnitude.getType(), ComparisonKind::LessEqual, magnitude,
                          number(std::numeric_limits<float>::max()), magnitude, number(0));
}

/// A packed parameter has a history per part, so that checkpoints do not depend on packing. All of them are written
/// with the same values. If they differ, because they come from separate parameters, the largest ones count.
Float8Scales::History &Float8Scales::historyOf(ParameterOp matrix, Float8Operand operand) {
  auto [it, isNew] = histories.try_emplace({matrix, static_cast<int>(operand)});
  History &history = it->second;
  if (!isNew)
    return history;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfter(matrix);
  const int64_t parts = numParts(matrix);
  history.state =
      StateOp::create(builder, loc, f32({parts * float8History}), builder.getStringAttr(nameOf(operand)),
                      matrix.getNameAttr(), builder.getStrArrayAttr({historyDim}), nullptr, nullptr, nullptr);
  history.bySteps = history.state.getValue();
  if (parts > 1) {
    Value apart = ReshapeOp::create(builder, loc, f32({parts, float8History}), "(p h) -> p h", history.bySteps);
    Value turned = EinsumOp::create(builder, loc, f32({float8History, parts}), "p h -> h p", ValueRange{apart});
    history.bySteps = ReduceMaxOp::create(builder, loc, f32({float8History}), "h p -> h", turned);
  }
  return history;
}

void Float8Scales::addReader(Location product, Value x, Float8Operand operand, ParameterOp matrix) {
  if (how == Float8Scaling::Current)
    return;
  loc = matrix.getLoc();
  auto &values = historyOf(matrix, operand).values;
  if (llvm::none_of(values, [&](const auto &known) { return known.first == x; }))
    values.push_back({x, product});
}

Value Float8Scales::scaleOf(OpBuilder &at, Location product, Value x, Type format, Float8Operand operand,
                            ParameterOp matrix) {
  OpBuilder::InsertionGuard guard(builder);
  builder.restoreInsertionPoint(at.saveInsertionPoint());
  loc = product;
  auto scale = [&](Value magnitude) {
    return Float8ScaleOp::create(builder, loc, f32({}), magnitude, TypeAttr::get(format)).getScale();
  };
  if (how == Float8Scaling::Current)
    return scale(largest(x));
  addReader(product, x, operand, matrix);
  History &history = historyOf(matrix, operand);
  Value &known = history.scales[format];
  if (!known) {
    builder.setInsertionPointAfterValue(history.recent ? history.recent : history.bySteps);
    if (!history.recent)
      history.recent = ReduceMaxOp::create(builder, loc, f32({}), "h ->", history.bySteps);
    known = SelectOp::create(builder, loc, f32({}), ComparisonKind::LessEqual, history.recent, number(0), number(1),
                             scale(history.recent));
  }
  return known;
}

/// A matrix with a row for each microbatch, which is 1 in the microbatch's own column and 0 in the others.
Value Float8Scales::microbatchRows(int64_t microbatches) {
  auto numbers = IotaOp::create(builder, loc, RankedTensorType::get({microbatches}, builder.getI32Type()), /*from=*/0);
  Value index = CastOp::create(builder, loc, f32({microbatches}), numbers);
  RankedTensorType square = f32({microbatches, microbatches});
  Value row = EinsumOp::create(builder, loc, square, "i -> i j", ValueRange{index}),
        column = EinsumOp::create(builder, loc, square, "j -> i j", ValueRange{index});
  return SelectOp::create(builder, loc, square, ComparisonKind::Equal, row, column, number(1, square.getShape()),
                          number(0, square.getShape()));
}

/// The oldest magnitude leaves the history.
void Float8Scales::update(History &history, Value magnitude, Value coefficient) {
  auto columns = [&](Value x, int64_t from) {
    return ColumnsOp::create(builder, loc, f32({float8History}), x, IntegerAttr(), builder.getI64IntegerAttr(from));
  };
  Value one = EinsumOp::create(builder, loc, f32({1}), "-> h", ValueRange{magnitude});
  Value fresh = AddOp::create(builder, loc, f32({float8History}), columns(history.bySteps, -1), columns(one, 0));
  Value old = history.state.getValue();
  if (const int64_t parts = shapeOf(old)[0] / float8History; parts > 1) {
    Value all = EinsumOp::create(builder, loc, f32({parts, float8History}), "h -> p h", ValueRange{fresh});
    fresh = ReshapeOp::create(builder, loc, old.getType(), "p h -> (p h)", all);
  }
  UpdateOp::create(builder, loc, history.state.getNameAttr(), history.state.getParameterAttr(),
                   keepIfSkipped(builder, spread(builder, coefficient, old), fresh, old));
}

/// Sums over microbatches are sums of vectors with an entry per microbatch, so their largest element is the maximum
/// over microbatches.
LogicalResult Float8Scales::keepHistories() {
  auto coefficients = accumulate->getParentOfType<func::FuncOp>().getOps<ClipCoefficientOp>();
  for (auto &[key, history] : histories)
    if (auto matrix = cast<ParameterOp>(key.first); matrix.getFrozen() || coefficients.empty())
      return matrix.emitError() << "pc-mixed-precision: '" << matrix.getName()
                                << "' has no history of magnitudes, because no step changes it; use "
                                   "--fp8-scaling=current";
  if (histories.empty())
    return success();
  Block &body = accumulate.getBody().front();
  Operation *yield = body.getTerminator();
  const int64_t microbatches = accumulate.getMicrobatches();
  builder.setInsertionPoint(accumulate);
  loc = accumulate.getLoc();
  OperationState state(loc, AccumulateOp::getOperationName());
  state.addOperands(accumulate.getInputs());
  state.addOperands(microbatchRows(microbatches));
  Value own = body.addArgument(f32({microbatches}), loc);
  SmallVector<Value> yields(yield->getOperands());
  SmallVector<std::pair<History *, unsigned>> ofBody; // with the numbers of their results
  llvm::DenseMap<Value, unsigned> known;              // results, by value
  for (auto &[key, history] : histories) {
    if (key.second == static_cast<int>(Float8Operand::Matrix))
      continue;
    const bool isOne = history.values.size() == 1; // layers may share a matrix
    auto result = isOne ? known.find(history.values[0].first) : known.end();
    ofBody.push_back({&history, result == known.end() ? yields.size() : result->second});
    if (result != known.end())
      continue;
    if (isOne)
      known[history.values[0].first] = yields.size();
    SmallVector<Value> magnitudes;
    for (auto [x, product] : history.values) {
      loc = product;
      builder.setInsertionPointAfterValue(x);
      magnitudes.push_back(largest(x));
    }
    llvm::sort(magnitudes, [](Value a, Value b) { return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp()); });
    builder.setInsertionPointAfterValue(magnitudes.back());
    loc = magnitudes.back().getLoc();
    Value all = magnitudes[0];
    for (Value more : llvm::drop_begin(magnitudes))
      all = SelectOp::create(builder, loc, f32({}), ComparisonKind::Less, all, more, more, all);
    yields.push_back(EinsumOp::create(builder, loc, f32({microbatches}), ", m -> m", ValueRange{finite(all), own}));
  }
  yield->setOperands(yields);
  state.addTypes(ValueRange(yields).getTypes());
  state.addRegion()->takeBody(accumulate.getBody());
  builder.setInsertionPoint(accumulate);
  auto rewritten = cast<AccumulateOp>(builder.create(state));
  for (auto [from, to] : llvm::zip(accumulate.getResults(), rewritten.getResults()))
    from.replaceAllUsesWith(to);
  accumulate.erase();
  accumulate = rewritten;

  builder.setInsertionPoint(accumulate->getBlock()->getTerminator());
  Value coefficient = (*coefficients.begin()).getResult();
  for (auto [history, result] : ofBody) {
    loc = history->state.getLoc();
    Value all = ReduceMaxOp::create(builder, loc, f32({}), "m ->", accumulate.getResult(result));
    update(*history, all, coefficient);
  }
  for (auto &[key, history] : histories)
    if (key.second == static_cast<int>(Float8Operand::Matrix)) {
      loc = history.state.getLoc();
      // Reads the matrix before its update, so that the update can be in place.
      builder.setInsertionPoint(accumulate);
      Value magnitude = largest(history.values[0].first);
      builder.setInsertionPoint(accumulate->getBlock()->getTerminator());
      update(history, finite(magnitude), coefficient);
    }
  return success();
}
