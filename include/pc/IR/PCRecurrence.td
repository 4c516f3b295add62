//===- PCRecurrence.td - Linear recurrences -----------------------------------------------===//
// State-space models, gated linear attention and decaying averages use this recurrence. The file also has its gradient.
//===-------------------------------------------------------------------------------------===//
#ifndef PC_IR_PCRECURRENCE_TD
#define PC_IR_PCRECURRENCE_TD

/// Dim `along` of b has the index t. The recurrence and its gradient have the same spec.
class PC_Recurrence<string name> : PC_Compute<name> {
  let hasVerifier = 1;
}

def PC_RecurrenceOp : PC_Recurrence<"recurrence"> {
  let summary = "The linear recurrence h_t = a_t h_{t-1} + b_t along one dim, where h before the first step is 0; linear in b";
  let description = [{
    `pc.recurrence "b s h, b s h p -> b s h p" along "s" %a, %b` names the dims of a, of b and of the result h, which
    has the dims of b. There is a separate recurrence for each index of the other dims of b. If a lacks a dim of b, a is
    the same for all indices of this dim. `reverse` goes from the last index to the first: h_t = a_t h_{t+1} + b_t.

    Every rank has the whole dim of the recurrence. Any other dim may be split. If ranks split a sequence,
    `pc-chunk-recurrences` turns its chunks into another dim. a is f32, because products of many factors near 1 lose too
    much precision in bf16. The state is f32 while it is computed, even if b and h are bf16.

    Constraints: (C1) there are two operands, and the result has the dims of b; (C2) each dim of a is a dim of b, and no
    value has a dim twice; (C3) `along` is a dim of b.

    Example: `%h = pc.recurrence "b s c, b s c n -> b s c n" along "s" %a, %b : (tensor<2x16x8xf32>, tensor<2x16x8x4xf32>) -> tensor<2x16x8x4xf32>`
  }];
  let arguments = (ins StrAttr:$spec, StrAttr:$along, UnitAttr:$reverse, AnyRankedTensor:$a, AnyRankedTensor:$b);
  let results = (outs AnyRankedTensor:$h);
  let assemblyFormat = "$spec `along` $along (`reverse` $reverse^)? $a `,` $b attr-dict `:` functional-type(operands, $h)";
}
def PC_RecurrenceGradOp : PC_Recurrence<"recurrence_grad"> {
  let summary = "The gradients da and db of `pc.recurrence`; linear in dh";
  let description = [{
    The spec and the direction are the same as for the recurrence. The total gradient g of h_t is a recurrence in the
    other direction: g_t = dh_t + a_{t+1} g_{t+1}. db is g, and da_t is the sum of g_t h_{t-1} over the dims that a
    lacks. If one of these dims is split, da is a partial sum. With `reverse`, t+1 and t-1 are exchanged.

    Constraints: (C1) to (C3) of `pc.recurrence`.
  }];
  let arguments = (ins StrAttr:$spec, StrAttr:$along, UnitAttr:$reverse, AnyRankedTensor:$a, AnyRankedTensor:$h, AnyRankedTensor:$dh);
  let results = (outs AnyRankedTensor:$da, AnyRankedTensor:$db);
  let assemblyFormat = "$spec `along` $along (`reverse` $reverse^)? operands attr-dict `:` functional-type(operands, results)";
}

#endif
