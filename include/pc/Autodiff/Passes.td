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

def PackProducts : Pass<"pc-pack-products", "mlir::ModuleOp"> {
  let summary = "One parameter and one product for the q, k and v of attention";
  let description = [{
    Model program -> model program. Where the products for q, k and v read one value, their weights become one parameter, and so do
    their biases: by key/value head its query heads, its key and its value, along a dim named "qkv" (`parts` of `pc.parameter`). Where
    nothing is between the product and attention, that becomes `pc.packed_attention`; otherwise `pc.split_qkv` takes the parts, and
    rotates q and k if rotary embeddings are all there is between. Files, initial values and the meaning of the program stay as they are.

    `ranks`: among so many ranks tensor parallelism splits heads. Where key/value heads do not divide by it, query heads of a group are split
    and keys are not, which takes three products: those layers stay as they are.
  }];
  let options = [Option<"ranks", "ranks", "int64_t", "1", "Ranks among which heads are split">];
}

def Differentiate : Pass<"pc-differentiate", "mlir::ModuleOp"> {
  let summary = "Forward pass and loss -> one training step";
  let description = [{
    Model program (`func @model`) -> step program (`func @step`): the forward pass of one microbatch and its reverse-mode gradient in
    `pc.accumulate`, then the global gradient norm, the clip coefficient, the optimizer and the updates. Cross-entropy is
    expanded into reduce_max, sum_exp, pick and cross_entropy_grad, whose vocabulary may be split. A mean over the batch divides by the
    global count, so addends of microbatches and of ranks only ever add up. Several microbatches need a loss that is such a sum: an op
    that is not linear in a sum over the batch, or relates its sequences to each other, is refused. (How uneven the load of
    experts is, is a mean over a microbatch, and may be a part of the loss of each token.)

    Ops are put in the order of their layers, if they are not and data flow allows it.

    `optimizer=none` makes the evaluation step: forward and loss only.
  }];
  let options = [
    Option<"microbatches", "microbatches", "int64_t", "1", "Microbatches per step; must divide the batch">,
    Option<"optimizer", "optimizer", "std::string", "\"adamw\"", "adamw, sgd or none">,
  ];
  let dependentDialects = ["mlir::func::FuncDialect"];
}

def MixedPrecision : Pass<"pc-mixed-precision", "mlir::ModuleOp"> {
  let summary = "Activations and the operands of matrix products become bf16; parameters and their state stay f32";
  let description = [{
    Step program -> step program, before placement: the erasure of a placed program is the program of this pass. Every op computes in f32
    and rounds what it stores to the type of its result, so the choice is only what is stored:

    * bf16: both operands of matrix products and of attention, and their results; results of norms; activations and their
      gradients; logits and their gradient. A parameter is cast once a step, before the accumulation.
    * f32: parameters, optimizer state, what is looked up in tables (bf16 with `tables=bf16`), statistics of norms, attention and loss, the loss, biases and weights of norms, and
      everything that is summed over microbatches: a product that is a weight's gradient yields f32 directly.
    * A sum has the wider type of its addends (a broadcast bias does not count). So the residual stream, which begins at an
      embedding, is bf16, or f32 with `residual=f32`; so is its gradient.

    `gradients=bf16` rounds gradients after the accumulation: the sum over ranks then sends half the bytes (its addends are
    added in f32 and rounded once). With one microbatch, where nothing is accumulated, gradients are also stored in bf16.
  }];
  let options = [
    Option<"compute", "compute", "std::string", "\"bf16\"", "Matrix products and activations: bf16 or f32">,
    Option<"residual", "residual", "std::string", "\"bf16\"", "The residual stream, where activations are bf16: bf16 or f32">,
    Option<"tables", "tables", "std::string", "\"f32\"", "The tables of embeddings, as they are read: f32 or bf16">,
    Option<"gradients", "gradients", "std::string", "\"f32\"", "Gradients as they are sent, and with one microbatch as they are stored: f32 or bf16">,
  ];
}

def Recompute : Pass<"pc-recompute", "mlir::ModuleOp"> {
  let summary = "Compute values of the forward pass again where the backward pass reads them, rather than keep them";
  let description = [{
    Step program -> step program, before placement: the erasure of a placed program is the program of this pass. A layer is the ops whose
    source names agree through their first number ("h.3").

    * `mode=full`: only values that one layer passes to another are kept. Before its backward pass a layer runs forward again, as far as the
      backward pass reads its values.
    * `mode=selective`: results of matrix products and attention are kept (attention keeps one number per row, never the scores). Results of
      norms, activations and other cheap ops are computed again if their operands are kept anyway or are smaller.

    `layers` names some layers by their numbers in the model, from 0; the pass can run once with each mode. In a plan, `mode=auto` stands
    for the passes that pc-compile chooses by `--memory-limit`.
  }];
  let options = [
    Option<"mode", "mode", "std::string", "\"full\"", "full or selective">,
    ListOption<"layers", "layers", "std::string", "Numbers and ranges of layers: 0-3,7; all if there are none">,
  ];
}

def VerifyStep : Pass<"pc-verify-step", "mlir::ModuleOp"> {
  let summary = "Check what the step phase promises beyond single ops";
  let description = [{
    (T1) one function, `@step`, without arguments and results; (T2) one device: no mesh, no type with a placement or a home, and nothing
    is sent; (T3) one `pc.accumulate`, which holds the only `pc.seed` of a step that trains; (T4) one output is the loss, and
    `pc.cross_entropy` is expanded; (T5) an update has a leaf of its type, and in a step that trains every parameter and state
    has one update, unless all that depends on it are choices; (T6) in a step that trains every element of
    the tensors that parameters are stored in has one parameter: a checkpoint is written from these.
  }];
}

#endif
