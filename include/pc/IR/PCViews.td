//===- PCViews.td - Views of a value, and embeddings --------------------------------===//
// These ops move elements along a dim, into other dims, or by an index. PCOps.td includes this file.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCVIEWS_TD
#define PC_IR_PCVIEWS_TD

def PC_ColumnsOp : PC_Compute<"columns"> {
  let summary = "Entries at regular distances along a dim, and 0 outside the dim; linear";
  let description = [{
    x is [l.., c, r..] and the result is [l.., d, r..]. The op works along dim `dim`, by default the last one. Entry j
    of the result is entry i of x if `from` + j * `step` = i * `every`, and 0 if there is no such i. So `from` is where
    entries begin, `step` is their distance in x, and `every` is the distance at which they are written. Slices,
    padding, shifts and strided convolutions use this op. A concatenation is a sum of values that were padded with
    zeros. Factors `l.. c r.. -> l.. d r..`; c and d are whole. The gradient is the same op with -`from`, and with
    `step` and `every` exchanged.

    Constraint (C1): `step` and `every` are at least 1, and all three numbers have 32 bits.

    Example: `%k = pc.columns %x dim 1 from -8 step 2 : (tensor<4x16x4xf32>) -> tensor<4x12x4xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x, OptionalAttr<I64Attr>:$dim, I64Attr:$from, DefaultValuedOptionalAttr<I64Attr, "1">:$step,
                       DefaultValuedOptionalAttr<I64Attr, "1">:$every);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The dim along which the op works.
    int64_t along() { return getDim() ? static_cast<int64_t>(*getDim()) : getX().getType().getRank() - 1; }
  }];
  let assemblyFormat = "$x (`dim` $dim^)? `from` $from (`step` $step^)? (`every` $every^)? attr-dict `:` functional-type($x, $result)";
}

def PC_ReshapeOp : PC_Compute<"reshape"> {
  let summary = "Merges and divides dims; the elements and their order do not change; linear";
  let description = [{
    In `pc.reshape "b (h w) c -> b h w c" %x`, names in parentheses share one dim, in row-major order: its index is h
    times the size of w, plus w. Dims that both sides have may be split. So may a dim that is the first one in
    parentheses on the other side, here h: a block of (h w) is a block of h. All others stay whole. The gradient is the
    op with its sides exchanged. Nothing is copied if the result shares the memory of the operand (`mayShareHome`).

    Constraints: (C1) both sides have the same names in the same order, and each name occurs once per side; (C2) dims
    that have the same names together have the same number of elements on both sides.

    Example: `%y = pc.reshape "b (h w) -> b h w" %x : (tensor<4x6xf32>) -> tensor<4x2x3xf32>`
  }];
  let arguments = (ins StrAttr:$spec, AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$spec $x attr-dict `:` functional-type($x, $result)";
}

def PC_StackOp : PC_Compute<"stack"> {
  let summary = "Stacks values of one shape along a new first dim: k times [x..] -> [n, x..]; linear";
  let description = [{
    Entry i along the new dim n is operand i. If n is greater than the number of operands, the last entries are 0. The
    optimizer works on stacks of matrices whose first dim, `layers`, is split, so that each matrix has one owner
    (`pc-stack-updates`). Factors `x.., .. -> n x..`; n is whole.

    Constraint (C1): n is at least the number of operands.

    Example: `%s = pc.stack %x, %y : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2x3xf32>`
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$inputs attr-dict `:` functional-type($inputs, $result)";
}
def PC_UnstackOp : PC_Compute<"unstack"> {
  let summary = "One entry of a stack: [n, x..] -> [x..]; linear";
  let description = [{
    The result is entry `index` along the first dim. Factors `n x.. -> x..`; n is whole.

    Constraint (C1): the index is at least 0 and less than n.

    Example: `%x = pc.unstack %s at 1 : (tensor<2x2x3xf32>) -> tensor<2x3xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$stack, I64Attr:$index);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$stack `at` $index attr-dict `:` functional-type($stack, $result)";
}

/// The code that an embedding and its gradient share. `table` is the method that returns the table.
class PC_Lookup<string table> {
  string text = [{
    static int64_t elementsOf(::llvm::ArrayRef<int64_t> shape) { return ::mlir::ShapedType::getNumElements(shape); }
    ::llvm::ArrayRef<int64_t> getTableShape() { return }] # table # [{().getType().getShape(); }
    /// The number of tables, of rows in a table, of elements in a row, and of ids per table.
    int64_t getTables() { return elementsOf(getTableShape().take_front(getBatch())); }
    int64_t getRows() { return getTableShape()[getBatch()]; }
    int64_t getWidth() { return elementsOf(getTableShape().drop_front(getBatch() + 1)); }
    int64_t getIdsPerTable() { return elementsOf(getIds().getType().getShape().drop_front(getBatch())); }
    ::pc::IndexedDim getIndexedDim() { return {}] # table # [{(), static_cast<int64_t>(getBatch())}; }
  }];
}

def PC_EmbeddingOp : PC_Compute<"embedding", [IndexedOpInterface]> {
  let summary = "Reads rows of a table, or of any value, by id: [v, e..], [ids..] -> [ids.., e..]; linear in the table";
  let description = [{
    The op computes one_hot(ids) times the table. v is therefore a summed factor: a rank that has a block of the table
    returns zeros for ids outside it. `offset` is the first id of the block. Factors `v e0 e1, i0 i1 -> i0 i1 e0 e1`.

    With `padding n`, id n (counted from the start of the whole table) is padding, as PyTorch's padding_idx. Its row is
    read like any other, but gets no gradient.

    With `batch n`, the first n dims of table and ids are the same. Each index along them has its own table and ids:
    `b v e, b i -> b i e` (PyTorch's gather).

    Constraint (C1): the padding id is at least 0 and, without an offset, below the number of rows of the table.
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
  let summary = "Adds the rows of dy that have the same id: [ids.., e..], [ids..] -> [v, e..]; linear in dy";
  let description = [{
    Rows with the id `padding` are not added. `batch` and constraint (C1) are the same as for `pc.embedding`.
  }];
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
  let summary = "Cuts a dim off at its end, or extends it with zeros; linear";
  let description = [{
    A tensor whose dim does not divide is stored with a longer dim that does. This op writes and reads such tensors. The
    dim `dim` is whole on every rank; the others may be split.
  }];
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$dim);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x `dim` $dim attr-dict `:` functional-type($x, $result)";
}

#endif
