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

#define GET_ATTRDEF_CLASSES
#include "pc/IR/PCAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "pc/IR/PCTypes.h.inc"

namespace pc::detail {
/// Shapes agree with the factors; either no operand and result is placed or all are; the placement of every axis is a
/// legal row.
llvm::LogicalResult verifyFactorOp(mlir::Operation *op);
/// Element types are what the op computes with (constraints T1 and T2 of the dialect).
llvm::LogicalResult verifyElementTypes(mlir::Operation *op);
/// The transition of placements (or of local shapes) is exactly what the move says.
llvm::LogicalResult verifyMoveOp(mlir::Operation *op);
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
/// The mesh of the module that holds `op`, or null.
MeshAttr meshOf(mlir::Operation *op);
/// The ranks of the zigzag order that the sequence is in (`pc.program`), or 0 where it is in its own order.
int64_t zigzagRanks(mlir::Operation *op);
/// The position of index `index` of a sequence of `length` in the zigzag order of `ranks` (0: its own order).
int64_t zigzagPosition(int64_t index, int64_t length, int64_t ranks);
/// The position of index `index` of a sequence dim of the program that `op` is in.
int64_t sequencePosition(mlir::Operation *op, int64_t index);
/// The phase that `op` begins in its block: backward (`pc.seed`), optimizer (`pc.accumulate`, for what stands behind it)
/// or what a `pc.task` says; nothing where the phase before goes on. Every block of a step begins with forward.
std::optional<StepPhase> phaseBegunBy(mlir::Operation *op);
/// The phase of `op` in its step, or in the function of a task.
StepPhase stepPhase(mlir::Operation *op);
/// The source name in a location ("h.0.attn.c_proj"), or the op's own name without the dialect's prefix.
std::string sourceName(mlir::Operation *op);
/// Axis names of a StrArrayAttr.
llvm::SmallVector<mlir::StringAttr> axisList(mlir::ArrayAttr axes);
} // namespace pc

#endif
