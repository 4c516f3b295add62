//===- PCDefinitions.td - Optimizers as text -------------------------------------------------===//
// Only pc-differentiate needs definitions, so the class of the op is in a separate header (pc/IR/OptimizerOp.h).
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_PCDEFINITIONS_TD
#define PC_IR_PCDEFINITIONS_TD

include "pc/IR/PCBase.td"
include "mlir/IR/OpBase.td"

def PC_OptimizerOp : Op<PC_Dialect, "optimizer", [IsolatedFromAbove]> {
  let summary = "Defines an optimizer: how a step updates one parameter and its states";
  let description = [{
    `pc-differentiate` copies the region for each parameter that the optimizer treats. Its arguments are the parameter,
    the gradient times the clip coefficient, the states, which are zeros before the first step, and the scalars. It
    yields the new parameter and the new states. A step that is skipped keeps the old values; the region need not handle
    this.

    `dims` names the dims of a parameter. Their number and sizes differ between parameters, so types have `?` for them.
    There are three lists of dims:

    * `["all"]` stands for any parameter and all its dims. The optimizer works elementwise.
    * `["stack", "rows", "columns"]` stands for a matrix as the checkpoint stores it, or for a stack of matrices, such
      as the matrices of experts.
    * `["stack", "short", "long"]` is the same, with the two dims of a matrix named by their size.

    With `hidden`, the optimizer treats only hidden matrices: not the tables of embeddings, and not the head, which
    computes the logits. `others` names the optimizer of the parameters that this one does not treat; by default it is
    `adamw`.

    `over` lists the dims of each state, which are a part of `dims`: `over [["stack", "rows"], []]` declares one number
    per row of each matrix, and one number per parameter. Without it, states have the shape of their parameter.

    Scalars are `lr`, `beta1`, `beta2`, `eps`, `decay`, `correction1` (1 - beta1^t) and `correction2` of the parameter's
    group, the sizes `rows` and `columns` of a matrix, or with `["all"]` the number of elements `size`, and the names in
    `settings`. Sizes do not count padding. Each setting has a default, which `--optimizer=NAME:SETTING=NUMBER`
    replaces, also for the definition that `others` names. A setting may have the name of one of the run's scalars,
    which is then hidden.

    Constraints: (C1) `dims` is one of the three lists; (C2) the arguments are a parameter, a gradient and states of f32
    with a `?` for each dim, and scalars; (C3) the region yields a parameter and the same number of states; the names of
    states differ from each other and from the states of `--ema`; (C4) it has only pointwise ops, einsums and constants,
    and uses only its arguments; (C5) every scalar is known, and every setting is a scalar; (C6) the dims of each value
    follow from its operands; (C7) `over` has an entry for each state, with names from `dims` in their order.

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
                       OptionalAttr<ArrayAttr>:$over, OptionalAttr<DictionaryAttr>:$settings);
  let regions = (region SizedRegion<1>:$body);
  let hasRegionVerifier = 1;
  let assemblyFormat = [{
    $name `dims` $dims (`hidden` $hidden^)? (`others` $others^)? (`states` $states^)? (`over` $over^)? (`scalars` $scalars^)? (`settings` $settings^)? $body attr-dict
  }];
  let extraClassDeclaration = [{
    mlir::Block &getBlock() { return getBody().front(); }
    /// Whether the optimizer treats matrices. Otherwise it works elementwise.
    bool isOfMatrices() { return getDims().size() > 1; }
    /// The names of `states` or `scalars`.
    llvm::SmallVector<llvm::StringRef> names(mlir::ArrayAttr of);
    /// Which of `dims` each state has.
    llvm::SmallVector<llvm::SmallVector<int, 3>> dimsOfStates();
    /// Whether an einsum sums over dims, so that an element's update depends on other elements.
    bool hasSums();
  }];
}

#endif
