//===- PCDefinitions.td - Optimizers as text -------------------------------------------------===//
// Only pc-differentiate needs definitions, so the class of the op is in a header of its own (pc/IR/OptimizerOp.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCDEFINITIONS_TD
#define PC_IR_PCDEFINITIONS_TD

include "pc/IR/PCBase.td"
include "mlir/IR/OpBase.td"

def PC_OptimizerOp : Op<PC_Dialect, "optimizer", [IsolatedFromAbove]> {
  let summary = "Defines an optimizer: what a step makes of one parameter and its states";
  let description = [{
    `pc-differentiate` copies the region for each parameter that the optimizer treats. Its arguments are the parameter, its gradient times the
    clip coefficient, the states, which are zeros before the first step, and the scalars. It yields the new parameter and the new states. A step
    that is skipped keeps the old ones; the region does not have to care.

    `dims` names the dims of a parameter, whose number and sizes differ, so types have `?` for them. `["all"]`: any parameter, elementwise; the
    name stands for all dims. `["stack", "rows", "columns"]`: a matrix as the checkpoint stores it, or a stack of matrices, such as those of
    experts. `["stack", "short", "long"]`: the same, with the names given by size. `hidden`: matrices except tables of embeddings and the head,
    which computes the logits. `others` names the optimizer of parameters that this one does not treat; by default that is `adamw`.

    Scalars are `lr`, `beta1`, `beta2`, `eps`, `decay`, `correction1` (1 - beta1^t) and `correction2` of the parameter's group, the sizes `rows`
    and `columns`, and the names in `settings`, each of which has a default that `--optimizer=NAME:SETTING=NUMBER` replaces. A setting hides what a
    run provides under its name.

    Constraints: (C1) dims are one of the three lists; (C2) arguments are a parameter, a gradient and states of f32 with a `?` for each dim, and
    scalars; (C3) the region yields a parameter and as many states; (C4) it has only pointwise ops, einsums and constants, so it sees nothing but
    its arguments; (C5) every scalar is known, and every setting is a scalar; (C6) the dims of each value follow from its operands.

    ```mlir
    pc.optimizer "momentum" dims ["all"] states ["momentum_buffer"] scalars ["lr", "momentum"] settings {momentum = 0.9} {
    ^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %old: tensor<?xf32>, %lr: tensor<f32>, %momentum: tensor<f32>):
      %kept = pc.einsum ", all -> all" %momentum, %old : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
      %buffer = pc.add %kept, %g : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      %step = pc.einsum ", all -> all" %lr, %buffer : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
      %new = pc.sub %w, %step : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      pc.yield %new, %buffer : tensor<?xf32>, tensor<?xf32>
    }
    ```
  }];
  let arguments = (ins StrAttr:$name, StrArrayAttr:$dims, UnitAttr:$hidden, OptionalAttr<StrAttr>:$others,
                       DefaultValuedOptionalAttr<StrArrayAttr, "{}">:$states, DefaultValuedOptionalAttr<StrArrayAttr, "{}">:$scalars,
                       OptionalAttr<DictionaryAttr>:$settings);
  let regions = (region SizedRegion<1>:$body);
  let hasRegionVerifier = 1;
  let assemblyFormat = [{
    $name `dims` $dims (`hidden` $hidden^)? (`others` $others^)? (`states` $states^)? (`scalars` $scalars^)? (`settings` $settings^)? $body attr-dict
  }];
  let extraClassDeclaration = [{
    mlir::Block &getBlock() { return getBody().front(); }
    /// Whether it is for matrices, not elementwise.
    bool isOfMatrices() { return getDims().size() > 1; }
    /// The names of `states` or `scalars`.
    llvm::SmallVector<llvm::StringRef> names(mlir::ArrayAttr of);
  }];
}

#endif
