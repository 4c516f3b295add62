//===- Passes.td - Passes of the Tactics room --------------------------------------===//
#ifndef PC_TACTICS_PASSES_TD
#define PC_TACTICS_PASSES_TD

include "mlir/Pass/PassBase.td"

def DataParallel : Pass<"pc-data-parallel", "mlir::ModuleOp"> {
  let summary = "Split the batch along one axis, sum the gradients";
  let description = [{
    Every op that has a dim named "batch" is split along it. Parameters and optimizer state stay whole on every rank. Gradients come out of the
    accumulation as partial sums and are reduced once per step: 2(n-1)/n of the parameters' bytes per rank. Means need no division by the axis
    size, because a step program divides by the global count. This is `mode=ddp`.

    ```mlir
    // pc-opt --pc-set-mesh=mesh=dp=2 --pc-data-parallel
    // input: step.mlir
    %w = pc.parameter "w" ... : tensor<8x6xf32>
    %x = pc.input tokens dims ["microbatch", "batch"] : tensor<1x4xi32>
    %sums:2 = pc.accumulate (%xm = %x : tensor<1x4xi32> -> tensor<4xi32>) {
      %e = pc.embedding %w, %xm : (tensor<8x6xf32>, tensor<4xi32>) -> tensor<4x6xf32>
      ...
      %dw = pc.embedding_grad %de, %xm : (tensor<4x6xf32>, tensor<4xi32>) -> tensor<8x6xf32>
      ...
    pc.output gradient "w" %sums#1 : tensor<8x6xf32>
    // becomes
    %w = pc.parameter "w" ... : tensor<8x6xf32, #pc.place<[_, _]>>
    %x = pc.input tokens dims ["microbatch", "batch"] : tensor<1x4xi32, #pc.place<[_, dp]>>
    %sums:2 = pc.accumulate ...
      %e = pc.embedding %w, %xm : ... -> tensor<4x6xf32, #pc.place<[dp, _]>>
      ...
      %dw = pc.embedding_grad %de, %xm : ... -> tensor<8x6xf32, #pc.place<[_, _] sum(dp)>>
      ...
    %g = pc.all_reduce sum %sums#1 on ["dp"] : ... -> tensor<8x6xf32, #pc.place<[_, _]>>
    pc.output gradient "w" %g : tensor<8x6xf32, #pc.place<[_, _]>>
    ```

    `mode=naive` does what nn.DataParallel does: only coordinate 0 of the axis holds data, parameters and optimizer state (`root(axis)`). It
    scatters the batch, broadcasts the parameters, gathers the loss of every token, scatters the gradient of that loss, receives the summed
    gradients and updates. These are five exchanges, with 2(n-1) of the parameters' bytes at the root. The other ranks have buffers of the same
    size with undefined contents. They also compute the update, but its result is never read.

    The pass fails if the batch does not divide.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"dp\"", "The mesh axis to use">,
    Option<"mode", "mode", "std::string", "\"ddp\"", "ddp or naive">,
  ];
}

def CodeGradients : Pass<"pc-code-gradients", "mlir::ModuleOp"> {
  let summary = "Send gradients in 8 or 4 bits when ranks add them";
  let description = [{
    Placed program -> placed program. A sum of gradients over ranks gets `wire`: each rank rounds its addend to codes of 8 or 4 bits, with an
    f32 scale per 256 elements, and all ranks add the same numbers in f32. This is qgZ of ZeRO++. An element takes 1.016 or 0.516 bytes. The
    sum differs from the exact one by at most 1/254 (4 bits: 1/14) of the largest magnitude in a block, for each addend.

    Blocks are those of `pc-quantize-weights`, in the coordinates of the whole gradient. If every rank has whole blocks, plans with the same
    addends have the same sums. Gradients of tables, vectors, tensors with fewer than 4096 elements, and sums whose parts are not whole blocks
    stay f32, and so does an all_reduce between so many ranks that codes would be more bytes.

    A reduce_scatter sends each rank the codes of its block. In an all_reduce, all ranks get all codes, or, if this is fewer bytes, the codes of
    one block, whose sums are then gathered.

    ```mlir
    // pc-opt --pc-code-gradients
    pc.mesh <dp = 2>
    func.func @step(%g: tensor<64x64xf32, #pc.place<[_, _] sum(dp)>>) {
      %w = pc.parameter "w" dims ["embed", "out"] init <fill, 1.0>
        source <"w", shape = [64, 64], start = [0, 0], size = [64, 64]> : tensor<64x64xf32, #pc.place<[_, _]>>
      %sum = pc.all_reduce sum %g on ["dp"] : (tensor<64x64xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<64x64xf32, #pc.place<[_, _]>>
      pc.output gradient "w" %sum : tensor<64x64xf32, #pc.place<[_, _]>>
      return
    }
    // becomes
    %sum = pc.all_reduce sum %g on ["dp"] wire <int8, [16, 16]> : (tensor<64x64xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<64x64xf32, #pc.place<[_, _]>>
    ```
  }];
  let options = [
    Option<"bits", "bits", "int64_t", "8", "Bits of a code: 8 or 4">,
  ];
}

def ExpertParallel : Pass<"pc-expert-parallel", "mlir::ModuleOp"> {
  let summary = "Split the experts of a mixture along one axis, and the batch everywhere else";
  let description = [{
    Weights of experts, which have dims named "experts" and "expert_ffn", are split along experts, and so are their gradients and state.
    Everything else is as in data parallelism: each rank has its own sequences, and other gradients are reduced over the axis. Before a mixture
    of experts, tokens are gathered; after it, the addends of the ranks' experts are reduced and scattered. This sends 4(n-1)/n of the bytes of
    [batch, sequence, embed] per layer, forward and backward. Routers are whole on every rank, as they compare all experts.

    ```mlir
    // pc-opt --pc-set-mesh=mesh=ep=2 --pc-expert-parallel
    // input: experts.mlir
    %up = pc.parameter "up" dims ["experts", "expert_ffn", "embed"] ... : tensor<4x6x8xf32>
    %down = pc.parameter "down" dims ["embed", "experts", "expert_ffn"] ... : tensor<8x4x6xf32>
    %x = pc.input loss_weights dims ["batch", "sequence", "embed"] : tensor<4x8x8xf32>
    ...
    %h = pc.einsum "b s e, n f e, b s n -> b s n f" %x, %up, %mask routed 1 : ... -> tensor<4x8x4x6xf32>
    %y = pc.einsum "b s n f, e n f, b s n -> b s e" %h, %down, %mask routed 1 : ... -> tensor<4x8x8xf32>
    // becomes
    %up = pc.parameter "up" ... : tensor<4x6x8xf32, #pc.place<[ep, _, _]>>
    %down = pc.parameter "down" ... : tensor<8x4x6xf32, #pc.place<[_, ep, _]>>
    %x = pc.input loss_weights dims ["batch", "sequence", "embed"] : tensor<4x8x8xf32, #pc.place<[ep, _, _]>>
    ...
    %all = pc.all_gather %x dim 0 on ["ep"] : ... -> tensor<4x8x8xf32, #pc.place<[_, _, _]>>
    ...
    %h = pc.einsum "b s e, n f e, b s n -> b s n f" %all, %up, %own routed 1 : ... -> tensor<4x8x4x6xf32, #pc.place<[_, _, ep, _]>>
    %p = pc.einsum "b s n f, e n f, b s n -> b s e" %h, %down, %own routed 1 : ... -> tensor<4x8x8xf32, #pc.place<[_, _, _] sum(ep)>>
    %y = pc.reduce_scatter sum %p dim 0 on ["ep"] : ... -> tensor<4x8x8xf32, #pc.place<[ep, _, _]>>
    ```

    Where several axes split the batch, this axis is minor to those of data parallelism, wherever it is in the mesh. The pass
    fails if there are no experts, or if experts or the batch do not divide.

    Experts may also be split over an axis that splits something else outside of them: see the option `experts` of `pc-context-parallel` (the
    sequence), `pc-tensor-parallel` (weights of other products; with `pc-sequence-parallel` the sequence) and `pc-zero` (the batch, and all
    other parameters).
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"ep\"", "The mesh axis to use">,
  ];
}

def TensorParallel : Pass<"pc-tensor-parallel", "mlir::ModuleOp"> {
  let summary = "Split weights and the activations between them along one axis";
  let description = [{
    `form=1d` is Megatron's placement: weights are split by the names kv_heads, ffn and vocab and are never sent.
    Attention and mlp each need one all_reduce of [batch, sequence, embed] in the forward pass and one in the backward
    pass. Embedding and head need one each. The loss over a split vocabulary needs two of [batch, sequence] and one of a
    scalar.

    ```mlir
    // pc-opt --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel
    // input: mlp.mlir
    %up = pc.parameter "up" dims ["embed", "ffn"] ... : tensor<8x16xf32>
    %down = pc.parameter "down" dims ["ffn", "embed"] ... : tensor<16x8xf32>
    ...
    %h = pc.einsum "b s e, e f -> b s f" %n, %up : ... -> tensor<4x8x16xf32>
    %y = pc.einsum "b s f, f e -> b s e" %h, %down : ... -> tensor<4x8x8xf32>
    // becomes
    %up = pc.parameter "up" ... : tensor<8x16xf32, #pc.place<[_, tp]>>
    %down = pc.parameter "down" ... : tensor<16x8xf32, #pc.place<[tp, _]>>
    ...
    %h = pc.einsum "b s e, e f -> b s f" %n, %up : ... -> tensor<4x8x16xf32, #pc.place<[_, _, tp]>>
    %p = pc.einsum "b s f, f e -> b s e" %h, %down : ... -> tensor<4x8x8xf32, #pc.place<[_, _, _] sum(tp)>>
    %y = pc.all_reduce sum %p on ["tp"] : ... -> tensor<4x8x8xf32, #pc.place<[_, _, _]>>
    ```

    With more ranks than key/value heads the axis is split in the mesh into `<axis>.0` for kv_heads and `<axis>.1` for the query heads of a
    group. Keys and values are replicated on the second, and their gradients are summed over it. `pc-fuse-moves` joins the sums that are then reduced
    over both. The pass fails if heads, ffn or vocabulary do not divide.

    The other forms split both weights and activations, over a grid. Norms over embed are decomposed first (`pc-decompose-norms`). Weights are
    gathered where they are used, as in ZeRO's third stage:
    * `form=2d` (SUMMA; axes row,col of one size q): the residual stream is [batch:row, sequence, embed:col], and weights are [input:row,
      output:col]. Every linear gathers its activation on col and its weight on row. Each rank computes attention, activations
      and loss for its own heads, ffn and vocabulary.
    * `form=2.5d` (axes depth,row,col): the batch is also split over depth, and gradients are summed over it.
    * `form=3d` (axes i,j,l of one size): the residual stream is [batch:(i, l), sequence, embed:j]. Linears into heads, ffn and vocabulary
      gather on l, contract embed and scatter on j. Those back to embed do the reverse. Weights are split over all three axes.

    `form=free` does not use names. Along any number of axes, one after another, it splits each op and places each leaf
    so that a step on `machine` takes the least time (`pc-propagate{free cost=seconds}`). It finds Megatron's placement,
    sequence parallelism and a mixture with data parallelism where they are the best, for models with dims of any name.
    Dims that do not divide stay whole. If the table of the search would be too large, more dims stay whole, the batch first.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"tp\"", "The mesh axis, or the axes of the grid: row,col; depth,row,col; i,j,l. For free: any axes">,
    Option<"form", "form", "std::string", "\"1d\"", "1d, 2d, 2.5d, 3d or free">,
    Option<"regather", "regather", "bool", "true", "For grids: the backward pass repeats the gathers of the forward pass">,
    Option<"experts", "experts", "bool", "false", "For 1d: each rank has whole experts of a mixture, instead of a part of each expert">,
    Option<"machine", "machine", "std::string", "\"cpu\"", "For free: cpu, a100, h100, h200, b200, here (pc-calibrate), or a file *.json">,
    Option<"bytePrice", "byte-price", "double", "0", "For free: the price, in seconds, of a byte of a parameter, gradient or state on a rank">,
  ];
}

def Zigzag : Pass<"pc-zigzag", "mlir::ModuleOp"> {
  let summary = "Put the sequence in an order that gives every rank the same amount of work in causal attention";
  let description = [{
    Step program -> step program, before `pc-set-mesh`. The pass sets `zigzag <ranks>` in `pc.program`. Index i of the
    sequence in tokens, targets, position tables and attention then means position `zigzagPosition(i)`. The sequence is
    divided into 2n chunks, and the block of rank r holds chunks r and 2n-1-r, so that every rank has the same amount of
    work in causal attention. Results are the same as before, and the runtime gets logits in the sequence's own order.
    The pass is for `pc-context-parallel{form=ring}`.

    ```mlir
    // pc-opt --pc-zigzag=ranks=2
    // input: attention.mlir
    pc.program "attention" batch 2 sequence 8 vocabulary 16 config "{}"
    // becomes
    pc.program "attention" batch 2 sequence 8 vocabulary 16 config "{}" zigzag 2
    ```

    The dims of the sequence are all dims that iterate together with the last dim of tokens, targets and other inputs by token. The pass fails:
    * if the sequence does not divide into 2n chunks;
    * if a parameter has the sequence as a dim (a table of positions that is added, or weights of a mixer over tokens);
    * if an op depends on the order of the sequence (`pc.columns` along it, as in a convolution; attention with a
      window, a bias, sinks or document starts; an embedding that reads entries along it);
    * if `pc.iota` or a table of rotary embeddings counts along another dim, because in zigzag order these ops contain positions
      of the sequence.
  }];
  let options = [Option<"ranks", "ranks", "int64_t", "0", "The number n of ranks that split the sequence">];
}

def DispatchExperts : Pass<"pc-dispatch-experts", "mlir::ModuleOp"> {
  let summary = "Turn the dispatch to experts, and the combination of their results, into separate ops";
  let description = [{
    Step program -> step program, before `pc-set-mesh`. In a routed product, values by token become values by token and expert: an einsum
    `dispatch`, `"b s e, b s n -> b s n e"`, is inserted before it, and `combine`, `"b s n e, b s n -> b s e"`, after it. Sums of combines become
    one combine. Both are routed by the same mask, so results do not change. `pc-expert-parallel` then splits tokens outside of these products
    and experts between them, and ranks send only routed tokens to each other, which are k / n of the values by token
    and expert.

    ```mlir
    // pc-opt --pc-dispatch-experts=ranks=2
    // input: experts.mlir
    %h = pc.einsum "b s e, n f e, b s n -> b s n f" %x, %up, %mask routed 1 : ...
    %y = pc.einsum "b s n f, e n f, b s n -> b s e" %h, %down, %mask routed 1 : ...
    // becomes
    %sent = pc.einsum "b s e, b s n -> b s n e" %x, %mask routed 1 : ...
    %h = pc.einsum "b s n e, n f e, b s n -> b s n f" %sent, %up, %mask routed 1 : ...
    %back = pc.einsum "b s n f, e n f, b s n -> b s n e" %h, %down, %mask routed 1 : ...
    %y = pc.einsum "b s n e, b s n -> b s e" %back, %mask routed 1 : ...
    ```

    With `exchange=auto` the pass does this only if a token has fewer experts than there are ranks; otherwise gathering
    tokens sends less. With `target=cuda`, `auto` does nothing, because the host must know the number of rows before it can send them: such a
    step cannot be one CUDA graph.
    `rows` also fails if nothing is routed.
  }];
  let options = [Option<"ranks", "ranks", "int64_t", "1", "Ranks that will split the experts">,
                 Option<"exchange", "exchange", "std::string", "\"auto\"", "auto or rows">,
                 Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">];
}

def ContextParallel : Pass<"pc-context-parallel", "mlir::ModuleOp"> {
  let summary = "Split the sequence everywhere along one axis";
  let description = [{
    Every op on the sequence works on the rank's part of it. Parameters are whole and their gradients are summed, as in data parallelism.

    `form=heads`: in attention, each rank has some heads of the whole sequence. Queries, keys, values and the result change from a split
    sequence to split heads and back, in eight all_to_alls per layer. It fails if the sequence or the key/value heads do not divide.

    ```mlir
    // pc-opt --pc-set-mesh=mesh=cp=2 --pc-context-parallel
    // input: attention.mlir
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
    ...
    %o, %lse = pc.attention causal %q, %k, %v ...
    // becomes
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32, #pc.place<[_, cp]>>
    ...
    %qh = pc.all_to_all %q from 1 to 2 on ["cp"] : ... -> tensor<2x8x2x2x4xf32, #pc.place<[_, _, cp, _, _]>>
    %kh = pc.all_to_all %k from 1 to 2 on ["cp"] : ... -> tensor<2x8x2x4xf32, #pc.place<[_, _, cp, _]>>
    %vh = pc.all_to_all %v from 1 to 2 on ["cp"] : ... -> tensor<2x8x2x4xf32, #pc.place<[_, _, cp, _]>>
    %o, %lse = pc.attention causal %qh, %kh, %vh ...
    ```

    If a reshape divides the sequence into several dims, the first of these is also split, if possible. Recurrences in
    chunks (`pc-chunk-recurrences`) are therefore computed without communication, and only states of chunks are
    gathered.

    `form=ring` (after `pc-zigzag`): every rank keeps its queries. Keys and values are gathered and their gradients are
    reduce_scattered; `pc-window-moves` turns these moves into steps around a ring. They send 4(n-1)/n of the bytes of
    the keys per layer, for any number of heads. It fails if the program is not in zigzag order for the number of ranks
    on the axis.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"cp\"", "The mesh axis to use">,
    Option<"form", "form", "std::string", "\"heads\"", "heads or ring">,
    Option<"experts", "experts", "bool", "false", "The axis also splits the experts of a mixture; tokens, or their choices, are sent along the sequence">,
  ];
}

def SequenceParallel : Pass<"pc-sequence-parallel", "mlir::ModuleOp"> {
  let summary = "Split the sequence where tensor parallelism leaves activations whole";
  let description = [{
    The pass comes after `pc-tensor-parallel` (form 1d), on the same axis. The placements of weights do not change; the residual stream, norms
    and the ops between them are split along the sequence. Every all_reduce of [batch, sequence, embed] becomes a reduce_scatter and an
    all_gather of the same bytes, and each rank holds only its part of these activations. Gradients of norm weights and of biases after a
    row-parallel linear are summed over the axis, as each rank now computes them from its part of the sequence.

    ```mlir
    // pc-opt --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-sequence-parallel
    // input: mlp.mlir
    %n, %rstd = pc.rms_norm %x, %gamma ...
    %h = pc.einsum "b s e, e f -> b s f" %n, %up : ... -> tensor<4x8x16xf32>
    %y = pc.einsum "b s f, f e -> b s e" %h, %down : ... -> tensor<4x8x8xf32>
    // becomes
    %n, %rstd = pc.rms_norm %part, %gamma ... -> (tensor<4x8x8xf32, #pc.place<[_, tp, _]>>, ...
    %all = pc.all_gather %n dim 1 on ["tp"] : ... -> tensor<4x8x8xf32, #pc.place<[_, _, _]>>
    %h = pc.einsum "b s e, e f -> b s f" %all, %up : ... -> tensor<4x8x16xf32, #pc.place<[_, _, tp]>>
    %p = pc.einsum "b s f, f e -> b s e" %h, %down : ... -> tensor<4x8x8xf32, #pc.place<[_, _, _] sum(tp)>>
    %y = pc.reduce_scatter sum %p dim 1 on ["tp"] : ... -> tensor<4x8x8xf32, #pc.place<[_, tp, _]>>
    ```

    The pass fails if the sequence does not divide, or if no weight is split over the axis.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"tp\"", "The mesh axis of tensor parallelism">,
    Option<"regather", "regather", "bool", "false", "Gather the inputs of linears again in the backward pass: 5/4 of the bytes, but no whole activation is kept">,
  ];
}

def Zero : Pass<"pc-zero", "mlir::ModuleOp"> {
  let summary = "Data parallelism without redundancy along one axis (ZeRO, FSDP)";
  let description = [{
    The batch is split as in `pc-data-parallel`. Tensors that every rank would otherwise hold are also split:

    * `stage=1`: the optimizer state. Gradients are reduce_scattered once per step to the rank that owns the state, and the new parameters are
      gathered.
    * `stage=2`: also the accumulators of gradients. Gradients are reduce_scattered in every microbatch, right after the op that computes them.
    * `stage=3` (FSDP): also the parameters. They are gathered before their first reader and freed after the last. With
      `reshard-after-forward` (a `pc.copy` per parameter and phase) the backward pass gathers them again; without it, they are kept from the
      forward pass. Parameters that a glob of `keep` matches (their Hugging Face name, or a part of it after a dot:
      `wte.*|h.11.*`) are gathered once per step and kept from their first reader to the last. With several microbatches
      they are gathered before all of them.

    ```mlir
    // pc-opt --pc-set-mesh=mesh=dp=2 --pc-zero=stage=3
    // input: mlp.mlir
    %up = pc.parameter "up" dims ["embed", "ffn"] ... : tensor<8x16xf32>
    ...
    %h = pc.einsum "b s e, e f -> b s f" %n, %up : ... -> tensor<4x8x16xf32>
    // becomes
    %up = pc.parameter "up" ... : tensor<8x16xf32, #pc.place<[_, dp]>>
    ...
    %whole = pc.all_gather %up dim 1 on ["dp"] : ... -> tensor<8x16xf32, #pc.place<[_, _]>>
    %h = pc.einsum "b s e, e f -> b s f" %n, %whole : ... -> tensor<4x8x16xf32, #pc.place<[dp, _, _]>>
    ```

    A parameter is sharded along the longest dim that divides and that no other axis splits. A parameter without such a dim stays whole. Hybrid
    sharding (HSDP) is this pass over an inner axis and `pc-data-parallel` over an outer one. ZeRO runs last, because it
    splits dims that other tactics have left whole. The pass fails if the batch does not divide, or if a glob of `keep`
    matches no parameter.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"dp\"", "The mesh axis to use">,
    Option<"stage", "stage", "int64_t", "1", "1, 2 or 3">,
    Option<"reshardAfterForward", "reshard-after-forward", "bool", "true", "For stage 3: gather again in the backward pass">,
    Option<"keep", "keep", "std::string", "\"\"", "For stage 3: globs, joined by |, on names of parameters that are gathered once per step">,
    Option<"experts", "experts", "bool", "false", "The axis also splits the experts of a mixture, whose weights are never gathered">,
  ];
}

def Offload : Pass<"pc-offload", "mlir::ModuleOp"> {
  let summary = "Keep values on disk or in memory of the host, and copy them to the device before they are read";
  let description = [{
    Placed program -> placed program, after all other tactics of that phase. The values become values in the space `to`. Carries bring
    them to the device for their readers, and take new values back. All ops still compute on the device, so a program with offload gives
    the same bits as one without. `pc-schedule` starts the carries early and waits for them late.

    * `states`: the states of the optimizer, which reads them once per step.
    * `masters`: f32 parameters that only the optimizer reads, because the passes read rounded copies. The copies stay on the device.
    * `parameters`: all parameters. Each pass of a microbatch carries them in again, as ZeRO-3 gathers them, and rounds them again.
    * `activations`: the values that layers, except the last one, keep for the backward pass.

    ```mlir
    // pc-opt --pc-differentiate --pc-set-mesh --pc-offload
    func.func @model() {
      %x = pc.input tokens dims ["batch", "embed"] : tensor<4x7xf32>
      %w = pc.parameter "w" dims ["embed"] init <fill, 1.0> source <"w", shape = [7], start = [0], size = [7]> : tensor<7xf32>
      %loss = pc.einsum "b e, e ->" %x, %w : (tensor<4x7xf32>, tensor<7xf32>) -> tensor<f32>
      pc.output loss "loss" %loss : tensor<f32>
      return
    }
    // becomes
    %m = pc.state "exp_avg" of "w" dims ["embed"] : tensor<7xf32, #pc.place<[_] in disk>>
    ...
    %here = pc.carry %m : (tensor<7xf32, #pc.place<[_] in disk>>) -> tensor<7xf32, #pc.place<[_]>>
    ...
    %w2, %m2, %v2 = pc.adamw ...
    ...
    %back = pc.carry %m2 : (tensor<7xf32, #pc.place<[_]>>) -> tensor<7xf32, #pc.place<[_] in disk>>
    pc.update "exp_avg" of "w" %back : tensor<7xf32, #pc.place<[_] in disk>>
    ```

    `match` chooses the values of some parameters, by globs on their names. `keep` leaves values of so many bytes per rank on the device:
    the first ones that fit, or activations of the last layers, which are read again soonest.

    The pass fails if the program has no such values, does not train, or is not placed. It may run several times, each time for other
    values.
  }];
  let options = [
    Option<"what", "what", "std::string", "\"states\"", "What leaves the device: states, masters, parameters or activations">,
    Option<"to", "to", "std::string", "\"disk\"", "The space that holds it: disk, or host">,
    Option<"match", "match", "std::string", "\"\"", "Globs, joined by |, on names of parameters; only their values leave the device">,
    Option<"keep", "keep", "int64_t", "0", "Bytes per rank that stay on the device; of activations, in each microbatch">,
  ];
}

def PadShards : Pass<"pc-pad-shards", "mlir::ModuleOp"> {
  let summary = "Pad parameters whose dims do not divide, for pc-zero";
  let description = [{
    Step program -> step program, before `pc-set-mesh` and after all other passes that change the step. A parameter without a dim that divides
    by `ranks` gets zeros at the end of one dim, and so do its optimizer state and its gradient. The pass pads the dim that grows
    least, relative to its size. `valid` keeps the true shape. `pc.resize` cuts the padding off for readers in the forward and
    backward pass, and adds it to the gradient. All padding stays 0, and no loss, norm, update or checkpoint contains it.

    ```mlir
    // pc-opt --pc-differentiate=optimizer=sgd --pc-pad-shards=ranks=2
    func.func @model() {
      %x = pc.input tokens dims ["batch", "embed"] : tensor<4x7xf32>
      %w = pc.parameter "w" dims ["embed"] init <fill, 1.0> source <"w", shape = [7], start = [0], size = [7]> : tensor<7xf32>
      %loss = pc.einsum "b e, e ->" %x, %w : (tensor<4x7xf32>, tensor<7xf32>) -> tensor<f32>
      pc.output loss "loss" %loss : tensor<f32>
      return
    }
    // becomes
    %w = pc.parameter "w" ... valid [7] : tensor<8xf32>
    %sums:2 = pc.accumulate ...
      %own = pc.resize %w dim 0 : (tensor<8xf32>) -> tensor<7xf32>
      %loss = pc.einsum "b e, e ->" %xm, %own : ...
      ...
      %dw = pc.resize %g dim 0 : (tensor<7xf32>) -> tensor<8xf32>
    ```

    Dims that tensor parallelism of one of `forms` splits over its axes are not padded. A parameter without another dim,
    or with fewer than `ranks` entries along each, is not padded. In 2D and 2.5D the row axis shards weights as ZeRO
    does, and so does axis i in 3D; `ranks` includes the ranks of these axes.
  }];
  let options = [
    Option<"ranks", "ranks", "int64_t", "1", "The number by which a dim must divide">,
    ListOption<"forms", "forms", "std::string", "Forms of tensor parallelism in the plan: 1d, 2d, 2.5d, 3d, free">,
    Option<"takenRanks", "taken-ranks", "int64_t", "1", "The number of ranks among which these forms split a dim">,
  ];
}

def StackUpdates : Pass<"pc-stack-updates", "mlir::ModuleOp"> {
  let summary = "Stack the matrices that an optimizer multiplies, so that each may have one owner";
  let description = [{
    Step program -> step program, before `pc-set-mesh`. An optimizer such as Muon multiplies whole matrices, and each rank that has a
    matrix would repeat its products. For updates that are equal except for their operands, this pass stacks the operands of their products
    along a new dim, `layers`, and computes the products once, for the stack. Tactics may split `layers`: each rank then owns some of the
    matrices. An all_to_all brings it whole matrices, and another move brings the results back. Stacks are padded with zeros to a multiple of
    `multiple`.

    The stacked ops are all ops between the first and the last product of an update, and ops that read only these. An
    update is not changed if other ops than pointwise ops and einsums are among them.

    ```mlir
    // pc-opt --pc-stack-updates=multiple=4
    // input: matrices.mlir
    %p0 = pc.einsum "a b, c b -> a c" %u0, %u0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>
    ...
    %p1 = pc.einsum "a b, c b -> a c" %u1, %u1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>
    // becomes
    %stack = pc.stack %u0, %u1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4x6xf32>
    %p = pc.einsum "layers a b, layers c b -> layers a c" %stack, %stack : ... -> tensor<4x4x4xf32>
    %p0 = pc.unstack %p at 0 : (tensor<4x4x4xf32>) -> tensor<4x4xf32>
    ...
    %p1 = pc.unstack %p at 1 : (tensor<4x4x4xf32>) -> tensor<4x4xf32>
    ```
  }];
  let options = [Option<"multiple", "multiple", "int64_t", "1", "The number by which the size of a stack must divide">];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

def DecomposeNorms : Pass<"pc-decompose-norms", "mlir::ModuleOp"> {
  let summary = "Decompose norms over a dim that will be split";
  let description = [{
    Step program -> step program, before `pc-set-mesh`. layer_norm, rms_norm and their gradients over the dim that parameters call `dim` become
    sums, products and a reciprocal root. The composite ops need the whole dim; the primitives work on a part of it and sum their results (2D
    and 3D tensor parallelism). Other norms, such as those of single heads, do not change.

    ```mlir
    // pc-opt --pc-decompose-norms
    // input: mlp.mlir
    %n, %rstd = pc.rms_norm %x, %gamma eps 1.0e-5 : (tensor<4x8x8xf32>, tensor<8xf32>) -> (tensor<4x8x8xf32>, tensor<4x8xf32>)
    // becomes
    %squares = pc.einsum "r0 r1 e, r0 r1 e -> r0 r1 " %x, %x : ... -> tensor<4x8xf32>
    %mean = pc.scale %squares by 1.250000e-01 : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %eps = pc.constant 1.000000e-05 : tensor<f32>
    %rows = pc.einsum "-> r0 r1 " %eps : (tensor<f32>) -> tensor<4x8xf32>
    %sum = pc.add %mean, %rows : ...
    %root = pc.sqrt %sum : ...
    %rstd = pc.recip %root : ...
    %scaled = pc.einsum "r0 r1 e, r0 r1 -> r0 r1 e" %x, %rstd : ... -> tensor<4x8x8xf32>
    %n = pc.einsum "r0 r1 e, e -> r0 r1 e" %scaled, %gamma : ... -> tensor<4x8x8xf32>
    ```
  }];
  let options = [Option<"dim", "dim", "std::string", "\"embed\"", "The normalized dim">];
}

def LocalSgd : Pass<"pc-local-sgd", "mlir::ModuleOp"> {
  let summary = "Local SGD (DiLoCo): replicas along an axis train separately and synchronise once per round";
  let description = [{
    This tactic works on a scheduled program, before its memory is planned. The coordinates on `axis` are replicas: each
    trains its own parameters on its own samples, and the batch of the program is the batch of one replica. Nothing in
    the step may work over the axis or be split over it. Every `every`-th step ends a round. The replicas' parameters are then
    averaged, and SGD with Nesterov momentum updates the shared parameters, with their difference from the average as the
    gradient (`pc/IR/Rounds.h`). The runtime does this. The pass adds the states "shared" and "outer_momentum" to each parameter
    that is trained, and describes the rounds in an attribute of the module (`pc.rounds`).

    ```mlir
    // pc-opt --pc-set-mesh=mesh=outer=2 --pc-localize --pc-schedule --pc-local-sgd
    // input: step.mlir
    %w = pc.parameter "w" ... : tensor<8x6xf32>
    // becomes
    module attributes {pc.rounds = {axis = "outer", every = 32 : i64, ...
    ...
    %w = pc.parameter "w" ... : tensor<8x6xf32>
    %shared = pc.state "shared" of "w" ... : tensor<8x6xf32>
    %momentum = pc.state "outer_momentum" of "w" ... : tensor<8x6xf32>
    ```
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"outer\"", "Mesh axis of the replicas">,
    Option<"every", "every", "int64_t", "32", "Steps per round">,
    Option<"rate", "rate", "double", "0.7", "Learning rate of the outer optimizer">,
    Option<"momentum", "momentum", "double", "0.9", "Momentum of the outer optimizer">,
    Option<"deltas", "deltas", "std::string", "\"f32\"", "Type in which replicas send their deltas: f32, or int8 (codes of 8 bits)">,
  ];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

#endif
