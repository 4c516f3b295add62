//===- PCRows.td - Ops on values that are stored by rows -------------------------------===//
// The exchange exists only in local programs, after pc-store-rows. Few parts of the compiler need these ops, so their
// classes are in a separate header (pc/IR/MoveRows.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCROWS_TD
#define PC_IR_PCROWS_TD

include "pc/IR/PCBase.td"
include "pc/IR/FactorOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def PC_AllToAllRowsOp : Op<PC_Dialect, "all_to_all_rows", [Pure, MoveOpInterface]> {
  let summary = "An all_to_all between tokens and experts of a value that is stored by rows";
  let description = [{
    It works like `pc.all_to_all`, but sends only entries that exist: those [token, expert] for which `mask` is not 0.
    `mask` is the mask of all tokens and all experts of the group. From it each rank computes the position of every row
    on every rank, and how many rows it sends and receives.

    Constraints: (C1) operand and result are f32 or bf16, and are stored by rows, for as many dims as the mask has; one
    of `from` and `to` is the last of these dims, and the other one is an earlier dim; (C2) the mask is f32 and has the
    sizes of these dims in the whole group; (C3) a token has at least one expert; operand and result have the maximum
    number of rows that can exist.

    Example: `%y = pc.all_to_all_rows %x routed 2 of %m from 0 to 2 on ["ep"]
    : (tensor<2x8x4x16xf32, #pc.rows<32 of 3>>, tensor<4x8x4xf32>) -> tensor<4x8x2x16xf32, #pc.rows<64 of 3>>`
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$mask, I64Attr:$routed, I64Attr:$from, I64Attr:$to,
                       StrArrayAttr:$axes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x `routed` $routed `of` $mask `from` $from `to` $to `on` $axes attr-dict `:` functional-type(operands, $result)";
  let extraClassDeclaration = [{
    ::pc::MoveKind getMoveKind() { return ::pc::MoveKind::AllToAll; }
    ::llvm::SmallVector<::mlir::StringAttr> getMoveAxes() { return ::pc::axisList(getAxes()); }
    int64_t getMoveDim() { return getFrom(); }
    int64_t getOtherDim() { return getTo(); }
  }];
  let hasVerifier = 1;
}

def PC_AdmitOp : Op<PC_Dialect, "admit", [Pure, DeclareOpInterfaceMethods<FactorOpInterface>]> {
  let summary = "Keeps the first `capacity` choices of each sequence and expert, and sets the others to 0: `b s n -> b s n`, s whole";
  let description = [{
    x is [batch, sequence, experts]. It is above 0 if a token has chosen an expert (`pc.top_k`). "First" means by
    position, also in zigzag order. So the choices that are kept depend only on the sequence, and do not change with the
    mesh or the microbatches. The op has no gradient, like `pc.top_k`.

    Constraint (C1): the capacity is at least 1.

    Example: `%t = pc.admit %chosen capacity 5 : (tensor<4x16x8xf32>) -> tensor<4x16x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$capacity);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$x `capacity` $capacity attr-dict `:` functional-type($x, $result)";
}

def PC_RoundOfRowsOp : Op<PC_Dialect, "round_of_rows", [Pure, DeclareOpInterfaceMethods<FactorOpInterface>]> {
  let summary = "Keeps the entries of a mask whose rows belong to one round: `r* n -> r* n`, all whole";
  let description = [{
    x is [tokens..., experts]. It is above 0 if a token has chosen an expert. Rows are numbered as they are stored, by
    expert and then by token. Round r consists of `limit` rows from row r * `limit` on; the last round has all remaining
    rows. For entries of other rounds the result is 0. The masks of all `rounds` rounds therefore add up to x. Values
    that are linear in rows can be computed round by round, in memory for `limit` rows.

    The op exists in local programs only (`pc-store-rows`), because the rows of a round depend on the rank's block of the
    mask. The op has no gradient, like `pc.top_k`.

    Constraints: (C1) the limit is at least 1; (C2) the round is at least 0 and below `rounds`.

    Example: `%t = pc.round_of_rows %chosen round 1 of 3 limit 22 : (tensor<4x8x4xf32>) -> tensor<4x8x4xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$round, I64Attr:$rounds, I64Attr:$limit);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$x `round` $round `of` $rounds `limit` $limit attr-dict `:` functional-type($x, $result)";
}

#endif
