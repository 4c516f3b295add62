//===- PCBase.td - The pc dialect: attributes and enums ------------------------===//
// This file defines the attributes that every op of the dialect needs: the mesh, placements (how a tensor lies on the
// mesh), the source of a parameter, and the home of a buffer. Only ops of pc use placed tensors.
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
    The dialect describes one training step of a transformer, written as if for one device. A tensor type may carry a
    placement (`#pc.place`), which describes how the tensor is distributed over the mesh. Every op declares its
    *factors* once (`FactorOpInterface`). Verification, propagation, partial results, local shapes and costs all follow
    from this declaration. The only ops that change a placement are *moves*.

    Elements are f32 or bf16; indices are i32. Every op computes in f32 and rounds each result to the nearest value of
    its type (ties to even). One op may have operands of different float types. Inside `pc.fusion` only the yielded
    values are rounded.

    Constraints of all ops with factors: (T1) data are f32, bf16 or f64; ids, targets and offsets are i32; (T2)
    statistics of norms, attention and loss are not bf16, and neither is optimizer state.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let extraClassDeclaration = [{ void registerAttributes(); }];
}

class PC_Attr<string name, string mnemonicName, list<Trait> traits = []>
    : AttrDef<PC_Dialect, name, traits> {
  let mnemonic = mnemonicName;
}

def PC_PartialKind : I32EnumAttr<"PartialKind", "how the addends of a partial value are combined", [
    I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Sum", 1, "sum">, I32EnumAttrCase<"Max", 2, "max">]> {
  let cppNamespace = "::pc";
}

def PC_InitKind : I32EnumAttr<"InitKind", "how a parameter is initialized", [
    I32EnumAttrCase<"Normal", 0, "normal">, I32EnumAttrCase<"Fill", 1, "fill">]> {
  let cppNamespace = "::pc";
}

def PC_InputKind : I32EnumAttr<"InputKind", "the kind of an input", [
    I32EnumAttrCase<"Tokens", 0, "tokens">, I32EnumAttrCase<"Targets", 1, "targets">,
    I32EnumAttrCase<"Hyper", 2, "hyper">, I32EnumAttrCase<"Random", 3, "random">,
    I32EnumAttrCase<"LossWeights", 4, "loss_weights">, I32EnumAttrCase<"Starts", 5, "starts">,
    I32EnumAttrCase<"Positions", 6, "positions">, I32EnumAttrCase<"Shifted", 7, "shifted">, I32EnumAttrCase<"Data", 8, "data">]> {
  let cppNamespace = "::pc";
}

def PC_OutputKind : I32EnumAttr<"OutputKind", "the kind of an output", [
    I32EnumAttrCase<"Loss", 0, "loss">, I32EnumAttrCase<"GradNorm", 1, "grad_norm">,
    I32EnumAttrCase<"Gradient", 2, "gradient">, I32EnumAttrCase<"Logits", 3, "logits">,
    I32EnumAttrCase<"Generated", 4, "generated">]> {
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

def PC_TableKind : I32EnumAttr<"TableKind", "the function in a rotary table", [
    I32EnumAttrCase<"Cos", 0, "cos">, I32EnumAttrCase<"Sin", 1, "sin">]> {
  let cppNamespace = "::pc";
}

def PC_TaskKind : I32EnumAttr<"TaskKind", "a task of a pipeline schedule, or the optimizer, which follows all tasks", [
    I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"Recompute", 1, "recompute">,
    I32EnumAttrCase<"Backward", 2, "backward">, I32EnumAttrCase<"Weight", 3, "weight">,
    I32EnumAttrCase<"Optimizer", 4, "optimizer">]> {
  let cppNamespace = "::pc";
}

def PC_Space : I32EnumAttr<"Space", "the memory that holds a value", [
    I32EnumAttrCase<"Device", 0, "device">, I32EnumAttrCase<"Host", 1, "host">, I32EnumAttrCase<"Disk", 2, "disk">]> {
  let cppNamespace = "::pc";
}

def PC_MeshAttr : PC_Attr<"Mesh", "mesh"> {
  let summary = "Named axes of a device mesh, outermost first";
  let description = [{
    `#pc.mesh<dp = 2, tp = 4>` has 8 ranks. The number of a rank is the mixed-radix number of its coordinates, with the
    first axis as the major one.

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
  let summary = "How a tensor is distributed over the mesh";
  let description = [{
    `#pc.place<[dp, _, (row, col)] sum(tp) root(cp)>` has up to four parts:

    * For each dim, the list gives the mesh axes that split it, from major to minor. `_` means that no axis splits it.
    * `sum` or `max` gives the axes on which the value is partial. Each rank on such an axis holds one addend of the
      sum, or one operand of the maximum.
    * `root` gives the axes on which only coordinate 0 holds the value. The buffers of the other ranks are undefined.
    * `in disk` means that ranks keep the value on disk, and `in host` that the rank of a GPU keeps it in memory of the
      host, not in memory of the device (`pc.carry`).

    The value is replicated over all axes that are not named.

    Constraints: (C1) the list has one entry per dim of the tensor; (C2) an axis occurs at most once; (C3) partial axes
    and root axes are in alphabetical order, and there are partial axes if and only if there is `sum` or `max`.
  }];
  let parameters = (ins
    ArrayRefParameter<"::mlir::ArrayAttr", "per dim: array of axis names (StringAttr)">:$dims,
    "::pc::PartialKind":$kind,
    ArrayRefParameter<"::mlir::StringAttr">:$partial,
    ArrayRefParameter<"::mlir::StringAttr">:$root,
    "::pc::Space":$space);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Everything replicated.
    static PlaceAttr replicated(::mlir::MLIRContext *context, int64_t rank);
    /// The axes that split dim `d`, major to minor.
    ::llvm::SmallVector<::mlir::StringAttr> axes(int64_t d) const;
    /// The state of the value on one axis.
    AxisState state(::mlir::StringAttr axis) const;
    /// This placement with `axis` in `state`; a split is added at the minor end of the dim, or at `position` of its list.
    PlaceAttr with(::mlir::StringAttr axis, AxisState state, int64_t position = -1) const;
    /// This placement without its first dim (for an element of a stack of microbatches), or with a new, unsplit first dim.
    PlaceAttr dropFront() const;
    PlaceAttr addFront() const;
    /// This placement in another space.
    PlaceAttr in(Space space) const;
    bool isPartial() const { return !getPartial().empty(); }
  }];
}

def PC_InitAttr : PC_Attr<"Init", "init"> {
  let summary = "How a parameter is initialized: `#pc.init<normal, 2.0e-02>` (standard deviation) or `#pc.init<fill, 1.0>`";
  let description = [{
    In `#pc.init<normal, 2.0e-02, zero_row = 3>`, index 3 of the first dim is initialized to zeros. The embedding of a
    padding token needs this.
  }];
  let parameters = (ins "::pc::InitKind":$kind, "::mlir::FloatAttr":$value, DefaultValuedParameter<"int64_t", "-1">:$zeroRow);
  let hasCustomAssemblyFormat = 1;
}

def PC_DropAttr : PC_Attr<"Drop", "drop"> {
  let summary = "Which elements dropout drops: `#pc.drop<6554>` drops each with probability 6554 / 65536";
  let description = [{
    Every element of a value has 16 random bits. The element is dropped, that is, set to 0, if these bits are below
    `threshold`. Otherwise it is divided by 1 - threshold / 65536. The bits depend only on the seed, the step, the key
    of the op's `random`, and the element's index in the global value. So every plan drops the same elements, and so
    does recomputation.

    The elements of the global value of the step's batch are numbered in row-major order, with the last dim rounded up
    to a multiple of 8. The bits of element i come from one block of Philox4x32-10. The key of the block is the seed.
    Its counter consists of i / 8 (low word first), the step, and 2^31 + the key of the op's `random`. The element has
    the 16 bits that begin at bit 16 (i mod 2) of word (i mod 8) / 2 of this block. Divisions round down.

    Local programs also give the size of the global value and the split dims:
    `#pc.drop<6554, global = [8, 64, 48], split = [0, 1], shift = 1>`. For each split dim the op has an offset, the
    index at which the rank's block begins. With `shift = n` the block in the last dim is the one n blocks earlier,
    counted cyclically.

    Constraints: (C1) the threshold is at least 1 and at most 65535; (C2) sizes are positive, split dims ascend and are
    dims of `global`, and shift is at least 0.
  }];
  let parameters = (ins "int64_t":$threshold, ArrayRefParameter<"int64_t">:$global, ArrayRefParameter<"int64_t">:$split, "int64_t":$shift);
  let builders = [AttrBuilder<(ins "int64_t":$threshold), [{ return $_get($_ctxt, threshold, llvm::ArrayRef<int64_t>(), llvm::ArrayRef<int64_t>(), 0); }]>];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Kept elements are multiplied by this factor.
    float scale() const { return static_cast<float>(1.0 / (1.0 - static_cast<double>(getThreshold()) / 65536)); }
  }];
}

def PC_SourceAttr : PC_Attr<"Source", "source"> {
  let summary = "The part (box) of a Hugging Face tensor that a parameter holds";
  let description = [{
    `#pc.source<"h.0.attn.c_attn.weight", shape = [768, 2304], start = [0, 768], size = [768, 768]>` is a box of a
    tensor of shape [768, 2304]. The elements of the box, in row-major order, are the elements of the parameter without
    padding. With `view = [12, 3, 64, 768]` at the end, the tensor is first reshaped to this shape, and the box is a
    part of the result.

    Constraint (C1): a view has the same number of elements as the tensor.
  }];
  let parameters = (ins StringRefParameter<>:$tensor, ArrayRefParameter<"int64_t">:$shape,
                        ArrayRefParameter<"int64_t">:$start, ArrayRefParameter<"int64_t">:$size,
                        OptionalArrayRefParameter<"int64_t">:$view);
  let assemblyFormat = [{
    `<` $tensor `,` `shape` `=` custom<Sizes>($shape) `,` `start` `=` custom<Sizes>($start) `,` `size` `=` custom<Sizes>($size)
    (`,` `view` `=` `[` $view^ `]`)? `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The shape that the box is a part of.
    ::llvm::ArrayRef<int64_t> boxShape() const { return getView().empty() ? getShape() : getView(); }
  }];
}

def PC_PartAttr : PC_Attr<"Part", "part"> {
  let summary = "One of the parameters that pc-pack-products has packed into one";
  let description = [{
    `#pc.part<"h.0.attn.c_attn.weight:k", key = 3, size = 1, source = <...>>` gives the name and the key of the original
    parameter, the number of indices that it has along the dim `along` of the packed parameter, and the box of the
    Hugging Face tensor that it holds.
  }];
  let parameters = (ins StringRefParameter<>:$name, "int64_t":$key, "int64_t":$size, "::pc::SourceAttr":$source);
  let assemblyFormat = "`<` $name `,` `key` `=` $key `,` `size` `=` $size `,` `source` `=` $source `>`";
}

def PC_WireAttr : PC_Attr<"Wire", "wire"> {
  let summary = "How the addends of a sum are sent: `#pc.wire<int8, [16, 16]>` has codes of 8 bits, with a scale per block of 16 x 16 elements";
  let description = [{
    The value is divided into blocks of these sizes, counted from its first element. The scale of a block, an f32, is its
    largest magnitude divided by 127 (int4: 7). Each element is sent as the integer that is nearest to element / scale,
    which is at most 1/254 (int4: 1/14) of the block's largest magnitude away.

    Constraint (C1): there are 8 or 4 bits, and a block has 256 elements.
  }];
  let parameters = (ins "int64_t":$bits, ArrayRefParameter<"int64_t">:$block);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The bytes of a block: its codes, and then its scale.
    int64_t blockBytes() const;
    /// The largest code.
    int64_t largestCode() const { return (int64_t(1) << (getBits() - 1)) - 1; }
    /// "int8" or "int4".
    std::string text() const { return "int" + std::to_string(getBits()); }
  }];
}

def PC_RowsAttr : PC_Attr<"Rows", "rows", [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "A value that is stored by rows: `#pc.rows<32 of 3>` stores at most 32 of the entries of the first 3 dims";
  let description = [{
    This form exists in local programs only. An entry exists if the mask of a `routed` einsum is 1 for it. The buffer
    has `count` rows, one for each entry that exists. Rows are sorted by the index in the mask's last dim, and then by
    those in its other dims. Rows after the last entry are undefined. A value may have this form if its readers are
    einsums routed by this mask, and elementwise ops whose results also have this form.

    Constraint (C1): there is at least one row, and an entry has at least one dim of the tensor.
  }];
  let parameters = (ins "int64_t":$count, "int64_t":$dims);
  let assemblyFormat = "`<` $count `of` $dims `>`";
}

def PC_InSpaceAttr : PC_Attr<"InSpace", "space"> {
  let summary = "The memory that holds a value of a local program: `#pc.space<disk>`; the memory of the device if there is none";
  let parameters = (ins "::pc::Space":$value);
  let assemblyFormat = "`<` $value `>`";
}

def PC_HomeAttr : PC_Attr<"Home", "home"> {
  let summary = "The byte offset of a buffer in an arena: `#pc.home<4096>`, `#pc.home<disk, 4096>`, or `#pc.home<4096, <32 of 3>>` if it is stored by rows";
  let description = [{
    `offset` is one number for all spaces: offsets in the arenas of the host and on disk are counted from PCRT_HOST and
    PCRT_DISK (pcrt/moves.h). So two buffers overlap only if their ranges of numbers overlap.
  }];
  let parameters = (ins "int64_t":$offset, OptionalParameter<"::pc::RowsAttr">:$rows);
  let builders = [AttrBuilder<(ins "int64_t":$offset), [{ return $_get($_ctxt, offset, ::pc::RowsAttr()); }]>];
  let hasCustomAssemblyFormat = 1;
}

def PC_Ticket : TypeDef<PC_Dialect, "Ticket"> {
  let mnemonic = "ticket";
  let summary = "Moves in flight: `pc.start` returns a ticket, which is the operand of `pc.wait`";
}

#endif
