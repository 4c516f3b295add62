//===- Sparsity.cpp - Pruning of weights while they are trained -------------------------------===//
// The step program chooses the masks with ops that routers and sampling also use, so every plan computes the choice. A
// step has no branches, so it computes the choice every time, but uses it only in the steps that change the mask.
//===-----------------------------------------------------------------------------===//
#include "Sparsity.h"
#include "Gradients.h"
#include "pc/Autodiff/Optimizers.h"
#include "pc/IR/Generation.h"
#include "pc/IR/Groups.h"
#include "pc/IR/Parts.h"

#include <cmath>

using namespace mlir;
using namespace pc;

std::optional<Sparsity> Sparsity::of(ParameterOp parameter) {
  DictionaryAttr group = parameter.getGroupAttr();
  auto number = [&](StringRef name, double byDefault) { return settingOf(group, name, byDefault); };
  Sparsity result{number("sparsity", 0), std::llround(number("kept", 0)), std::llround(number("among", 0)),
                  std::llround(number("every", 1)), std::llround(number("until", 0))};
  if (result.share == 0 && result.among == 0)
    return std::nullopt;
  return result;
}

namespace {

/// The ops for one parameter.
class Pruning {
public:
  Pruning(OpBuilder &builder, ParameterOp parameter, const Sparsity &sparsity, Value updated, Value coefficient)
      : builder(builder), parameter(parameter), sparsity(sparsity), updated(updated), coefficient(coefficient),
        loc(parameter.getLoc()), type(cast<RankedTensorType>(updated.getType())), scalar(coefficient.getType()) {}

  FailureOr<Value> build() {
    if (failed(check()))
      return failure();
    Value mask = state(maskState, type, parameter.getDims());
    Value age = state(maskAgeState, scalar, builder.getArrayAttr({}));
    Value wait = state(maskWaitState, scalar, builder.getArrayAttr({}));
    // Step numbers are compared with k + 0.5, since states in the interpreter do not start at exactly 0.
    Value zero = number(0), one = number(1), half = number(0.5);
    Value open = select(ComparisonKind::Less, age, number(static_cast<double>(sparsity.until) + 0.5), one, zero);
    Value due = select(ComparisonKind::Less, wait, half, open, zero);
    Value chosen = sparsity.among ? choosePattern() : chooseLargest(age);
    Value fresh = select(ComparisonKind::Less, all(half), all(due), chosen, mask);
    Value masked = select(ComparisonKind::Less, fresh, all(half), all(zero), updated);
    keep(maskState, fresh, mask);
    keep(maskAgeState, AddOp::create(builder, loc, scalar, age, one), age);
    Value less = SubOp::create(builder, loc, scalar, wait, one), most = number(static_cast<double>(sparsity.every - 1));
    keep(maskWaitState, select(ComparisonKind::Less, wait, half, most, less), wait);
    return keepIfSkipped(builder, all(coefficient), masked, updated);
  }

private:
  /// Finds the dims of a row, or of groups, and refuses parameters whose rows do not fit.
  LogicalResult check() {
    SmallVector<ParameterPart> parts = partsOf(parameter);
    int64_t last = type.getRank() ? type.getShape().back() : 0;
    if (sparsity.among && type.getRank())
      tail = 1, row = last;
    for (; !sparsity.among && tail < type.getRank() && row != parts[0].source.getSize().back(); ++tail)
      row *= parts[0].size[type.getRank() - 1 - tail];
    ArrayRef<int64_t> ofRow = type.getShape().take_back(tail);
    auto fits = [&](const ParameterPart &part) { return ArrayRef(part.size).take_back(tail) == ofRow; };
    auto refuse = [&]() {
      return parameter.emitError() << "--group: 'sparsity' does not work for '" << parameter.getName() << "', ";
    };
    if (parts[0].source.getShape().size() < 2)
      return refuse() << "which is not a matrix";
    if ((!sparsity.among && row != parts[0].source.getSize().back()) || tail == 0 || tail == type.getRank())
      return refuse() << "which has a single row, or other rows than its tensor in checkpoints";
    if (!type.getElementType().isF32() || validShape(parameter).take_back(tail) != ofRow || !llvm::all_of(parts, fits))
      return refuse() << "whose rows are not f32, have padding, or are parts of several tensors"
                      << (parts.size() > 1 ? "; try --pack-products=false" : "");
    if (sparsity.among && last % sparsity.among)
      return refuse() << "because " << sparsity.among << " does not divide its last dim of " << last;
    if (!sparsity.among && std::llround(static_cast<double>(row) * (1 - sparsity.share)) < 1)
      return refuse() << "because no element of its rows of " << row << " would remain";
    return success();
  }

  Value state(StringRef name, Type type, ArrayAttr dims) {
    return StateOp::create(builder, loc, type, builder.getStringAttr(name), parameter.getNameAttr(), dims, nullptr,
                           nullptr, nullptr);
  }
  Value number(double value) { return ConstantOp::create(builder, loc, scalar, builder.getF64FloatAttr(value)); }
  Value all(Value value) { return spread(builder, value, updated); }
  Value select(ComparisonKind kind, Value x, Value y, Value a, Value b) {
    return SelectOp::create(builder, loc, a.getType(), kind, x, y, a, b);
  }
  void keep(StringRef name, Value fresh, Value old) {
    UpdateOp::create(builder, loc, builder.getStringAttr(name), parameter.getNameAttr(),
                     keepIfSkipped(builder, old.getType() == scalar ? coefficient : all(coefficient), fresh, old));
  }

  Value magnitudes() {
    Value zero = all(number(0));
    Value negative = SubOp::create(builder, loc, type, zero, updated);
    return select(ComparisonKind::Less, updated, zero, negative, updated);
  }

  /// Ones for the largest elements of each `among` adjacent ones.
  Value choosePattern() {
    SmallVector<int64_t> shape(type.getShape());
    shape.back() /= sparsity.among;
    shape.push_back(sparsity.among);
    std::string lead = names(0, type.getRank() - 1);
    auto apart = RankedTensorType::get(shape, type.getElementType());
    Value grouped = ReshapeOp::create(builder, loc, apart, lead + "(g e) -> " + lead + "g e", magnitudes());
    Value chosen = TopKOp::create(builder, loc, apart, grouped, builder.getI64IntegerAttr(sparsity.kept), nullptr,
                                  nullptr, nullptr);
    return ReshapeOp::create(builder, loc, type, lead + "g e -> " + lead + "(g e)", chosen);
  }

  /// Ones for elements that are not less than the k-th largest of their row. k falls by the cubic curve of Zhu and
  /// Gupta 2017, so that most elements are pruned early.
  Value chooseLargest(Value age) {
    int64_t last = sparsity.until / sparsity.every;
    auto keptAt = [&](int64_t choice) {
      double rest = last ? 1 - static_cast<double>(choice) / static_cast<double>(last) : 0;
      return static_cast<double>(
          std::llround(static_cast<double>(row) * (1 - sparsity.share * (1 - rest * rest * rest))));
    };
    Value k = number(keptAt(last));
    for (int64_t choice = last; choice-- > 0;)
      k = select(ComparisonKind::Less, age, number(static_cast<double>((choice + 1) * sparsity.every)),
                 number(keptAt(choice)), k);
    return select(ComparisonKind::Less, magnitudes(), leastOfRows(k), all(number(0)), all(number(1)));
  }

  /// For each element, the k-th largest magnitude of its row.
  Value leastOfRows(Value k) {
    auto shaped = [&](ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, type.getElementType()); };
    int64_t rows = type.getNumElements() / row;
    RankedTensorType matrix = shaped({rows, row});
    std::string own = names(0, type.getRank()), lead = names(0, type.getRank() - tail),
                flat = "(" + lead + ") (" + names(type.getRank() - tail, type.getRank()) + ")";
    Value sizes = ReshapeOp::create(builder, loc, matrix, own + "-> " + flat, magnitudes());
    Value wide = EinsumOp::create(builder, loc, shaped({1, rows, row}), "m v -> b m v", ValueRange{sizes});
    Value one = number(1); // the temperature, and top-p without effect
    Value four = StackOp::create(builder, loc, shaped({4}), ValueRange{one, k, one, number(0)});
    Value settings = EinsumOp::create(builder, loc, shaped({1, rows, 4}), "c -> b m c", ValueRange{four});
    Value least = SamplingThresholdOp::create(builder, loc, shaped({1, rows}), wide, settings);
    Value limits = EinsumOp::create(builder, loc, matrix, "b m -> m v", ValueRange{least});
    return ReshapeOp::create(builder, loc, type, flat + " -> " + own, limits);
  }

  /// "x0 x1 ": names of the dims from `from` to `to`.
  static std::string names(int64_t from, int64_t to) {
    std::string all;
    for (int64_t d = from; d < to; ++d)
      all += "x" + std::to_string(d) + " ";
    return all;
  }

  OpBuilder &builder;
  ParameterOp parameter;
  const Sparsity &sparsity;
  Value updated, coefficient;
  Location loc;
  RankedTensorType type;
  Type scalar;
  int64_t tail = 0, row = 1; ///< the last dims, which are a row of the checkpoint's tensor, and its elements
};

} // namespace

FailureOr<Value> pc::prune(OpBuilder &builder, ParameterOp parameter, const Sparsity &sparsity, Value updated,
                           Value coefficient) {
  return Pruning(builder, parameter, sparsity, updated, coefficient).build();
}
