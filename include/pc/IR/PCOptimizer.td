//===- PCOptimizer.td - Clipping and optimizers --------------------------------------------===//
// These ops update parameters. PCOps.td includes this file.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCOPTIMIZER_TD
#define PC_IR_PCOPTIMIZER_TD

def PC_ClipCoefficientOp : PC_Compute<"clip_coefficient"> {
  let summary = "The factor by which gradients are clipped: min(1, clip / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_";
  let description = [{
    `clip` and the limit of the norm are elements of `hyper`. If the norm is not below the limit, the coefficient is NaN
    for any `clip`. Updates then leave parameters and states as they are. With the limit infinity, only a norm that is
    not a finite number skips the step. The norm is the norm of all gradients and is the same on all ranks, so either
    all ranks skip the step or none does.
  }];
  let arguments = (ins AnyRankedTensor:$norm, AnyRankedTensor:$hyper);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$norm `,` $hyper attr-dict `:` functional-type(operands, $result)";
}
def PC_AdamWOp : PC_Compute<"adamw"> {
  let summary = "One step of torch.optim.AdamW with the gradient coefficient * gradient; pointwise";
  let description = [{
    The results are the parameter, exp_avg and exp_avg_sq after the step. If the coefficient is NaN, they equal the
    operands bit for bit. (A gradient of zeros would still decay the parameter and its averages.)
  }];
  let arguments = (ins AnyRankedTensor:$parameter, AnyRankedTensor:$gradient, AnyRankedTensor:$exp_avg,
                       AnyRankedTensor:$exp_avg_sq, AnyRankedTensor:$coefficient, AnyRankedTensor:$hyper);
  let results = (outs AnyRankedTensor:$new_parameter, AnyRankedTensor:$new_exp_avg, AnyRankedTensor:$new_exp_avg_sq);
  let extraClassDeclaration = PC_Elementwise<4>.text;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def PC_SGDOp : PC_Compute<"sgd"> {
  let summary = "One step of torch.optim.SGD without momentum: p - lr (c g + weight_decay p), where c is the coefficient";
  let description = [{
    If the coefficient is NaN, the result equals the parameter bit for bit.
  }];
  let arguments = (ins AnyRankedTensor:$parameter, AnyRankedTensor:$gradient, AnyRankedTensor:$coefficient,
                       AnyRankedTensor:$hyper);
  let results = (outs AnyRankedTensor:$new_parameter);
  let extraClassDeclaration = PC_Elementwise<2>.text;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

#endif // PC_IR_PCOPTIMIZER_TD
