//===- FactorOpInterface.td - Interfaces and traits of ops ----------------------===//
// With these interfaces, an op declares its properties for shapes, placements, local programs and costs. Other code asks
// the op for these properties and has no lists of similar ops.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_FACTOROPINTERFACE_TD
#define PC_IR_FACTOROPINTERFACE_TD

include "mlir/IR/OpBase.td"

def FactorOpInterface : OpInterface<"FactorOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    An op declares its factors: the dims of operands and results that iterate together (`"b s e, e f -> b s f"`), the
    factors that must stay whole, the reduction over factors that a result lacks, and the groups of operands in which
    the op is linear. `pc::legalRows` generates the legal placements from this declaration only.
  }];
  let methods = [
    InterfaceMethod<"The factor rule of this op.", "::pc::FactorRule", "getFactorRule", (ins)>,
    InterfaceMethod<[{
      The number of operands, counted from the first, that are read elementwise. From such an operand, an element of the
      result needs only the element at its own index (the operand may lack dims). From the other operands it may need any
      element. It is 0 if the op is computed in another way.
    }], "unsigned", "getNumElementwise", (ins), /*methodBody=*/"", /*defaultImplementation=*/[{
      return ConcreteOp::template hasTrait<::pc::Pointwise>() ? $_op->getNumOperands() : 0;
    }]>,
  ];
  let verify = "return ::pc::detail::verifyFactorOp($_op);";
}

/// Operands and results have one shape, and every element is computed separately. The trait defines the factor rule. `linear`
/// lists the operands in which the op is linear together. With `max` "true", the results are partial maxima if all operands
/// are.
class PC_PointwiseTrait<string linear, string max> : NativeOpTrait<"Pointwise", [],
    "::pc::FactorRule getFactorRule() { return ::pc::detail::pointwiseRule(*this, {" # linear # "}, " # max # "); }"> {
  let cppNamespace = "::pc";
}

/// The op computes each row of its first operand, along the last dim, separately.
def Rowwise : NativeOpTrait<"Rowwise"> {
  let cppNamespace = "::pc";
}

def IndexedOpInterface : OpInterface<"IndexedOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    The op uses the global index along one dim, so a rank that has a block of this dim must know where the block begins.
    In local programs an operand, an i32 scalar, gives this index. Without it the block begins at 0.
  }];
  let methods = [
    InterfaceMethod<"The dim of an operand or a result whose global index the op uses.", "::pc::IndexedDim", "getIndexedDim", (ins)>,
    InterfaceMethod<"The operand with the index at which the block begins, or none.", "::mlir::MutableOperandRange",
                    "getOffsetMutable", (ins)>,
  ];
}
def DrawnOpInterface : OpInterface<"DrawnOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    The op drops elements of a value. The random bits that decide it are a function of the elements' global indices
    (`#pc.drop`). The value may be internal to the op: attention drops weights [b, k, g, s, t]. In local programs operands
    give the indices at which the rank's block of the value begins.
  }];
  let methods = [
    InterfaceMethod<"Which elements the op drops; null if it drops none.", "::pc::DropAttr", "getDropAttr", (ins)>,
    InterfaceMethod<"Sets the attribute `drop`.", "void", "setDropAttr", (ins "::pc::DropAttr":$drop)>,
    InterfaceMethod<"The seed, the step, the key and the first row of the batch (`pc.input random`), or null.", "::mlir::Value", "getRandom", (ins)>,
    InterfaceMethod<"The operands with the indices at which blocks begin, i32 scalars.", "::mlir::MutableOperandRange", "getOffsetsMutable", (ins)>,
    InterfaceMethod<"For each dim of the value, a dim of an operand that has the same size; the first one is the batch.",
                    "::llvm::SmallVector<::pc::IndexedDim>", "getDrawnDims", (ins)>,
    InterfaceMethod<"The numbers of those dims that are sequences; their indices are counted by position.",
                    "::llvm::SmallVector<int64_t>", "getDrawnSequences", (ins)>,
  ];
  let verify = "return ::pc::detail::verifyDrawnOp($_op);";
}

/// The code that an op needs for `getNumElementwise`: its first `n` operands are read elementwise.
class PC_Elementwise<int n> {
  string text = "unsigned getNumElementwise() { return " # n # "; }";
}
/// The code that an op needs for `getIndexedDim`: dim `dim` of `value`, or the last one for -1. `more` is other code of the op's class.
class PC_IndexedDim<string value, int dim, string more = ""> {
  string text = "::pc::IndexedDim getIndexedDim() { return {" # value # "(), " # dim # "}; }\n" # more;
}

def MoveOpInterface : OpInterface<"MoveOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    The op changes only the placement, or the space, of its operand. `pc-erase-placements` removes it. A table in
    runtime/include/pcrt/moves.h has the properties of each kind of move.
  }];
  let methods = [
    InterfaceMethod<"The kind of move.", "::pc::MoveKind", "getMoveKind", (ins)>,
    InterfaceMethod<"The mesh axes over which the op moves data, from major to minor.", "::llvm::SmallVector<::mlir::StringAttr>",
                    "getMoveAxes", (ins)>,
    InterfaceMethod<"The dim that is gathered, scattered, sliced or padded, or -1. For an all_to_all it is the dim that is gathered.",
                    "int64_t", "getMoveDim", (ins)>,
    InterfaceMethod<"For an all_to_all, the dim that becomes split; otherwise -1.", "int64_t", "getOtherDim", (ins),
                    /*methodBody=*/"", /*defaultImplementation=*/"return -1;">,
    InterfaceMethod<"How addends are combined; None if nothing is reduced.", "::pc::PartialKind", "getReduction", (ins),
                    /*methodBody=*/"", /*defaultImplementation=*/"return ::pc::PartialKind::None;">,
    InterfaceMethod<"For slice, insert and permute: coordinate i has the block of coordinate (i - shift) mod n.", "int64_t",
                    "getMoveShift", (ins), /*methodBody=*/"", /*defaultImplementation=*/"return 0;">,
    InterfaceMethod<"For these moves: more axes, or none. With coordinate j on them, coordinate i has the block of coordinate (shift - i - j) mod n.",
                    "::llvm::SmallVector<::mlir::StringAttr>", "getMoveWith", (ins), /*methodBody=*/"",
                    /*defaultImplementation=*/"return {};">,
    InterfaceMethod<"How addends are sent if they are rounded to codes; otherwise null.", "::pc::WireAttr", "getMoveWire", (ins),
                    /*methodBody=*/"", /*defaultImplementation=*/"return {};">,
  ];
  let verify = "return ::pc::detail::verifyMoveOp($_op);";
}

#endif
