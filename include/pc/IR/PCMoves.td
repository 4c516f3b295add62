//===- PCMoves.td - What ranks send each other --------------------------------------------===//
// Moves, which change a placement; messages between the stages of a pipeline; and both under way. Part of PCOps.td.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCMOVES_TD
#define PC_IR_PCMOVES_TD

//===---------------------------------------------------------------------------===//
// Moves
//===---------------------------------------------------------------------------===//

/// `kind`: of pc::MoveKind; `dim`: what is the interface's `getMoveDim`.
class PC_Move<string kind, string name, string dim = "-1", string more = ""> : PC_Op<name, [Pure, MoveOpInterface]> {
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = "::pc::MoveKind getMoveKind() { return ::pc::MoveKind::" # kind # "; }\n" #
    "::llvm::SmallVector<::mlir::StringAttr> getMoveAxes() { return ::pc::axisList(getAxes()); }\n" #
    "int64_t getMoveDim() { return " # dim # "; }\n" # more;
}
class PC_DimMove<string kind, string name> : PC_Move<kind, name, "getDim()"> {
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$dim, StrArrayAttr:$axes);
  let assemblyFormat = "$x `dim` $dim `on` $axes attr-dict `:` functional-type($x, $result)";
}
class PC_WholeMove<string kind, string name> : PC_Move<kind, name> {
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes);
  let assemblyFormat = "$x `on` $axes attr-dict `:` functional-type($x, $result)";
}

def PC_AllReduceOp : PC_Move<"AllReduce", "all_reduce"> {
  let summary = "Partial -> whole";
  let description = [{
    Constraints: (C1) `x` is partial on every one of `axes`, the result on none of them; (C2) nothing else changes; (C3) in local
    programs both types are equal, homes aside.
    Example: `%y = pc.all_reduce sum %p on ["tp"] : (tensor<8x64xf32, #pc.place<[dp, _] sum(tp)>>) -> tensor<8x64xf32, #pc.place<[dp, _]>>`
  }];
  let arguments = (ins PC_PartialKind:$reduction, AnyRankedTensor:$x, StrArrayAttr:$axes);
  let assemblyFormat = "$reduction $x `on` $axes attr-dict `:` functional-type($x, $result)";
}
def PC_ReduceScatterOp : PC_Move<"ReduceScatter", "reduce_scatter", "getDim()"> {
  let summary = "Partial -> split: `axes` are added at the minor end of dim";
  let arguments = (ins PC_PartialKind:$reduction, AnyRankedTensor:$x, I64Attr:$dim, StrArrayAttr:$axes);
  let assemblyFormat = "$reduction $x `dim` $dim `on` $axes attr-dict `:` functional-type($x, $result)";
}
def PC_AllGatherOp : PC_DimMove<"AllGather", "all_gather"> {
  let summary = "Split -> whole: `axes` are the minor end of the dim's list and go";
}
def PC_AllToAllOp : PC_Move<"AllToAll", "all_to_all", "getFrom()", "int64_t getOtherDim() { return getTo(); }"> {
  let summary = "Split on `from` -> split on `to`: `axes` leave the minor end of one list and join the minor end of the other";
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$from, I64Attr:$to, StrArrayAttr:$axes);
  let assemblyFormat = "$x `from` $from `to` $to `on` $axes attr-dict `:` functional-type($x, $result)";
}
/// Of slices, inserts and permutes: whose block.
defvar moveOrder = [{
  int64_t getMoveShift() { return getShift(); }
  ::llvm::SmallVector<::mlir::StringAttr> getMoveWith() {
    return getWith() ? ::llvm::to_vector(getWith()->getAsRange<::mlir::StringAttr>()) : ::llvm::SmallVector<::mlir::StringAttr>();
  }
}];

def PC_SliceOp : PC_Move<"Slice", "slice", "getDim()", moveOrder> {
  let summary = "Whole -> split, without traffic: `axes` are added at the minor end of dim";
  let description = [{
    In local programs also the block of another rank: that of coordinate (i - `shift`) mod n on coordinate i, or with `with` that of
    coordinate (`shift` - i - j) mod n, j being the coordinate on those axes (`pc.permute`).
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$dim, StrArrayAttr:$axes, DefaultValuedAttr<I64Attr, "0">:$shift,
                       OptionalAttr<StrArrayAttr>:$with);
  let assemblyFormat = [{
    $x `dim` $dim (`shift` $shift^)? `on` $axes (`with` $with^)? attr-dict `:` functional-type($x, $result)
  }];
}
def PC_MaskOp : PC_WholeMove<"Mask", "mask"> {
  let summary = "Whole -> partial sum, without traffic: coordinate 0 keeps the value, the others hold zeros";
}
def PC_PadOp : PC_DimMove<"Pad", "pad"> {
  let summary = "Split -> partial sum, without traffic: the own block inside zeros";
}

def PC_BroadcastOp : PC_WholeMove<"Broadcast", "broadcast"> {
  let summary = "On the root -> whole: coordinate 0 sends the value to all";
}
def PC_ScatterOp : PC_DimMove<"Scatter", "scatter"> {
  let summary = "On the root -> split: coordinate 0 sends each rank its block; `axes` are added at the minor end of dim";
}
def PC_GatherOp : PC_DimMove<"Gather", "gather"> {
  let summary = "Split -> on the root: coordinate 0 gets all blocks; `axes` leave the minor end of dim";
}
def PC_ReduceOp : PC_Move<"Reduce", "reduce"> {
  let summary = "Partial -> on the root: coordinate 0 gets the sum or maximum";
  let arguments = (ins PC_PartialKind:$reduction, AnyRankedTensor:$x, StrArrayAttr:$axes);
  let assemblyFormat = "$reduction $x `on` $axes attr-dict `:` functional-type($x, $result)";
}
def PC_PermuteOp : PC_Move<"Permute", "permute", "-1", moveOrder> {
  let summary = "Each rank sends its value to one and gets that of one: round the ring, or between pairs; local programs only";
  let description = [{
    The result on coordinate i is the operand of coordinate (i - `shift`) mod n: with shift 1, as it is if none is given, the previous one's. One
    batch of a send and a receive, so that a ring cannot wait in a circle. The steps of a windowed move (`pc-window-moves`).

    With `with`, axes of the same number of ranks on which this rank has coordinate j, pairs exchange: it is the operand of coordinate
    (`shift` - i - j) mod n, so that rank (i, j) gets block k with i + j + k = `shift` mod n whichever of the two axes is the one of the move. Where
    k = i a rank copies its own, which is so for one of the n shifts: all n together send what an all_gather sends.
    Example: `%y = pc.permute %x shift 2 on ["col"] with ["row"] : (tensor<8x4xf32>) -> tensor<8x4xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, DefaultValuedAttr<I64Attr, "1">:$shift,
                       OptionalAttr<StrArrayAttr>:$with);
  let assemblyFormat = "$x (`shift` $shift^)? `on` $axes (`with` $with^)? attr-dict `:` functional-type($x, $result)";
}
def PC_InsertOp : PC_Move<"Insert", "insert", "getDim()", moveOrder> {
  let summary = "One more block of a value that arrives block by block; local programs only";
  let description = [{
    On coordinate i, `x` is the block of coordinate (i - `shift`) mod n along `dim`, or with `with` as of `pc.slice`. The other blocks are those of `base`, over which the result is
    written; without a base they are not there yet. Without traffic. Constraint (C1): base and result have one type, homes aside.
    Example: `%y = pc.insert %x into %base dim 1 shift 1 on ["tp"] : (tensor<8x4xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, Optional<AnyRankedTensor>:$base, I64Attr:$dim, StrArrayAttr:$axes,
                       DefaultValuedAttr<I64Attr, "0">:$shift, OptionalAttr<StrArrayAttr>:$with);
  let assemblyFormat = [{
    $x (`into` $base^)? `dim` $dim (`shift` $shift^)? `on` $axes (`with` $with^)? attr-dict `:` functional-type(operands, $result)
  }];
}

//===---------------------------------------------------------------------------===//
// Stages
//===---------------------------------------------------------------------------===//

def PC_TaskOp : PC_Op<"task", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "What the ops after it, up to the next one, are to the pipeline schedule";
  let description = [{
    Programs of stages only: every op that computes stands after one. No effect at run time; errors, reports and timelines name it.
    Constraint (C1): chunk and microbatch are at least 0, and both are there unless the kind is `optimizer`.
    Example: `pc.task backward chunk 1 microbatch 3`
  }];
  let arguments = (ins PC_TaskKind:$kind, OptionalAttr<I64Attr>:$chunk, OptionalAttr<I64Attr>:$microbatch);
  let assemblyFormat = "$kind (`chunk` $chunk^ `microbatch` $microbatch)? attr-dict";
  let hasVerifier = 1;
}

def PC_CallOp : PC_Op<"call", [MemoryEffects<[MemRead, MemWrite]>, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs a task's function: its ops, as if they stood here";
  let description = [{
    Programs of stages only. The function is private and has one block; what microbatches have in common is written once in it.
    It computes and moves within the stage, and does nothing else: no task, send, receive, leaf or update.

    In planned programs a function has addresses of its own, from 0: its *frame* (what lives only in the call), then each argument, then
    each result; a result that has the address of an argument is written over it. The call says where these are: the frame at `frame`,
    arguments and results where the call's operands and results lie.

    Constraints: (C1) the symbol is a private function of one block; (C2) its type is that of the call, homes aside.
    Example: `%y:2 = pc.call @forward0(%w, %x) : (tensor<64x64xf32>, tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>)`
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyRankedTensor>:$inputs, OptionalAttr<I64Attr>:$frame);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$callee `(` $inputs `)` (`frame` $frame^)? attr-dict `:` functional-type($inputs, $results)";
}

def PC_MicrobatchOp : PC_Op<"microbatch", [Pure]> {
  let summary = "One element of a stack of microbatches: `%y = pc.microbatch %stack[1] : tensor<2x8x64xi32> -> tensor<8x64xi32>`";
  let description = [{
    A view: it lies in the bytes of the stack. Constraints: (C1) the stack's first dim is unsplit and larger than `index`, which
    is at least 0; (C2) the result is the stack without its first dim.
  }];
  let arguments = (ins AnyRankedTensor:$stack, I64Attr:$index);
  let results = (outs AnyRankedTensor:$element);
  let assemblyFormat = "$stack `[` $index `]` attr-dict `:` type($stack) `->` type($element)";
  let hasVerifier = 1;
}

def PC_SendOp : PC_Op<"send", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Sends a value to another stage";
  let description = [{
    `stage` is the coordinate on the axis of stages; the partner is the rank with the same coordinates on all other axes. `flow` is a
    number of its own for every source, destination, kind of task and chunk; `message` counts the flow's messages. The value is
    copied into the flow's channel, which holds `slots` messages: a send waits only while all of them are full, and when it is
    done its input may be overwritten. Sends and receives of one program are never reordered.

    Constraints: (C1) stage, flow and message are at least 0, slots at least 1. Matching is checked by `pc-verify-staged`.
    Example: `pc.send %x to 1 flow 0 message 2 slots 2 : tensor<8x64xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$stage, I64Attr:$flow, I64Attr:$message, I64Attr:$slots);
  let assemblyFormat = "$x `to` $stage `flow` $flow `message` $message `slots` $slots attr-dict `:` type($x)";
  let hasVerifier = 1;
}

def PC_ReceiveOp : PC_Op<"receive", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "The value that another stage sent";
  let description = [{
    Waits until the message is there. Attributes and constraints as `pc.send`.
    Example: `%x = pc.receive from 0 flow 0 message 2 slots 2 : tensor<8x64xf32>`
  }];
  let arguments = (ins I64Attr:$stage, I64Attr:$flow, I64Attr:$message, I64Attr:$slots);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "`from` $stage `flow` $flow `message` $message `slots` $slots attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def PC_AddendOp : PC_Op<"addend", [Pure]> {
  let summary = "This stage's addend of a sum over stages: `%y = pc.addend %x on [\"pp\"] : (tensor<f32>) -> tensor<f32, #pc.place<[] sum(pp)>>`";
  let description = [{
    Placed programs of stages only: each stage says what its own part of a sum is (the loss, the squared norm of gradients), so that
    an ordinary move adds them. Constraint (C1): the result is the operand, partial on `axes` too.
  }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x `on` $axes attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}

//===---------------------------------------------------------------------------===//
// Moves under way
//===---------------------------------------------------------------------------===//

def PC_StartOp : PC_Op<"start", [SingleBlockImplicitTerminator<"YieldOp">, IsolatedFromAbove,
                                 MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Starts moves of one group of ranks, which go on while the ranks compute";
  let description = [{
    Scheduled programs only. The moves of one start are a *bucket*: one call of the communication library. From the start to its `pc.wait`
    the buffers are in flight: the inputs stay as they are, and the buffers of the wait's results are taken (a result may lie on the
    input of its move where the move works in place).

    Constraints: (C1) block arguments are the operands' types, homes aside; (C2) the body is 1 to 64 moves with traffic over one list of
    axes: move i moves argument i, and its result is yielded as value i; (C3) the ticket has one use, a `pc.wait` in the same block.

    Example:
    ```
    %t = pc.start (%a = %g : tensor<8xf32> -> tensor<8xf32>) {
      %0 = pc.all_reduce sum %a on ["dp"] : (tensor<8xf32>) -> tensor<8xf32>
      pc.yield %0 : tensor<8xf32>
    } : !pc.ticket
    %s = pc.wait %t : tensor<8xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs);
  let results = (outs PC_Ticket:$ticket);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The moves, one per operand.
    ::llvm::SmallVector<::pc::MoveOpInterface> getMoves();
    /// The wait; null only in programs that do not verify.
    ::pc::WaitOp getWait();
  }];
}

def PC_WaitOp : PC_Op<"wait", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Waits for the moves of a start: their results";
  let description = [{
    Constraints: (C1) the ticket comes from a `pc.start`; (C2) one result per move, of the type that the start yields, homes aside.
    Example: `%s:2 = pc.wait %t : tensor<8xf32>, tensor<4xf32>`
  }];
  let arguments = (ins PC_Ticket:$ticket);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$ticket attr-dict `:` type($results)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The start; null only in programs that do not verify.
    ::pc::StartOp getStart();
  }];
}

#endif
