//===- Passes.td - Passes of the Localize room ---------------------------------------===//
#ifndef PC_LOCALIZE_PASSES_TD
#define PC_LOCALIZE_PASSES_TD

include "mlir/Pass/PassBase.td"

def Localize : Pass<"pc-localize", "mlir::ModuleOp"> {
  let summary = "Placed program -> the program of one rank";
  let description = [{
    Placed program -> local program, the program of one rank. Every type becomes the local shape and loses its
    placement. All ranks run the same program: only moves and `pc.block_offset` depend on the coordinates of a rank. The
    input is a placed program, or an unplaced one for a single rank.

    * Leaves and outputs keep their full shape as `global` and their placement as `layout`.
    * An op that depends on global indices of a split dim (embedding and its gradient, pick, cross_entropy_grad, mask_padding, iota) gets
      an `offset`. Equal offsets share one `pc.block_offset`, at the top of the function.
    * Moves over one rank are removed.
    * A sum with `wire` becomes `pc.encode_addend`, an all_gather or all_to_all of codes, and `pc.decode_sum` before its first reader.

    ```mlir
    // pc-opt --pc-localize
    pc.mesh <tp = 2>
    func.func @step() {
      %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0>
        source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32, #pc.place<[tp, _]>>
      %t = pc.input tokens dims ["batch"] : tensor<4xi32, #pc.place<[_]>>
      %x = pc.embedding %w, %t : (tensor<16x8xf32, #pc.place<[tp, _]>>, tensor<4xi32, #pc.place<[_]>>) -> tensor<4x8xf32, #pc.place<[_, _] sum(tp)>>
      %y = pc.all_reduce sum %x on ["tp"] : (tensor<4x8xf32, #pc.place<[_, _] sum(tp)>>) -> tensor<4x8xf32, #pc.place<[_, _]>>
      pc.output logits "y" %y : tensor<4x8xf32, #pc.place<[_, _]>>
      return
    }
    // becomes
    %first = pc.block_offset on ["tp"] block 8 : tensor<i32>
    %w = pc.parameter "w" ... global [16, 8] layout <[tp, _]> : tensor<8x8xf32>
    %t = pc.input tokens dims ["batch"] global [4] layout <[_]> : tensor<4xi32>
    %x = pc.embedding %w, %t offset %first : (tensor<8x8xf32>, tensor<4xi32>, tensor<i32>) -> tensor<4x8xf32>
    %y = pc.all_reduce sum %x on ["tp"] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    pc.output logits "y" %y global [4, 8] layout <[_, _]> : tensor<4x8xf32>
    ```

    Nothing else changes. The constants of means already divide by global counts, and a partial value becomes the addend
    of the rank. The pass refuses unplaced tensors on more than one rank, dims that do not divide, partial leaves, a
    partial update, and an update whose placement differs from that of its leaf. Post-condition: `pc-verify-local`.
  }];
}

def VerifyLocal : Pass<"pc-verify-local", "mlir::ModuleOp"> {
  let summary = "Check what is legal in local programs";
  let description = [{
    The pass checks that:

    * (L1) no type has a placement;
    * (L2) leaves and outputs have `global` and `layout`, and `global` divided by the axes of `layout` is the local shape;
    * (L3) axes of moves and offsets are in the mesh;
    * (L4) an update has the type of its leaf, and a leaf has at most one update;
    * (L5) there is no `pc.cross_entropy`;
    * (L6) no move has `wire`.

    The verifier of every op checks the shapes that share a factor.

    ```mlir
    // pc-opt --pc-verify-local
    func.func @step() {
      %x = pc.input tokens dims ["batch"] : tensor<4xi32>
      return
    }
    // error: needs 'global' and 'layout' in a local program (L2)
    ```
  }];
}

#endif
