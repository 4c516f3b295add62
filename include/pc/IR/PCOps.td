//===- PCOps.td - Ops of the pc dialect -----------------------------------------===//
// This file has leaves, sinks and most computing ops. The mesh, the plan and bodies are in PCStructure.td, attention in
// PCAttention.td, views and embeddings in PCViews.td, losses in PCLoss.td, recurrences in PCRecurrence.td, optimizers in
// PCOptimizer.td, and moves in PCMoves.td. A pointwise op gets its factors from its trait; all other computing ops have a factor rule in
// lib/IR/FactorRules.cpp.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCOPS_TD
#define PC_IR_PCOPS_TD

include "pc/IR/PCBase.td"
include "pc/IR/FactorOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

/// Values outside of the device are read and written by carries only (verifySpaces).
def PC_OnDevice : NativeOpTrait<"OnDevice"> { let cppNamespace = "::pc"; }
class PC_Op<string name, list<Trait> traits = []> : Op<PC_Dialect, name, traits # [PC_OnDevice]>;

include "pc/IR/PCStructure.td"

//===---------------------------------------------------------------------------===//
// Leaves and sinks
//===---------------------------------------------------------------------------===//

def PC_PartArrayAttr : TypedArrayAttrBase<PC_PartAttr, "array of parts">;

class PC_Leaf<string name, list<Trait> traits = []> : PC_Op<name, traits # [Pure]>;

def PC_ParameterOp : PC_Leaf<"parameter"> {
  let summary = "A parameter, with the value that it has at the start of the step";
  let description = [{
    `dims` names every dim. `valid` is the shape without padding, if there is padding. In local programs `global` is the
    shape of the whole tensor, and `layout` tells which block of it this rank holds. In the program of a single stage,
    `key` is the position of the parameter in the whole program. It selects the random numbers of the initial elements,
    and identifies parameters that several stages share.

    `along d parts [...]` replaces `source` for a packed parameter. It consists of several parameters that one product
    reads, one after the other along dim d (`pc-pack-products`). Files, initial elements and the interpreter use the
    parts (`partsOf`); all other code uses only the packed parameter.

    With `frozen`, training reads the parameter and never changes it. It has no gradient and no state. Checkpoints
    contain it like any other parameter.

    `group {name = "*.bias", decay = 0.0}` is the parameter group, with settings of the optimizer. `lr_factor` and
    `decay_factor` multiply a run's learning rate and weight decay. `decay`, `beta1`, `beta2` and `eps` replace the
    values of the run. `optimizer` names the optimizer of the group. `sparsity`, the share of zeros in each row, or `kept`
    of `among` adjacent elements prune the parameter; masks are chosen `every` few steps, the last time in step `until`
    (`pc-differentiate`).

    A parameter of type i8 or i4 has codes (`pc-store-codes`).

    Constraints: (C1) every dim has a name; (C2) `valid` has the rank of the tensor, and none of its sizes is larger
    than the tensor's; (C3) the box of `source` has the same number of elements as `valid`, and the box of each part the
    same number as the part; (C4) the zero row of `init` is an index of the first dim of `valid`; (C5) there is either a
    source, or parts whose sizes add up to dim `along` of `valid`; (C6) a group has a name and otherwise only the
    settings above, whose numbers are of type f64 and at least 0; a frozen parameter has no group.

    Example: `%w = pc.parameter "h.0.mlp.c_fc.weight" dims ["embed", "ffn"] init <normal, 2.0e-02> source <...> : tensor<64x256xf32>`
  }];
  let arguments = (ins StrAttr:$name, StrArrayAttr:$dims, PC_InitAttr:$init, OptionalAttr<PC_SourceAttr>:$source,
                       OptionalAttr<I64Attr>:$along, OptionalAttr<PC_PartArrayAttr>:$parts, OptionalAttr<DenseI64ArrayAttr>:$valid, OptionalAttr<DenseI64ArrayAttr>:$global,
                       OptionalAttr<PC_PlaceAttr>:$layout, OptionalAttr<I64Attr>:$key, UnitAttr:$frozen, OptionalAttr<DictionaryAttr>:$group);
  let results = (outs AnyRankedTensor:$value);
  let hasVerifier = 1;
  let assemblyFormat = [{
    $name (`frozen` $frozen^)? (`group` $group^)? `dims` $dims `init` $init (`source` $source^)? (`along` $along^ `parts` $parts)? (`key` $key^)? (`valid` $valid^)? (`global` $global^ `layout` $layout)?
    attr-dict `:` type($value)
  }];
}

def PC_StateOp : PC_Leaf<"state"> {
  let summary = "A tensor that a program keeps from step to step: `pc.state \"exp_avg\" of \"h.0.ln_1.weight\" dims [..]`";
  let description = [{
    An optimizer keeps states for a parameter. They are zeros before the first step, and checkpoints contain them. The
    state "scale" has the scales of a parameter of codes (`pc-store-codes`); a run computes it with them. A `cache` has
    the keys or the values of one attention of a program that generates text. Its elements are undefined until
    `pc.cache_write` sets them, and no checkpoint contains it.

    Example: `%c = pc.state cache "keys" of "attention 0" dims ["batch", "slot", "kv_heads", "cached", "head_dim"] : tensor<1x8x2x64x16xf32>`
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$parameter, StrArrayAttr:$dims,
                       OptionalAttr<DenseI64ArrayAttr>:$global, OptionalAttr<PC_PlaceAttr>:$layout, UnitAttr:$cache);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = [{
    (`cache` $cache^)? $name `of` $parameter `dims` $dims (`global` $global^ `layout` $layout)? attr-dict `:` type($value)
  }];
}

def PC_InputOp : PC_Leaf<"input"> {
  let summary = "A value that the runtime provides for each step, such as tokens, targets or hyper-parameters";
  let description = [{
    In a model program tokens and targets have the shape `batch x sequence`. In a step program a first dim named
    "microbatch" is added. The kinds of inputs are:

    * `tokens` and `targets` are i32 ids. `targets below 10` are numbers of 10 classes; a masked program may have fewer
      classes than words.
    * `hyper` is `tensor<9xf32>`: the learning rate, beta1, beta2, eps, the weight decay, 1 - beta1^t, 1 - beta2^t, the
      clipping threshold, and the limit of the norm. With `group {...}`, as in `pc.parameter`, these are the values of
      this group.
    * `loss_weights` is f32, with one value per target: 0 if the target does not count, and otherwise 1 / n. n is the
      number of targets that count in all microbatches of the step's batch (with local SGD, in the rows of the replica).
      The loss is the sum over targets of the target's loss times its weight.
    * `random key 3` is `tensor<5xi32>`, for dropout 3 of the model, counted in program order. The elements are the seed
      (low word first), the step, the key, and the first row of the microbatch in the step's batch
      (`pcrt/description.h`).
    * `starts key 2` and `positions key 2` are i32, with one value per token. Token 2 ends documents. `starts` is the
      index in the sequence of the first token of the token's document, and `positions` is the token's index counted
      from there.
    * `shifted key 2` is i32, with one value per target: the target before it, or token 2 if there is none or if it does
      not count. A decoder reads this input.
    * `data "image"` is an input that a run reads from files by its name (`--data image=FILE`). It is f32, or i32 with
      numbers from 0 to `below` - 1. Its first dim is the batch. A program with data inputs has no tokens and no
      targets.

    Constraints: (C1) random inputs, starts, positions and shifted targets have a key of at least 0, and other inputs
    have none; (C2) data inputs have a name of letters, digits, `_`, `-` and `.`, and other inputs have none; (C3) data
    are f32 without `below`, or i32 with `below`; `below` is at least 1, and targets may also have it; (C4) the first
    dim of data, not counting the dim of microbatches, is named "batch"; (C5) only hyper-parameters have a group, which
    follows the rules for parameters.

    Example: `%x = pc.input data "label" below 10 dims ["batch"] : tensor<8xi32>`
  }];
  let arguments = (ins PC_InputKind:$kind, StrArrayAttr:$dims,
                       OptionalAttr<DenseI64ArrayAttr>:$global, OptionalAttr<PC_PlaceAttr>:$layout, OptionalAttr<I64Attr>:$key,
                       OptionalAttr<StrAttr>:$name, OptionalAttr<I64Attr>:$below, OptionalAttr<DictionaryAttr>:$group);
  let results = (outs AnyRankedTensor:$value);
  let hasVerifier = 1;
  let assemblyFormat = "$kind ($name^)? (`group` $group^)? (`below` $below^)? (`key` $key^)? `dims` $dims (`global` $global^ `layout` $layout)? attr-dict `:` type($value)";
}

def PC_RopeTableOp : PC_Leaf<"rope_table", [DeclareOpInterfaceMethods<FactorOpInterface>]> {
  let summary = "A table for rotary embeddings, [sequence, c]: scale times cos or sin of position times inverse frequency";
  let description = [{
    c is the number of inverse frequencies. The table is computed once, in f32, from the **global** position. Factors
    `-> s h`; h is whole.
  }];
  let arguments = (ins PC_TableKind:$kind, DenseF32ArrayAttr:$inv_freq, F64Attr:$scale,
                       OptionalAttr<DenseI64ArrayAttr>:$global, OptionalAttr<PC_PlaceAttr>:$layout);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = [{
    $kind `inv_freq` $inv_freq `scale` $scale (`global` $global^ `layout` $layout)? attr-dict `:` type($value)
  }];
}

def PC_IotaOp : PC_Leaf<"iota", [DeclareOpInterfaceMethods<FactorOpInterface>, IndexedOpInterface]> {
  let summary = "The numbers 0, 1, 2, ... as i32: each element is its global index";
  let description = [{
    In local programs `offset` is added to the index. With `from n` the numbers are n, n + 1, ... With
    `pieces [0, 3, 5] values [7, 1, 2]` the elements are 7 at indices 0 to 2, 1 at indices 3 and 4, and 2 after them.
    Factors `-> s`.

    Constraint (C1): pieces ascend from 0 and have one value each; with pieces there is no `from`, and the sequence is
    not in zigzag order.
  }];
  let arguments = (ins Optional<AnyRankedTensor>:$offset, DefaultValuedOptionalAttr<I64Attr, "0">:$from,
                       OptionalAttr<DenseI64ArrayAttr>:$pieces, OptionalAttr<DenseI64ArrayAttr>:$values);
  let results = (outs AnyRankedTensor:$value);
  let builders = [OpBuilder<(ins "mlir::Type":$type, "int64_t":$from), [{ build($_builder, $_state, type, /*offset=*/mlir::Value(), from, /*pieces=*/nullptr, /*values=*/nullptr); }]>];
  let extraClassDeclaration = PC_IndexedDim<"getValue", 0>.text # [{
    /// The element at `index`. Without pieces it follows from the index.
    int64_t at(int64_t index);
  }];
  let hasVerifier = 1;
  let assemblyFormat = "(`from` $from^)? (`pieces` $pieces^ `values` $values)? (`offset` $offset^ `:` type($offset))? attr-dict `->` type($value)";
}

def PC_ConstantOp : PC_Leaf<"constant"> {
  let summary = "A scalar constant, whole on every rank: `pc.constant 0.5 : tensor<f32>`";
  let arguments = (ins F64Attr:$number);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "$number attr-dict `:` type($value)";
}

def PC_SeedOp : PC_Op<"seed", [MemoryEffects<[MemWrite]>]> {
  let summary = "The gradient of the loss with respect to itself, which is 1";
  let description = [{
    The ops after `pc.seed` in its block are the backward pass.
  }];
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "attr-dict `:` type($value)";
}

def PC_BlockOffsetOp : PC_Leaf<"block_offset"> {
  let summary = "The first global index of this rank's block (an i32 scalar)";
  let description = [{
    The op exists in local programs only. Its result is `block` times the mixed-radix number of the rank's coordinates on `axes`,
    which are listed from major to minor.

    Example: `%o = pc.block_offset on [tp] block 25152 : tensor<i32>`
  }];
  let arguments = (ins StrArrayAttr:$axes, I64Attr:$block);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "`on` $axes `block` $block attr-dict `:` type($value)";
}

def PC_UpdateOp : PC_Op<"update", [MemoryEffects<[MemWrite]>]> {
  let summary = "Sets the value that a parameter or state has after the step";
  let description = [{
    `pc.update "w" %v` sets parameter w, and `pc.update "exp_avg" of "w" %v` sets its state.

    Constraint (C1): the value has the type and placement of the leaf (checked by `pc-verify-step` and
    `pc-verify-placed`).
  }];
  let arguments = (ins StrAttr:$name, OptionalAttr<StrAttr>:$parameter, AnyRankedTensor:$value);
  let assemblyFormat = "$name (`of` $parameter^)? $value attr-dict `:` type($value)";
}

def PC_OutputOp : PC_Op<"output", [MemoryEffects<[MemWrite]>]> {
  let summary = "Passes a value to the runtime";
  let description = [{
    For a gradient, `name` is the name of the parameter. `valid` is the shape without padding. In local programs
    `global` and `layout` tell which block of the whole value this rank has.

    Constraint (C1): the value is whole or split, never partial.
  }];
  let arguments = (ins PC_OutputKind:$kind, StrAttr:$name, AnyRankedTensor:$value,
                       OptionalAttr<DenseI64ArrayAttr>:$valid, OptionalAttr<DenseI64ArrayAttr>:$global,
                       OptionalAttr<PC_PlaceAttr>:$layout);
  let hasVerifier = 1;
  let assemblyFormat = [{
    $kind $name $value (`valid` $valid^)? (`global` $global^ `layout` $layout)? attr-dict `:` type($value)
  }];
}

//===---------------------------------------------------------------------------===//
// Computation
//===---------------------------------------------------------------------------===//

class PC_Compute<string name, list<Trait> traits = []>
    : PC_Op<name, traits # [Pure, DeclareOpInterfaceMethods<FactorOpInterface>]>;

def PC_EinsumOp : PC_Compute<"einsum"> {
  let summary = "A contraction, product, sum, broadcast or transposition of any number of operands";
  let description = [{
    `pc.einsum "b s e, e f -> b s f" %x, %w` is the product of the operands, summed over the factors that the result
    lacks. The result is broadcast along a factor that no operand has. Names of factors may be words. All contractions,
    gradients of weights and inputs, elementwise products, broadcasts of biases and gradients of biases are this op. It
    is linear in each operand separately. Its first operand may be codes of type i8 or i4 if the second one has their
    scales, in f32, and no factor is summed: `"f e, f -> f e" %codes, %scales`.

    In `pc.einsum "b s e, n f e, b s n -> b s n f" %x, %w, %mask routed 2` the last operand is a mask of ones and zeros,
    with at most 2 ones along its last dim (`pc.top_k`). Terms for which the mask is 0 contribute nothing and need not
    be computed. If the result has all dims of the mask, they need not be stored either (`#pc.rows`).

    Constraints: (C1) a routed einsum has a mask and another operand; (C2) the number after `routed` is at least 1; (C3)
    no two dims of the mask have the same factor.
  }];
  let arguments = (ins StrAttr:$spec, Variadic<AnyRankedTensor>:$inputs, OptionalAttr<I64Attr>:$routed);
  let results = (outs AnyRankedTensor:$result);
  let builders = [OpBuilder<(ins "mlir::Type":$type, "mlir::StringAttr":$spec, "mlir::ValueRange":$inputs), [{ build($_builder, $_state, type, spec, inputs, /*routed=*/nullptr); }]>,
                  OpBuilder<(ins "mlir::Type":$type, "llvm::StringRef":$spec, "mlir::ValueRange":$inputs), [{ build($_builder, $_state, type, $_builder.getStringAttr(spec), inputs, /*routed=*/nullptr); }]>];
  let extraClassDeclaration = [{
    unsigned getNumElementwise() { return getNumOperands(); }
    /// The mask of a routed einsum: a term exists where the mask is not 0. Null if the einsum is not routed.
    mlir::Value getMask() { return getRoutedAttr() ? getInputs().back() : mlir::Value(); }
  }];
  let hasVerifier = 1;
  let assemblyFormat = "$spec $inputs (`routed` $routed^)? attr-dict `:` functional-type($inputs, $result)";
}

/// A pointwise op consists of this declaration, its gradient (Autodiff/Gradients.cpp), its evaluation (Reference/Evaluate.cpp)
/// and its instructions (Codegen/Emit/RowMath.cpp). `linear` lists the operands in which it is linear together, as in "0, 1".
class PC_Pointwise<string name, string linear = "", string max = "false">
    : PC_Op<name, [Pure, FactorOpInterface, PC_PointwiseTrait<linear, max>]> {
  let results = (outs AnyRankedTensor:$result);
}
class PC_Unary<string name, string linear = "", string max = "false"> : PC_Pointwise<name, linear, max> {
  let arguments = (ins AnyRankedTensor:$x);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
}
class PC_Binary<string name, string linear = ""> : PC_Pointwise<name, linear> {
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b);
  let assemblyFormat = "$a `,` $b attr-dict `:` functional-type(operands, $result)";
}

def PC_AddOp : PC_Binary<"add", "0, 1"> {
  let summary = "a + b; linear in both together";
  let description = [{
    Both operands have the same shape. Broadcasting needs a `pc.einsum` before it.
  }];
}
def PC_SubOp : PC_Binary<"sub", "0, 1"> { let summary = "a - b, for operands of the same shape; linear in both together"; }
def PC_ScaleOp : PC_Pointwise<"scale", "0"> {
  let summary = "x times a constant; linear";
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$factor);
  let assemblyFormat = "$x `by` $factor attr-dict `:` functional-type($x, $result)";
}
def PC_CopyOp : PC_Unary<"copy", "0", "true"> {
  let summary = "The same value for other readers; linear";
  let description = [{
    Readers of the copy do not share moves with readers of the operand. `pc-erase-placements` removes copies, as it does
    moves.
  }];
}
def PC_CastOp : PC_Unary<"cast", "0"> {
  let summary = "Converts to another element type; linear";
  let description = [{
    A cast from f32 to bf16 rounds to nearest even, and one from bf16 to f32 is exact. Its gradient is the cast in the
    opposite direction.
  }];
}
def PC_LogOp : PC_Unary<"log"> { let summary = "Natural logarithm"; }
def PC_ExpOp : PC_Unary<"exp"> { let summary = "Exponential"; }
def PC_RecipOp : PC_Unary<"recip"> { let summary = "1 / x"; }
def PC_SqrtOp : PC_Unary<"sqrt"> { let summary = "Square root"; }
def PC_SinOp : PC_Unary<"sin"> { let summary = "Sine of x in radians"; }
def PC_CosOp : PC_Unary<"cos"> { let summary = "Cosine of x in radians"; }
def PC_SelectOp : PC_Pointwise<"select", "2, 3"> {
  let summary = "a if the comparison `kind` of x and y is true, otherwise b; linear in a and b together";
  let description = [{
    `pc.select less %x, %y, %a, %b` is a if x < y, and otherwise b; `less_equal` and `equal` work in the same way. A
    comparison with NaN is false. x and y have no gradient, because they only decide between a and b. Maximum, absolute
    value, masks and conditions are written with this op.
  }];
  let arguments = (ins PC_ComparisonKind:$kind, AnyRankedTensor:$x, AnyRankedTensor:$y, AnyRankedTensor:$a, AnyRankedTensor:$b);
  let assemblyFormat = "$kind $x `,` $y `,` $a `,` $b attr-dict `:` functional-type(operands, $result)";
}
def PC_ActivationOp : PC_Pointwise<"activation"> {
  let summary = "A pointwise nonlinearity: `pc.activation gelu_tanh %x`";
  let arguments = (ins PC_ActivationKind:$kind, AnyRankedTensor:$x);
  let assemblyFormat = "$kind $x attr-dict `:` functional-type($x, $result)";
}
def PC_ActivationGradOp : PC_Pointwise<"activation_grad", "0"> {
  let summary = "dy times the derivative of the nonlinearity at x; linear in dy";
  let arguments = (ins PC_ActivationKind:$kind, AnyRankedTensor:$dy, AnyRankedTensor:$x);
  let assemblyFormat = "$kind $dy `,` $x attr-dict `:` functional-type(operands, $result)";
}

def PC_ClampOp : PC_Pointwise<"clamp"> {
  let summary = "x limited to the range from `from` (optional) to `to`: `pc.clamp %x from -7.0 to 7.0`";
  let arguments = (ins AnyRankedTensor:$x, OptionalAttr<F64Attr>:$from, F64Attr:$to);
  let assemblyFormat = "$x (`from` $from^)? `to` $to attr-dict `:` functional-type($x, $result)";
}
def PC_ClampGradOp : PC_Pointwise<"clamp_grad", "0"> {
  let summary = "dy if x is in the range of the clamp, otherwise 0; linear in dy";
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$x, OptionalAttr<F64Attr>:$from, F64Attr:$to);
  let assemblyFormat = "$dy `,` $x (`from` $from^)? `to` $to attr-dict `:` functional-type(operands, $result)";
}

def PC_DropoutOp : PC_Compute<"dropout", [Rowwise, DrawnOpInterface]> {
  let summary = "Drops elements of x, [b, s, ...], as defined by `#pc.drop`; linear in x";
  let description = [{
    Factors `x0 x1 .., w -> x0 x1 ..`; w is whole. The gradient is the same op applied to dy.

    Constraints: (C1) x has at least two dims; (C2) there is one offset for each split dim.

    Example: `%y = pc.dropout %x random %r drop <6554> : ...`
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$random, Variadic<AnyRankedTensor>:$offsets, PC_DropAttr:$drop);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = PC_Elementwise<1>.text # [{
    ::llvm::SmallVector<::pc::IndexedDim> getDrawnDims() {
      ::llvm::SmallVector<::pc::IndexedDim> dims;
      for (int64_t d = 0, e = getX().getType().getRank(); d < e; ++d)
        dims.push_back({getX(), d});
      return dims;
    }
    ::llvm::SmallVector<int64_t> getDrawnSequences() { return {1}; }
  }];
  let assemblyFormat = [{
    $x `random` $random (`at` $offsets^)? `drop` $drop attr-dict `:` functional-type(operands, $result)
  }];
}

def PC_ReduceMaxOp : PC_Compute<"reduce_max"> {
  let summary = "The maximum over the factors that the result lacks: `pc.reduce_max \"b s v -> b s\" %x`";
  let arguments = (ins StrAttr:$spec, AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$spec $x attr-dict `:` functional-type($x, $result)";
}

def PC_SoftmaxOp : PC_Compute<"softmax", [Rowwise]> {
  let summary = "e^x divided by its sum along the last dim: `x0 x1 .. c -> x0 x1 .. c`, c whole";
  let description = [{
    Routers use this op. The attention ops compute their own softmax.
  }];
  let arguments = (ins AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
}
def PC_TopKOp : PC_Compute<"top_k"> {
  let summary = "1 for the k largest entries of each row of x, and 0 for the others: `x0 x1 .. c -> x0 x1 .. c`, c whole";
  let description = [{
    If entries are equal, the first ones are chosen, so the choice depends only on the row. The op has no gradient. The
    gradient of the chosen values passes through a product with the result. `pc-recompute` never repeats a choice.

    With `layer 3` the result is the choice of experts for each token in layer 3 of the model. The runtime gets the
    result right after it is computed, and may replace it by a choice that the run reads from a file. In local programs
    `global` and `layout` tell which block of the whole value this rank has.

    Constraints: (C1) k is at least 1 and at most the size of the last dim; (C2) with a layer, x is
    [batch, sequence, experts].

    Example: `%m = pc.top_k %x k 2 layer 3 : (tensor<4x16x8xf32>) -> tensor<4x16x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$k, OptionalAttr<I64Attr>:$layer, OptionalAttr<DenseI64ArrayAttr>:$global,
                       OptionalAttr<PC_PlaceAttr>:$layout);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether an attribute is only for the runtime and does not change the result.
    bool isForRun(llvm::StringRef name) { return name == "layer" || name == "global" || name == "layout"; }
  }];
  let assemblyFormat = [{
    $x `k` $k (`layer` $layer^)? (`global` $global^ `layout` $layout)? attr-dict `:` functional-type($x, $result)
  }];
}

def PC_TopGroupsOp : PC_Compute<"top_groups"> {
  let summary = "1 for the entries of the `keep` best of `groups` groups of each row of x, and 0 for the others: `x0 x1 .. c -> x0 x1 .. c`, c whole";
  let description = [{
    A group consists of adjacent entries, and all groups have the same size. The score of a group is the sum of its two
    largest entries. If scores are equal, the first groups are kept. The op has no gradient, like `pc.top_k`.

    Constraint (C1): groups divide a row evenly into at least two entries each; at least one group is kept, and at most
    all.

    Example: `%m = pc.top_groups %x groups 4 keep 2 : (tensor<4x16x8xf32>) -> tensor<4x16x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$groups, I64Attr:$keep);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$x `groups` $groups `keep` $keep attr-dict `:` functional-type($x, $result)";
}
include "pc/IR/PCViews.td"

def PC_LayerNormOp : PC_Compute<"layer_norm", [Rowwise]> {
  let summary = "(x - mean) * rstd * gamma + beta over the last dim";
  let description = [{
    rstd is 1 / sqrt(variance + eps). The op also returns mean and rstd for the gradient.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$gamma, AnyRankedTensor:$beta, F64Attr:$eps);
  let results = (outs AnyRankedTensor:$y, AnyRankedTensor:$mean, AnyRankedTensor:$rstd);
  let assemblyFormat = "$x `,` $gamma `,` $beta `eps` $eps attr-dict `:` functional-type(operands, results)";
}
def PC_LayerNormGradOp : PC_Compute<"layer_norm_grad"> {
  let summary = "The gradients dx, dgamma and dbeta of layer_norm; linear in dy";
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$x, AnyRankedTensor:$mean, AnyRankedTensor:$rstd,
                       AnyRankedTensor:$gamma);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dgamma, AnyRankedTensor:$dbeta);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def PC_RMSNormOp : PC_Compute<"rms_norm", [Rowwise]> {
  let summary = "x * rstd * gamma over the last dim";
  let description = [{
    rstd is 1 / sqrt(mean(x^2) + eps). The op also returns rstd for the gradient.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$gamma, F64Attr:$eps);
  let results = (outs AnyRankedTensor:$y, AnyRankedTensor:$rstd);
  let assemblyFormat = "$x `,` $gamma `eps` $eps attr-dict `:` functional-type(operands, results)";
}
def PC_RMSNormGradOp : PC_Compute<"rms_norm_grad"> {
  let summary = "The gradients dx and dgamma of rms_norm; linear in dy";
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$x, AnyRankedTensor:$rstd, AnyRankedTensor:$gamma);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dgamma);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def PC_RopeOp : PC_Compute<"rope"> {
  let summary = "The rotary embedding of the last dim, or its inverse; linear in x";
  let description = [{
    x is [b, s, heads..., d], and cos and sin are [s, c], or [b, s, c] for tokens at any positions. The op rotates 2c
    elements of the last dim, from `first` on, in pairs (u, w): they become (u cos - w sin, w cos + u sin). Other
    elements do not change. u comes from the first half of the 2c elements and w from the second half. With
    `interleaved` u and w are adjacent elements. `inverse` negates sin, which gives the gradient. The factors of x are
    `b s h0 .. d`, and the factors of the tables are `s c` or `b s c`; d and c are whole.

    Constraints: (C1) d is at least `first` + 2c; (C2) with `interleaved`, d and `first` are even.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$cos, AnyRankedTensor:$sin, UnitAttr:$inverse, UnitAttr:$interleaved,
                       DefaultValuedOptionalAttr<I64Attr, "0">:$first);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = [{
    /// Whether pairs come from two halves that begin at the first element.
    bool isPlain() { return !getInterleaved() && !getFirst(); }
  }];
  let assemblyFormat = [{
    (`inverse` $inverse^)? (`interleaved` $interleaved^)? $x `,` $cos `,` $sin (`first` $first^)? attr-dict `:` functional-type(operands, $result)
  }];
  let hasVerifier = 1;
}

include "pc/IR/PCAttention.td"

include "pc/IR/PCLoss.td"

include "pc/IR/PCRecurrence.td"

include "pc/IR/PCOptimizer.td"
include "pc/IR/PCMoves.td"

#endif
