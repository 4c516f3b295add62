//===- PCStructure.td - The parts of a program ------------------------------------===//
// These ops hold the mesh, the plan, the arenas, and the bodies that ops are grouped in. PCOps.td includes this file.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCSTRUCTURE_TD
#define PC_IR_PCSTRUCTURE_TD

def PC_MeshOp : PC_Op<"mesh"> {
  let summary = "The device mesh of this module";
  let description = [{
    A module has at most one mesh, as its first op. Placed and local programs need it; model and step programs have
    none.
    Example: `pc.mesh <dp = 2, tp = 2>`
  }];
  let arguments = (ins PC_MeshAttr:$mesh);
  let assemblyFormat = "$mesh attr-dict";
}

def PC_ProgramOp : PC_Op<"program"> {
  let summary = "The model name, the data shape and the Hugging Face configuration of the module";
  let description = [{
    A module has one such op. `batch` is the global batch.

    * `config` is the text of config.json, which checkpoints contain.
    * `means` is JSON (`config_means` in runtime/README.md). It decides whether weights with another config.json are
      weights of this model: it lists the keys that change the results of given weights, each with the values that it
      may have.
    * `weights` is the directory of the safetensors with which the model was imported. A run starts from them unless it
      gets another directory.
    * With `zigzag n`, index i of every sequence dim has position `zigzagPosition(i)`. The sequence is cut into 2n
      chunks, which are in the order 0, 2n-1, 1, 2n-2, ... This gives each of n ranks the same amount of work in causal
      attention. Tokens, targets, position tables, attention and outputs use positions; other ops do not depend on the
      order.
    * With `masked`, targets are not the next tokens, but for example masked words. A run reads them from files
      (`--targets`).
    * With `targets n`, each sequence of targets has n tokens. Otherwise it has the same number of targets as a sequence
      has tokens.

    Constraints: (C1) the sequence divides into 2n chunks; (C2) sequences of targets with their own length are masked,
    and the order is not zigzag.

    Example: `pc.program "gpt2" batch 8 sequence 256 vocabulary 50257 config "{...}"`
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$batch, I64Attr:$sequence, I64Attr:$vocabulary, StrAttr:$config,
                       OptionalAttr<StrAttr>:$means, OptionalAttr<StrAttr>:$weights, UnitAttr:$masked, OptionalAttr<I64Attr>:$targets, OptionalAttr<I64Attr>:$zigzag);
  let hasVerifier = 1;
  let assemblyFormat = [{
    $name `batch` $batch `sequence` $sequence `vocabulary` $vocabulary (`masked` $masked^)? (`targets` $targets^)? `config` $config (`means` $means^)? (`weights` $weights^)? (`zigzag` $zigzag^)? attr-dict
  }];
  let extraClassDeclaration = [{
    /// The number of tokens in a sequence of targets.
    int64_t targetLength() { return getTargets().value_or(getSequence()); }
  }];
}

def PC_PlanOp : PC_Op<"plan"> {
  let summary = "A plan: the mesh and the ordered tactics";
  let description = [{
    A plan file has only this op (`pc-compile --plan`). Tactics are passes with their options. They are applied in
    order.

    Example: `pc.plan <dp = 2, tp = 2> ["pc-tensor-parallel{axis=tp form=1d}", "pc-data-parallel{axis=dp mode=ddp}"] microbatches 1`
  }];
  let arguments = (ins PC_MeshAttr:$mesh, StrArrayAttr:$tactics, I64Attr:$microbatches);
  let assemblyFormat = "$mesh $tactics `microbatches` $microbatches attr-dict";
  let extraClassDeclaration = [{
    /// The mesh and the tactics in one line, for reports: "dp=2: pc-data-parallel{axis=dp mode=ddp}". Without a mesh it begins with
    /// "1 rank".
    std::string line();
  }];
}

def PC_ArenaOp : PC_Op<"arena"> {
  let summary = "The sizes in bytes of the arenas of one rank: in memory of the device, in memory of the host, and on disk";
  let description = [{
    Only planned programs have arenas, and at most one op per module. Every value outside kernels lives in the arena of
    its space, at the offset in its type (`#pc.home`).

    Constraint (C1): the sizes are multiples of 64 and at least 0.

    Example: `pc.arena 123456 disk 640`
  }];
  let arguments = (ins I64Attr:$bytes, DefaultValuedAttr<I64Attr, "0">:$host, DefaultValuedAttr<I64Attr, "0">:$disk);
  let assemblyFormat = "$bytes (`host` $host^)? (`disk` $disk^)? attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The bytes of the arena in `space`.
    int64_t sizeOf(::pc::Space space);
    /// Whether the bytes [begin, end), numbered as in homes, are inside an arena.
    bool contains(int64_t begin, int64_t end);
  }];
}

def PC_AccumulateOp : PC_Op<"accumulate", [SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects]> {
  let summary = "Computes the forward and backward pass of every microbatch and adds the results";
  let description = [{
    Every operand has a leading dim of microbatches. The body runs once per microbatch, on the operands' elements along
    this dim. Each result is the sum of the values that the body yields. The body may also use values from outside
    (parameters).

    Constraints: (C1) all operands have the same leading dim, which is at least 1 and not split; (C2) the block
    arguments have the types of the operands without this dim; (C3) yielded types equal result types.
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
  let summary = "Groups ops that become one kernel";
  let description = [{
    Fusions are formed after localization. Values inside a fusion have no home.

    Constraints: (C1) the block arguments have the types of the operands, except for homes; (C2) yielded types equal
    result types, except for homes.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def PC_YieldOp : PC_Op<"yield", [Pure, Terminator, ReturnLike]> {
  let summary = "Ends the body of `pc.accumulate`, `pc.fusion`, `pc.start` and `pc.optimizer`";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let builders = [OpBuilder<(ins), "">];
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

#endif
