//===- Verify.cpp - Verifiers generated from factor rules and moves ---------------===//
// Constraints shared by all ops with factors: (F1) the spec fits the operands; (F2) dims of one factor have one size,
// except in reshapes and between elements and their blocks; (F3) all values are placed or none is; (F4) values that
// share a factor list the same axes on it; (F5) on every axis the states are a legal row; (F6) a split dim divides;
// axes exist in the mesh. Moves: (M1) axes, (M2) shape, (M3) the transition.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/BlockCodes.h"

using namespace mlir;
using namespace pc;

/// Checks (F6) for one value.
static LogicalResult verifyOnMesh(Operation *op, Type type, MeshAttr mesh) {
  PlaceAttr place = placement(type);
  if (!place || !mesh)
    return success();
  auto shape = cast<RankedTensorType>(type).getShape();
  auto known = [&](StringAttr axis) -> LogicalResult {
    if (mesh.index(axis) >= 0)
      return success();
    return op->emitOpError() << "axis '" << axis.getValue() << "' is not in the mesh (F6)";
  };
  for (StringAttr axis : llvm::concat<const StringAttr>(place.getPartial(), place.getRoot()))
    if (failed(known(axis)))
      return failure();
  for (auto [d, size] : llvm::enumerate(shape)) {
    for (StringAttr axis : place.axes(d))
      if (failed(known(axis)))
        return failure();
    if (size % mesh.size(place.axes(d)))
      return op->emitOpError() << "dim " << d << " of " << type << " has size " << size << ", not divisible by "
                               << mesh.size(place.axes(d)) << " (F6)";
  }
  return success();
}

/// Calls `check` on the type of every operand and result with the factors of its dims, until one fails.
static LogicalResult checkTensors(Operation *op, const FactorRule &rule,
                                  llvm::function_ref<LogicalResult(Type, ArrayRef<int>)> check) {
  for (auto [type, dims] : llvm::zip(op->getOperandTypes(), rule.operands))
    if (failed(check(type, dims)))
      return failure();
  for (auto [type, dims] : llvm::zip(op->getResultTypes(), rule.results))
    if (failed(check(type, dims)))
      return failure();
  return success();
}

/// The first dim of `op` that has factor `f` and `size`, for messages: "dim 1 of operand 0".
static std::string dimWith(Operation *op, const FactorRule &rule, int f, int64_t size) {
  auto find = [&](TypeRange types, auto &of, StringRef what) -> std::string {
    for (auto [i, type] : llvm::enumerate(types.take_front(of.size())))
      for (auto [d, g] : llvm::enumerate(of[i]))
        if (g == f && cast<RankedTensorType>(type).getDimSize(d) == size)
          return llvm::formatv("dim {0} of {1} {2}", d, what, i);
    return "";
  };
  std::string found = find(op->getOperandTypes(), rule.operands, "operand");
  return found.empty() ? find(op->getResultTypes(), rule.results, "result") : found;
}

/// Checks (F2), also in local programs.
static LogicalResult verifySizes(Operation *op, const FactorRule &rule) {
  LogicalResult ranks = checkTensors(op, rule, [&](Type type, ArrayRef<int> dims) -> LogicalResult {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || tensor.getRank() != static_cast<int64_t>(dims.size()))
      return op->emitOpError() << "expects rank " << dims.size() << ", got " << type << " (F1)";
    return success();
  });
  if (failed(ranks))
    return failure();
  if (isa<ReshapeOp, EncodeOp, DecodeOp>(op)) // these ops check their own sizes
    return success();
  return checkTensors(op, rule, [&](Type type, ArrayRef<int> dims) -> LogicalResult {
    for (auto [f, size] : llvm::zip(dims, cast<RankedTensorType>(type).getShape()))
      if (int64_t first = rule.factors[f].size; first != size)
        return op->emitOpError() << "needs one size for factor '" << rule.factors[f].name << "', but "
                                 << dimWith(op, rule, f, first) << " is " << first << " and "
                                 << dimWith(op, rule, f, size) << " is " << size << " (F2)";
    return success();
  });
}

/// Checks (F4): each factor has one list of axes.
static LogicalResult verifyAxisLists(Operation *op, const FactorRule &rule) {
  SmallVector<ArrayAttr> lists(rule.factors.size());
  return checkTensors(op, rule, [&](Type type, ArrayRef<int> dims) -> LogicalResult {
    PlaceAttr place = placement(type);
    for (auto [d, f] : llvm::enumerate(dims)) {
      ArrayAttr list = place.getDims()[d];
      if (lists[f] && lists[f] != list)
        return op->emitOpError() << "factor '" << rule.factors[f].name << "' has two different splits, " << lists[f]
                                 << " and " << list << " (F4)";
      lists[f] = list;
    }
    return success();
  });
}

static std::string describe(AxisState state) {
  if (state.isSplit())
    return "split on dim " + std::to_string(state.dim());
  if (state.isRoot())
    return "only on the root rank";
  return state.isWhole() ? "whole" : state.isSum() ? "partial sum" : "partial max";
}

/// Checks (F5) on one axis.
static LogicalResult verifyRow(Operation *op, ArrayRef<Row> rows, StringAttr axis) {
  SmallVector<AxisState> operands, results;
  for (Value operand : op->getOperands())
    operands.push_back(placement(operand).state(axis));
  for (Value result : op->getResults())
    results.push_back(placement(result).state(axis));
  for (const Row &row : rows)
    if (ArrayRef(row.operands) == ArrayRef(operands) && ArrayRef(row.results) == ArrayRef(results))
      return success();
  InFlightDiagnostic diagnostic = op->emitOpError()
                                  << "has no legal placement on axis '" << axis.getValue() << "': operands ";
  llvm::interleaveComma(operands, diagnostic, [&](AxisState s) { diagnostic << describe(s); });
  diagnostic << "; results ";
  llvm::interleaveComma(results, diagnostic, [&](AxisState s) { diagnostic << describe(s); });
  return diagnostic << " (F5)";
}

/// Checks the spec and sizes first, since the other checks index by them. A program is either placed completely or not
/// at all.
LogicalResult pc::detail::verifyFactorOp(Operation *op) {
  FactorRule rule = cast<FactorOpInterface>(op).getFactorRule();
  if (rule.operands.size() != op->getNumOperands() || rule.results.size() != op->getNumResults())
    return op->emitOpError() << "the spec does not match " << op->getNumOperands() << " operands and "
                             << op->getNumResults() << " results (F1)";
  if (failed(verifySizes(op, rule)) || failed(verifyElementTypes(op)))
    return failure();
  int64_t placed = 0, total = 0;
  SmallVector<StringAttr> axes;
  auto visit = [&](Type type) {
    ++total;
    PlaceAttr place = placement(type);
    if (!place)
      return;
    ++placed;
    auto add = [&](StringAttr axis) {
      if (!llvm::is_contained(axes, axis))
        axes.push_back(axis);
    };
    for (int64_t d = 0, e = place.getDims().size(); d < e; ++d)
      llvm::for_each(place.axes(d), add);
    llvm::for_each(place.getPartial(), add);
    llvm::for_each(place.getRoot(), add);
  };
  llvm::for_each(op->getOperandTypes(), visit);
  llvm::for_each(op->getResultTypes(), visit);
  if (!placed)
    return success();
  if (placed != total)
    return op->emitOpError() << "mixes placed and unplaced tensors (F3)";
  MeshAttr mesh = meshOf(op);
  for (Type type : op->getResultTypes())
    if (failed(verifyOnMesh(op, type, mesh)))
      return failure();
  if (failed(verifyAxisLists(op, rule)))
    return failure();
  // Axes do not depend on each other: on each of them the states must be those of one legal row (F5).
  SmallVector<Row, 8> rows = legalRows(rule);
  for (StringAttr axis : axes)
    if (failed(verifyRow(op, rows, axis)))
      return failure();
  return success();
}

//===---------------------------------------------------------------------------===//
// Moves
//===---------------------------------------------------------------------------===//

/// The dim that the move splits; -1: none.
static int64_t targetDim(MoveOpInterface move) {
  bool both = takesBlocks(move.getMoveKind()) && makesBlocks(move.getMoveKind());
  return both ? move.getOtherDim() : move.getMoveDim();
}

/// The placement of the result if the operand of the move has placement `from`; null if the move does not apply.
static PlaceAttr transition(MoveOpInterface move, PlaceAttr from) {
  const pcrt_move_facts &facts = factsOf(move.getMoveKind());
  int64_t dim = move.getMoveDim(), target = targetDim(move);
  SmallVector<StringAttr> axes = move.getMoveAxes();
  AxisState partial = move.getReduction() == PartialKind::Max ? AxisState::max() : AxisState::sum();
  // The state that the move needs on its axes, and the state that it leaves there, come from the table of moves.
  auto all = [&](AxisState state) {
    return llvm::all_of(axes, [&](StringAttr axis) { return from.state(axis) == state; });
  };
  // Axes are added and removed only at the minor end, which is the end of the list.
  auto leave = [&]() {
    for (StringAttr axis : llvm::reverse(axes)) {
      SmallVector<StringAttr> list = from.axes(dim);
      if (list.empty() || list.back() != axis)
        return false;
      from = from.with(axis, AxisState::whole());
    }
    return true;
  };
  auto applies = [&]() {
    switch (facts.needs) {
    case PCRT_STATE_WHOLE:
      return all(AxisState::whole());
    case PCRT_STATE_SPLIT:
      return (!makesBlocks(move.getMoveKind()) || dim != target) && leave();
    case PCRT_STATE_PARTIAL:
      return all(partial);
    case PCRT_STATE_ROOT:
      return all(AxisState::root());
    }
    return false;
  };
  auto made = [&]() {
    switch (facts.makes) {
    case PCRT_STATE_WHOLE:
      return AxisState::whole();
    case PCRT_STATE_SPLIT:
      return AxisState::split(target);
    case PCRT_STATE_PARTIAL:
      return AxisState::sum();
    case PCRT_STATE_ROOT:
      return AxisState::root();
    }
    return AxisState::whole();
  };
  // The type does not show which rank's block a rank holds.
  bool placed = !(facts.flags & PCRT_MOVE_UNPLACED);
  bool addsToMax = facts.makes == PCRT_STATE_PARTIAL && from.getKind() == PartialKind::Max;
  if (!placed || addsToMax || !applies())
    return {};
  for (StringAttr axis : axes)
    from = from.with(axis, made());
  return from;
}

/// Checks (M1) and (M2) for local types, whose sizes follow from the number of ranks.
static LogicalResult verifyLocalMove(MoveOpInterface move, RankedTensorType from, RankedTensorType to, MeshAttr mesh) {
  int64_t n = mesh ? mesh.size(move.getMoveAxes()) : 0;
  if (!n)
    return move->emitOpError() << "uses an axis that is not in the mesh (M1)";
  SmallVector<int64_t> shape(from.getShape());
  MoveKind kind = move.getMoveKind();
  if (takesBlocks(kind))
    shape[move.getMoveDim()] *= n;
  if (int64_t dim = targetDim(move); makesBlocks(kind)) {
    if (shape[dim] % n)
      return move->emitOpError() << "dim " << dim << " of " << from << " is not divisible by " << n << " (M2)";
    shape[dim] /= n;
  }
  if (ArrayRef(shape) != to.getShape())
    return move->emitOpError() << "result of " << from << " over " << n << " ranks cannot be " << to << " (M2)";
  int64_t ranks = kind == MoveKind::Permute ? std::max<int64_t>(n, 2) : n; // a single rank also has a next one
  if (move.getMoveShift() < 0 || move.getMoveShift() >= ranks)
    return move->emitOpError() << "shift must be at least 0 and below the " << n << " ranks (M2)";
  if (SmallVector<StringAttr> with = move.getMoveWith(); !with.empty()) {
    if (mesh.size(with) != n)
      return move->emitOpError() << "has " << n << " ranks on its own axes, but " << mesh.size(with)
                                 << " on the axes after 'with' (M2)";
    if (llvm::any_of(with, [&](StringAttr axis) { return llvm::is_contained(move.getMoveAxes(), axis); }))
      return move->emitOpError() << "needs axes after 'with' that differ from its own (M1)";
  }
  auto insert = dyn_cast<InsertOp>(*move);
  if (insert && insert.getBase() && withEncoding(insert.getBase().getType(), {}) != withEncoding(to, {}))
    return insert.emitOpError() << "base " << insert.getBase().getType() << " must have the type of the result (C1)";
  return success();
}

/// Checks (C1) of a carry.
static LogicalResult verifyCarry(Operation *op, RankedTensorType from, RankedTensorType to) {
  if (spaceOf(from) != spaceOf(to) &&
      inSpace(withoutHome(from), Space::Device) == inSpace(withoutHome(to), Space::Device))
    return success();
  return op->emitOpError() << "must change the space and nothing else, but makes " << to << " of " << from << " (C1)";
}

LogicalResult pc::detail::verifySpaces(Operation *op) {
  if (isa<CarryOp, ParameterOp, StateOp, UpdateOp, StartOp, WaitOp, CallOp>(op) ||
      (isa<YieldOp>(op) && isa_and_nonnull<StartOp>(op->getParentOp())))
    return success();
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (spaceOf(type) != Space::Device)
      return op->emitOpError() << "uses " << type << ", which is not on the device; pc.carry brings it there";
  return success();
}

/// Checks (C4) of a sum whose addends are sent as codes.
static LogicalResult verifyWire(MoveOpInterface move, RankedTensorType from, RankedTensorType to, MeshAttr mesh) {
  WireAttr wire = move.getMoveWire();
  if (move.getReduction() != PartialKind::Sum || !from.getElementType().isF32())
    return move->emitOpError() << "can send addends as codes only for a sum of f32, but adds " << from << " (C4)";
  if (wire.getBlock().size() == from.getShape().size() &&
      llvm::all_of(ArrayRef<RankedTensorType>{from, to},
                   [&](RankedTensorType type) { return hasWholeBlocks(type, wire.getBlock(), mesh); }))
    return success();
  return move->emitOpError() << "cannot send codes of " << from << ", because blocks of [" << wire.getBlock()
                             << "] do not divide the part of a rank (C4)";
}

/// In placed programs, the result's placement must be the one that the move gives. In local programs, shapes are
/// compared.
LogicalResult pc::detail::verifyMoveOp(Operation *op) {
  auto move = cast<MoveOpInterface>(op);
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (from && to && isa<CarryOp>(op))
    return verifyCarry(op, from, to);
  if (!from || !to || from.getElementType() != to.getElementType())
    return op->emitOpError() << "operand and result must have the same element type (M2)";
  if (move.getMoveAxes().empty())
    return op->emitOpError() << "needs at least one axis (M1)";
  MoveKind kind = move.getMoveKind();
  if (factsOf(kind).needs == PCRT_STATE_PARTIAL && move.getReduction() == PartialKind::None)
    return op->emitOpError() << "needs the reduction 'sum' or 'max' (M3)";
  auto inRange = [&](int64_t dim) { return dim >= 0 && dim < from.getRank(); };
  if ((takesBlocks(kind) && !inRange(move.getMoveDim())) || (makesBlocks(kind) && !inRange(targetDim(move))))
    return op->emitOpError() << "has a dim that is out of range (M2)";
  PlaceAttr a = placement(from), b = placement(to);
  MeshAttr mesh = meshOf(op);
  if (move.getMoveWire() && failed(verifyWire(move, from, to, mesh)))
    return failure();
  if (!a && !b)
    return verifyLocalMove(move, from, to, mesh);
  if (!a || !b || from.getShape() != to.getShape())
    return op->emitOpError() << "operand and result must both be placed and have the same global shape (M2)";
  PlaceAttr expected = transition(move, a);
  if (!expected)
    return op->emitOpError() << "does not apply to " << from << " (M3)";
  if (move.getMoveShift() || !move.getMoveWith().empty())
    return op->emitOpError() << "has a shift, which is allowed in local programs only (M3)";
  if (expected != b)
    return op->emitOpError() << "makes " << expected << " of " << a << ", not " << b << " (M3)";
  return verifyOnMesh(op, to, mesh);
}
