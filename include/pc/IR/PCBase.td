//===- PCBase.td - The pc dialect: attributes and enums ------------------------===//
// What every op of the dialect needs: placements (how a tensor lies on the mesh), the mesh, where a parameter
// comes from, and where a buffer lives. Only pc ops touch placed tensors.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCBASE_TD
#define PC_IR_PCBASE_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/TensorEncoding.td"

def PC_Dialect : Dialect {
  let name = "pc";
  let cppNamespace = "::pc";
  let summary = "Transformers, placements and moves";
  let description = [{
    A training step of a transformer, written once as if for one device. A tensor type may carry a placement
    (`#pc.place`): how the tensor lies on the mesh. Every op states its *factors* once (`FactorOpInterface`); that
    declaration drives verification, propagation, partial results, local shapes and costs. The only ops that change a
    placement are *moves*.

    Elements are f32, bf16 or, where they are indices, i32. Every op computes in f32 and rounds each result to the nearest
    value of its type, ties to even; operands of different float types may meet in one op. Inside of `pc.fusion` only what
    it yields is rounded. Constraints of all ops with factors: (T1) data are f32, bf16 or f64, ids, targets and offsets i32;
    (T2) statistics of norms, attention and loss, and what an optimizer keeps, are not bf16.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let extraClassDeclaration = [{ void registerAttributes(); }];
}

class PC_Attr<string name, string mnemonicName, list<Trait> traits = []>
    : AttrDef<PC_Dialect, name, traits> {
  let mnemonic = mnemonicName;
}

def PC_PartialKind : I32EnumAttr<"PartialKind", "how addends of a partial value combine", [
    I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Sum", 1, "sum">, I32EnumAttrCase<"Max", 2, "max">]> {
  let cppNamespace = "::pc";
}

def PC_InitKind : I32EnumAttr<"InitKind", "how the elements of a parameter start", [
    I32EnumAttrCase<"Normal", 0, "normal">, I32EnumAttrCase<"Fill", 1, "fill">]> {
  let cppNamespace = "::pc";
}

def PC_InputKind : I32EnumAttr<"InputKind", "what the runtime puts into an input", [
    I32EnumAttrCase<"Tokens", 0, "tokens">, I32EnumAttrCase<"Targets", 1, "targets">,
    I32EnumAttrCase<"Hyper", 2, "hyper">, I32EnumAttrCase<"Random", 3, "random">,
    I32EnumAttrCase<"LossWeights", 4, "loss_weights">, I32EnumAttrCase<"Starts", 5, "starts">,
    I32EnumAttrCase<"Positions", 6, "positions">, I32EnumAttrCase<"Shifted", 7, "shifted">, I32EnumAttrCase<"Data", 8, "data">]> {
  let cppNamespace = "::pc";
}

def PC_OutputKind : I32EnumAttr<"OutputKind", "what an output means to the runtime", [
    I32EnumAttrCase<"Loss", 0, "loss">, I32EnumAttrCase<"GradNorm", 1, "grad_norm">,
    I32EnumAttrCase<"Gradient", 2, "gradient">, I32EnumAttrCase<"Logits", 3, "logits">]> {
  let cppNamespace = "::pc";
}

def PC_ActivationKind : I32EnumAttr<"ActivationKind", "pointwise nonlinearity", [
    I32EnumAttrCase<"GeluTanh", 0, "gelu_tanh">, I32EnumAttrCase<"Gelu", 1, "gelu">,
    I32EnumAttrCase<"Silu", 2, "silu">, I32EnumAttrCase<"Relu", 3, "relu">,
    I32EnumAttrCase<"Tanh", 4, "tanh">, I32EnumAttrCase<"Sigmoid", 5, "sigmoid">]> {
  let cppNamespace = "::pc";
}

def PC_ComparisonKind : I32EnumAttr<"ComparisonKind", "comparison of two numbers", [
    I32EnumAttrCase<"Less", 0, "less">, I32EnumAttrCase<"LessEqual", 1, "less_equal">,
    I32EnumAttrCase<"Equal", 2, "equal">]> {
  let cppNamespace = "::pc";
}

def PC_TableKind : I32EnumAttr<"TableKind", "which rotary table", [
    I32EnumAttrCase<"Cos", 0, "cos">, I32EnumAttrCase<"Sin", 1, "sin">]> {
  let cppNamespace = "::pc";
}

def PC_TaskKind : I32EnumAttr<"TaskKind", "a task of a pipeline schedule, or what follows all of them", [
    I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"Recompute", 1, "recompute">,
    I32EnumAttrCase<"Backward", 2, "backward">, I32EnumAttrCase<"Weight", 3, "weight">,
    I32EnumAttrCase<"Optimizer", 4, "optimizer">]> {
  let cppNamespace = "::pc";
}

def PC_MeshAttr : PC_Attr<"Mesh", "mesh"> {
  let summary = "Named axes of a device mesh, outermost first";
  let description = [{
    `#pc.mesh<dp = 2, tp = 4>`. The rank of a device is the mixed-radix number of its coordinates, first axis major.
    Constraints: (C1) names are unique; (C2) sizes are positive.
  }];
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$names, ArrayRefParameter<"int64_t">:$sizes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The size of `axis`, or 0 if the mesh has no such axis.
    int64_t size(::mlir::StringAttr axis) const;
    /// The product of the sizes of `axes`.
    int64_t size(::llvm::ArrayRef<::mlir::StringAttr> axes) const;
    /// The position of `axis` in the mesh, or -1.
    int64_t index(::mlir::StringAttr axis) const;
    /// The number of ranks.
    int64_t numRanks() const;
    /// Coordinates of `rank`, one per axis.
    ::llvm::SmallVector<int64_t> coordinates(int64_t rank) const;
  }];
}

def PC_PlaceAttr : PC_Attr<"Place", "place",
    [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "How a tensor lies on the mesh";
  let description = [{
    Per dim, the mesh axes that split it, major to minor, then the axes on which the value is partial (every rank holds an
    addend of a sum, or an operand of a max), then the axes on which only coordinate 0 holds the value (on the other ranks the
    buffer is undefined). The value is replicated over axes that are not named. `#pc.place<[dp, _, (row, col)] sum(tp) root(cp)>`.

    Constraints: (C1) one entry per dim of the tensor; (C2) an axis occurs at most once; (C3) partial axes and root axes are
    listed in alphabetical order, partial ones only with a kind.
  }];
  let parameters = (ins
    ArrayRefParameter<"::mlir::ArrayAttr", "per dim: array of axis names (StringAttr)">:$dims,
    "::pc::PartialKind":$kind,
    ArrayRefParameter<"::mlir::StringAttr">:$partial,
    ArrayRefParameter<"::mlir::StringAttr">:$root);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Everything replicated.
    static PlaceAttr replicated(::mlir::MLIRContext *context, int64_t rank);
    /// The axes that split dim `d`, major to minor.
    ::llvm::SmallVector<::mlir::StringAttr> axes(int64_t d) const;
    /// What this placement says of one axis.
    AxisState state(::mlir::StringAttr axis) const;
    /// This placement with `axis` in `state`; a split is added at the minor end of the dim, or at `position` of its list.
    PlaceAttr with(::mlir::StringAttr axis, AxisState state, int64_t position = -1) const;
    /// The same without its first dim (an element of a stack of microbatches), or with a new unsplit first dim.
    PlaceAttr dropFront() const;
    PlaceAttr addFront() const;
    bool isPartial() const { return !getPartial().empty(); }
  }];
}

def PC_InitAttr : PC_Attr<"Init", "init"> {
  let summary = "How a parameter starts: `#pc.init<normal, 2.0e-02>` (standard deviation) or `#pc.init<fill, 1.0>`";
  let description = [{
    `#pc.init<normal, 2.0e-02, zero_row = 3>`: index 3 of the first dim starts as zeros, as the row of a padding token does.
  }];
  let parameters = (ins "::pc::InitKind":$kind, "::mlir::FloatAttr":$value, DefaultValuedParameter<"int64_t", "-1">:$zeroRow);
  let hasCustomAssemblyFormat = 1;
}

def PC_DropAttr : PC_Attr<"Drop", "drop"> {
  let summary = "What dropout drops: `#pc.drop<6554>`, an element with probability 6554 / 65536";
  let description = [{
    Element i of a value, counted row by row over the whole value of the step's batch with the last dim rounded up to a multiple of 8, has 16
    bits of its own: bits 16 (i mod 2) .. of word (i mod 8) / 2 of Philox4x32-10 with the seed as key and the counter (i / 8, low word first; the step;
    2^31 + the key of the op's `random`). It is dropped, that is 0, where they are below `threshold`, and divided by 1 - threshold / 65536
    where they are not. So every plan drops the same elements, and whoever computes a value again drops them again.

    `#pc.drop<6554, global = [8, 64, 48], split = [0, 1], shift = 1>`, in local programs: the sizes of the whole value, and of which of its dims
    the op's offsets say where the rank's block begins. `shift n`: in the last dim it is the block n blocks before that one, the last after the first.

    Constraints: (C1) the threshold is at least 1 and at most 65535; (C2) sizes are positive, split dims ascend and are dims of `global`, shift is at least 0.
  }];
  let parameters = (ins "int64_t":$threshold, ArrayRefParameter<"int64_t">:$global, ArrayRefParameter<"int64_t">:$split, "int64_t":$shift);
  let builders = [AttrBuilder<(ins "int64_t":$threshold), [{ return $_get($_ctxt, threshold, llvm::ArrayRef<int64_t>(), llvm::ArrayRef<int64_t>(), 0); }]>];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// What is kept is multiplied by this.
    float scale() const { return static_cast<float>(1.0 / (1.0 - static_cast<double>(getThreshold()) / 65536)); }
  }];
}

def PC_SourceAttr : PC_Attr<"Source", "source"> {
  let summary = "The part (box) of a Hugging Face tensor that a parameter holds";
  let description = [{
    `#pc.source<"h.0.attn.c_attn.weight", shape = [768, 2304], start = [0, 768], size = [768, 768]>`: the box, row major,
    reshaped to the parameter's shape (without padding). `view = [12, 3, 64, 768]` after it: the tensor is read in that shape, row major, and the box
    is a part of that.

    Constraint (C1): a view has as many elements as the tensor.
  }];
  let parameters = (ins StringRefParameter<>:$tensor, ArrayRefParameter<"int64_t">:$shape,
                        ArrayRefParameter<"int64_t">:$start, ArrayRefParameter<"int64_t">:$size,
                        OptionalArrayRefParameter<"int64_t">:$view);
  let assemblyFormat = [{
    `<` $tensor `,` `shape` `=` `[` $shape `]` `,` `start` `=` `[` $start `]` `,` `size` `=` `[` $size `]` (`,` `view` `=` `[` $view^ `]`)? `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The shape that the box is a part of.
    ::llvm::ArrayRef<int64_t> boxShape() const { return getView().empty() ? getShape() : getView(); }
  }];
}

def PC_PartAttr : PC_Attr<"Part", "part"> {
  let summary = "A parameter that pc-pack-products has made a part of another one";
  let description = [{
    `#pc.part<"h.0.attn.c_attn.weight:k", key = 3, size = 1, source = <...>>`: its name and key, how many indices of the dim `along`
    of the packed parameter are its own, and the box of a Hugging Face tensor that it holds, row major.
  }];
  let parameters = (ins StringRefParameter<>:$name, "int64_t":$key, "int64_t":$size, "::pc::SourceAttr":$source);
  let assemblyFormat = "`<` $name `,` `key` `=` $key `,` `size` `=` $size `,` `source` `=` $source `>`";
}

def PC_RowsAttr : PC_Attr<"Rows", "rows", [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "A value that is stored by rows: `#pc.rows<32 of 3>`, at most 32 of the entries of its first 3 dims exist";
  let description = [{
    Used in local programs. The mask of an einsum that is `routed` determines which entries exist: those where it is 1, in the order of its last dim
    first, then of
    the others. The buffer has `count` rows, one for each, one after the other; rows after the last one are undefined. A value is stored so if it is
    read by einsums routed by this mask, and element by element by ops whose results are stored so.

    Constraint (C1): at least one row, of at least one dim of the tensor.
  }];
  let parameters = (ins "int64_t":$count, "int64_t":$dims);
  let assemblyFormat = "`<` $count `of` $dims `>`";
}

def PC_HomeAttr : PC_Attr<"Home", "home"> {
  let summary = "Where a buffer lives in the device arena: `#pc.home<4096>`, a byte offset; `#pc.home<4096, <32 of 3>>` of one that is stored by rows";
  let parameters = (ins "int64_t":$offset, OptionalParameter<"::pc::RowsAttr">:$rows);
  let builders = [AttrBuilder<(ins "int64_t":$offset), [{ return $_get($_ctxt, offset, ::pc::RowsAttr()); }]>];
  let assemblyFormat = "`<` $offset (`,` $rows^)? `>`";
}

def PC_Ticket : TypeDef<PC_Dialect, "Ticket"> {
  let mnemonic = "ticket";
  let summary = "Moves under way: what `pc.start` gives and `pc.wait` takes";
}

#endif
