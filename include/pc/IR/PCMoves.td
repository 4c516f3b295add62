//===- PCMoves.td - Communication between ranks -------------------------------------------===//
// Moves change a placement. Sends and receives are messages between pipeline stages. `pc.start` and `pc.wait` let moves
// run while the ranks compute. PCOps.td includes this file.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCMOVES_TD
#define PC_IR_PCMOVES_TD

//===---------------------------------------------------------------------------===//
// Moves
//===---------------------------------------------------------------------------===//

/// `kind` is a case of pc::MoveKind. `dim` is the result of `getMoveDim`.
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

defvar moveWire = "::pc::WireAttr getMoveWire() { return getWireAttr(); }\n";

def PC_AllReduceOp : PC_Move<"AllReduce", "all_reduce", "-1", moveWire> {
  let summary = "Reduces a partial value, so that all ranks have the whole value";
  let description = [{
    Constraints: (C1) `x` is partial on every axis of `axes`, and the result on none of them; (C2) operand and result
    have otherwise the same placement; (C3) in local programs both types are equal, except for homes.

    Example: `%y = pc.all_reduce sum %p on ["tp"] : (tensor<8x64xf32, #pc.place<[dp, _] sum(tp)>>) -> tensor<8x64xf32, #pc.place<[dp, _]>>`

    With `wire`, each rank rounds its addend to codes, and all ranks add the numbers that the codes of all addends stand
    for, in f32 and in the order of coordinates. So a sum of n addends is rounded once per addend. Each element of the
    result differs from the exact sum by at most the sum, over the addends, of 1/254 (int4: 1/14) of the largest
    magnitude in the element's block. `pc-localize` writes such a move as `pc.encode_addend`, a move of codes, and
    `pc.decode_sum`.

    Constraint (C4): with `wire`, the reduction is a sum of f32, and the part of a rank, before and after the move,
    consists of whole blocks.

    Example: `%y = pc.all_reduce sum %p on ["dp"] wire <int8, [16, 16]> : (tensor<32x64xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<32x64xf32, #pc.place<[_, _]>>`
  }];
  let arguments = (ins PC_PartialKind:$reduction, AnyRankedTensor:$x, StrArrayAttr:$axes, OptionalAttr<PC_WireAttr>:$wire);
  let assemblyFormat = "$reduction $x `on` $axes (`wire` $wire^)? attr-dict `:` functional-type($x, $result)";
}
def PC_ReduceScatterOp : PC_Move<"ReduceScatter", "reduce_scatter", "getDim()", moveWire> {
  let summary = "Reduces a partial value and splits the result: `axes` are added at the minor end of dim";
  let description = [{
    `wire` is the same as in `pc.all_reduce`.

    Example: `%y = pc.reduce_scatter sum %p dim 0 on ["dp"] wire <int8, [16, 16]> : (tensor<32x64xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<32x64xf32, #pc.place<[dp, _]>>`
  }];
  let arguments = (ins PC_PartialKind:$reduction, AnyRankedTensor:$x, I64Attr:$dim, StrArrayAttr:$axes, OptionalAttr<PC_WireAttr>:$wire);
  let assemblyFormat = "$reduction $x `dim` $dim `on` $axes (`wire` $wire^)? attr-dict `:` functional-type($x, $result)";
}
def PC_AllGatherOp : PC_DimMove<"AllGather", "all_gather"> {
  let summary = "Gathers a split value, so that all ranks have the whole value: `axes` are removed from the minor end of dim";
}
def PC_AllToAllOp : PC_Move<"AllToAll", "all_to_all", "getFrom()", "int64_t getOtherDim() { return getTo(); }"> {
  let summary = "Changes a value from split on `from` to split on `to`: `axes` move from the minor end of dim `from` to the minor end of dim `to`";
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$from, I64Attr:$to, StrArrayAttr:$axes);
  let assemblyFormat = "$x `from` $from `to` $to `on` $axes attr-dict `:` functional-type($x, $result)";
}
/// The methods of slices, inserts and permutes that tell which rank's block a rank has.
defvar moveOrder = [{
  int64_t getMoveShift() { return getShift(); }
  ::llvm::SmallVector<::mlir::StringAttr> getMoveWith() {
    return getWith() ? ::llvm::to_vector(getWith()->getAsRange<::mlir::StringAttr>()) : ::llvm::SmallVector<::mlir::StringAttr>();
  }
}];

def PC_SliceOp : PC_Move<"Slice", "slice", "getDim()", moveOrder> {
  let summary = "Splits a whole value without traffic: `axes` are added at the minor end of dim";
  let description = [{
    In local programs a rank may also take the block of another rank. Coordinate i takes the block of coordinate (i -
    `shift`) mod n. With `with` it takes the block of coordinate (`shift` - i - j) mod n, where j is its coordinate on
    the axes after `with` (`pc.permute`).
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$dim, StrArrayAttr:$axes, DefaultValuedAttr<I64Attr, "0">:$shift,
                       OptionalAttr<StrArrayAttr>:$with);
  let assemblyFormat = [{
    $x `dim` $dim (`shift` $shift^)? `on` $axes (`with` $with^)? attr-dict `:` functional-type($x, $result)
  }];
}
def PC_MaskOp : PC_WholeMove<"Mask", "mask"> {
  let summary = "Changes a whole value to a partial sum without traffic: coordinate 0 keeps the value, and the others have zeros";
}
def PC_PadOp : PC_DimMove<"Pad", "pad"> {
  let summary = "Changes a split value to a partial sum without traffic: each rank pads its block with zeros";
}

def PC_BroadcastOp : PC_WholeMove<"Broadcast", "broadcast"> {
  let summary = "Changes a rooted value to a whole value: coordinate 0 sends it to all ranks";
}
def PC_ScatterOp : PC_DimMove<"Scatter", "scatter"> {
  let summary = "Changes a rooted value to a split value: coordinate 0 sends each rank its block, and `axes` are added at the minor end of dim";
}
def PC_GatherOp : PC_DimMove<"Gather", "gather"> {
  let summary = "Changes a split value to a rooted value: coordinate 0 gets all blocks, and `axes` are removed from the minor end of dim";
}
def PC_ReduceOp : PC_Move<"Reduce", "reduce"> {
  let summary = "Changes a partial value to a rooted value: coordinate 0 gets the sum or maximum";
  let arguments = (ins PC_PartialKind:$reduction, AnyRankedTensor:$x, StrArrayAttr:$axes);
  let assemblyFormat = "$reduction $x `on` $axes attr-dict `:` functional-type($x, $result)";
}
def PC_PermuteOp : PC_Move<"Permute", "permute", "-1", moveOrder> {
  let summary = "Each rank sends its value to one rank and receives one: around a ring, or between pairs";
  let description = [{
    The op exists in local programs only, as a step of a windowed move (`pc-window-moves`). Coordinate i receives the
    operand of coordinate (i - `shift`) mod n; with the default shift of 1, this is the previous rank. The send and the
    receive are one batch, so that the ranks of a ring cannot wait for each other in a cycle.

    With `with`, pairs of ranks exchange their values. The axes after `with` have as many ranks as `axes`, and this rank
    has coordinate j on them. Coordinate i receives the operand of coordinate (`shift` - i - j) mod n. So rank (i, j)
    gets block k with i + j + k = `shift` mod n, for moves on either of the two axes. A rank with k = i copies its own
    block. This happens for one of the n shifts, so all n permutes together send as much as an all_gather.

    Example: `%y = pc.permute %x shift 2 on ["col"] with ["row"] : (tensor<8x4xf32>) -> tensor<8x4xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, DefaultValuedAttr<I64Attr, "1">:$shift,
                       OptionalAttr<StrArrayAttr>:$with);
  let assemblyFormat = "$x (`shift` $shift^)? `on` $axes (`with` $with^)? attr-dict `:` functional-type($x, $result)";
}
def PC_InsertOp : PC_Move<"Insert", "insert", "getDim()", moveOrder> {
  let summary = "Inserts a block into a value that arrives block by block";
  let description = [{
    The op exists in local programs only and has no traffic. On coordinate i, `x` is the block of coordinate (i - `shift`)
    mod n along `dim`; with `with`, the block that `pc.slice` would take. The result is written over `base`, which has
    the other blocks that have arrived. Without a base no other block has arrived.

    Constraint (C1): base and result have the same type, except for homes.

    Example: `%y = pc.insert %x into %base dim 1 shift 1 on ["tp"] : (tensor<8x4xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, Optional<AnyRankedTensor>:$base, I64Attr:$dim, StrArrayAttr:$axes,
                       DefaultValuedAttr<I64Attr, "0">:$shift, OptionalAttr<StrArrayAttr>:$with);
  let assemblyFormat = [{
    $x (`into` $base^)? `dim` $dim (`shift` $shift^)? `on` $axes (`with` $with^)? attr-dict `:` functional-type(operands, $result)
  }];
}

def PC_CarryOp : PC_Op<"carry", [Pure, MoveOpInterface]> {
  let summary = "Copies a value between two spaces of the rank's memory";
  let description = [{
    The op changes only the space (`pc-offload`). Nothing is sent between ranks. It is the only op that reads or writes
    values outside of the device.

    Constraint (C1): operand and result have the same type, except for spaces, which differ.

    Example: `%m = pc.carry %stored : (tensor<8xf32, #pc.space<disk>>) -> tensor<8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
  let extraClassDeclaration = [{
    ::pc::MoveKind getMoveKind() { return ::pc::MoveKind::Carry; }
    ::llvm::SmallVector<::mlir::StringAttr> getMoveAxes() { return {}; }
    int64_t getMoveDim() { return -1; }
    /// The space that is not the device.
    ::pc::Space getOutside();
    /// Whether the value leaves the device.
    bool isOut();
    /// The spaces for reports, as in "disk>device". Carries with equal links keep their order.
    ::llvm::StringRef getLink();
  }];
}

//===---------------------------------------------------------------------------===//
// Stages
//===---------------------------------------------------------------------------===//

def PC_TaskOp : PC_Op<"task", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Begins a task of a pipeline schedule: the ops after it belong to this task";
  let description = [{
    The op exists only in programs of stages. Every op that computes is after a `pc.task` and belongs to the last one
    before it. The op has no effect at run time. Errors, reports and timelines name the task.

    Constraint (C1): chunk and microbatch are at least 0; both are given unless the kind is `optimizer`, which has
    neither.

    Example: `pc.task backward chunk 1 microbatch 3`
  }];
  let arguments = (ins PC_TaskKind:$kind, OptionalAttr<I64Attr>:$chunk, OptionalAttr<I64Attr>:$microbatch);
  let assemblyFormat = "$kind (`chunk` $chunk^ `microbatch` $microbatch)? attr-dict";
  let hasVerifier = 1;
}

def PC_CallOp : PC_Op<"call", [MemoryEffects<[MemRead, MemWrite]>, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs a task's function, as if its ops were in place of the call";
  let description = [{
    The op exists only in programs of stages. The function is private and has one block. It contains the ops that several
    microbatches have in common, so that they are written once. It only computes and moves values within the stage. It
    has no tasks, sends, receives, leaves or updates.

    In planned programs a function has its own addresses, from 0: first its *frame* (values that live only during the
    call), then each argument, then each result. A result with the address of an argument is written over it. The call
    gives their places in the arena: the frame is at `frame`, and arguments and results are at the homes of the call's
    operands and results.

    Constraints: (C1) the symbol is a private function of one block; (C2) its type is the type of the call, except for
    homes.

    Example: `%y:2 = pc.call @forward0(%w, %x) : (tensor<64x64xf32>, tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>)`
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyRankedTensor>:$inputs, OptionalAttr<I64Attr>:$frame);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$callee `(` $inputs `)` (`frame` $frame^)? attr-dict `:` functional-type($inputs, $results)";
}

def PC_MicrobatchOp : PC_Op<"microbatch", [Pure]> {
  let summary = "One element of a stack of microbatches: `%y = pc.microbatch %stack[1] : tensor<2x8x64xi32> -> tensor<8x64xi32>`";
  let description = [{
    The result is a view: it lies in the bytes of the stack.

    Constraints: (C1) `index` is at least 0 and below the size of the stack's first dim, which is not split; (C2) the
    result has the type of the stack without its first dim.
  }];
  let arguments = (ins AnyRankedTensor:$stack, I64Attr:$index);
  let results = (outs AnyRankedTensor:$element);
  let assemblyFormat = "$stack `[` $index `]` attr-dict `:` type($stack) `->` type($element)";
  let hasVerifier = 1;
}

def PC_SendOp : PC_Op<"send", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Sends a value to another stage";
  let description = [{
    `stage` is the coordinate of the receiver on the axis of stages. On all other axes the receiver has the coordinates
    of the sender. Each combination of source, destination, kind of task and chunk has its own number `flow`. `message`
    counts the messages of a flow. The value is copied into the channel of the flow, which has room for `slots`
    messages. A send waits only while the channel is full. After the send, its input may be overwritten. Sends and
    receives of a program are never reordered.

    Constraint (C1): stage, flow and message are at least 0, and slots is at least 1. `pc-verify-staged` checks that
    sends and receives match.

    Example: `pc.send %x to 1 flow 0 message 2 slots 2 : tensor<8x64xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$stage, I64Attr:$flow, I64Attr:$message, I64Attr:$slots);
  let assemblyFormat = "$x `to` $stage `flow` $flow `message` $message `slots` $slots attr-dict `:` type($x)";
  let hasVerifier = 1;
}

def PC_ReceiveOp : PC_Op<"receive", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Receives a value from another stage";
  let description = [{
    The op waits until the message has arrived. `stage` is the coordinate of the sender. The other attributes and the
    constraints are the same as for `pc.send`.

    Example: `%x = pc.receive from 0 flow 0 message 2 slots 2 : tensor<8x64xf32>`
  }];
  let arguments = (ins I64Attr:$stage, I64Attr:$flow, I64Attr:$message, I64Attr:$slots);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "`from` $stage `flow` $flow `message` $message `slots` $slots attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def PC_AddendOp : PC_Op<"addend", [Pure]> {
  let summary = "Declares this stage's value an addend of a sum over stages";
  let description = [{
    The op exists only in placed programs of stages. Some values, such as the loss and the squared norm of gradients, are
    sums over stages. Each stage declares its own part an addend, and an ordinary move adds them.

    Constraint (C1): the result has the type of the operand, and is also partial on `axes`.

    Example: `%y = pc.addend %x on ["pp"] : (tensor<f32>) -> tensor<f32, #pc.place<[] sum(pp)>>`
  }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x `on` $axes attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}

//===---------------------------------------------------------------------------===//
// Moves in flight
//===---------------------------------------------------------------------------===//

def PC_StartOp : PC_Op<"start", [SingleBlockImplicitTerminator<"YieldOp">, IsolatedFromAbove,
                                 MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Starts moves of one group of ranks, which run while the ranks compute";
  let description = [{
    The op exists in scheduled and planned programs only. The moves of one start are a *bucket*: one call of the
    communication library. The buffers are in flight from the start to its `pc.wait`. During this time the inputs must
    not change, and the buffers of the wait's results must not be used. A result may lie on the input of its move if the
    move works in place.

    Constraints: (C1) the block arguments have the types of the operands, except for homes; (C2) the body has 1 to 64
    moves with traffic over one list of axes, or carries in one direction; move i moves argument i, and its result is yielded as value i; (C3) the
    ticket has one use, a `pc.wait` in the same block.

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
  let summary = "Waits for the moves of a start and returns their results";
  let description = [{
    Constraints: (C1) the ticket comes from a `pc.start`; (C2) there is one result per move, of the type that the start
    yields, except for homes.

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
