//===- PCAttention.td - Attention ----------------------------------------------------------===//
// Queries, keys and values, what each query sees, and attention with its gradient, whole or by blocks of keys. Part of
// PCOps.td.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCATTENTION_TD
#define PC_IR_PCATTENTION_TD

def PC_SplitQkvOp : PC_Compute<"split_qkv"> {
  let summary = "q, k and v of packed heads; q and k rotated where there are tables; linear in x";
  let description = [{
    x: [b, s, k, g + 2, d], by key/value head g query heads, a key and a value -> q: [b, s, k, g, d], k, v: [b, s, k, d]. `rope`: cos and sin
    as `pc.rope` takes them, which rotate q and k. Factors `b s k j d -> b s k g d, b s k d, b s k d`, tables `s c`; j, g whole, and
    with tables d and c. Constraints: (C1) j = g + 2; (C2) there are two tables, as `pc.rope` takes them, or none.
  }];
  let arguments = (ins AnyRankedTensor:$x, Variadic<AnyRankedTensor>:$tables);
  let results = (outs AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v);
  let assemblyFormat = "$x (`rope` $tables^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def PC_JoinQkvOp : PC_Compute<"join_qkv"> {
  let summary = "Packed heads of q, k and v, the gradient of split_qkv; q and k rotated back where there are tables; linear in q, k, v";
  let description = [{
    The transpose of `pc.split_qkv`. Factors `b s k g d, b s k d, b s k d -> b s k j d`, tables `s c`; j, g whole, and with tables d and c.
    Constraints (C1) and (C2) of split_qkv.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, Variadic<AnyRankedTensor>:$tables);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$q `,` $k `,` $v (`rope` $tables^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

defvar offsetSees = [{
  ::mlir::MutableOperandRange getOffsetMutable() { return getSeesMutable(); }
  ::llvm::SmallVector<::pc::IndexedDim> getDrawnDims() { return {{getQ(), 0}, {getQ(), 2}, {getQ(), 3}, {getQ(), 1}, {getK(), 1}}; }
  ::llvm::SmallVector<int64_t> getDrawnSequences() { return {3, 4}; }
  /// Whether scores are more than products of q and k, or fewer keys are seen than there are before a query.
  bool isPlain() { return !getWindow() && !getSoftcap() && !getBias() && !getStarts() && !hasSinks(); }
}];

def PC_AttentionOp : PC_Compute<"attention", [IndexedOpInterface, DrawnOpInterface, AttrSizedOperandSegments]> {
  let summary = "softmax(scale q k^T + mask) v; also log-sum-exp of the scores";
  let description = [{
    q: [b, s, k, g, d] (g query heads share a key/value head), k, v: [b, t, k, d] -> o: [b, s, k, g, d], lse: [b, k, g, s].
    `causal`: position s sees t <= s. Factors `b s k g d, b t k d, b t k d -> b s k g d, b k g s`; t, d whole, and s too unless the
    program is in zigzag order. `sees` (local programs): a scalar is the global index of the first query; [s] counts, by query, how
    many of the keys it sees, the first ones. A query that sees none has o = 0 and lse = -infinity.
    Where q, k and v are bf16, exp(score - maximum) is rounded to bf16 before it multiplies v; sums, maxima and lse are not.
    `window w`: position s sees only the w positions s - w < t <= s. `softcap c`: scores are c tanh(score / c). `bias` [k, g, r]: to the score of query s
    and key t, after the cap, the entry t - s + S - 1 of its head is added, of S queries (factors `k g r`, r whole).
    `sinks` [k, g]: softmax and lse have one more score, of a key whose value is 0. Of the gradient only that of the sinks themselves is another one
    for it: all that attention_grad reads is o and lse.
    `starts` [b, s], which never falls: position s sees no key before the one it says (factors `b s`).
    `random`, `drop`: of the weights [b, k, g, s, t] some are dropped after the softmax; lse is of all. Constraints: (C1) there are both or none;
    (C2) there is an offset for each split dim; (C3) a window is at least 1, and it and starts are of causal attention; (C4) a cap is positive; (C5) a bias has s + t - 1 entries
    a head; (C6) with a window, a bias, sinks or starts the sequence is in its own order and `sees` nothing.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, Optional<AnyRankedTensor>:$bias, Optional<AnyRankedTensor>:$sinks, Optional<AnyRankedTensor>:$starts, Optional<AnyRankedTensor>:$random,
                       Optional<AnyRankedTensor>:$sees, Variadic<AnyRankedTensor>:$offsets, F64Attr:$scale, UnitAttr:$causal,
                       OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$softcap, OptionalAttr<PC_DropAttr>:$drop);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$lse);
  let extraClassDeclaration = PC_IndexedDim<"getQ", 1, offsetSees>.text # "bool hasSinks() { return getSinks() != nullptr; }";
  let assemblyFormat = [{
    (`causal` $causal^)? $q `,` $k `,` $v (`bias` $bias^)? (`sinks` $sinks^)? (`starts` $starts^)? (`random` $random^)? (`sees` $sees^)? (`at` $offsets^)? `scale` $scale
    (`window` $window^)? (`softcap` $softcap^)? (`drop` $drop^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}
def PC_AttentionGradOp : PC_Compute<"attention_grad", [IndexedOpInterface, DrawnOpInterface, AttrSizedOperandSegments]> {
  let summary = "dq, dk, dv of attention, and the gradient of a bias; linear in dout";
  let description = [{
    `dbias` [b, k, g, r]: by batch row, of each entry of the bias the sum of the gradients of scores that it was added to. There is none where no one asks.
    Where q, k, v and dout are bf16, the weights and the gradients of scores are rounded to bf16 before they are multiplied. Constraints of
    attention; (C7) the gradient of a bias needs one.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$o,
                       AnyRankedTensor:$lse, AnyRankedTensor:$dout, Optional<AnyRankedTensor>:$bias, Optional<AnyRankedTensor>:$starts, Optional<AnyRankedTensor>:$random,
                       Optional<AnyRankedTensor>:$sees, Variadic<AnyRankedTensor>:$offsets, F64Attr:$scale, UnitAttr:$causal,
                       OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$softcap, OptionalAttr<PC_DropAttr>:$drop);
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv, Optional<AnyRankedTensor>:$dbias);
  let extraClassDeclaration = PC_IndexedDim<"getQ", 1, offsetSees>.text # "bool hasSinks() { return false; }";
  let assemblyFormat = [{
    (`causal` $causal^)? $q `,` $k `,` $v `,` $o `,` $lse `,` $dout (`bias` $bias^)? (`starts` $starts^)? (`random` $random^)? (`sees` $sees^)? (`at` $offsets^)?
    `scale` $scale (`window` $window^)? (`softcap` $softcap^)? (`drop` $drop^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}
def PC_PackedAttentionOp : PC_Compute<"packed_attention"> {
  let summary = "Attention that reads q, k and v where one product has written them";
  let description = [{
    qkv: [b, s, k, g + 2, d] as `pc.split_qkv` takes it -> o: [b, s, k, g, d], lse: [b, k, g, s], as of `pc.attention` of its parts. Factors
    `b s k j d -> b s k g d, b k g s`; s, j, g, d whole. Constraints: (C1) j = g + 2; (C2) the program is in no zigzag order.
  }];
  let arguments = (ins AnyRankedTensor:$qkv, F64Attr:$scale, UnitAttr:$causal);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$lse);
  let assemblyFormat = "(`causal` $causal^)? $qkv `scale` $scale attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def PC_PackedAttentionGradOp : PC_Compute<"packed_attention_grad"> {
  let summary = "The gradient of packed_attention by qkv, in its layout; linear in dout";
  let description = "Factors `b s k j d, b s k g d, b k g s, b s k g d -> b s k j d`; s, j, g, d whole. Constraints of packed_attention.";
  let arguments = (ins AnyRankedTensor:$qkv, AnyRankedTensor:$o, AnyRankedTensor:$lse, AnyRankedTensor:$dout, F64Attr:$scale,
                       UnitAttr:$causal);
  let results = (outs AnyRankedTensor:$dqkv);
  let assemblyFormat = [{
    (`causal` $causal^)? $qkv `,` $o `,` $lse `,` $dout `scale` $scale attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}
def PC_MergeAttentionOp : PC_Compute<"merge_attention"> {
  let summary = "Attention to the keys of both: o and log-sum-exp of two disjoint sets of keys; local programs only";
  let description = [{
    With w = exp(lse2 - lse1): o = (o1 + w o2) / (1 + w), lse = lse1 + log(1 + w), computed so that nothing overflows. Every query sees a
    key of the first set. Factors `b s k g d, b k g s, b s k g d, b k g s -> b s k g d, b k g s`.
  }];
  let arguments = (ins AnyRankedTensor:$o1, AnyRankedTensor:$lse1, AnyRankedTensor:$o2, AnyRankedTensor:$lse2);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$lse);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def PC_KeyCountsOp : PC_Leaf<"key_counts", [DeclareOpInterfaceMethods<FactorOpInterface>]> {
  let summary = "How many keys of another rank's block each own query sees (i32, [s]); local programs only";
  let description = [{
    The sequence in zigzag order over `ranks` ranks; this rank is `coordinate` (i32 scalar), the keys are those of rank (coordinate - shift) mod
    ranks. In that order the keys that a query sees are always the first ones of a block. Factors ` -> s`, s whole.
    Example: `%n = pc.key_counts of %me ranks 4 shift 1 : tensor<i32> -> tensor<8xi32>`
  }];
  let arguments = (ins AnyRankedTensor:$coordinate, I64Attr:$ranks, I64Attr:$shift);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "`of` $coordinate `ranks` $ranks `shift` $shift attr-dict `:` type($coordinate) `->` type($value)";
}

#endif // PC_IR_PCATTENTION_TD
