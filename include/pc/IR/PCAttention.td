//===- PCAttention.td - Attention ----------------------------------------------------------===//
// These ops split queries, keys and values, count the keys that each query sees, and compute attention and its gradient,
// for all keys or for blocks of keys. PCOps.td includes this file.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCATTENTION_TD
#define PC_IR_PCATTENTION_TD

def PC_SplitQkvOp : PC_Compute<"split_qkv"> {
  let summary = "Splits packed heads into q, k and v, and rotates q and k if there are tables; linear in x";
  let description = [{
    x is [b, s, k, g + 2, d]: for each key/value head it has g query heads, a key and a value. The results are q, [b, s,
    k, g, d], and k and v, [b, s, k, d]. `rope` gives the tables cos and sin of `pc.rope`, by which q and k are rotated.
    Factors `b s k j d -> b s k g d, b s k d, b s k d`, tables `s c`; j and g are whole, and if there are tables, d and
    c are also whole.

    Constraints: (C1) j = g + 2; (C2) there are two tables, as for `pc.rope`, or none.
  }];
  let arguments = (ins AnyRankedTensor:$x, Variadic<AnyRankedTensor>:$tables);
  let results = (outs AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v);
  let assemblyFormat = "$x (`rope` $tables^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def PC_JoinQkvOp : PC_Compute<"join_qkv"> {
  let summary = "Packs heads of q, k and v, and rotates q and k back if there are tables; linear in q, k and v together";
  let description = [{
    This op is the gradient (transpose) of `pc.split_qkv`. Factors `b s k g d, b s k d, b s k d -> b s k j d`, tables `s
    c`; j and g are whole, and if there are tables, d and c are also whole.

    Constraints: (C1) and (C2) of `pc.split_qkv`.
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
  /// Whether scores are only scaled products of q and k, without a window, documents or sinks.
  bool isPlain() { return !getWindow() && !getSoftcap() && !getBias() && !getStarts() && !hasSinks(); }
}];

def PC_AttentionOp : PC_Compute<"attention", [IndexedOpInterface, DrawnOpInterface, AttrSizedOperandSegments]> {
  let summary = "softmax(scale q k^T + mask) v, and the log-sum-exp of the scores";
  let description = [{
    q is [b, s, k, g, d], where g query heads share a key/value head; k and v are [b, t, k, d]. The results are o,
    [b, s, k, g, d], and lse, [b, k, g, s]. Factors `b s k g d, b t k d, b t k d -> b s k g d, b k g s`; t and d are
    whole, and so is s unless the program is in zigzag order. If q, k and v are bf16, exp(score - maximum) is rounded to
    bf16 before it is multiplied by v. Sums, maxima and lse are not rounded.

    Options change the scores, or the keys that a query sees:

    * `causal`: position s sees t <= s.
    * `window w`: position s sees only the w positions s - w < t <= s.
    * `starts` [b, s]: position s sees no key before position `starts`[b, s]. Along s the starts never decrease. Factors
      `b s`.
    * `sees`, in local programs: a scalar is the global index of the first query. A vector [s] means that query s sees
      only the first `sees`[s] keys. For a query that sees no key, o is 0 and lse is -infinity.
    * `softcap c`: scores are c tanh(score / c).
    * `bias` [k, g, r]: after the cap, the bias of the head at index t - s + S - 1 is added to the score of query s and
      key t. S is the number of queries. Factors `k g r`; r is whole.
    * `sinks` [k, g]: softmax and lse include one more score, of a key whose value is 0. This changes no gradient except
      the gradient of the sinks, because `pc.attention_grad` reads only o and lse.
    * `random` and `drop`: after the softmax, dropout drops some of the weights [b, k, g, s, t]. lse includes all of
      them.

    Constraints: (C1) `random` and `drop` are both given or both absent; (C2) there is one offset for each split dim;
    (C3) a window is at least 1, and attention with a window or starts is causal; (C4) a cap is positive; (C5) a bias
    has s + t - 1 entries per head; (C6) with a window, a bias, sinks or starts, the order is not zigzag and there is no
    `sees`.
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
  let summary = "The gradients dq, dk and dv of attention, and the gradient of a bias; linear in dout";
  let description = [{
    `dbias` [b, k, g, r] is optional. For each batch row it has, for each entry of the bias, the sum of the gradients of
    all scores to which the entry was added. If q, k, v and dout are bf16, the weights and the gradients of scores are
    rounded to bf16 before they are multiplied.

    Constraints: the constraints of `pc.attention`, and (C7) `dbias` needs a bias.
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
  let summary = "Attention that reads q, k and v from the packed result of one product";
  let description = [{
    qkv is [b, s, k, g + 2, d], as for `pc.split_qkv`. The results are o, [b, s, k, g, d], and lse, [b, k, g, s], as for
    `pc.attention` on the split parts. Factors `b s k j d -> b s k g d, b k g s`; s, j, g and d are whole.

    Constraints: (C1) j = g + 2; (C2) the program is not in zigzag order.
  }];
  let arguments = (ins AnyRankedTensor:$qkv, F64Attr:$scale, UnitAttr:$causal);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$lse);
  let assemblyFormat = "(`causal` $causal^)? $qkv `scale` $scale attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def PC_PackedAttentionGradOp : PC_Compute<"packed_attention_grad"> {
  let summary = "The gradient of packed_attention with respect to qkv, in the layout of qkv; linear in dout";
  let description = [{
    Factors `b s k j d, b s k g d, b k g s, b s k g d -> b s k j d`; s, j, g and d are whole.

    Constraints: the same as for `pc.packed_attention`.
  }];
  let arguments = (ins AnyRankedTensor:$qkv, AnyRankedTensor:$o, AnyRankedTensor:$lse, AnyRankedTensor:$dout, F64Attr:$scale,
                       UnitAttr:$causal);
  let results = (outs AnyRankedTensor:$dqkv);
  let assemblyFormat = [{
    (`causal` $causal^)? $qkv `,` $o `,` $lse `,` $dout `scale` $scale attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}
def PC_MergeAttentionOp : PC_Compute<"merge_attention"> {
  let summary = "Merges attention to two disjoint sets of keys into attention to all of them";
  let description = [{
    The op exists in local programs only. With w = exp(lse2 - lse1), the result lse is lse1 + log(1 + w), and the result o
    is (o1 + w o2) / (1 + w). Both are computed without overflow. Every query sees a key of the first set. Factors
    `b s k g d, b k g s, b s k g d, b k g s -> b s k g d, b k g s`.
  }];
  let arguments = (ins AnyRankedTensor:$o1, AnyRankedTensor:$lse1, AnyRankedTensor:$o2, AnyRankedTensor:$lse2);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$lse);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def PC_KeyCountsOp : PC_Leaf<"key_counts", [DeclareOpInterfaceMethods<FactorOpInterface>]> {
  let summary = "For each of the rank's queries, the number of keys in another rank's block that it sees";
  let description = [{
    The op exists in local programs only. The result is i32, [s]. The sequence is in zigzag order over `ranks` ranks.
    `coordinate` (an i32 scalar) is the number of this rank, and the keys are those of rank (coordinate - shift) mod
    ranks. In zigzag order the keys that a query sees are always the first ones of a block. Factors ` -> s`; s is whole.

    Example: `%n = pc.key_counts of %me ranks 4 shift 1 : tensor<i32> -> tensor<8xi32>`
  }];
  let arguments = (ins AnyRankedTensor:$coordinate, I64Attr:$ranks, I64Attr:$shift);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "`of` $coordinate `ranks` $ranks `shift` $shift attr-dict `:` type($coordinate) `->` type($value)";
}

#endif // PC_IR_PCATTENTION_TD
