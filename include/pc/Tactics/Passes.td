//===- Passes.td - Passes of the Tactics room --------------------------------------===//
#ifndef PC_TACTICS_PASSES_TD
#define PC_TACTICS_PASSES_TD

include "mlir/Pass/PassBase.td"

def DataParallel : Pass<"pc-data-parallel", "mlir::ModuleOp"> {
  let summary = "Split the batch along one axis, sum the gradients";
  let description = [{
    Every op that has a dim named "batch" is split along it; parameters and optimizer state stay whole on every rank. Gradients come out
    of the accumulation as partial sums and are reduced once a step: 2(n-1)/n of the parameters' bytes per rank. Means need no
    division by the axis size, because a step program divides by the global count.

    That was `mode=ddp`. `mode=naive` is what nn.DataParallel does: coordinate 0 of the axis alone holds data, parameters and optimizer
    state (`root(axis)`). It scatters the batch, broadcasts the parameters, gathers the loss of every token, scatters the gradient of that,
    receives the summed gradients and updates: five exchanges, 2(n-1) of the parameters' bytes at the root. The other ranks have buffers of the
    same size with undefined contents; they compute the update, too, but its result is never read.

    Fails where the batch does not divide.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"dp\"", "The mesh axis to use">,
    Option<"mode", "mode", "std::string", "\"ddp\"", "ddp or naive">,
  ];
}

def ExpertParallel : Pass<"pc-expert-parallel", "mlir::ModuleOp"> {
  let summary = "Split the experts of a mixture along one axis, and the batch everywhere else";
  let description = [{
    Weights of experts, with dims named "experts" and "expert_ffn", are split along experts, their gradients and state too; all else is
    as under data parallelism: each rank has its sequences, and other gradients are reduced over the axis. In front of a mixture of experts tokens are
    gathered, after it the addends of the ranks' experts are reduced and scattered: 4(n-1)/n of the bytes of [batch, sequence, embed] a layer, forward and
    backward. Routers are whole on every rank, as they compare all experts.

    On the batch the axis is minor to those of data parallelism, wherever it is in the mesh. Fails where there are no experts, and where experts or the
    batch do not divide.

    Experts may also be split over an axis that splits something else outside of them: the option `experts` of `pc-context-parallel` (the sequence),
    `pc-tensor-parallel` (weights of other products; with `pc-sequence-parallel` the sequence) and `pc-zero` (the batch, and all other parameters).
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"ep\"", "The mesh axis to use">,
  ];
}

def TensorParallel : Pass<"pc-tensor-parallel", "mlir::ModuleOp"> {
  let summary = "Split weights and the activations between them along one axis";
  let description = [{
    `form=1d` is Megatron's placement: weights are split by the names kv_heads, ffn and vocab and never sent. Attention and mlp each cost
    one all_reduce of [batch, sequence, embed] forward and one backward; embedding and head one each; the loss over a split
    vocabulary two of [batch, sequence] and a scalar.

    With more ranks than key/value heads the axis is split in the mesh into `<axis>.0` for kv_heads and `<axis>.1` for the query heads
    of a group: keys and values are replicated on the second, their gradients summed over it. `pc-fuse-moves` joins what is
    then reduced over both. Fails where heads, ffn or vocabulary do not divide.

    The other forms split weights and activations both, over a grid; norms over embed are decomposed first (`pc-decompose-norms`). Weights are
    gathered where they are used, as in ZeRO's third stage:
    * `form=2d` (SUMMA; axes row,col of one size q): residual stream [batch:row, sequence, embed:col], weights [input:row, output:col].
      Every linear gathers its activation on col and its weight on row; attention, activations and loss work on their own heads, ffn, vocabulary.
    * `form=2.5d` (axes depth,row,col): the batch is split over depth too; gradients are summed over it.
    * `form=3d` (axes i,j,l of one size): residual stream [batch:(i, l), sequence, embed:j]. Linears into heads, ffn and vocabulary gather
      on l, contract embed and scatter on j; those back to embed do the reverse. Weights are split over all three.

    `form=free` knows no names: along any number of axes, one after the other, each op is split and each leaf lies as a step on `machine`
    takes least time (`pc-propagate{free cost=seconds}`). Megatron's placement, sequence parallelism and a mixture with data parallelism come
    out where they are the best, for models with dims of any name. Dims that do not divide stay whole; so do those with which the search would need
    too large a table, the batch first.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"tp\"", "The mesh axis to use, or the axes of the grid: row,col; depth,row,col; i,j,l; of free: any">,
    Option<"form", "form", "std::string", "\"1d\"", "1d, 2d, 2.5d, 3d or free">,
    Option<"regather", "regather", "bool", "true", "Grids: the backward pass gathers again what the forward pass gathered">,
    Option<"experts", "experts", "bool", "false", "1d: of mixtures of experts each rank has some, and not a part of each">,
    Option<"machine", "machine", "std::string", "\"cpu\"", "free: cpu, a100, h100, h200, b200, here (pc-calibrate), or a file *.json">,
    Option<"bytePrice", "byte-price", "double", "0", "free: seconds that a byte of a parameter, gradient or state on a rank is worth">,
  ];
}

def Zigzag : Pass<"pc-zigzag", "mlir::ModuleOp"> {
  let summary = "Put the sequence in an order in which causal attention is the same work on every rank";
  let description = [{
    Step program -> step program, in front of `pc-set-mesh`. Sets `zigzag <ranks>` in `pc.program`: with it, index i of the sequence in tokens,
    targets, position tables and attention means position `zigzagPosition(i)`. Of 2n chunks of the sequence, rank r's block holds chunks r and
    2n-1-r. Results are the same as before; the runtime gets logits in the sequence's own order. For `pc-context-parallel{form=ring}`.

    The sequence are all dims that iterate together with the last dim of tokens, targets and other inputs by token. Fails if it does not divide
    into 2n chunks, if a parameter has it as a dim (a table of positions that is added, weights of a mixer over tokens), at an op that depends
    on its order (`pc.columns` along it, as of a convolution, attention with a window, an embedding that looks its entries up), and at what
    counts another dim: in zigzag order `pc.iota` and tables of rotary embeddings are by position.
  }];
  let options = [Option<"ranks", "ranks", "int64_t", "0", "n">];
}

def DispatchExperts : Pass<"pc-dispatch-experts", "mlir::ModuleOp"> {
  let summary = "What goes to the experts of a mixture, and comes back, as values of their own";
  let description = [{
    Step program -> step program, in front of `pc-set-mesh`. Of products that are routed, what is by token becomes by token and expert: `dispatch`, an einsum `"b s e, b s n
    -> b s n e"`, in front, and `combine`, `"b s n e, b s n -> b s e"`, after; sums of combines become one. Both are routed by the same mask, so results are the same as before. `pc-expert-parallel` then
    splits tokens outside of them and experts between them, and ranks send each other what tokens have chosen: k / n of what all experts of all tokens would be.

    With `exchange=auto` only where a token has fewer experts than there are ranks: else gathering tokens sends less. With `target=cuda`, where nothing is stored by rows, `auto` does nothing and `rows` fails; `rows` also fails where
    nothing is routed.
  }];
  let options = [Option<"ranks", "ranks", "int64_t", "1", "Ranks that will split the experts">,
                 Option<"exchange", "exchange", "std::string", "\"auto\"", "auto or rows">,
                 Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">];
}

def ContextParallel : Pass<"pc-context-parallel", "mlir::ModuleOp"> {
  let summary = "Split the sequence everywhere along one axis";
  let description = [{
    Every op on the sequence works on the rank's part of it; parameters are whole and their gradients summed, as in data parallelism.

    `form=heads`: in attention, each rank has some heads of the whole sequence. Queries, keys, values and the result change from a split sequence to
    split heads and back in eight all_to_alls a layer. Fails where sequence or key/value heads do not divide.

    `form=ring` (after `pc-zigzag`): every rank keeps its queries. Keys and values are gathered and their gradients reduce_scattered;
    `pc-window-moves` turns these moves into steps round a ring. They send 4(n-1)/n of the bytes of the keys a layer. Any number of heads will
    do. Fails where the program is not in zigzag order of as many ranks as the axis has.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"cp\"", "The mesh axis to use">,
    Option<"form", "form", "std::string", "\"heads\"", "heads or ring">,
    Option<"experts", "experts", "bool", "false", "The axis also splits the experts of a mixture: tokens or what they have chosen is sent along the sequence">,
  ];
}

def SequenceParallel : Pass<"pc-sequence-parallel", "mlir::ModuleOp"> {
  let summary = "Split the sequence where tensor parallelism leaves activations whole";
  let description = [{
    After `pc-tensor-parallel` (form 1d) and on the same axis. The placements of weights do not change; residual stream, norms and the ops
    between them are split along the sequence. Every all_reduce of [batch, sequence, embed] becomes a reduce_scatter and an all_gather of
    the same bytes, and each rank holds only its part of these activations. Gradients of norm weights and of biases after a row-parallel
    linear, which each rank now computes from its part of the sequence, are summed over the axis.

    Fails where the sequence does not divide, and where no weight is split over the axis.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"tp\"", "The mesh axis of tensor parallelism">,
    Option<"regather", "regather", "bool", "false", "Gather the inputs of linears again in the backward pass: 5/4 of the bytes, but no whole activation is kept">,
  ];
}

def Zero : Pass<"pc-zero", "mlir::ModuleOp"> {
  let summary = "Data parallelism without redundancy along one axis (ZeRO, FSDP)";
  let description = [{
    The batch is split as in `pc-data-parallel`, and so are tensors of which every rank would hold a copy:

    * `stage=1`: the optimizer state. Gradients are reduce_scattered once a step to the rank that owns the state; the new
      parameters are gathered.
    * `stage=2`: also the accumulators of gradients, so gradients are reduce_scattered in every microbatch, right after the op that computes them.
    * `stage=3` (FSDP): also the parameters. They are gathered in front of their first reader and freed after the last. With
      `reshard-after-forward` (a `pc.copy` per parameter and phase) the backward pass gathers them again; without it, they are kept from the forward
      pass. Parameters that a glob of `keep` matches (their Hugging Face name, or a part of it after a dot: `wte.*|h.11.*`) are gathered once a
      step and kept from their first reader to the last; with several microbatches they are gathered in front of all of them.

    The shard of a parameter is a dim that no other axis splits, the longest that divides; a parameter without one stays whole.
    Hybrid sharding (HSDP) is this over an inner axis and `pc-data-parallel` over an outer one. ZeRO goes last: it takes the dims that
    other tactics leave. Fails where the batch does not divide and where a glob of `keep` matches no parameter.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"dp\"", "The mesh axis to use">,
    Option<"stage", "stage", "int64_t", "1", "1, 2 or 3">,
    Option<"reshardAfterForward", "reshard-after-forward", "bool", "true", "stage 3: gather again in the backward pass">,
    Option<"keep", "keep", "std::string", "\"\"", "stage 3: globs, joined by |, on names of parameters that are gathered once a step">,
    Option<"experts", "experts", "bool", "false", "The axis also splits the experts of a mixture, whose weights are never gathered">,
  ];
}

def PadShards : Pass<"pc-pad-shards", "mlir::ModuleOp"> {
  let summary = "Parameters whose dims do not divide -> padded ones, for pc-zero";
  let description = [{
    Step program -> step program, in front of `pc-set-mesh` and after all other passes that change the step. A parameter without a dim that
    divides by `ranks` gets zeros at the end of one (the one that grows least in relation), and so do its optimizer state and its gradient;
    `valid` keeps the true shape. `pc.resize` cuts the padding off for the readers in the forward and backward pass and adds it to the gradient.
    All padding stays 0, and no loss, norm, update or checkpoint contains it. Dims that tensor parallelism of one of `forms` splits over axes of
    its own are not padded; a parameter without another dim, or with fewer than `ranks` entries along each, stays as it is. In 2D and 2.5D the
    row axis shards weights as ZeRO does, and so does axis i in 3D: their ranks count in `ranks`.
  }];
  let options = [
    Option<"ranks", "ranks", "int64_t", "1", "What a dim has to divide by">,
    ListOption<"forms", "forms", "std::string", "Forms of tensor parallelism in the plan: 1d, 2d, 2.5d, 3d, free">,
    Option<"takenRanks", "taken-ranks", "int64_t", "1", "Among how many ranks those split a dim">,
  ];
}

def DecomposeNorms : Pass<"pc-decompose-norms", "mlir::ModuleOp"> {
  let summary = "Norms over a dim that will be split -> primitives";
  let description = [{
    Step program -> step program, in front of `pc-set-mesh`: layer_norm, rms_norm and their gradients over the dim that parameters call `dim`
    become sums, products and a reciprocal root. The composite ops need the whole dim; primitives work on a part of it and
    sum what they found (2D and 3D tensor parallelism). Other norms, as that of each head, stay.
  }];
  let options = [Option<"dim", "dim", "std::string", "\"embed\"", "The normalized dim">];
}

def LocalSgd : Pass<"pc-local-sgd", "mlir::ModuleOp"> {
  let summary = "Local SGD over a mesh axis: a round every so many steps (DiLoCo)";
  let description = [{
    Tactic, on a scheduled program before its memory is planned. The coordinates on `axis` are replicas: each trains its own parameters on its own rows,
    and the batch of the program is that of one replica. Nothing in the step may work over the axis or be split over it. Every `every`-th step ends a
    round: the replicas' parameters are averaged, and SGD with Nesterov's momentum moves the parameters that all share by how far those went
    (`pc/IR/Rounds.h`; the runtime calls it). Adds to each parameter the states "shared" and "outer_momentum", and what rounds are to the module (`pc.rounds`).
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"outer\"", "Mesh axis of the replicas">,
    Option<"every", "every", "int64_t", "32", "Steps of a round">,
    Option<"rate", "rate", "double", "0.7", "Learning rate of the outer optimizer">,
    Option<"momentum", "momentum", "double", "0.9", "Its momentum">,
    Option<"deltas", "deltas", "std::string", "\"f32\"", "How replicas send how far they went: f32, or int8, in codes of 8 bits">,
  ];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

#endif
