//===- RowSpace.cpp - Ops that work row by row ----------------------------------------------===//
// Input: an op. Result: the dims over which it can be computed row by row, and the positions at which rows may end
// (`splits`, one bit per position); std::nullopt if it is not a row op. Ops whose spaces agree in a split can become
// one kernel.
//===-----------------------------------------------------------------------------===//
#include "RowSpace.h"
#include "Grouped.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Shapes.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

static Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }
static bool isFloat(Value value) { return elementOf(value).isF32() || elementOf(value).isBF16(); }

int64_t RowSpace::choose() const {
  // Chooses the first legal split with at least 16 rows, so that rows are long and enough for all threads; otherwise
  // the last legal split.
  int64_t rows = 1, best = -1;
  for (int64_t p = 0; p <= static_cast<int64_t>(shape.size()); ++p) {
    if (allows(p)) {
      best = p;
      if (rows >= 16)
        return p;
    }
    if (p < static_cast<int64_t>(shape.size()))
      rows *= shape[p];
  }
  return best;
}

/// An operand may lack leading dims (it repeats for every row), trailing dims (one value per row), or both.
View pc::viewOf(ArrayRef<int> dims, ArrayRef<int> space, ArrayRef<int64_t> shape, int64_t split, int64_t &period) {
  ArrayRef<int> rows = space.take_front(split), columns = space.drop_front(split);
  if (dims == space)
    return View::Full;
  if (dims.empty())
    return View::Scalar;
  if (dims == columns)
    return View::Column;
  if (dims == rows)
    return View::Row;
  // The operand has a suffix of the row dims and all columns, so its rows repeat.
  if (dims.size() > columns.size() && dims.size() < space.size() && dims == space.take_back(dims.size())) {
    period = 1;
    for (int64_t n : shape.slice(space.size() - dims.size(), dims.size() - columns.size()))
      period *= n;
    return View::Periodic;
  }
  return View::None;
}

/// The space of an einsum without contraction (a product and broadcast), or of an einsum that sums trailing dims.
static std::optional<RowSpace> einsumSpace(EinsumOp op) {
  FactorRule rule = op.getFactorRule();
  ArrayRef<int> result = rule.results[0];
  SmallVector<int> space(result);
  // Summed factors must be the trailing dims of an operand that has all factors.
  SmallVector<int> summed = Contraction(rule).summed;
  bool reduces = !summed.empty();
  if (reduces) {
    ArrayRef<int> widest;
    for (ArrayRef<int> dims : rule.operands)
      if (dims.size() > widest.size())
        widest = dims;
    if (widest.size() != result.size() + summed.size() || widest.take_front(result.size()) != result)
      return std::nullopt;
    space.assign(widest.begin(), widest.end());
  }
  for (int f : space)
    if (llvm::count(space, f) > 1)
      return std::nullopt;
  // Splits the space at position p: dims before p count rows, dims from p on are one row. A split is legal if a kernel
  // can read every operand as a view of rows. A sum must be over whole rows.
  RowSpace rows;
  for (int f : space)
    rows.shape.push_back(rule.factors[f].size);
  for (int64_t p = 0; p <= static_cast<int64_t>(space.size()); ++p) {
    if (reduces && p != static_cast<int64_t>(result.size()))
      continue;
    int64_t period;
    if (llvm::all_of(rule.operands,
                     [&](const auto &dims) { return viewOf(dims, space, rows.shape, p, period) != View::None; }))
      rows.splits |= uint64_t(1) << p;
  }
  if (!rows.splits)
    return std::nullopt;
  return rows;
}

/// An op on routed tokens has the space of its row form, which has one row per token and expert.
std::optional<RowSpace> pc::rowSpace(Operation *op) {
  if (hasRows(op)) {
    auto einsum = dyn_cast<EinsumOp>(op);
    return einsum && einsum.getMask() ? std::nullopt : rowSpace(rowForm(op).op);
  }
  for (Value value : op->getResults())
    if (!isa<RankedTensorType>(value.getType()) || !isFloat(value))
      return std::nullopt;
  if (auto cast = dyn_cast<CastOp>(op); cast && !isFloat(cast.getX()) && !elementOf(cast.getX()).isInteger(32))
    return std::nullopt;
  // Pointwise ops can be split anywhere, so bits 0 to n are set, where n is the number of dims. Row-wise ops need the
  // whole last dim in a row.
  auto any = [](ArrayRef<int64_t> shape) {
    return RowSpace{SmallVector<int64_t>(shape), (uint64_t(2) << shape.size()) - 1};
  };
  auto last = [](ArrayRef<int64_t> shape) {
    return RowSpace{SmallVector<int64_t>(shape), uint64_t(1) << (shape.size() - 1)};
  };
  if (op->hasTrait<Pointwise>())
    return any(shapeOf(op->getResult(0)));
  if (op->hasTrait<Rowwise>())
    return last(shapeOf(op->getOperand(0)));
  return llvm::TypeSwitch<Operation *, std::optional<RowSpace>>(op)
      .Case([&](ConstantOp) { return any(shapeOf(op->getResult(0))); })
      .Case<LayerNormGradOp, RMSNormGradOp>([&](auto norm) { return last(shapeOf(norm.getX())); })
      .Case([&](EinsumOp einsum) -> std::optional<RowSpace> {
        if (columnSumsOf(einsum).empty())
          return einsumSpace(einsum);
        // The leading dims, over which it sums, are the rows.
        ArrayRef<int64_t> shape = shapeOf(einsum.getInputs()[0]);
        int64_t columns = shapeOf(einsum.getResult()).size();
        return RowSpace{SmallVector<int64_t>(shape), uint64_t(1) << (shape.size() - columns)};
      })
      .Case<ReduceMaxOp, MaxMagnitudeOp>([&](auto max) -> std::optional<RowSpace> {
        FactorRule rule = max.getFactorRule();
        ArrayRef<int> x = rule.operands[0], r = rule.results[0];
        if (r.size() >= x.size() || x.take_front(r.size()) != r)
          return std::nullopt;
        return RowSpace{SmallVector<int64_t>(shapeOf(max.getX())), uint64_t(1) << r.size()};
      })
      .Case<ClipCoefficientOp, Float8ScaleOp>([&](auto) { return any({}); })
      .Default([](Operation *) { return std::nullopt; });
}

bool pc::readsOwnRow(OpOperand &operand) {
  auto read = [&](Operation *op) {
    auto factored = dyn_cast<FactorOpInterface>(op);
    if (!factored)
      return true;
    FactorRule rule = factored.getFactorRule();
    ArrayRef<int> space = rule.results[0], dims = rule.operands[operand.getOperandNumber()];
    for (ArrayRef<int> other : rule.operands)
      space = other.size() > space.size() ? other : space;
    return dims == space.take_front(dims.size());
  };
  return hasRows(operand.getOwner()) ? read(rowForm(operand.getOwner()).op) : read(operand.getOwner());
}
