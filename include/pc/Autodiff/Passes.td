//===- Passes.td - Passes of the Autodiff room --------------------------------------===//
#ifndef PC_AUTODIFF_PASSES_TD
#define PC_AUTODIFF_PASSES_TD

include "mlir/Pass/PassBase.td"
include "pc/Autodiff/CodesPasses.td"

def PadVocabulary : Pass<"pc-pad-vocabulary", "mlir::ModuleOp"> {
  let summary = "Pad dims named \"vocab\" to a multiple, so that they can be split";
  let description = [{
    Model program -> model program. The pass pads every dim named "vocab" to the next multiple of `multiple`. Parameters get rows of zeros at
    the end, and `valid` keeps their true shape. `pc.mask_padding` sets the logits of padded entries to -1e30 before the loss. Their softmax is
    then 0, and so are their gradient, their part of the norm and their update. Checkpoints, dumps and initial values contain only the valid
    part. The pass refuses a model that uses the padding in any other way.

    ```mlir
    // pc-opt --pc-pad-vocabulary=multiple=4
    func.func @model(%x: tensor<4x8xf32>, %targets: tensor<4xi32>) {
      %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0>
        source <"w", shape = [11, 8], start = [0, 0], size = [11, 8]> : tensor<11x8xf32>
      %logits = pc.einsum "b e, v e -> b v" %x, %w : (tensor<4x8xf32>, tensor<11x8xf32>) -> tensor<4x11xf32>
      %nll = pc.cross_entropy %logits, %targets : (tensor<4x11xf32>, tensor<4xi32>) -> tensor<4xf32>
      return
    }
    // becomes
    %w = pc.parameter "w" ... valid [11, 8] : tensor<12x8xf32>
    %logits = pc.einsum "b e, v e -> b v" %x, %w : (tensor<4x8xf32>, tensor<12x8xf32>) -> tensor<4x12xf32>
    %masked = pc.mask_padding %logits valid 11 value -1.000000e+30 : (tensor<4x12xf32>) -> tensor<4x12xf32>
    %nll = pc.cross_entropy %masked, %targets : (tensor<4x12xf32>, tensor<4xi32>) -> tensor<4xf32>
    ```
  }];
  let options = [Option<"multiple", "multiple", "int64_t", "1", "The padded size is the next multiple of this">];
}

def AddAdapters : Pass<"pc-add-adapters", "mlir::ModuleOp"> {
  let summary = "Add LoRA adapters to products, and freeze all other parameters";
  let description = [{
    Model program -> model program. `lora` is, for example, `rank=16,alpha=32,targets=q_proj|v_proj`, optionally with
    `,dropout=0.1`. A product W x becomes W x + alpha / rank * B (A x) if the name of its weight, without `.weight`, is a
    target or ends with a dot and a target (`NameGlobs`). With dropout, elements of x are dropped before the product with A.
    All other parameters become frozen. PEFT's adapter_config.json is added to the `means` of `pc.program`.

    A and B are stored as in PEFT, [rank, inputs] and [outputs, rank], also if W is stored transposed. A is initialized
    with normal values of standard deviation 1 / sqrt(3 inputs), the same as that of PEFT's uniform values, and B with
    zeros. If several weights are parts of one tensor, such as q, k and v of GPT-2, they share A, and each has its own
    rows of B.

    A target that matches no weight is an error. So is a target that matches a tensor that no product uses as a matrix, a
    table that an embedding reads, experts, or their router.

    ```mlir
    // pc-opt --pc-add-adapters="lora=rank=2,alpha=4,targets=fc"
    pc.program "mine" batch 4 sequence 1 vocabulary 8 config "{}"
    func.func @model(%x: tensor<4x1x8xf32>) {
      %w = pc.parameter "h.0.fc.weight" dims ["ffn", "embed"] init <normal, 1.0>
        source <"h.0.fc.weight", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
      %y = pc.einsum "b s e, f e -> b s f" %x, %w : (tensor<4x1x8xf32>, tensor<6x8xf32>) -> tensor<4x1x6xf32>
      return
    }
    // becomes
    %w = pc.parameter "h.0.fc.weight" frozen dims ...
    %a = pc.parameter "h.0.fc.lora_A.weight" dims ["lora_rank", "embed"] init <normal, 0.20412414523193154> ... : tensor<2x8xf32>
    %b = pc.parameter "h.0.fc.lora_B.weight" dims ["ffn", "lora_rank"] init <fill, 0.000000e+00> ... : tensor<6x2xf32>
    %ax = pc.einsum "b s e, r e -> b s r" %x, %a : (tensor<4x1x8xf32>, tensor<2x8xf32>) -> tensor<4x1x2xf32>
    %y = pc.einsum "b s e, f e -> b s f" %x, %w : (tensor<4x1x8xf32>, tensor<6x8xf32>) -> tensor<4x1x6xf32>
    %bax = pc.einsum "b s r, f r -> b s f" %ax, %b : (tensor<4x1x2xf32>, tensor<6x2xf32>) -> tensor<4x1x6xf32>
    %scaled = pc.scale %bax by 2.000000e+00 : (tensor<4x1x6xf32>) -> tensor<4x1x6xf32>
    %sum = pc.add %y, %scaled : (tensor<4x1x6xf32>, tensor<4x1x6xf32>) -> tensor<4x1x6xf32>
    ```
  }];
  let options = [Option<"lora", "lora", "std::string", "\"\"", "rank=N,alpha=X,targets=NAME|NAME[,dropout=P]">];
}

def GroupParameters : Pass<"pc-group-parameters", "mlir::ModuleOp"> {
  let summary = "Freeze parameters, and give groups of parameters settings of the optimizer";
  let description = [{
    Model program -> model program. `groups` has entries `GLOB:SETTING,...`, separated by spaces. A glob matches a parameter
    if it matches its name, or a part of the name after a dot. The parameter then gets the settings of the group (`group` of
    `pc.parameter`). `lr=0.1x` and `decay=0.5x` multiply a run's learning rate and weight decay. `decay=0`, `beta1=0.8`,
    `beta2=0.99` and `eps=1e-6` replace the values of the run. `optimizer=lion` names the optimizer of the group. `|` in a glob
    separates alternatives. `dim=1`, `dim>=2` and `dim<=1` match by the number of dims. A glob that matches no parameter is an
    error, and so is a parameter in two groups. `sparsity=0.75` or `sparsity=2:4` prunes the parameters (`pc-differentiate`);
    masks are chosen `every=10` steps up to step `until=100`.

    `freeze` has globs of parameters that become `frozen`.

    With `decay=matrices` the weight decay is 0 for biases, norms and other vectors, and for tables that an embedding reads.
    A group with its own decay is an exception.

    ```mlir
    // pc-opt --pc-group-parameters="groups={*.bias:decay=0,lr=2x}"
    func.func @model() {
      %w = pc.parameter "fc.weight" dims ["ffn", "embed"] init <normal, 1.0>
        source <"fc.weight", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
      %b = pc.parameter "fc.bias" dims ["ffn"] init <fill, 0.0> source <"fc.bias", shape = [6], start = [0], size = [6]> : tensor<6xf32>
      return
    }
    // becomes
    %w = pc.parameter "fc.weight" dims ...
    %b = pc.parameter "fc.bias" group {decay = 0.000000e+00 : f64, lr_factor = 2.000000e+00 : f64, name = "*.bias"} dims ...
    ```
  }];
  let options = [
    Option<"groups", "groups", "std::string", "\"\"", "Entries GLOB:SETTING,... separated by spaces">,
    Option<"freeze", "freeze", "std::string", "\"\"", "Globs of parameters that are not trained, separated by spaces">,
    Option<"decay", "decay", "std::string", "\"\"", "matrices: weight decay only for matrices">,
  ];
}

def TileParameters : Pass<"pc-tile-parameters", "mlir::ModuleOp"> {
  let summary = "Split large parameters, and the ops that use them, into tiles";
  let description = [{
    Model program -> model program. `tiles` has entries `GLOB:N`, separated by spaces. A parameter that the glob fits becomes N
    parameters of equal size, along its first dim for which this is possible: all ops that have the dim work on each index of it
    alone, and the last of them is a product that sums over it. These ops are repeated for each tile, and the sums are added, so the
    result differs in the order of additions only. All parameters with the dim are tiled. With `--zero=3` a rank gathers one tile
    after the other. Checkpoints do not change.

    ```mlir
    // pc-opt --pc-tile-parameters="tiles={up:2}"
    func.func @model(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %up = pc.parameter "up" dims ["embed", "ffn"] init <normal, 1.0>
        source <"up", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
      %down = pc.parameter "down" dims ["ffn", "embed"] init <normal, 1.0>
        source <"down", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
      %h = pc.einsum "b e, e f -> b f" %x, %up : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
      %y = pc.einsum "b f, f e -> b e" %h, %down : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
      return %y : tensor<4x8xf32>
    }
    // becomes
    %up0 = pc.parameter "up:0" ... source <"up", shape = [8, 6], start = [0, 0], size = [8, 3]> : tensor<8x3xf32>
    %up1 = pc.parameter "up:1" ... source <"up", shape = [8, 6], start = [0, 3], size = [8, 3]> : tensor<8x3xf32>
    ...
    %h0 = pc.einsum "b e, e f -> b f" %x, %up0 : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
    %y0 = pc.einsum "b f, f e -> b e" %h0, %down0 : (tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32>
    ...
    %y = pc.add %y0, %y1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    ```
  }];
  let options = [Option<"tiles", "tiles", "std::string", "\"\"", "Entries GLOB:N separated by spaces">];
}

def PackProducts : Pass<"pc-pack-products", "mlir::ModuleOp"> {
  let summary = "Compute q, k and v of attention by one product with one parameter";
  let description = [{
    Model program -> model program. If the products for q, k and v read the same value, their weights become one
    parameter, and so do their biases. The parameter has a dim named "qkv". For each key/value head this dim holds the
    query heads of its group, its key and its value (`parts` of `pc.parameter`). If attention reads the product
    directly, it becomes `pc.packed_attention`. Otherwise `pc.split_qkv` extracts q, k and v; it also rotates q and k if
    there are only rotary embeddings between the product and attention. Files, initial values and results do not change.

    ```mlir
    // pc-opt --pc-pack-products
    // input: attention.mlir
    %wq = pc.parameter "wq" dims ["embed", "kv_heads", "group", "head_dim"] ... : tensor<8x2x2x4xf32>
    %wk = pc.parameter "wk" dims ["embed", "kv_heads", "head_dim"] ... : tensor<8x2x4xf32>
    %wv = pc.parameter "wv" dims ["embed", "kv_heads", "head_dim"] ... : tensor<8x2x4xf32>
    ...
    %q = pc.einsum "b s e, e k g d -> b s k g d" %x, %wq : ... -> tensor<2x8x2x2x4xf32>
    %k = pc.einsum "b s e, e k d -> b s k d" %x, %wk : ... -> tensor<2x8x2x4xf32>
    %v = pc.einsum "b s e, e k d -> b s k d" %x, %wv : ... -> tensor<2x8x2x4xf32>
    %o, %lse = pc.attention causal %q, %k, %v scale 0.5 : ...
    // becomes
    %w = pc.parameter "w{q,k,v}" dims ["embed", "kv_heads", "qkv", "head_dim"] ... along 2 parts ... : tensor<8x2x4x4xf32>
    ...
    %qkv = pc.einsum "b s e, e k g d -> b s k g d" %x, %w : ... -> tensor<2x8x2x4x4xf32>
    %o, %lse = pc.packed_attention causal %qkv scale 5.000000e-01 : ...
    ```

    `ranks` is the number of ranks among which tensor parallelism splits heads. If it does not divide the number of a layer's
    key/value heads, the query heads of a group are split and keys are not. This needs three products, so the pass does not
    change such a layer.
  }];
  let options = [Option<"ranks", "ranks", "int64_t", "1", "Ranks among which heads are split">];
}

def ChunkRecurrences : Pass<"pc-chunk-recurrences", "mlir::ModuleOp"> {
  let summary = "Write recurrences along the sequence in chunks, so that ranks can split the sequence";
  let description = [{
    Model program -> model program. The sequence of each `pc.recurrence` along the sequence of an input is divided into `chunks` chunks. A
    recurrence within the chunks begins at 0 in each of them. A second one over the chunks computes their last states, from the last states of
    the first one and from the products of each chunk's factors. The state before a chunk, times the product of the factors up to an element, is
    added to this element. If the sequence is split, ranks then exchange only one state per chunk. A recurrence is not changed if `chunks`
    does not divide its length.

    ```mlir
    // pc-opt --pc-chunk-recurrences=chunks=2
    func.func @model(%a: tensor<3x8xf32>) {
      %b = pc.input data "b" dims ["batch", "sequence"] : tensor<3x8xf32>
      %h = pc.recurrence "b s, b s -> b s" along "s" %a, %b : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
      return
    }
    // becomes
    %ac = pc.reshape "b (chunk step) -> b chunk step" %a : (tensor<3x8xf32>) -> tensor<3x2x4xf32>
    %bc = pc.reshape "b (chunk step) -> b chunk step" %b : (tensor<3x8xf32>) -> tensor<3x2x4xf32>
    %inside = pc.recurrence "b chunk step, b chunk step -> b chunk step" along "step" %ac, %bc : ...
    %first = pc.columns %ac dim 2 from 0 : (tensor<3x2x4xf32>) -> tensor<3x2x1xf32>
    %start = pc.columns %first dim 2 from 0 : (tensor<3x2x1xf32>) -> tensor<3x2x4xf32>
    %products = pc.recurrence "b chunk step, b chunk step -> b chunk step" along "step" %ac, %start : ...
    ...
    %states = pc.recurrence "b chunk, b chunk -> b chunk" along "chunk" %factors, %ends : ...
    %before = pc.columns %states dim 1 from -1 : (tensor<3x2xf32>) -> tensor<3x2xf32>
    %more = pc.einsum "b chunk step, b chunk -> b chunk step" %products, %before : ...
    %all = pc.add %inside, %more : ...
    %h = pc.reshape "b chunk step -> b (chunk step)" %all : (tensor<3x2x4xf32>) -> tensor<3x8xf32>
    ```
  }];
  let options = [Option<"chunks", "chunks", "int64_t", "1", "Chunks of a sequence">];
}

def Differentiate : Pass<"pc-differentiate", "mlir::ModuleOp"> {
  let summary = "Forward pass and loss -> one training step";
  let description = [{
    Model program (`func @model`) -> step program (`func @step`). `pc.accumulate` holds the forward pass of one microbatch and its reverse-mode
    gradient. After it come the global gradient norm, the clip coefficient, the optimizer and the updates. Cross-entropy is expanded into
    reduce_max, sum_exp, pick and cross_entropy_grad, so that the vocabulary may be split. A mean over the batch divides by the global count.
    The addends of microbatches and of ranks therefore only have to be added.

    ```mlir
    // pc-opt --pc-differentiate="microbatches=2 optimizer=sgd"
    func.func @model() {
      %x = pc.input tokens dims ["batch", "embed"] : tensor<4x8xf32>
      %w = pc.parameter "w" dims ["embed", "out"] init <fill, 1.0>
        source <"w", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
      %y = pc.einsum "b e, e o -> b o" %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
      %loss = pc.einsum "b o ->" %y : (tensor<4x6xf32>) -> tensor<f32>
      pc.output loss "loss" %loss : tensor<f32>
      return
    }
    // becomes
    %x = pc.input tokens dims ["microbatch", "batch", "embed"] : tensor<2x2x8xf32>
    %w = pc.parameter "w" ... : tensor<8x6xf32>
    %sums:2 = pc.accumulate (%xm = %x : tensor<2x2x8xf32> -> tensor<2x8xf32>) {
      %y = pc.einsum "b e, e o -> b o" %xm, %w : (tensor<2x8xf32>, tensor<8x6xf32>) -> tensor<2x6xf32>
      %loss = pc.einsum "b o ->" %y : (tensor<2x6xf32>) -> tensor<f32>
      %one = pc.seed : tensor<f32>
      %dy = pc.einsum " -> b o" %one : (tensor<f32>) -> tensor<2x6xf32>
      %dw = pc.einsum "b o, b e -> e o" %dy, %xm : (tensor<2x6xf32>, tensor<2x8xf32>) -> tensor<8x6xf32>
      pc.yield %loss, %dw : tensor<f32>, tensor<8x6xf32>
    } : tensor<f32>, tensor<8x6xf32>
    pc.output loss "loss" %sums#0 : tensor<f32>
    pc.output gradient "w" %sums#1 : tensor<8x6xf32>
    ...
    %new = pc.sgd %w, %sums#1, ...
    pc.update "w" %new : tensor<8x6xf32>
    ```

    With several microbatches the loss must be a sum over the batch. An op that is not linear in such a sum, or that relates sequences of the
    batch to each other, is refused. The load-balancing loss of experts is an exception: it is a mean over one microbatch,
    and may be added to the loss of each token.

    If the ops are not in the order of their layers, they are put in this order as far as data flow allows it.

    A `frozen` parameter has no gradient, state or update. Values that depend only on frozen parameters have no
    gradient.

    `optimizer` is `adamw` or `sgd`, which are ops, or the name of a `pc.optimizer` in the module or in the compiler
    (`lion`, `muon`, `amsgrad`). Its region is copied for each parameter that it updates, with the parameter's shape. In
    a step that is skipped, because the clip coefficient is NaN, `pc.select` keeps the old values. The group of each
    such parameter gets the setting `optimizer`.

    With `ema=D`, the average of each trained parameter is a state `ema`: the parameter after the first step, and then
    D times the average plus 1 - D times the new parameter. `ema_begun` is 1 after the first step.

    A parameter whose group has `sparsity`, or `kept` and `among`, has states `mask`, `mask_age` and `mask_wait`. Every
    `every` steps, up to step `until`, the mask becomes 1 for the largest magnitudes of each row, or of each `among`
    adjacent elements, and 0 for the others (`pc.sampling_threshold`, `pc.top_k`). Where the mask is 0, the new value of
    the parameter is 0.

    `optimizer=none` makes the evaluation step, which has only the forward pass and the loss.
  }];
  let options = [
    Option<"microbatches", "microbatches", "int64_t", "1", "Microbatches per step; must divide the batch">,
    Option<"optimizer", "optimizer", "std::string", "\"adamw\"", "adamw, sgd, none or a definition, with settings as in muon:momentum=0.9">,
    Option<"ema", "ema", "double", "0", "Decay of an exponential average of the parameters; 0: there is none">,
  ];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

def GenerateSteps : Pass<"pc-generate-steps", "mlir::ModuleOp"> {
  let summary = "Forward pass of a decoder -> one step that generates text";
  let description = [{
    Model program (`func @model`) -> step program (`func @step`) that takes tokens of several sequences at different
    positions. Its inputs are arrays that a scheduler fills. `tokens`, `slots` and `positions` [groups, size] state
    which token comes next in which sequence; a slot outside of the cache means that there is no token. `chosen`
    [groups, slots / microbatches] has for each slot of the microbatch the row that chooses its token. With `sampling`,
    `sampling` [groups, slots / microbatches, 4] has the temperature, k, p and minimum share of each row, and `seeds`
    [groups, slots / microbatches, 3] the words of the request's seed and the position.

    Keys and values go into caches, which are states. Each token attends to the cache of its slot up to its own position, so prompts and
    answers of any length share a step. Rotary tables and learned positions are looked up by the tokens' positions. The outputs are
    `token`, the chosen ids as f32, and `logprob`, the logarithms of their probabilities.

    ```mlir
    // pc-opt --pc-generate-steps="slots=2 size=4"
    // input: decoder.mlir
    %k = pc.einsum "b s e, k d e -> b s k d" %x, %w : ... -> tensor<2x8x2x2xf32>
    ...
    %o, %lse = pc.attention causal %q, %k, %k scale 0.5 : ...
    // becomes
    %cache = pc.state cache "keys" of "attention 0" dims ["batch", "slot", "kv_heads", "cached", "head_dim"] : tensor<1x2x2x8x2xf32>
    ...
    %slots = pc.input data "slots" below 3 dims ["batch", "sequence"] : tensor<1x4xi32>
    %positions = pc.input data "positions" below 8 dims ["batch", "sequence"] : tensor<1x4xi32>
    ...
    %keys = pc.cache_write %k into %cache at %slots, %positions : ...
    pc.update "keys" of "attention 0" %keys : tensor<1x2x2x8x2xf32>
    ...
    %o = pc.cached_attention %q, %keys, %values at %slots, %positions scale 5.000000e-01 : ...
    ```

    With `chunk`, the step also takes that many tokens of prompts, whose inputs and outputs have names that end with `.chunk`. They write
    into the same caches, after the others. A run calls this part only if there are prompts.

    With `parts`, caches have their positions in parts. Attention has a result for each part, and the sum of these, weighted by the softmax
    of their logarithms, is the result.

    A model is refused if an op other than causal attention relates tokens of a sequence to each other.
  }];
  let options = [
    Option<"slots", "slots", "int64_t", "8", "Sequences of a group at a time">,
    Option<"context", "context", "int64_t", "0", "Tokens of a sequence, at most (0: the model's sequence)">,
    Option<"size", "size", "int64_t", "8", "Tokens of a group in a step">,
    Option<"chunk", "chunk", "int64_t", "0", "Number of prompt tokens that a step reads in addition, per group (0: none)">,
    Option<"groups", "groups", "int64_t", "1", "Groups of slots, which data parallelism distributes">,
    Option<"parts", "parts", "int64_t", "1", "Parts into which the positions of a cache are divided, which context parallelism distributes">,
    Option<"microbatches", "microbatches", "int64_t", "1", "Parts into which the slots of a group are divided; a step takes tokens of one of them">,
    Option<"sampling", "sampling", "bool", "true", "Choose tokens at random by temperature; false: the most probable ones">,
  ];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

def MixedPrecision : Pass<"pc-mixed-precision", "mlir::ModuleOp"> {
  let summary = "Activations and the operands of matrix products become bf16; parameters and their state stay f32";
  let description = [{
    Step program -> step program. The pass comes before placement: erasing the placements of a placed program yields the program of this pass.
    Every op computes in f32 and rounds its result to the result's type, so the pass only chooses the type in which each
    value is stored:

    * bf16: the operands and results of matrix products and of attention; the results of norms; activations and their gradients; logits and
      their gradient. A parameter is cast once per step, before the accumulation.
    * f32: parameters and optimizer state; the tables of embeddings (bf16 with `tables=bf16`); the statistics of norms, attention and loss; the
      loss; the biases and the weights of norms; everything that is summed over microbatches. A product that is the gradient of a weight
      yields f32 directly.
    * A sum has the widest type of its addends (a broadcast bias does not count). The residual stream begins at an embedding, so it is bf16, or
      f32 with `residual=f32`, and so is its gradient.

    With `compute=fp8`, values have the same types as with bf16, but products of layers read operands that are rounded to floats of 8 bits: an
    activation, a gradient and a matrix become `pc.decode` of `pc.encode float8`. A block has 128 elements along the contracted dims, and 128 x 128
    elements of a matrix. With `float8-scaling=current`, an operand has one scale, which follows from its largest magnitude, and with `delayed`
    one that follows from its largest magnitudes in the last 16 steps (states of the matrix; products before the first step have scale 1); then
    `pc.encode_scaled` replaces `pc.encode`. Gradients of activations are E4M3, or E5M2 with `float8-gradients=e5m2`; all other operands are E4M3. Products with
    the tables of embeddings, with the head, of the router and of routed experts stay bf16, and so do those whose dims blocks do not divide.

    In a step that generates text, caches are bf16 and logits stay f32. Parameters that are only read in bf16 are also
    stored in bf16, because no step changes them.

    ```mlir
    // pc-opt --pc-mixed-precision
    func.func @step() {
      %w = pc.parameter "w" dims ["embed", "ffn"] init <fill, 1.0>
        source <"w", shape = [8, 16], start = [0, 0], size = [8, 16]> : tensor<8x16xf32>
      %x = pc.input tokens dims ["microbatch", "batch", "embed"] : tensor<1x4x8xf32>
      %loss = pc.accumulate (%xm = %x : tensor<1x4x8xf32> -> tensor<4x8xf32>) {
        %y = pc.einsum "b e, e f -> b f" %xm, %w : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
        %l = pc.einsum "b f, b f ->" %y, %y : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<f32>
        pc.yield %l : tensor<f32>
      } : tensor<f32>
      pc.output loss "loss" %loss : tensor<f32>
      return
    }
    // becomes
    %w = pc.parameter "w" ... : tensor<8x16xf32>
    %wb = pc.cast %w : (tensor<8x16xf32>) -> tensor<8x16xbf16>
    ...
      %xb = pc.cast %xm : (tensor<4x8xf32>) -> tensor<4x8xbf16>
      %y = pc.einsum "b e, e f -> b f" %xb, %wb : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
      %l = pc.einsum "b f, b f ->" %y, %y : (tensor<4x16xbf16>, tensor<4x16xbf16>) -> tensor<f32>
    ```

    `gradients=bf16` rounds gradients after the accumulation. The sum over ranks then sends half the bytes; its addends are added in f32 and
    rounded once. With one microbatch nothing is accumulated, so gradients are also stored in bf16.
  }];
  let options = [
    Option<"compute", "compute", "std::string", "\"bf16\"", "Matrix products and activations: bf16, f32, or fp8 (bf16 with products of layers in 8 bits)">,
    Option<"float8Gradients", "float8-gradients", "std::string", "\"e4m3\"", "Operands that are gradients, with compute=fp8: e4m3 or e5m2">,
    Option<"float8Scaling", "float8-scaling", "std::string", "\"blocks\"", "Scales with compute=fp8: per block, or per operand (current or delayed)">,
    Option<"residual", "residual", "std::string", "\"bf16\"", "The residual stream, if activations are bf16: bf16 or f32">,
    Option<"tables", "tables", "std::string", "\"f32\"", "The tables of embeddings, as they are read: f32 or bf16">,
    Option<"gradients", "gradients", "std::string", "\"f32\"", "Gradients as they are sent, and with one microbatch as they are stored: f32 or bf16">,
  ];
}

def Recompute : Pass<"pc-recompute", "mlir::ModuleOp"> {
  let summary = "Compute values of the forward pass again in the backward pass, instead of keeping them";
  let description = [{
    Step program -> step program. The pass comes before placement: erasing the placements of a placed program yields the program of this pass.
    A layer consists of the ops whose source names agree through their first number ("h.3").

    * `mode=full` keeps only the values that one layer passes to another. Before its backward pass, a layer computes the
      values again that the backward pass reads.
    * `mode=selective` keeps the results of matrix products and attention (attention keeps one number per row, never the scores). Results of
      norms, activations and other cheap ops are computed again if their operands are kept anyway or are smaller.

    ```mlir
    // pc-opt --pc-differentiate=optimizer=sgd --pc-recompute
    // input: layers.mlir
    %y0 = pc.einsum "b s e, e f -> b s f" %x, %w0 : ... -> tensor<4x8x8xf32> loc("h.0.up")
    %a0 = pc.activation silu %y0 : ... -> tensor<4x8x8xf32> loc("h.0.act")
    %y1 = pc.einsum "b s e, e f -> b s f" %a0, %w1 : ... -> tensor<4x8x8xf32> loc("h.1.up")
    // becomes
    %y0 = pc.einsum "b s e, e f -> b s f" %x, %w0 : ... -> tensor<4x8x8xf32>
    %a0 = pc.activation silu %y0 : ...
    ...
    %one = pc.seed : tensor<f32>
    ...
    %again = pc.einsum "b s e, e f -> b s f" %x, %w0 : ... -> tensor<4x8x8xf32>
    %dy0 = pc.activation_grad silu %da0, %again : ...
    ```

    `layers` selects layers by their numbers in the model, from 0; the pass can run once with each mode. In a plan, `mode=auto` stands for the
    passes that pc-compile chooses by `--memory-limit`.
  }];
  let options = [
    Option<"mode", "mode", "std::string", "\"full\"", "full or selective">,
    ListOption<"layers", "layers", "std::string", "Numbers and ranges of layers: 0-3,7; all layers if empty">,
  ];
}

def ChunkLoss : Pass<"pc-chunk-loss", "mlir::ModuleOp"> {
  let summary = "Compute logits, loss and their gradients in chunks of tokens, so that all logits never exist at once";
  let description = [{
    Step program -> step program. The pass finds the ops on values of the size of the logits, and what is between them: the product with the
    head, the loss, the gradient of the logits, and the gradients of the head and of its input. These ops are repeated for each of `chunks`
    chunks of the tokens, one chunk after the other. Values with an entry per token are assembled from their chunks, and sums over tokens,
    such as the gradient of the head, are added in f32, so they differ in the order of additions only. Chunk i of n has the tokens i, n + i,
    2n + i, ... of each sequence, so ranks may split the sequence. The seed of the backward pass moves before the first chunk. Outputs of
    logits are removed.

    The pass refuses a model in which an op between the head and the loss combines tokens, or in which the gradient of a token's loss
    depends on other tokens' losses.

    ```mlir
    // pc-opt --pc-differentiate=optimizer=sgd --pc-chunk-loss=chunks=2
    func.func @model() {
      %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0>
        source <"w", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x4xf32>
      %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
      %targets = pc.input targets dims ["batch", "sequence"] : tensor<2x8xi32>
      %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x8xf32>
      %x = pc.embedding %w, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
      %logits = pc.einsum "b s e, v e -> b s v" %x, %w : (tensor<2x8x4xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
      %nll = pc.cross_entropy %logits, %targets : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
      %loss = pc.einsum "b s, b s ->" %nll, %weights : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<f32>
      pc.output loss "loss" %loss : tensor<f32>
      return
    }
    // becomes
    %one = pc.seed : tensor<f32>
    ...
    %x0 = pc.columns %x dim 2 from 0 : (tensor<2x4x2x4xf32>) -> tensor<2x4x1x4xf32>
    ...
    %logits0 = pc.einsum "b s e, v e -> b s v" ... -> tensor<2x4x16xf32>
    ...
    %dlogits0 = pc.cross_entropy_grad ... -> tensor<2x4x16xf32>
    %dx0 = pc.einsum "b s v, v e -> b s e" %dlogits0, ... -> tensor<2x4x4xf32>
    %dw0 = pc.einsum "b s v, b s e -> v e" %dlogits0, ... -> tensor<16x4xf32>
    %x1 = pc.columns %x dim 2 from 1 : (tensor<2x4x2x4xf32>) -> tensor<2x4x1x4xf32>
    ...
    %dx1 = pc.einsum "b s v, v e -> b s e" ...
    %dw1 = pc.einsum "b s v, b s e -> v e" ...
    %dw = pc.add %dw0, %dw1 : (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>
    ...
    %dx = pc.stack %dx0, %dx1 : ... -> tensor<2x2x4x4xf32>
    ```
  }];
  let options = [
    Option<"chunks", "chunks", "int64_t", "1", "Number of chunks">,
    Option<"ranks", "ranks", "int64_t", "1", "Ranks that split the sequence in its original order">,
  ];
}

def VerifyStep : Pass<"pc-verify-step", "mlir::ModuleOp"> {
  let summary = "Check the constraints of the step phase that concern several ops";
  let description = [{
    The pass checks that:

    * (T1) there is one function, `@step`, without arguments and results;
    * (T2) the program is for one device: it has no mesh, no type has a placement or a home, and nothing is sent;
    * (T3) there is one `pc.accumulate`; in a step that trains it holds the only `pc.seed`;
    * (T4) one output is the loss, and `pc.cross_entropy` is expanded;
    * (T5) an update has a leaf of its type; in a step that trains, every parameter and state has one update, unless the
      parameter is frozen or only choices depend on it (such as the choices of a router); a state has the shape of its
      parameter, or some of its dims, or is a history of steps;
    * (T6) in a step that trains, every element of the tensors in which parameters are stored belongs to one parameter, because
      checkpoints are written from the parameters;
    * (T7) a program with caches does not train, and updates each cache with the result of `pc.cache_write` to it. (T3) and (T4) are for
      other programs;
    * (T8) a parameter of codes has a state "scale" with some of its dims, and only steps that generate text have codes.

    ```mlir
    // pc-opt --pc-verify-step
    func.func @step() {
      return
    }
    // error: a step program needs a pc.accumulate over its microbatches (T3)
    ```
  }];
}

#endif
