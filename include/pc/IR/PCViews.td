//===- PCViews.td - Views of a value, and rows by id --------------------------------===//
// Ops that bring elements to other places: along a dim, into other dims, by an index. Included by PCOps.td.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCVIEWS_TD
#define PC_IR_PCVIEWS_TD

def PC_ColumnsOp : PC_Compute<"columns"> {
  let summary = "Entries of a dim that begin anywhere and lie `step` apart, 0 where there is none; linear";
  let description = [{
    x: [l.., c, r..] -> [l.., d, r..], along dim `dim`, or along the last one. Entry j of the result is entry i of x if `from` + j * `step` =
    i * `every`, and 0 if there is no such i. Slices, padding, shifts and strided convolutions are this op, and a concatenation is a sum of
    values that it lays among zeros; `every` lays entries apart. Factors `l.. c r.. -> l.. d r..`; c and d whole. Its gradient is the same op
    with -`from`, and with `step` and `every` exchanged.

    Constraint (C1): `step` and `every` are at least 1, and all numbers have 32 bits.
    Example: `%k = pc.columns %x dim 1 from -8 step 2 : (tensor<4x16x4xf32>) -> tensor<4x12x4xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, OptionalAttr<I64Attr>:$dim, I64Attr:$from, DefaultValuedOptionalAttr<I64Attr, "1">:$step,
                       DefaultValuedOptionalAttr<I64Attr, "1">:$every);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The dim whose entries are taken.
    int64_t along() { return getDim() ? static_cast<int64_t>(*getDim()) : getX().getType().getRank() - 1; }
  }];
  let assemblyFormat = "$x (`dim` $dim^)? `from` $from (`step` $step^)? (`every` $every^)? attr-dict `:` functional-type($x, $result)";
}

def PC_ReshapeOp : PC_Compute<"reshape"> {
  let summary = "The same elements in the same order, with dims merged or divided; linear";
  let description = [{
    `pc.reshape "b (h w) c -> b h w c" %x`: names in parentheses are one dim, in row-major order: its index is h times the size of w, plus w.
    Dims that both sides have may be split; all others stay whole. The gradient is the op with its sides exchanged.
    Nothing is copied if the result lies on the operand (`mayShareHome`).

    Constraints: (C1) both sides have the same names in the same order, each once; (C2) dims that have the same names together have as many elements
    on both sides. Example: `%y = pc.reshape "b (h w) -> b h w" %x : (tensor<4x6xf32>) -> tensor<4x2x3xf32>`
  }];
  let arguments = (ins StrAttr:$spec, AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$spec $x attr-dict `:` functional-type($x, $result)";
}

/// What an op shares with its gradient that looks up rows in `table`.
class PC_Lookup<string table> {
  string text = [{
    static int64_t elementsOf(::llvm::ArrayRef<int64_t> shape) { return ::mlir::ShapedType::getNumElements(shape); }
    ::llvm::ArrayRef<int64_t> getTableShape() { return }] # table # [{().getType().getShape(); }
    /// How many tables there are, rows in a table, elements in a row, and ids for a table.
    int64_t getTables() { return elementsOf(getTableShape().take_front(getBatch())); }
    int64_t getRows() { return getTableShape()[getBatch()]; }
    int64_t getWidth() { return elementsOf(getTableShape().drop_front(getBatch() + 1)); }
    int64_t getIdsPerTable() { return elementsOf(getIds().getType().getShape().drop_front(getBatch())); }
    ::pc::IndexedDim getIndexedDim() { return {}] # table # [{(), static_cast<int64_t>(getBatch())}; }
  }];
}

def PC_EmbeddingOp : PC_Compute<"embedding", [IndexedOpInterface]> {
  let summary = "Rows of a table, or of any value, by id: [v, e..], [ids..] -> [ids.., e..]";
  let description = [{
    The same as one_hot(ids) times table: v is a summed factor, so a rank that holds a block of the table yields zero for ids
    outside it (`offset` = first id of the block). Linear in the table. Factors `v e0 e1, i0 i1 -> i0 i1 e0 e1`.

    `padding n`: id n, counted from the start of the whole table, is a filler (PyTorch's padding_idx). Its row is read like any other, but
    the gradient of the table has nothing of it. Constraint (C1): n is at least 0 and, without an offset, below the rows of the table.

    `batch n`: the first n dims of table and ids are the same; each index along them has a table and ids of its own: `b v e, b i -> b i e`
    (PyTorch's gather).
  }];
  let arguments = (ins AnyRankedTensor:$table, AnyRankedTensor:$ids, Optional<AnyRankedTensor>:$offset,
                       OptionalAttr<I64Attr>:$padding, DefaultValuedOptionalAttr<I64Attr, "0">:$batch);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = PC_Lookup<"getTable">.text;
  let assemblyFormat = [{
    $table `,` $ids (`batch` $batch^)? (`offset` $offset^)? (`padding` $padding^)? attr-dict `:` functional-type(operands, $result)
  }];
}
def PC_EmbeddingGradOp : PC_Compute<"embedding_grad", [IndexedOpInterface]> {
  let summary = "Sum of dy rows per id: [ids.., e..], [ids..] -> [v, e..]; linear in dy";
  let description = [{ Rows of id `padding` are not added: see `pc.embedding`, whose constraint (C1) and `batch` hold here, too. }];
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$ids, Optional<AnyRankedTensor>:$offset,
                       OptionalAttr<I64Attr>:$padding, DefaultValuedOptionalAttr<I64Attr, "0">:$batch);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = PC_Lookup<"getResult">.text;
  let assemblyFormat = [{
    $dy `,` $ids (`batch` $batch^)? (`offset` $offset^)? (`padding` $padding^)? attr-dict `:` functional-type(operands, $result)
  }];
}

def PC_ResizeOp : PC_Compute<"resize"> {
  let summary = "The first entries along dim `dim`, or all of them and zeros after; linear";
  let description = [{
    How a tensor whose dim does not divide is stored in one that does, and read from it. The dim is whole on every rank; the others
    may be split.
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$dim);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x `dim` $dim attr-dict `:` functional-type($x, $result)";
}

#endif
