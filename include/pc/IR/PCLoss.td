//===- PCLoss.td - Cross-entropy and its parts -----------------------------------------------===//
// Models use cross_entropy and logsumexp. pc-differentiate expands them into the other ops of this file, whose last dim
// may be split.
//===----------------------------------------------------------------------------------------===//
#ifndef PC_IR_PCLOSS_TD
#define PC_IR_PCLOSS_TD

def PC_CrossEntropyOp : PC_Compute<"cross_entropy"> {
  let summary = "The loss -log softmax(logits)[target] of each token";
  let description = [{
    The op exists in model programs only. `pc-differentiate` replaces it by reduce_max, sum_exp, pick, log, add and sub, so
    that the vocabulary may be split. Factors `r0 r1 .. v, r0 r1 .. -> r0 r1 ..`; v is whole.
  }];
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$targets);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$logits `,` $targets attr-dict `:` functional-type(operands, $result)";
}
def PC_LogSumExpOp : PC_Compute<"logsumexp"> {
  let summary = "The logarithm of the sum of exp(x) over the last dim: `r0 r1 .. v -> r0 r1 ..`";
  let description = [{
    The op exists in model programs only. `pc-differentiate` replaces it by a maximum, `pc.sum_exp` and a logarithm, so that
    the last dim may be split. A z-loss is the square of its result.

    Example: `%z = pc.logsumexp %logits : (tensor<2x3x5xf32>) -> tensor<2x3xf32>`
  }];
  let arguments = (ins AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $result)";
}
def PC_SumExpOp : PC_Compute<"sum_exp", [Rowwise]> {
  let summary = "The sum of exp(logits - max) over the last dim: `b s v, b s -> b s`, v summed";
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$max);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$logits `,` $max attr-dict `:` functional-type(operands, $result)";
}
def PC_PickOp : PC_Compute<"pick", [Rowwise, IndexedOpInterface]> {
  let summary = "logits[target] of each token, or 0 if the target is outside the block: `b s v, b s -> b s`, v summed; linear in logits";
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$targets, Optional<AnyRankedTensor>:$offset);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = PC_IndexedDim<"getLogits", -1>.text;
  let assemblyFormat = "$logits `,` $targets (`offset` $offset^)? attr-dict `:` functional-type(operands, $result)";
}
def PC_CrossEntropyGradOp : PC_Compute<"cross_entropy_grad", [Rowwise, IndexedOpInterface]> {
  let summary = "dnll * (exp(logits - max) / sum_exp - one_hot(target)): `b s v, b s, b s, b s, b s -> b s v`; linear in dnll";
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$max, AnyRankedTensor:$sum_exp, AnyRankedTensor:$targets,
                       AnyRankedTensor:$dnll, Optional<AnyRankedTensor>:$offset);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = PC_IndexedDim<"getLogits", -1, PC_Elementwise<5>.text>.text;
  let assemblyFormat = [{
    $logits `,` $max `,` $sum_exp `,` $targets `,` $dnll (`offset` $offset^)? attr-dict `:` functional-type(operands, $result)
  }];
}
def PC_MaskPaddingOp : PC_Compute<"mask_padding", [Rowwise, IndexedOpInterface]> {
  let summary = "Sets entries whose global index along the last dim is at least `valid` to `value`; linear if `value` is 0";
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$valid, F64Attr:$value, Optional<AnyRankedTensor>:$offset);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = PC_IndexedDim<"getX", -1, PC_Elementwise<1>.text>.text;
  let assemblyFormat = [{
    $x `valid` $valid `value` $value (`offset` $offset^)? attr-dict `:` functional-type(operands, $result)
  }];
}

#endif
