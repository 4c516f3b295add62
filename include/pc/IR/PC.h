//===- PC.h - The pc dialect ------------------------------------------------------===//
// Includes the attributes and ops of the dialect and the interfaces of moves and factor rules, and declares helpers
// that all rooms use.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PC_H
#define PC_IR_PC_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "pc/IR/Factors.h"

#include "pc/IR/PCDialect.h.inc"

namespace pc {
/// The axis names in a StrArrayAttr.
llvm::SmallVector<mlir::StringAttr> axisList(mlir::ArrayAttr axes);

namespace detail {
/// Checks that only carries, leaves, updates, and moves in flight have values outside of the device.
llvm::LogicalResult verifySpaces(mlir::Operation *op);
} // namespace detail

/// Trait: operands and results are on the device, unless the op is one of those that verifySpaces() lists.
template <typename Op> struct OnDevice : mlir::OpTrait::TraitBase<Op, OnDevice> {
  static llvm::LogicalResult verifyTrait(mlir::Operation *op) { return detail::verifySpaces(op); }
};
/// Trait: operands and results have one shape, and each element is computed separately.
template <typename Op> class Pointwise : public mlir::OpTrait::TraitBase<Op, Pointwise> {};
/// Trait: each row of the first operand, along its last dim, is computed separately.
template <typename Op> class Rowwise : public mlir::OpTrait::TraitBase<Op, Rowwise> {};

/// A value and one of its dims, if the op works with global indices of that dim; -1 means the last dim.
struct IndexedDim {
  IndexedDim(mlir::Value value, int64_t dim)
      : value(value), dim(dim < 0 ? mlir::cast<mlir::RankedTensorType>(value.getType()).getRank() - 1 : dim) {}
  mlir::Value value;
  int64_t dim; ///< -1 for a scalar, which has no dims
};
} // namespace pc

#define GET_ATTRDEF_CLASSES
#include "pc/IR/PCAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "pc/IR/PCTypes.h.inc"

namespace pc::detail {
/// The rule of an op whose operands and results have one shape. `linear` are the operands in which it is linear
/// together. With `max`, partial maxima as operands give a partial maximum as result.
FactorRule pointwiseRule(mlir::Operation *op, std::initializer_list<unsigned> linear, bool max);
/// Checks that shapes agree with the factors, that either all operands and results are placed or none is, and that the
/// placements are a legal row on every axis.
llvm::LogicalResult verifyFactorOp(mlir::Operation *op);
/// Checks element types (constraints T1 and T2, ElementTypes.cpp).
llvm::LogicalResult verifyElementTypes(mlir::Operation *op);
/// Checks that the placements of operand and result (in local programs: the shapes) are the ones that this move
/// converts.
llvm::LogicalResult verifyMoveOp(mlir::Operation *op);
/// Checks that `op`, a DrawnOpInterface, has an offset for each split dim of the value whose elements it drops.
llvm::LogicalResult verifyDrawnOp(mlir::Operation *op);
} // namespace pc::detail

#include "pc/IR/FactorOpInterface.h.inc"

#define GET_OP_CLASSES
#include "pc/IR/PCOps.h.inc"

namespace pc {
/// The placement in the type of `value`, or null.
PlaceAttr placement(mlir::Type type);
inline PlaceAttr placement(mlir::Value value) { return placement(value.getType()); }
/// `type` with `encoding`, which is a placement, a home, or null.
mlir::RankedTensorType withEncoding(mlir::Type type, mlir::Attribute encoding);
/// The first offset (of `#pc.home`) in the arena of `space`, and the space of an offset.
int64_t firstOffset(Space space);
Space spaceAt(int64_t offset);
/// The space of a value of `type`.
Space spaceOf(mlir::Type type);
inline Space spaceOf(mlir::Value value) { return spaceOf(value.getType()); }
/// `type`, which has no home, in `space`.
mlir::RankedTensorType inSpace(mlir::Type type, Space space);
/// `type` with its rows or its space instead of a home.
mlir::RankedTensorType withoutHome(mlir::Type type);
/// The rows of a value of `type` that is stored by rows; null for other types.
RowsAttr rowsOf(mlir::Type type);
inline RowsAttr rowsOf(mlir::Value value) { return rowsOf(value.getType()); }
/// Whether an operand or a result of `op` is stored by rows.
bool hasRows(mlir::Operation *op);
/// The type of the buffer for a value of `type`: [rows, elements of a row] if it is stored by rows, else `type` without
/// its home.
mlir::RankedTensorType storedType(mlir::Type type);
/// The mesh of the module that contains `op`, or null.
MeshAttr meshOf(mlir::Operation *op);
/// The number of ranks for which the sequence is in zigzag order (`pc.program`); 0 if it is in its own order.
int64_t zigzagRanks(mlir::Operation *op);
/// The position of `index` in a sequence of `length` that is in zigzag order for `ranks` ranks (0: its own order).
int64_t zigzagPosition(int64_t index, int64_t length, int64_t ranks);
/// The position of `index` in a sequence dim of the program that contains `op`.
int64_t sequencePosition(mlir::Operation *op, int64_t index);
/// Returns the sizes of the whole value whose elements `op` drops, as `#pc.drop` gives them. If the program is not
/// local yet, returns the sizes in the op's types.
llvm::SmallVector<int64_t> drawnSizes(DrawnOpInterface op);
/// Returns the phase that begins at `op` in its block: the backward phase at `pc.seed`, the optimizer phase after
/// `pc.accumulate`, the phase of the task at `pc.task`, and std::nullopt at other ops. Every block of a step begins
/// with the forward phase.
std::optional<StepPhase> phaseBegunBy(mlir::Operation *op);
/// The phase of `op` in its step, or in the function of a task.
StepPhase stepPhase(mlir::Operation *op);
/// The source name in a location ("h.0.attn.c_proj"), or the op's own name without the dialect's prefix.
std::string sourceName(mlir::Operation *op);
/// How a move in a local program divides the group's tensor among the ranks.
pcrt_move_shape moveShape(MoveOpInterface move);
/// Creates the move of `x` to `result`, of a kind that placed programs have. It gathers or splits `dim`; an all_to_all
/// also splits `otherDim`. Kinds that do not use these or the reduction ignore them.
MoveOpInterface createMove(mlir::OpBuilder &builder, mlir::Location loc, MoveKind kind, mlir::Type result,
                           mlir::Value x, PartialKind reduction, int64_t dim, int64_t otherDim, mlir::ArrayAttr axes);
/// Whether `op` is linear in `operand` while the other operands are fixed: the result for a sum is the sum of the
/// results for the addends. Moves are linear.
bool isLinearIn(mlir::Operation *op, unsigned operand);
/// Whether `op` works element by element and is linear in all its operands together.
bool isLinearMap(mlir::Operation *op);
} // namespace pc

#endif
