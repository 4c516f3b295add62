//===- PCRows.td - The move of values that are stored by rows, and what limits rows ----===//
// The move is in local programs alone, after pc-store-rows. Few parts of the compiler need to know these ops, so their
// classes are in a header of their own (pc/IR/MoveRows.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCROWS_TD
#define PC_IR_PCROWS_TD

include "pc/IR/PCBase.td"
include "pc/IR/FactorOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def PC_AllToAllRowsOp : Op<PC_Dialect, "all_to_all_rows", [Pure, MoveOpInterface]> {
  let summary = "An all_to_all between tokens and experts of a value that is stored by rows";
  let description = [{
    As `pc.all_to_all`, but only entries that exist are sent: those [token, expert] where `mask` is not 0. `mask` is that of all tokens and all experts
    of the group, so each rank knows where any row lies on any rank, and how many it sends and gets.

    Constraints: (C1) operand and result are f32 or bf16 and stored by rows of as many dims as the mask has, and `from` and `to` are the last of these and another;
    (C2) the mask is f32 of the sizes that these dims have in the group; (C3) a token has at least one expert, and each row that can be has memory.
    Example: `%y = pc.all_to_all_rows %x routed 2 of %m from 0 to 2 on ["ep"] : (tensor<2x8x4x16xf32, #pc.rows<32 of 3>>, tensor<4x8x4xf32>) -> tensor<4x8x2x16xf32, #pc.rows<64 of 3>>`
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
  let summary = "Of the choices of each sequence and expert the first `capacity`, 0 for the others: `b s n -> b s n`, s whole";
  let description = [{
    x: [batch, sequence, experts], above 0 where a token has chosen an expert (`pc.top_k`). Tokens come in the order of their positions, also in a
    zigzag order. So the choices that an expert takes depend only on the sequence: it is the same on every mesh and with any microbatches. As of
    `pc.top_k` there is no gradient.

    Constraint (C1): the capacity is at least 1.
    Example: `%t = pc.admit %chosen capacity 5 : (tensor<4x16x8xf32>) -> tensor<4x16x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$capacity);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$x `capacity` $capacity attr-dict `:` functional-type($x, $result)";
}

def PC_RoundOfRowsOp : Op<PC_Dialect, "round_of_rows", [Pure, DeclareOpInterfaceMethods<FactorOpInterface>]> {
  let summary = "The entries of a mask whose rows are of one round: `r* n -> r* n`, all whole";
  let description = [{
    x: [tokens..., experts], above 0 where a token has chosen an expert. Rows are numbered as they are stored, by expert and then by token. Round r has those
    from r * `limit` on, `limit` of them, and the last one all that are left; of others the result is 0. So the masks of all `rounds` add up to x, and
    values that are linear in rows can be computed round by round, in memory for `limit` rows.

    In local programs (`pc-store-rows`): which rows are of a round depends on the block of the mask that a rank has. As of `pc.top_k` there is no gradient.

    Constraints: (C1) the limit is at least 1; (C2) the round is one of `rounds`.
    Example: `%t = pc.round_of_rows %chosen round 1 of 3 limit 22 : (tensor<4x8x4xf32>) -> tensor<4x8x4xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$round, I64Attr:$rounds, I64Attr:$limit);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$x `round` $round `of` $rounds `limit` $limit attr-dict `:` functional-type($x, $result)";
}

#endif
