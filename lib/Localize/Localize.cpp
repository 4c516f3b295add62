//===- Localize.cpp - Placed program -> the program of one rank ---------------------===//
// Two walks over the ops: the first reads placements (of leaves, outputs, offsets, updates) and changes no type; the
// second replaces every type by its local shape.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_LOCALIZE
#include "pc/Localize/Passes.h"

#include "pc/IR/BlockCodes.h"
#include "pc/IR/Calls.h"
#include "pc/IR/LeavesByName.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

namespace {

/// Localizes one function. `offsets` has the ops that compute the first index of a block, which all users share.
class Localizer {
public:
  Localizer(func::FuncOp function, MeshAttr mesh) : function(function), mesh(mesh) {}

  /// Checks everything first. After that it cannot fail, so no program is left partly local.
  LogicalResult run() {
    bool failed = false;
    // This walk may fail. It changes no type, because it reads the placements of other ops' types.
    function.walk([&](Operation *op) {
      if (op != function)
        failed |= mlir::failed(check(op)) || mlir::failed(annotate(op));
    });
    if (failed)
      return failure();
    function.walk([&](Operation *op) {
      for (Region &region : op->getRegions())
        for (BlockArgument argument : region.getArguments())
          argument.setType(localType(argument.getType()));
      for (Value result : op->getResults())
        result.setType(localType(result.getType()));
    });
    dropWhatDoesNothing();
    sendCodes();
    return success();
  }

private:
  int64_t numRanks() const { return mesh ? mesh.numRanks() : 1; }
  int64_t blocks(ArrayRef<StringAttr> axes) const { return mesh ? mesh.size(axes) : 1; }

  /// The placement of a tensor. An unplaced tensor, in the program of a single rank, is whole.
  PlaceAttr place(Type type) const {
    if (PlaceAttr known = placement(type))
      return known;
    return PlaceAttr::replicated(type.getContext(), cast<RankedTensorType>(type).getRank());
  }

  /// The type of one rank's part.
  Type localType(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !placement(type))
      return type;
    Type &local = localTypes[type];
    if (!local) {
      SmallVector<int64_t> shape(tensor.getShape());
      for (auto [d, size] : llvm::enumerate(shape))
        size /= blocks(placement(type).axes(d));
      local = inSpace(RankedTensorType::get(shape, tensor.getElementType()), placement(type).getSpace());
    }
    return local;
  }

  /// Checks that every result is placed, on axes of the mesh that divide its dims.
  LogicalResult check(Operation *op) {
    for (Type type : op->getResultTypes()) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      if (!tensor || !tensor.hasStaticShape())
        return op->emitOpError() << "has a result of type " << type
                                 << ", but local programs need tensors of static shape";
      PlaceAttr known = placement(type);
      if (!known && numRanks() > 1)
        return op->emitOpError() << "is not placed, but the mesh has " << numRanks() << " ranks";
      if (!known)
        continue;
      auto inMesh = [&](StringAttr axis) { return mesh && mesh.index(axis) >= 0; };
      for (auto [d, size] : llvm::enumerate(tensor.getShape())) {
        SmallVector<StringAttr> axes = known.axes(d);
        if (!llvm::all_of(axes, inMesh))
          return op->emitOpError() << "is placed on axes that are not in the mesh: " << type;
        if (int64_t n = blocks(axes); size % n)
          return op->emitOpError() << "dim " << d << " of size " << size << " does not divide into " << n
                                   << " blocks; the nearest sizes that do are " << size / n * n << " or "
                                   << (size / n + 1) * n;
      }
      if (!llvm::all_of(known.getPartial(), inMesh) || !llvm::all_of(known.getRoot(), inMesh))
        return op->emitOpError() << "is placed on axes that are not in the mesh: " << type;
    }
    return success();
  }

  /// Writes data that local types will not contain into attributes and operands: placements of leaves and outputs, and
  /// offsets.
  LogicalResult annotate(Operation *op) {
    if (auto drawn = dyn_cast<DrawnOpInterface>(op); drawn && drawn.getDropAttr() && failed(addOffsets(drawn)))
      return failure();
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<ParameterOp, StateOp, InputOp, RopeTableOp>([&](auto leaf) {
          leaves.add(leaf);
          return annotateLeaf(leaf);
        })
        .Case<ConstantOp, SeedOp>([&](auto leaf) { return checkLeaf(leaf, leaf.getValue()); })
        .Case([&](IotaOp iota) { return failed(checkLeaf(iota, iota.getValue())) ? failure() : addOffset(iota); })
        .Case([&](IndexedOpInterface indexed) { return addOffset(indexed); })
        .Case([&](BlockOffsetOp offset) -> LogicalResult {
          return offset.emitOpError() << "is allowed in local programs only, but this program is not localized yet";
        })
        .Case([&](OutputOp output) {
          setLayout(output, output.getValue());
          return success();
        })
        .Case(
            [&](TopKOp choice) -> LogicalResult {
              if (choice.getGlobal())
                return choice.emitOpError()
                       << "has 'global' already, so the program is local already; do not run pc-localize twice";
              if (choice.getLayer())
                setLayout(choice, choice.getResult());
              return success();
            })
        .Case([&](UpdateOp update) { return checkUpdate(update); })
        .Default(success());
  }

  LogicalResult checkLeaf(Operation *op, Value value) {
    if (place(value.getType()).isPartial())
      return op->emitOpError() << "is an input, parameter or state, which cannot be partial: " << value.getType();
    return success();
  }

  template <typename Op> LogicalResult annotateLeaf(Op leaf) {
    if (leaf.getGlobal())
      return leaf.emitOpError()
             << "has 'global' already, so the program is local already; do not run pc-localize twice";
    if (failed(checkLeaf(leaf, leaf.getValue())))
      return failure();
    setLayout(leaf, leaf.getValue());
    return success();
  }

  template <typename Op> void setLayout(Op op, Value value) {
    op.setGlobal(cast<RankedTensorType>(value.getType()).getShape());
    op.setLayoutAttr(place(value.getType()).in(Space::Device));
  }

  /// If the dim that `op` indexes is split, adds the first global index of the rank's block as an operand.
  LogicalResult addOffset(IndexedOpInterface op) {
    if (!op.getOffsetMutable().empty())
      return op->emitOpError()
             << "has an offset already, so the program is local already; do not run pc-localize twice";
    auto [value, d] = op.getIndexedDim();
    if (d < 0)
      return success();
    if (Value offset = offsetOf(value, d))
      op.getOffsetMutable().assign(offset);
    return success();
  }

  /// Adds to an op with dropout the sizes of the whole value, and the start of this rank's block.
  LogicalResult addOffsets(DrawnOpInterface op) {
    DropAttr drop = op.getDropAttr();
    if (!drop.getGlobal().empty())
      return op->emitOpError() << "has the sizes of the whole value already, so the program is local already; do not "
                                  "run pc-localize twice";
    SmallVector<int64_t> split;
    SmallVector<Value> offsets;
    for (auto [i, dim] : llvm::enumerate(op.getDrawnDims()))
      if (Value offset = offsetOf(dim.value, dim.dim)) {
        split.push_back(static_cast<int64_t>(i));
        offsets.push_back(offset);
      }
    op.setDropAttr(DropAttr::get(op.getContext(), drop.getThreshold(), drawnSizes(op), split, 0));
    op.getOffsetsMutable().assign(offsets);
    return success();
  }

  /// The first global index of this rank's block of dim `d`; null if the dim is whole.
  Value offsetOf(Value value, int64_t d) {
    auto type = cast<RankedTensorType>(value.getType());
    ArrayAttr axes = place(type).getDims()[d];
    int64_t n = blocks(axisList(axes));
    if (n == 1)
      return {};
    int64_t block = type.getDimSize(d) / n;
    Value &offset = offsets[{axes, block}];
    if (!offset) {
      OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
      if (lastOffset)
        builder.setInsertionPointAfter(lastOffset);
      lastOffset = BlockOffsetOp::create(builder, function.getLoc(), RankedTensorType::get({}, builder.getI32Type()),
                                         axes, builder.getI64IntegerAttr(block));
      offset = lastOffset->getResult(0);
    }
    return offset;
  }

  /// In placed programs the new value must have exactly the leaf's type, including its placement.
  LogicalResult checkUpdate(UpdateOp update) {
    Value leaf = leaves.of(update);
    if (!leaf)
      return update.emitOpError() << "sets '" << update.getName()
                                  << "', which is not a parameter or state of this program";
    if (update.getValue().getType() != leaf.getType())
      return update.emitOpError() << "sets " << leaf.getType() << " to a value of type " << update.getValue().getType();
    return success();
  }

  /// Removes moves over one rank, copies (which only prevented readers from sharing a move), and pc.addend (which only
  /// changed the placement).
  void dropWhatDoesNothing() {
    SmallVector<Operation *> nothing;
    function.walk([&](Operation *op) {
      auto move = dyn_cast<MoveOpInterface>(op);
      if (isa<CopyOp, AddendOp>(op) || (move && !isa<CarryOp>(op) && blocks(move.getMoveAxes()) == 1))
        nothing.push_back(op);
    });
    for (Operation *op : nothing) {
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
      op->erase();
    }
  }

  /// Returns the first op of the task of `value` that reads it, or else the end of the task.
  static Operation *firstReader(Value value) {
    Operation *made = value.getDefiningOp(), *op = made->getNextNode();
    auto reads = [&](Operation *user) { return made->getBlock()->findAncestorOpInBlock(*user) == op; };
    while (!op->hasTrait<OpTrait::IsTerminator>() && !isa<TaskOp>(op) && !llvm::any_of(value.getUsers(), reads))
      op = op->getNextNode();
    return op;
  }

  /// Rewrites sums whose addends are sent as codes. A rank that has a whole sum gets the codes of all addends; a rank
  /// that has a block of it gets those of the block. Sums are decoded right before their first reader, so that moves
  /// may be in flight until then.
  void sendCodes() {
    SmallVector<MoveOpInterface> moves;
    function.walk([&](MoveOpInterface move) {
      if (move.getMoveWire())
        moves.push_back(move);
    });
    for (MoveOpInterface move : moves) {
      WireAttr wire = move.getMoveWire();
      Value x = move->getOperand(0), sum = move->getResult(0);
      auto sizes = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape(); };
      const int64_t n = blocks(move.getMoveAxes());
      OpBuilder builder(move);
      auto axes = builder.getStrArrayAttr(
          llvm::map_to_vector(move.getMoveAxes(), [](StringAttr axis) { return axis.getValue(); }));
      Location loc = move.getLoc();
      Value codes = EncodeAddendOp::create(builder, loc, typeOfAddends(1, sizes(x), wire), x, wire, axes);
      const bool isWhole = move.getMoveKind() == MoveKind::AllReduce;
      Value all =
          createMove(builder, loc, isWhole ? MoveKind::AllGather : MoveKind::AllToAll,
                     typeOfAddends(n, sizes(sum), wire), codes, PartialKind::None, 0, move.getMoveDim() + 1, axes)
              ->getResult(0);
      builder.setInsertionPoint(firstReader(sum));
      sum.replaceAllUsesWith(DecodeSumOp::create(builder, loc, sum.getType(), all, wire));
      move->erase();
    }
  }

  func::FuncOp function;
  MeshAttr mesh;
  llvm::DenseMap<Type, Type> localTypes;
  LeavesByName leaves;
  llvm::DenseMap<std::pair<ArrayAttr, int64_t>, Value> offsets;
  Operation *lastOffset = nullptr;
};

struct Localize : pc::impl::LocalizeBase<Localize> {
  void runOnOperation() override {
    MeshAttr mesh = meshOf(getOperation());
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(Localizer(function, mesh).run()))
        return signalPassFailure();
    tidyCalls(getOperation());
  }
};

} // namespace
