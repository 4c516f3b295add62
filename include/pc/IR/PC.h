//===- PC.h - The pc dialect ------------------------------------------------------===//
// Attributes, ops and the interfaces of moves and factor rules.
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
/// Axis names of a StrArrayAttr.
llvm::SmallVector<mlir::StringAttr> axisList(mlir::ArrayAttr axes);

/// Trait: operands and results have one shape, and every element is computed by itself.
template <typename Op> class Pointwise : public mlir::OpTrait::TraitBase<Op, Pointwise> {};
/// Trait: works row by row: every row of the first operand, along its last dim, by itself.
template <typename Op> class Rowwise : public mlir::OpTrait::TraitBase<Op, Rowwise> {};

/// A dim whose global index an op works with; -1: the last one.
struct IndexedDim {
  IndexedDim(mlir::Value value, int64_t dim)
      : value(value), dim(dim < 0 ? mlir::cast<mlir::RankedTensorType>(value.getType()).getRank() - 1 : dim) {}
  mlir::Value value;
  int64_t dim; ///< -1 of a scalar, which has none
};
} // namespace pc

#define GET_ATTRDEF_CLASSES
#include "pc/IR/PCAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "pc/IR/PCTypes.h.inc"

namespace pc::detail {
/// The rule of an op whose operands and results have one shape: linear in `linear` together; `max`: operands of a
/// maximum give operands of one.
FactorRule pointwiseRule(mlir::Operation *op, std::initializer_list<unsigned> linear, bool max);
/// Checks that shapes agree with the factors, that all operands and results are placed or none is, and that on every
/// axis the placements are a legal row.
llvm::LogicalResult verifyFactorOp(mlir::Operation *op);
/// Checks element types (constraints T1 and T2, ElementTypes.cpp).
llvm::LogicalResult verifyElementTypes(mlir::Operation *op);
/// Checks that the placements of operand and result (in local programs: the shapes) are those that the move is for.
llvm::LogicalResult verifyMoveOp(mlir::Operation *op);
/// Checks that there is an offset for each split dim of what `op`, a DrawnOpInterface, drops.
llvm::LogicalResult verifyDrawnOp(mlir::Operation *op);
} // namespace pc::detail

#include "pc/IR/FactorOpInterface.h.inc"

#define GET_OP_CLASSES
#include "pc/IR/PCOps.h.inc"

namespace pc {
/// The placement in the type of `value`, or null.
PlaceAttr placement(mlir::Type type);
inline PlaceAttr placement(mlir::Value value) { return placement(value.getType()); }
/// `type` with `encoding` (a placement, a home, or null).
mlir::RankedTensorType withEncoding(mlir::Type type, mlir::Attribute encoding);
/// How a value of `type` is stored by rows, or null: it is not.
RowsAttr rowsOf(mlir::Type type);
inline RowsAttr rowsOf(mlir::Value value) { return rowsOf(value.getType()); }
/// Whether an operand or a result of `op` is stored by rows.
bool hasRows(mlir::Operation *op);
/// The tensor that the buffer of a value of `type` holds: of rows ("count x what each has"), or `type` without home.
mlir::RankedTensorType storedType(mlir::Type type);
/// The mesh of the module that holds `op`, or null.
MeshAttr meshOf(mlir::Operation *op);
/// The number of ranks whose zigzag order the sequence is in (`pc.program`); 0 if it is in its own order.
int64_t zigzagRanks(mlir::Operation *op);
/// The position of index `index` of a sequence of `length` in the zigzag order of `ranks` (0: its own order).
int64_t zigzagPosition(int64_t index, int64_t length, int64_t ranks);
/// The position of index `index` of a sequence dim of the program that `op` is in.
int64_t sequencePosition(mlir::Operation *op, int64_t index);
/// The sizes of the dims of what `op` drops, whole: those that `#pc.drop` says, or, before programs are local, its
/// types.
llvm::SmallVector<int64_t> drawnSizes(DrawnOpInterface op);
/// The phase that begins at `op` in its block: backward at `pc.seed`, optimizer after `pc.accumulate`, the one of its
/// kind at `pc.task`; none at other ops. Every block of a step begins with forward.
std::optional<StepPhase> phaseBegunBy(mlir::Operation *op);
/// The phase of `op` in its step, or in the function of a task.
StepPhase stepPhase(mlir::Operation *op);
/// The source name in a location ("h.0.attn.c_proj"), or the op's own name without the dialect's prefix.
std::string sourceName(mlir::Operation *op);
/// The group's tensor as a move of local programs cuts it.
pcrt_move_shape moveShape(MoveOpInterface move);
/// The move of `x` to `result`, of a kind that placed programs have. `dim` is the dim that it gathers or splits,
/// `otherDim` the one that an all_to_all splits; both, and the reduction, are used where the kind has them.
MoveOpInterface createMove(mlir::OpBuilder &builder, mlir::Location loc, MoveKind kind, mlir::Type result,
                           mlir::Value x, PartialKind reduction, int64_t dim, int64_t otherDim, mlir::ArrayAttr axes);
/// Whether `op` is linear in `operand` while the others stay as they are: what it makes of a sum is the sum of what it
/// makes of the addends. Moves are.
bool isLinearIn(mlir::Operation *op, unsigned operand);
/// Whether `op` works element by element and is linear in all operands that it reads so together.
bool isLinearMap(mlir::Operation *op);
} // namespace pc

#endif
