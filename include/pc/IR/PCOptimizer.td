//===- PCOptimizer.td - What changes parameters --------------------------------------------===//
// Clipping and the optimizers. Part of PCOps.td.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCOPTIMIZER_TD
#define PC_IR_PCOPTIMIZER_TD

def PC_ClipCoefficientOp : PC_Compute<"clip_coefficient"> {
  let summary = "min(1, clip / (norm + 1e-6)) from the norm and hyper (torch.nn.utils.clip_grad_norm_); NaN where the step is skipped";
  let description = [{
    Unless the norm is less than hyper's limit (infinity where only norms that are no finite numbers skip) the coefficient is NaN, whatever
    `clip` is: updates then leave the state as it is. The norm is that of all gradients and the same on all ranks, so all of them skip the
    step or none.
  }];
  let arguments = (ins AnyRankedTensor:$norm, AnyRankedTensor:$hyper);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$norm `,` $hyper attr-dict `:` functional-type(operands, $result)";
}
def PC_AdamWOp : PC_Compute<"adamw"> {
  let summary = "One step of torch.optim.AdamW on coefficient * gradient; pointwise";
  let description = [{
    Results: parameter, exp_avg, exp_avg_sq after the step; where the coefficient is NaN, the operands bit for bit (a gradient of zeros
    would still decay the parameter and its averages).
  }];
  let arguments = (ins AnyRankedTensor:$parameter, AnyRankedTensor:$gradient, AnyRankedTensor:$exp_avg,
                       AnyRankedTensor:$exp_avg_sq, AnyRankedTensor:$coefficient, AnyRankedTensor:$hyper);
  let results = (outs AnyRankedTensor:$new_parameter, AnyRankedTensor:$new_exp_avg, AnyRankedTensor:$new_exp_avg_sq);
  let extraClassDeclaration = PC_Elementwise<4>.text;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def PC_SGDOp : PC_Compute<"sgd"> {
  let summary = "One step of torch.optim.SGD without momentum on coefficient * gradient: p - lr (c g + weight_decay p)";
  let description = "Where the coefficient is NaN, the parameter bit for bit.";
  let arguments = (ins AnyRankedTensor:$parameter, AnyRankedTensor:$gradient, AnyRankedTensor:$coefficient,
                       AnyRankedTensor:$hyper);
  let results = (outs AnyRankedTensor:$new_parameter);
  let extraClassDeclaration = PC_Elementwise<2>.text;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

#endif // PC_IR_PCOPTIMIZER_TD
