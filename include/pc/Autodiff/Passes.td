//===- Passes.td - Passes of the Autodiff room --------------------------------------===//
#ifndef PC_AUTODIFF_PASSES_TD
#define PC_AUTODIFF_PASSES_TD

include "mlir/Pass/PassBase.td"

def PadVocabulary : Pass<"pc-pad-vocabulary", "mlir::ModuleOp"> {
  let summary = "Pad dims named \"vocab\" to a multiple, so that they can be split";
  let description = [{
    Model program -> model program. Parameters get zero rows at the end (`valid` keeps their true shape) and `pc.mask_padding` sets the
    logits of padded entries to -1e30 before the loss. The padding reaches nothing: its softmax is 0, so its gradient, its part
    of the norm and its update are 0; checkpoints, dumps and initial values know only the valid part.
  }];
  let options = [Option<"multiple", "multiple", "int64_t", "1", "The padded size is the next multiple of this">];
}

def Differentiate : Pass<"pc-differentiate", "mlir::ModuleOp"> {
  let summary = "Forward pass and loss -> one training step";
  let description = [{
    Model program (`func @model`) -> step program (`func @step`): the forward pass of one microbatch and its reverse-mode gradient in
    `pc.accumulate`, then the global gradient norm, the clip coefficient, the optimizer and the updates. Cross-entropy is
    expanded into reduce_max, sum_exp, pick and cross_entropy_grad, whose vocabulary may be split. A mean over the batch divides by the
    global count, so addends of microbatches and of ranks only ever add up.

    `optimizer=none` makes the evaluation step: forward and loss only.
  }];
  let options = [
    Option<"microbatches", "microbatches", "int64_t", "1", "Microbatches per step; must divide the batch">,
    Option<"optimizer", "optimizer", "std::string", "\"adamw\"", "adamw, sgd or none">,
  ];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

#endif
