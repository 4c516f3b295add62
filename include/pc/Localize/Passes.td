//===- Passes.td - Passes of the Localize room ---------------------------------------===//
#ifndef PC_LOCALIZE_PASSES_TD
#define PC_LOCALIZE_PASSES_TD

include "mlir/Pass/PassBase.td"

def Localize : Pass<"pc-localize", "mlir::ModuleOp"> {
  let summary = "Placed program -> the program of one rank";
  let description = [{
    Every type becomes the local shape and loses its placement. All ranks run the same text: a rank's coordinates enter only through
    moves and through `pc.block_offset`. Input: a placed program, or an unplaced one for a single rank.

    * Leaves and outputs keep where they lie as `global` (shape) and `layout` (placement).
    * An op that depends on global indices of a split dim (embedding and its gradient, pick, cross_entropy_grad, mask_padding, iota) gets
      an `offset`; equal offsets share one `pc.block_offset`, at the top of the function.
    * Moves over one rank go.

    Nothing else changes: constants of means are global counts, and a partial value is simply the rank's addend.
    Refused: unplaced tensors on more than one rank, dims that do not divide, partial leaves, a partial update, an update that does
    not lie as its leaf does. Post-condition: `pc-verify-local`.
  }];
}

def VerifyLocal : Pass<"pc-verify-local", "mlir::ModuleOp"> {
  let summary = "Check what is legal in local programs";
  let description = [{
    (L1) no type has a placement; (L2) leaves and outputs say where they lie, and `global` divided by the axes of `layout` is the local
    shape; (L3) axes of moves and offsets are in the mesh; (L4) an update has the type of its leaf, and a leaf one update;
    (L5) no `pc.cross_entropy`. Shapes that share a factor are checked by every op's own verifier.
  }];
}

#endif
