//===- PCOps.td - Ops of the pc dialect -----------------------------------------===//
// Structure, leaves and sinks, and computation. Attention is in PCAttention.td, views and rows by id are in PCViews.td, losses are in PCLoss.td,
// recurrences are in PCRecurrence.td, what changes parameters is in PCOptimizer.td, and what ranks send each other in PCMoves.td. Every computing op states its factors,
// by being pointwise or in lib/IR/FactorRules.cpp, and here what else rooms ask for (FactorOpInterface.td).
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCOPS_TD
#define PC_IR_PCOPS_TD

include "pc/IR/PCBase.td"
include "pc/IR/FactorOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

class PC_Op<string name, list<Trait> traits = []> : Op<PC_Dialect, name, traits>;

//===---------------------------------------------------------------------------===//
// Structure
//===---------------------------------------------------------------------------===//

def PC_MeshOp : PC_Op<"mesh"> {
  let summary = "The device mesh of this module";
  let description = [{
    At most one per module, its first op. Placed and local programs need it; model and step programs have none.
    Example: `pc.mesh <dp = 2, tp = 2>`
  }];
  let arguments = (ins PC_MeshAttr:$mesh);
  let assemblyFormat = "$mesh attr-dict";
}

def PC_ProgramOp : PC_Op<"program"> {
  let summary = "What the module is: model name, data shape and the Hugging Face configuration";
  let description = [{
    One per module. `config` is the text of config.json, carried to the checkpoint; `means` is JSON too: what each of its keys that
    decides what given weights compute may say beside weights that a run is to start from (`config_means` in runtime/README.md).
    `batch` is the global batch. `weights` is the directory of the safetensors that the model was imported with: a run starts from them
    unless it is told otherwise.

    `zigzag n`: index i of every sequence dim is not position i but `zigzagPosition(i)`: cut into 2n chunks, the order is chunk 0, 2n-1, 1, 2n-2,
    ..., so that each of n ranks has as much to do in causal attention. Tokens, targets, position tables, attention and
    outputs use positions; other ops do not depend on the order.

    `masked`: targets are not the next tokens but words that tokens lack, which a run is told apart (`--targets`).
    `targets n`: sequences of targets have n tokens, and not as many as those of tokens.

    Constraints: (C1) the sequence divides into 2n chunks; (C2) sequences of targets of another length are masked, and in no zigzag order.
    Example: `pc.program "gpt2" batch 8 sequence 256 vocabulary 50257 config "{...}"`
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$batch, I64Attr:$sequence, I64Attr:$vocabulary, StrAttr:$config,
                       OptionalAttr<StrAttr>:$means, OptionalAttr<StrAttr>:$weights, UnitAttr:$masked, OptionalAttr<I64Attr>:$targets, OptionalAttr<I64Attr>:$zigzag);
  let hasVerifier = 1;
  let assemblyFormat = [{
    $name `batch` $batch `sequence` $sequence `vocabulary` $vocabulary (`masked` $masked^)? (`targets` $targets^)? `config` $config (`means` $means^)? (`weights` $weights^)? (`zigzag` $zigzag^)? attr-dict
  }];
  let extraClassDeclaration = [{
    /// How many tokens sequences of targets have.
    int64_t targetLength() { return getTargets().value_or(getSequence()); }
  }];
}

def PC_PlanOp : PC_Op<"plan"> {
  let summary = "A plan: the mesh and the ordered tactics";
  let description = [{
    The only op of a plan file (`pc-compile --plan`). Tactics are passes with their options, applied in order.
    Example: `pc.plan <dp = 2, tp = 2> ["pc-tensor-parallel{axis=tp form=1d}", "pc-data-parallel{axis=dp mode=ddp}"] microbatches 1`
  }];
  let arguments = (ins PC_MeshAttr:$mesh, StrArrayAttr:$tactics, I64Attr:$microbatches);
  let assemblyFormat = "$mesh $tactics `microbatches` $microbatches attr-dict";
  let extraClassDeclaration = [{
    /// Mesh and tactics in one line, for reports: "dp=2: pc-data-parallel{axis=dp mode=ddp}"; "1 rank" without a mesh.
    std::string line();
  }];
}

def PC_ArenaOp : PC_Op<"arena"> {
  let summary = "Device arena of one rank, in bytes; planned programs only, at most one per module";
  let description = [{
    Every value outside of kernels lives in it, at the offset its type names (`#pc.home`). Constraint (C1): a multiple of 64, at least 0.
    Example: `pc.arena 123456`
  }];
  let arguments = (ins I64Attr:$bytes);
  let assemblyFormat = "$bytes attr-dict";
  let hasVerifier = 1;
}

def PC_AccumulateOp : PC_Op<"accumulate", [SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects]> {
  let summary = "Forward and backward of one microbatch, summed over microbatches";
  let description = [{
    Every operand has a leading dim of microbatches; the body sees one element of it. What the body yields is summed over the
    microbatches. The body may use values from outside (parameters).

    Constraints: (C1) all operands have the same leading dim, unsplit, at least 1; (C2) block arguments are the operands'
    types without it; (C3) yielded types equal result types.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The number of microbatches.
    int64_t getMicrobatches();
  }];
}

def PC_FusionOp : PC_Op<"fusion", [SingleBlockImplicitTerminator<"YieldOp">, IsolatedFromAbove, Pure]> {
  let summary = "Ops that become one kernel; values inside have no home";
  let description = [{
    Formed after localization. Constraints: (C1) block arguments are the operands' types, homes aside; (C2) yielded types equal
    result types, homes aside.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def PC_YieldOp : PC_Op<"yield", [Pure, Terminator, ReturnLike]> {
  let summary = "Ends the body of accumulate and fusion";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let builders = [OpBuilder<(ins), "">];
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

//===---------------------------------------------------------------------------===//
// Leaves and sinks
//===---------------------------------------------------------------------------===//

def PC_PartArrayAttr : TypedArrayAttrBase<PC_PartAttr, "array of parts">;

class PC_Leaf<string name, list<Trait> traits = []> : PC_Op<name, traits # [Pure]>;

def PC_ParameterOp : PC_Leaf<"parameter"> {
  let summary = "A parameter as it is at the start of the step";
  let description = [{
    `dims` names every dim. `valid` is the shape without padding, where there is padding. In local programs, `layout` and
    `global` say which block of which tensor this rank holds. In the program of one stage, `key` is the parameter's position in
    the whole program: initial elements are drawn by it, and stages that share a parameter know it by its key.

    `along d parts [...]` instead of `source`: parameters that one product reads (`pc-pack-products`), one after the other along dim d.
    Files, initial elements and the interpreter know the parts (`partsOf`), all others know only the packed parameter.

    `frozen`: training reads the parameter and never changes it: it has no gradient and no state. Checkpoints contain it like any other.

    `group {name = "*.bias", decay = 0.0}`: the parameter group, which says how the optimizer treats the parameter: `lr_factor` and
    `decay_factor` multiply a run's learning rate and weight decay; `decay`, `beta1`, `beta2` and `eps` replace what the run is given.

    Constraints: (C1) as many names as dims; (C2) `valid` has the rank of the tensor and is nowhere larger; (C3) the box of
    `source`, or of each part, has as many elements as `valid` or the part; (C4) a zero row of `init` is an index of the first dim of
    `valid`; (C5) there is a source, or there are parts whose sizes add up to dim `along` of `valid`; (C6) a group has a name and,
    besides, only the settings above, which are f64 numbers, at least 0; what is frozen has none.

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
  let summary = "A tensor that an optimizer keeps for a parameter: `pc.state \"exp_avg\" of \"h.0.ln_1.weight\" dims [..]`";
  let arguments = (ins StrAttr:$name, StrAttr:$parameter, StrArrayAttr:$dims,
                       OptionalAttr<DenseI64ArrayAttr>:$global, OptionalAttr<PC_PlaceAttr>:$layout);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = [{
    $name `of` $parameter `dims` $dims (`global` $global^ `layout` $layout)? attr-dict `:` type($value)
  }];
}

def PC_InputOp : PC_Leaf<"input"> {
  let summary = "What the runtime provides for each step: tokens, targets, hyper-parameters";
  let description = [{
    In a model program tokens and targets are `batch x sequence`; a step program puts a dim of microbatches in front, named
    "microbatch". `hyper` is `tensor<9xf32>`: lr, beta1, beta2, eps, weight decay, 1 - beta1^t, 1 - beta2^t, clip,
    limit of the norm. `group {...}`, as of a parameter: the hyper-parameters of this group.

    `loss_weights` is f32, by target: 0 where a target does not count, and where it does 1 over the number of targets of the step's batch that
    count, of all microbatches (with local SGD, of the replica's rows). The loss is the sum of each target's own times its weight.

    `random key 3` is `tensor<5xi32>` for dropout 3 of the model, counted in program order: the seed (low word first), the step, the key, and the first
    row of the microbatch in the step's batch (`pcrt/description.h`).

    `starts key 2` and `positions key 2` are i32, by token of a sequence in which token 2 ends documents: the index of the first token of its document, and
    its own index from there.

    `shifted key 2` is i32, by target: the target in front of it, or token 2 where that does not count or there is none. It is what a decoder reads.

    `data "image"` is an input that a run reads from files by its name (`--data image=FILE`): f32, or i32 for numbers from 0 to `below` - 1. Its
    first dim is the batch. A program with data inputs has no tokens and no targets.

    `targets below 10` are numbers of 10 classes, of which a masked program may have fewer than words.

    Constraints: (C1) random inputs, starts, positions and shifted targets, and no others, have a key, at least 0; (C2) data, and no others, have
    a name, of letters, digits, `_`, `-` and `.`; (C3) data are f32 without `below`, or i32 with `below`, at least 1, which targets may have; (C4) the first dim of data
    is named "batch", after that of microbatches; (C5) only hyper-parameters have a group, which is legal for a parameter. Example: `%x = pc.input data "label" below 10 dims ["batch"] : tensor<8xi32>`
  }];
  let arguments = (ins PC_InputKind:$kind, StrArrayAttr:$dims,
                       OptionalAttr<DenseI64ArrayAttr>:$global, OptionalAttr<PC_PlaceAttr>:$layout, OptionalAttr<I64Attr>:$key,
                       OptionalAttr<StrAttr>:$name, OptionalAttr<I64Attr>:$below, OptionalAttr<DictionaryAttr>:$group);
  let results = (outs AnyRankedTensor:$value);
  let hasVerifier = 1;
  let assemblyFormat = "$kind ($name^)? (`group` $group^)? (`below` $below^)? (`key` $key^)? `dims` $dims (`global` $global^ `layout` $layout)? attr-dict `:` type($value)";
}

def PC_RopeTableOp : PC_Leaf<"rope_table", [DeclareOpInterfaceMethods<FactorOpInterface>]> {
  let summary = "cos or sin of position times inverse frequency, times scale: [sequence, head_dim / 2]";
  let description = [{ Computed once in f32 from the **global** position. Factors `-> s h`, h whole. }];
  let arguments = (ins PC_TableKind:$kind, DenseF32ArrayAttr:$inv_freq, F64Attr:$scale,
                       OptionalAttr<DenseI64ArrayAttr>:$global, OptionalAttr<PC_PlaceAttr>:$layout);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = [{
    $kind `inv_freq` $inv_freq `scale` $scale (`global` $global^ `layout` $layout)? attr-dict `:` type($value)
  }];
}

def PC_IotaOp : PC_Leaf<"iota", [DeclareOpInterfaceMethods<FactorOpInterface>, IndexedOpInterface]> {
  let summary = "0, 1, 2, ... (i32), from the global index: plus `offset` in local programs. Factors `-> s`";
  let description = [{
    `from n`: n, n + 1, ... `pieces [0, 3, 5] values [7, 1, 2]`: 7 at indices 0 to 2, 1 at 3 and 4, 2 after them.

    Constraint (C1): pieces ascend from 0, each has a value, and where there are pieces the sequence is in its own order and begins at 0.
  }];
  let arguments = (ins Optional<AnyRankedTensor>:$offset, DefaultValuedOptionalAttr<I64Attr, "0">:$from,
                       OptionalAttr<DenseI64ArrayAttr>:$pieces, OptionalAttr<DenseI64ArrayAttr>:$values);
  let results = (outs AnyRankedTensor:$value);
  let builders = [OpBuilder<(ins "mlir::Type":$type, "int64_t":$from), [{ build($_builder, $_state, type, /*offset=*/mlir::Value(), from, /*pieces=*/nullptr, /*values=*/nullptr); }]>];
  let extraClassDeclaration = PC_IndexedDim<"getValue", 0>.text # [{
    /// What stands at index `index`: the index itself where there are no pieces.
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
  let summary = "The gradient of the loss by itself: 1. Ops after it in its block are the backward pass";
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "attr-dict `:` type($value)";
}

def PC_BlockOffsetOp : PC_Leaf<"block_offset"> {
  let summary = "First global index of this rank's block (i32 scalar); local programs only";
  let description = [{
    The mixed-radix number of the rank's coordinates on `axes`, major to minor, times `block`.
    Example: `%o = pc.block_offset on [tp] block 25152 : tensor<i32>`
  }];
  let arguments = (ins StrArrayAttr:$axes, I64Attr:$block);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "`on` $axes `block` $block attr-dict `:` type($value)";
}

def PC_UpdateOp : PC_Op<"update", [MemoryEffects<[MemWrite]>]> {
  let summary = "The value that a parameter or state has after the step";
  let description = [{
    `pc.update "w" %v` sets parameter w; `pc.update "exp_avg" of "w" %v` its state. Constraint (C1): `value` lies as the leaf does
    (checked by `pc-verify-step`).
  }];
  let arguments = (ins StrAttr:$name, OptionalAttr<StrAttr>:$parameter, AnyRankedTensor:$value);
  let assemblyFormat = "$name (`of` $parameter^)? $value attr-dict `:` type($value)";
}

def PC_OutputOp : PC_Op<"output", [MemoryEffects<[MemWrite]>]> {
  let summary = "Shows a value to the runtime";
  let description = [{
    Constraint (C1): the value is whole or split, never partial. `name` is the parameter's name for gradients.
    `valid` is the shape without padding. In local programs `global` and `layout` say which block this is.
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
  let summary = "Contraction, product, sum, broadcast and transposition of any number of operands";
  let description = [{
    `pc.einsum "b s e, e f -> b s f" %x, %w`: the product of the operands, summed over the factors that the result lacks. A factor
    that only the result has is broadcast. Letters may be words. Every contraction, every weight and input gradient, every
    elementwise product, bias broadcast and bias gradient is this op. Linear in each operand separately.

    `pc.einsum "b s e, n f e, b s n -> b s n f" %x, %w, %mask routed 2`: the last operand is a mask, 1 or 0, with at most 2 ones along its
    last dim (`pc.top_k`). Terms whose factor of it is 0 count for nothing and need not be computed, nor stored where the result has all dims of the mask
    (`#pc.rows`).

    Constraints: (C1) what is routed has a mask and another operand; (C2) at least one along it is 1; (C3) dims of the mask differ from each other.
  }];
  let arguments = (ins StrAttr:$spec, Variadic<AnyRankedTensor>:$inputs, OptionalAttr<I64Attr>:$routed);
  let results = (outs AnyRankedTensor:$result);
  let builders = [OpBuilder<(ins "mlir::Type":$type, "mlir::StringAttr":$spec, "mlir::ValueRange":$inputs), [{ build($_builder, $_state, type, spec, inputs, /*routed=*/nullptr); }]>,
                  OpBuilder<(ins "mlir::Type":$type, "llvm::StringRef":$spec, "mlir::ValueRange":$inputs), [{ build($_builder, $_state, type, $_builder.getStringAttr(spec), inputs, /*routed=*/nullptr); }]>];
  let extraClassDeclaration = [{
    unsigned getNumElementwise() { return getNumOperands(); }
    /// Which terms exist, of an einsum that is routed; else null.
    mlir::Value getMask() { return getRoutedAttr() ? getInputs().back() : mlir::Value(); }
  }];
  let hasVerifier = 1;
  let assemblyFormat = "$spec $inputs (`routed` $routed^)? attr-dict `:` functional-type($inputs, $result)";
}

/// A pointwise op is this declaration, its gradient (Autodiff/Gradients.cpp), its meaning (Reference/Evaluate.cpp) and its instructions
/// (Codegen/Emit/RowMath.cpp). `linear`: the operands in which, together, it is linear: "0, 1".
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
  let summary = "a + b, same shape (broadcasting is an einsum); linear in both together";
}
def PC_SubOp : PC_Binary<"sub", "0, 1"> { let summary = "a - b, same shape; linear in both together"; }
def PC_ScaleOp : PC_Pointwise<"scale", "0"> {
  let summary = "x times a constant; linear";
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$factor);
  let assemblyFormat = "$x `by` $factor attr-dict `:` functional-type($x, $result)";
}
def PC_CopyOp : PC_Unary<"copy", "0", "true"> {
  let summary = "The same value for other readers (they don't share moves); erased like a move; linear";
}
def PC_CastOp : PC_Unary<"cast", "0"> {
  let summary = "Another element type; linear";
  let description = [{
    From f32 to bf16 it rounds to nearest even, from bf16 to f32 it is exact. Its gradient is the cast back.
  }];
}
def PC_LogOp : PC_Unary<"log"> { let summary = "Natural logarithm"; }
def PC_ExpOp : PC_Unary<"exp"> { let summary = "Exponential"; }
def PC_RecipOp : PC_Unary<"recip"> { let summary = "1 / x"; }
def PC_SqrtOp : PC_Unary<"sqrt"> { let summary = "Square root"; }
def PC_SinOp : PC_Unary<"sin"> { let summary = "Sine of x in radians"; }
def PC_CosOp : PC_Unary<"cos"> { let summary = "Cosine of x in radians"; }
def PC_SelectOp : PC_Pointwise<"select", "2, 3"> {
  let summary = "a where x and y compare as `kind` says, else b; linear in a and b together";
  let description = [{
    `pc.select less %x, %y, %a, %b` is a where x < y, else b; `less_equal` and `equal` work in the same way. A comparison with NaN
    is false. x and y only choose: they have no gradient. Maximum, absolute value, masks and conditions are made of this op.
  }];
  let arguments = (ins PC_ComparisonKind:$kind, AnyRankedTensor:$x, AnyRankedTensor:$y, AnyRankedTensor:$a, AnyRankedTensor:$b);
  let assemblyFormat = "$kind $x `,` $y `,` $a `,` $b attr-dict `:` functional-type(operands, $result)";
}
def PC_ActivationOp : PC_Pointwise<"activation"> {
  let summary = "Pointwise nonlinearity: `pc.activation gelu_tanh %x`";
  let arguments = (ins PC_ActivationKind:$kind, AnyRankedTensor:$x);
  let assemblyFormat = "$kind $x attr-dict `:` functional-type($x, $result)";
}
def PC_ActivationGradOp : PC_Pointwise<"activation_grad", "0"> {
  let summary = "dy times the derivative of the nonlinearity at x; linear in dy";
  let arguments = (ins PC_ActivationKind:$kind, AnyRankedTensor:$dy, AnyRankedTensor:$x);
  let assemblyFormat = "$kind $dy `,` $x attr-dict `:` functional-type(operands, $result)";
}

def PC_ClampOp : PC_Pointwise<"clamp"> {
  let summary = "The nearest number to x that is at least `from`, where there is one, and at most `to`: `pc.clamp %x from -7.0 to 7.0`";
  let arguments = (ins AnyRankedTensor:$x, OptionalAttr<F64Attr>:$from, F64Attr:$to);
  let assemblyFormat = "$x (`from` $from^)? `to` $to attr-dict `:` functional-type($x, $result)";
}
def PC_ClampGradOp : PC_Pointwise<"clamp_grad", "0"> {
  let summary = "dy where clamp leaves x as it is, else 0; linear in dy";
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$x, OptionalAttr<F64Attr>:$from, F64Attr:$to);
  let assemblyFormat = "$dy `,` $x (`from` $from^)? `to` $to attr-dict `:` functional-type(operands, $result)";
}

def PC_DropoutOp : PC_Compute<"dropout", [Rowwise, DrawnOpInterface]> {
  let summary = "Drops elements of x, [b, s, ...], as `#pc.drop` says; linear in x";
  let description = [{
    Factors `x0 x1 .., w -> x0 x1 ..`; w whole. Its gradient is itself, on dy. Example: `%y = pc.dropout %x random %r drop <6554> : ...`
    Constraints: (C1) x has two dims or more; (C2) there is an offset for each split dim.
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
  let summary = "Maximum over the factors that the result lacks: `pc.reduce_max \"b s v -> b s\" %x`";
  let arguments = (ins StrAttr:$spec, AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$spec $x attr-dict `:` functional-type($x, $result)";
}

def PC_SoftmaxOp : PC_Compute<"softmax", [Rowwise]> {
  let summary = "e^x over its sum along the last dim: `x0 x1 .. c -> x0 x1 .. c`, c whole"
                " (of what a router chooses among; attention has its own)";
  let arguments = (ins AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
}
def PC_TopKOp : PC_Compute<"top_k"> {
  let summary = "1 for the k largest entries of each row of x, 0 for the others: `x0 x1 .. c -> x0 x1 .. c`, c whole";
  let description = [{
    Of equal entries the first ones are chosen, so that the choice depends only on the row. It has no gradient: the gradient of the chosen values
    goes through the product with the result. `pc-recompute` never chooses a second time.

    `layer 3`: which experts a token has in layer 3 of the model. The runtime is shown the result where it is made, and may put another choice
    in its place: one that a run is told. In local programs `global` and `layout` say which block this is.

    Constraints: (C1) k is at least 1 and at most the size of the last dim; (C2) with a layer, x is [batch, sequence, experts].
    Example: `%m = pc.top_k %x k 2 layer 3 : (tensor<4x16x8xf32>) -> tensor<4x16x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$k, OptionalAttr<I64Attr>:$layer, OptionalAttr<DenseI64ArrayAttr>:$global,
                       OptionalAttr<PC_PlaceAttr>:$layout);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether an attribute says what the result is to the runtime, and not what it is.
    bool isForRun(llvm::StringRef name) { return name == "layer" || name == "global" || name == "layout"; }
  }];
  let assemblyFormat = [{
    $x `k` $k (`layer` $layer^)? (`global` $global^ `layout` $layout)? attr-dict `:` functional-type($x, $result)
  }];
}

def PC_TopGroupsOp : PC_Compute<"top_groups"> {
  let summary = "1 for the entries of the `keep` best of `groups` groups of each row of x, 0 for the others: `x0 x1 .. c -> x0 x1 .. c`, c whole";
  let description = [{
    Groups are equally many entries side by side, and count as much as their two largest entries together; of equal ones the first are kept.
    As of `pc.top_k` there is no gradient.

    Constraint (C1): groups divide a row, into two entries or more each; at least one is kept, and at most all.
    Example: `%m = pc.top_groups %x groups 4 keep 2 : (tensor<4x16x8xf32>) -> tensor<4x16x8xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$groups, I64Attr:$keep);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$x `groups` $groups `keep` $keep attr-dict `:` functional-type($x, $result)";
}
include "pc/IR/PCViews.td"

def PC_LayerNormOp : PC_Compute<"layer_norm", [Rowwise]> {
  let summary = "(x - mean) * rstd * gamma + beta over the last dim; also mean and rstd (for the gradient)";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$gamma, AnyRankedTensor:$beta, F64Attr:$eps);
  let results = (outs AnyRankedTensor:$y, AnyRankedTensor:$mean, AnyRankedTensor:$rstd);
  let assemblyFormat = "$x `,` $gamma `,` $beta `eps` $eps attr-dict `:` functional-type(operands, results)";
}
def PC_LayerNormGradOp : PC_Compute<"layer_norm_grad"> {
  let summary = "dx, dgamma, dbeta of layer_norm; linear in dy";
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$x, AnyRankedTensor:$mean, AnyRankedTensor:$rstd,
                       AnyRankedTensor:$gamma);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dgamma, AnyRankedTensor:$dbeta);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def PC_RMSNormOp : PC_Compute<"rms_norm", [Rowwise]> {
  let summary = "x * rsqrt(mean(x^2) + eps) * gamma over the last dim; also the rsqrt";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$gamma, F64Attr:$eps);
  let results = (outs AnyRankedTensor:$y, AnyRankedTensor:$rstd);
  let assemblyFormat = "$x `,` $gamma `eps` $eps attr-dict `:` functional-type(operands, results)";
}
def PC_RMSNormGradOp : PC_Compute<"rms_norm_grad"> {
  let summary = "dx, dgamma of rms_norm; linear in dy";
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$x, AnyRankedTensor:$rstd, AnyRankedTensor:$gamma);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dgamma);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def PC_RopeOp : PC_Compute<"rope"> {
  let summary = "Rotary embedding of the last dim (halves rotated), or its inverse; linear in x";
  let description = [{
    x: [b, s, heads..., d]; cos, sin: [s, c]. With (u, w) the halves of 2c of d, from `first` on: (u cos - w sin, w cos + u sin); `inverse` negates
    sin (it is the gradient). What is beside them stays as it is. `interleaved`: u are the even ones of them and w the odd ones. Factors: x dims
    `b s h0 .. d`, tables `s c`; d and c whole. Constraint (C1): d is `first` + 2c or more; (C2) of interleaved pairs d and `first` are even.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$cos, AnyRankedTensor:$sin, UnitAttr:$inverse, UnitAttr:$interleaved,
                       DefaultValuedOptionalAttr<I64Attr, "0">:$first);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = [{
    /// Whether halves are rotated, from the first element on.
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
