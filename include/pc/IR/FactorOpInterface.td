//===- FactorOpInterface.td - One rule per op -----------------------------------===//
// The single declaration of an op's meaning for shapes, placements, local programs and costs.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_FACTOROPINTERFACE_TD
#define PC_IR_FACTOROPINTERFACE_TD

include "mlir/IR/OpBase.td"

def PC_FactorOpInterface : OpInterface<"FactorOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    The factors of an op: which dims of which operands and results iterate together (`"b s e, e f -> b s f"`), which factors
    must stay whole, how factors that a result lacks are reduced, and in which groups of operands the op is linear. Legal
    placements are generated from this (`pc::legalRows`), nowhere else.
  }];
  let methods = [
    InterfaceMethod<"The factor rule of this op.", "::pc::FactorRule", "getFactorRule", (ins)>,
  ];
  let verify = "return ::pc::detail::verifyFactorOp($_op);";
}

def PC_MoveOpInterface : OpInterface<"MoveOpInterface"> {
  let cppNamespace = "::pc";
  let description = [{
    An op that changes the placement of its one operand and nothing else. `pc-erase-placements` drops it.
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
