//===- PCDialect.cpp - Registration and small queries of the pc dialect --------===//
// Queries here look at one op or type: its placement, rows, stored type, mesh, phase of the step, and name. None of
// them needs an analysis.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Generation.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/OptimizerOp.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "pc/IR/FactorOpInterface.cpp.inc"
#include "pc/IR/PCDialect.cpp.inc"
#include "pc/IR/PCEnums.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "pc/IR/PCTypes.cpp.inc"

namespace pc {

/// registerAttributes() is defined in a separate file.
void PCDialect::initialize() {
  registerAttributes();
  addTypes<
#define GET_TYPEDEF_LIST
#include "pc/IR/PCTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "pc/IR/PCOps.cpp.inc"
      >();
  addOperations<AllToAllRowsOp, AdmitOp, RoundOfRowsOp, OptimizerOp>();
  addOperations<CacheWriteOp, CachedAttentionOp, GumbelOp, SamplingThresholdOp>();
  addOperations<EncodeOp, DecodeOp, MaxMagnitudeOp, Float8ScaleOp, EncodeScaledOp, EncodeAddendOp, DecodeSumOp>();
}

StringRef stepPhaseName(StepPhase phase) {
  static constexpr const char *names[] = {"forward", "backward", "optimizer"};
  return names[static_cast<int>(phase)];
}

/// The program that describes the model; null in modules without one, such as tests of single ops.
static ProgramOp programOf(Operation *op) {
  if (auto module = op->getParentOfType<ModuleOp>())
    for (auto program : module.getOps<ProgramOp>())
      return program;
  return {};
}

int64_t zigzagRanks(Operation *op) {
  ProgramOp program = programOf(op);
  return program ? program.getZigzag().value_or(0) : 0;
}

int64_t zigzagPosition(int64_t index, int64_t length, int64_t ranks) {
  if (!ranks)
    return index;
  // Rank r has chunks r and 2 ranks - 1 - r, so that with causal attention all ranks have equal work.
  int64_t chunk = length / (2 * ranks), block = index / (2 * chunk), within = index % (2 * chunk);
  return within < chunk ? block * chunk + within : (2 * ranks - 1 - block) * chunk + within - chunk;
}

int64_t sequencePosition(Operation *op, int64_t index) {
  ProgramOp program = programOf(op);
  return program ? zigzagPosition(index, program.getSequence(), program.getZigzag().value_or(0)) : index;
}

PlaceAttr placement(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? dyn_cast_or_null<PlaceAttr>(tensor.getEncoding()) : PlaceAttr();
}

RankedTensorType withEncoding(Type type, Attribute encoding) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(tensor.getShape(), tensor.getElementType(), encoding);
}

RankedTensorType withoutHome(Type type) {
  auto home = dyn_cast_or_null<HomeAttr>(cast<RankedTensorType>(type).getEncoding());
  return home ? inSpace(withEncoding(type, home.getRows()), spaceOf(type)) : cast<RankedTensorType>(type);
}

/// In a planned type, the home contains the rows; in earlier phases, the rows are the encoding itself.
RowsAttr rowsOf(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  Attribute encoding = tensor ? tensor.getEncoding() : Attribute();
  if (auto home = dyn_cast_or_null<HomeAttr>(encoding))
    return home.getRows();
  return dyn_cast_or_null<RowsAttr>(encoding);
}

bool hasRows(Operation *op) {
  auto isByRows = [](Type type) { return rowsOf(type) != nullptr; };
  return llvm::any_of(op->getOperandTypes(), isByRows) || llvm::any_of(op->getResultTypes(), isByRows);
}

/// The dims of tokens and experts become one dim of rows.
RankedTensorType storedType(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  RowsAttr rows = rowsOf(type);
  if (!rows)
    return placement(type) ? tensor : withEncoding(type, {});
  SmallVector<int64_t> shape(tensor.getShape().drop_front(rows.getDims()));
  shape.insert(shape.begin(), rows.getCount());
  return RankedTensorType::get(shape, tensor.getElementType());
}

/// The mesh is the first op of a module.
MeshAttr meshOf(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  if (!module || module.getBody()->empty())
    return {};
  auto mesh = dyn_cast<MeshOp>(module.getBody()->front());
  return mesh ? mesh.getMesh() : MeshAttr();
}

/// An accumulation contains both passes, so the ops after it belong to the optimizer.
std::optional<StepPhase> phaseBegunBy(Operation *op) {
  if (isa<SeedOp>(op))
    return StepPhase::Backward;
  if (isa<AccumulateOp>(op))
    return StepPhase::Optimizer;
  auto task = dyn_cast<TaskOp>(op);
  if (!task)
    return std::nullopt;
  if (task.getKind() == TaskKind::Optimizer)
    return StepPhase::Optimizer;
  return task.getKind() == TaskKind::Forward ? StepPhase::Forward : StepPhase::Backward;
}

/// Looks backwards in the block of the step, or of the task's function, for the last op that begins a phase.
StepPhase stepPhase(Operation *op) {
  for (Operation *parent = op->getParentOp(); parent && !isa<AccumulateOp, func::FuncOp>(parent);
       parent = op->getParentOp())
    op = parent;
  for (; op; op = op->getPrevNode())
    if (std::optional<StepPhase> begun = phaseBegunBy(op))
      return *begun;
  return StepPhase::Forward;
}

/// The name in the op's location, a parameter's name, or the name of the op.
std::string sourceName(Operation *op) {
  if (auto name = op->getLoc()->findInstanceOf<NameLoc>())
    return name.getName().str();
  if (auto parameter = dyn_cast<ParameterOp>(op))
    return parameter.getName().str();
  return op->getName().stripDialect().str();
}

SmallVector<StringAttr> axisList(ArrayAttr axes) { return llvm::to_vector(axes.getAsRange<StringAttr>()); }

//===---------------------------------------------------------------------------===//
// Spaces: the placement, the local encoding or the home of a type tells its space
//===---------------------------------------------------------------------------===//

int64_t firstOffset(Space space) { return space == Space::Device ? 0 : space == Space::Host ? PCRT_HOST : PCRT_DISK; }

Space spaceAt(int64_t offset) {
  return offset < PCRT_HOST ? Space::Device : offset < PCRT_DISK ? Space::Host : Space::Disk;
}

Space spaceOf(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  Attribute encoding = tensor ? tensor.getEncoding() : Attribute();
  if (auto place = dyn_cast_or_null<PlaceAttr>(encoding))
    return place.getSpace();
  if (auto home = dyn_cast_or_null<HomeAttr>(encoding))
    return spaceAt(home.getOffset());
  auto local = dyn_cast_or_null<InSpaceAttr>(encoding);
  return local ? local.getValue() : Space::Device;
}

Space CarryOp::getOutside() { return spaceOf(isOut() ? getResult() : getX()); }
bool CarryOp::isOut() { return spaceOf(getX()) == Space::Device; }
StringRef CarryOp::getLink() {
  const bool isHost = getOutside() == Space::Host;
  return isOut() ? (isHost ? "device>host" : "device>disk") : isHost ? "host>device" : "disk>device";
}

RankedTensorType inSpace(Type type, Space space) {
  if (PlaceAttr place = placement(type))
    return withEncoding(type, place.in(space));
  return spaceOf(type) == space   ? cast<RankedTensorType>(type)
         : space == Space::Device ? withEncoding(type, {})
                                  : withEncoding(type, InSpaceAttr::get(type.getContext(), space));
}

LogicalResult ArenaOp::verify() {
  for (int64_t bytes : {sizeOf(Space::Device), sizeOf(Space::Host), sizeOf(Space::Disk)})
    if (bytes < 0 || bytes % 64)
      return emitOpError() << "has " << bytes << " bytes, but must have a multiple of 64, at least 0 (C1)";
  return success();
}

int64_t ArenaOp::sizeOf(Space space) {
  return static_cast<int64_t>(space == Space::Device ? getBytes() : space == Space::Host ? getHost() : getDisk());
}

bool ArenaOp::contains(int64_t begin, int64_t end) {
  Space space = spaceAt(begin);
  return begin >= 0 && end - firstOffset(space) <= sizeOf(space);
}

} // namespace pc
