//===- CheckProgram.cpp - Checks the assumptions of the interpreter -----------------------------===//
// The interpreter indexes and allocates without checks. Its assumptions are checked here, once, before it runs. Limits
// prevent a program of a few lines from using all memory.
//===-----------------------------------------------------------------------------===//
#include "CheckProgram.h"

#include "pc/IR/AnyOp.h"
#include "pc/Reference/Feeds.h"
#include "pc/Reference/Ranks.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;

namespace {

constexpr int64_t mostElements = int64_t(1) << 28;
constexpr int64_t mostArenaBytes = int64_t(1) << 28;

/// Checks one op at a time against the mesh. Errors are emitted at the op.
class Checker {
public:
  explicit Checker(MeshAttr mesh) : mesh(mesh) {}

  /// Checks what the interpreter assumes about an op's types, regardless of earlier verifiers.
  LogicalResult check(Operation *op) {
    SmallVector<Value> values;
    if (!isa<StartOp>(op)) // the result of a start is a ticket
      llvm::append_range(values, op->getResults());
    for (Region &region : op->getRegions())
      llvm::append_range(values, region.getArguments());
    for (Value value : values) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      if (!type || !type.hasStaticShape())
        return refuse(op) << "it has a value of type " << value.getType();
      if (failed(checkLayout(op, type.getShape(), placement(type))))
        return failure();
    }
    if (isa<ParameterOp, StateOp, InputOp, RopeTableOp>(op))
      return checkLocal(op, op->getResult(0));
    if (auto output = dyn_cast<OutputOp>(op))
      return checkOutput(output);
    if (auto offset = dyn_cast<BlockOffsetOp>(op))
      return checkAxes(op, axisList(offset.getAxes()));
    if (auto update = dyn_cast<UpdateOp>(op); update && !isa<RankedTensorType>(update.getValue().getType()))
      return refuse(op) << "its value is not a tensor of known rank";
    return success();
  }

private:
  InFlightDiagnostic refuse(Operation *op) { return op->emitOpError() << "cannot be interpreted: "; }

  LogicalResult checkAxes(Operation *op, ArrayRef<StringAttr> axes) {
    for (StringAttr axis : axes)
      if (!mesh || mesh.index(axis) < 0)
        return refuse(op) << "axis '" << axis.getValue() << "' is not in the mesh";
    return success();
  }

  /// Checks that `place` (or null) divides a tensor of shape `global`.
  LogicalResult checkLayout(Operation *op, ArrayRef<int64_t> global, PlaceAttr place) {
    int64_t elements = 1;
    for (int64_t size : global)
      if (size < 0 || llvm::MulOverflow(elements, size, elements) || elements > mostElements)
        return refuse(op) << "it has a tensor of more than " << mostElements << " elements";
    if (!place)
      return success();
    if (place.getDims().size() != global.size())
      return refuse(op) << "its layout has " << place.getDims().size() << " dims, but its shape has " << global.size();
    if (failed(checkAxes(op, place.getPartial())) || failed(checkAxes(op, place.getRoot())))
      return failure();
    for (auto [d, size] : llvm::enumerate(global)) {
      if (failed(checkAxes(op, place.axes(d))))
        return failure();
      if (int64_t blocks = place.axes(d).empty() ? 1 : mesh.size(place.axes(d)); size % blocks)
        return refuse(op) << "dim " << d << " of size " << size << " is split into " << blocks << " blocks";
    }
    return success();
  }

  /// Checks that `global` and `layout` of a local program give the shape of `value`.
  LogicalResult checkLocal(Operation *op, Value value) {
    LeafLayout layout = leafLayout(op, value);
    if (failed(checkLayout(op, layout.global, layout.place)))
      return failure();
    auto type = cast<RankedTensorType>(value.getType());
    if (placement(type))
      return success();
    Shape local = Ranks(mesh).localShape(layout.global, layout.place);
    if (ArrayRef<int64_t>(local) != type.getShape())
      return refuse(op) << "'global' and 'layout' do not give " << type;
    return success();
  }

  /// The part without padding must lie inside the output.
  LogicalResult checkOutput(OutputOp output) {
    auto type = dyn_cast<RankedTensorType>(output.getValue().getType());
    if (!type)
      return refuse(output) << "its value is not a tensor of known rank";
    if (failed(checkLocal(output, output.getValue())))
      return failure();
    Shape global = leafLayout(output, output.getValue()).global;
    if (auto valid = output.getValid()) {
      bool inside = valid->size() == global.size();
      for (size_t d = 0; inside && d < valid->size(); ++d)
        inside = (*valid)[d] >= 0 && (*valid)[d] <= global[d];
      if (!inside)
        return refuse(output) << "'valid' is larger than the tensor";
    }
    return success();
  }

  MeshAttr mesh;
};

} // namespace

/// Also limits the size of arenas, because the interpreter allocates them.
LogicalResult pc::checkProgram(func::FuncOp function, MeshAttr mesh) {
  for (ArenaOp arena : function->getParentOfType<ModuleOp>().getOps<ArenaOp>())
    if (arena.getBytes() + arena.getHost() + arena.getDisk() > static_cast<uint64_t>(mostArenaBytes))
      return arena.emitOpError() << "cannot be interpreted: it has more than " << mostArenaBytes << " bytes";
  Checker checker(mesh);
  return failure(anyOp(function, [&](Operation *op) { return op != function && failed(checker.check(op)); }));
}
