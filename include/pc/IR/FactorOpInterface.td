//===- FactorOpInterface.td - What ops are like ---------------------------------===//
// The single declaration of an op's meaning for shapes, placements, local programs and costs, and the facts that rooms ask
// for: a room asks the op, and has no list of ops that are alike.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_FACTOROPINTERFACE_TD
#define PC_IR_FACTOROPINTERFACE_TD

include "mlir/IR/OpBase.td"

def FactorOpInterface : OpInterface<"FactorOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    The factors of an op: which dims of which operands and results iterate together (`"b s e, e f -> b s f"`), which factors
    must stay whole, how factors that a result lacks are reduced, and in which groups of operands the op is linear. Legal
    placements are generated from this (`pc::legalRows`), nowhere else.
  }];
  let methods = [
    InterfaceMethod<"The factor rule of this op.", "::pc::FactorRule", "getFactorRule", (ins)>,
    InterfaceMethod<[{
      How many of the first operands are read element by element: of them a result element needs none but that at its own
      index (they may lack dims), of the others any. 0: an op that is computed otherwise.
    }], "unsigned", "getNumElementwise", (ins), /*methodBody=*/"", /*defaultImplementation=*/[{
      return ConcreteOp::template hasTrait<::pc::Pointwise>() ? $_op->getNumOperands() : 0;
    }]>,
  ];
  let verify = "return ::pc::detail::verifyFactorOp($_op);";
}

/// Operands and results have one shape, and every element is computed by itself. Says the factor rule: `linear` are the
/// operands in which, together, the op is linear; `max`: "true" where it gives the maximum for what has one.
class PC_PointwiseTrait<string linear, string max> : NativeOpTrait<"Pointwise", [],
    "::pc::FactorRule getFactorRule() { return ::pc::detail::pointwiseRule(*this, {" # linear # "}, " # max # "); }"> {
  let cppNamespace = "::pc";
}

/// Works row by row: every row of the first operand, along its last dim, by itself.
def Rowwise : NativeOpTrait<"Rowwise"> {
  let cppNamespace = "::pc";
}

def IndexedOpInterface : OpInterface<"IndexedOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    An op that works with the global index of one dim: a rank that has a block of it must know where the block begins. In
    local programs an operand says so (an i32 scalar); without it the block begins at 0.
  }];
  let methods = [
    InterfaceMethod<"The dim, of an operand or a result.", "::pc::IndexedDim", "getIndexedDim", (ins)>,
    InterfaceMethod<"The operand that says where the block begins, or none.", "::mlir::MutableOperandRange",
                    "getOffsetMutable", (ins)>,
  ];
}
def DrawnOpInterface : OpInterface<"DrawnOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    An op that drops elements of a value, by random bits which are a function of their global indices (`#pc.drop`). It need not make that
    value: attention drops weights [b, k, g, s, t]. In local programs operands say where the rank's block of it begins.
  }];
  let methods = [
    InterfaceMethod<"What it drops, or null: nothing.", "::pc::DropAttr", "getDropAttr", (ins)>,
    InterfaceMethod<"Sets it.", "void", "setDropAttr", (ins "::pc::DropAttr":$drop)>,
    InterfaceMethod<"Seed, step, key and first row (`pc.input random`), or null.", "::mlir::Value", "getRandom", (ins)>,
    InterfaceMethod<"The operands that say where blocks begin, i32 scalars.", "::mlir::MutableOperandRange", "getOffsetsMutable", (ins)>,
    InterfaceMethod<"The dims of the value, of operands; the first one is the batch.", "::llvm::SmallVector<::pc::IndexedDim>", "getDrawnDims", (ins)>,
    InterfaceMethod<"Which of these dims are sequences, whose indices count by position.", "::llvm::SmallVector<int64_t>", "getDrawnSequences", (ins)>,
  ];
  let verify = "return ::pc::detail::verifyDrawnOp($_op);";
}

/// Their code in an op. `n`: of operands that are read element by element.
class PC_Elementwise<int n> {
  string text = "unsigned getNumElementwise() { return " # n # "; }";
}
/// Dim `dim` of `value`; -1 is the last one. `more`: what else stands in the class of the op.
class PC_IndexedDim<string value, int dim, string more = ""> {
  string text = "::pc::IndexedDim getIndexedDim() { return {" # value # "(), " # dim # "}; }\n" # more;
}

def MoveOpInterface : OpInterface<"MoveOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    An op that changes the placement of its one operand and nothing else. `pc-erase-placements` drops it. What its kind
    is like stands in its row (runtime/include/pcrt/moves.h).
  }];
  let methods = [
    InterfaceMethod<"Which move.", "::pc::MoveKind", "getMoveKind", (ins)>,
    InterfaceMethod<"The mesh axes it works over, major to minor.", "::llvm::SmallVector<::mlir::StringAttr>",
                    "getMoveAxes", (ins)>,
    InterfaceMethod<"The dim that is gathered, scattered, sliced or padded (all_to_all: that is gathered), or -1.",
                    "int64_t", "getMoveDim", (ins)>,
    InterfaceMethod<"all_to_all: the dim that becomes split; otherwise -1.", "int64_t", "getOtherDim", (ins),
                    /*methodBody=*/"", /*defaultImplementation=*/"return -1;">,
    InterfaceMethod<"How addends combine; None where nothing is reduced.", "::pc::PartialKind", "getReduction", (ins),
                    /*methodBody=*/"", /*defaultImplementation=*/"return ::pc::PartialKind::None;">,
    InterfaceMethod<"slice, insert, permute: on coordinate i the block is that of coordinate (i - shift) mod n.", "int64_t",
                    "getMoveShift", (ins), /*methodBody=*/"", /*defaultImplementation=*/"return 0;">,
    InterfaceMethod<"slice, insert, permute: axes; with coordinate j on them the block is that of coordinate (shift - i - j) mod n.",
                    "::llvm::SmallVector<::mlir::StringAttr>", "getMoveWith", (ins), /*methodBody=*/"",
                    /*defaultImplementation=*/"return {};">,
  ];
  let verify = "return ::pc::detail::verifyMoveOp($_op);";
}

#endif
