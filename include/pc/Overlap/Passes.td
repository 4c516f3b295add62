//===- Passes.td - Passes of the Overlap room ---------------------------------------===//
#ifndef PC_OVERLAP_PASSES_TD
#define PC_OVERLAP_PASSES_TD

include "mlir/Pass/PassBase.td"

def WindowMoves : Pass<"pc-window-moves", "mlir::ModuleOp"> {
  let summary = "Ring attention and collective matmuls: gathers and reduce_scatters -> steps, each with a part of the work";
  let description = [{
    Local program -> local program, before `pc-fuse`. Gathers and reduce_scatters become steps, each with a part of the work.

    *Ring attention.* The pass looks for attention whose queries are split over the n ranks of the zigzag order, with keys and values gathered
    over these ranks. Such attention becomes n attention ops: one for the rank's own block of keys, and one for each of the
    blocks that arrive by n - 1 `pc.permute`s around the ring. `pc.merge_attention` merges their results (running maxima
    and sums). The gathered tensor never exists as a whole, and the next block arrives while the current one is used.
    For the gradient, keys and values pass around the ring again, and the sums of their gradients pass with them instead
    of the reduce_scatters. The number of bytes sent does not change. In zigzag order rank r has chunks r and 2n-1-r of
    the sequence. Every rank therefore sees half of the keys of each other rank, and the keys that a query sees are the
    first ones of a block (`pc.key_counts`). The program is unrolled over the steps. The pass fails if the queries are
    split but keys and values are not gathered in this way.

    *Collective matmuls*, over `axes`. A gather that feeds a matrix product becomes n - 1 `pc.permute`s: coordinate i
    works on its own block first, then on the blocks of i - 1, i - 2, ... Values computed from the gathered one are
    computed block by block. If the product contracts the gathered dim, it becomes a sum of products with slices of the
    other operand. If it keeps that dim, its result exists as blocks, and so do results of pointwise ops on them.
    `pc.insert` assembles the blocks for ops that need the whole value. A reduce_scatter of a product becomes a sum that
    passes around the ring: each rank adds its product to the sum for the current block, and adds its own block's
    product last.

    ```mlir
    // pc-opt --pc-window-moves=axes=tp
    pc.mesh <tp = 2>
    func.func @step(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<8x16xf32> {
      %all = pc.all_gather %x dim 0 on ["tp"] : (tensor<4x8xf32>) -> tensor<8x8xf32>
      %y = pc.einsum "s e, e f -> s f" %all, %w : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
      return %y : tensor<8x16xf32>
    }
    // becomes
    %next = pc.permute %x on ["tp"] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y0 = pc.einsum "s e, e f -> s f" %x, %w : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %half = pc.insert %y0 dim 0 on ["tp"] : (tensor<4x16xf32>) -> tensor<8x16xf32>
    %y1 = pc.einsum "s e, e f -> s f" %next, %w : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %y = pc.insert %y1 into %half dim 0 shift 1 on ["tp"] : (tensor<4x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
    return %y : tensor<8x16xf32>
    ```

    Two such moves over two axes of one size may share one factor of a product: both operands are gathered, or one is and the result is
    scattered (2D and 3D tensor parallelism). Then both become n exchanges (`pc.permute ... with`). On coordinates (i, j) step t works on block k
    with i + j + k = t mod n. This block comes directly from the ranks that own it, and the product goes directly to the ranks that need it. The
    order is Cannon's, without its initial skew.

    The number of bytes sent does not change. A gather stays if an op needs the whole value. If it feeds a product, or
    if a scattered product cannot be computed in the order of its scatter, a remark says why. The pass fails for an axis
    over which no move feeds or follows a product.
  }];
  let options = [ListOption<"axes", "axes", "std::string", "Mesh axes over which gathers and reduce_scatters of matrix products become collective matmuls">];
}

def VerifyWindows : Pass<"pc-verify-windows", "mlir::ModuleOp"> {
  let summary = "Check that every axis of pc-window-moves has work in some stage";
  let description = [{
    The pass works on the programs of all stages, after `pc-window-moves` with the same `axes`. It checks that, for
    every axis, at least one stage has a window. A single stage may have none. For a program without stages,
    `pc-window-moves` itself checks this.

    ```mlir
    // pc-opt --pc-verify-windows=axes=tp
    pc.mesh <tp = 2>
    func.func @step() {
      return
    }
    // error: nothing to do over axis 'tp' in any stage
    ```
  }];
  let options = [ListOption<"axes", "axes", "std::string", "The axes of pc-window-moves">];
}

def Schedule : Pass<"pc-schedule", "mlir::ModuleOp"> {
  let summary = "Local program -> scheduled program: moves run while the ranks compute";
  let description = [{
    Local program -> scheduled program: moves run while the ranks compute. The pass splits moves with traffic into
    `pc.start` and `pc.wait` if something can run in between. Computing ops keep their order, except updates of
    parameters with carries, which are sorted by size (below). A move changes its
    position only to a place where its operands have been computed and its results are not needed yet.

    ```mlir
    // pc-opt --pc-schedule
    pc.mesh <tp = 2>
    func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
      %a = pc.exp %x : (tensor<4xf32>) -> tensor<4xf32>
      %b = pc.log %x : (tensor<4xf32>) -> tensor<4xf32>
      %s = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
      %y = pc.add %s, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }
    // becomes
    %a = pc.exp %x : (tensor<4xf32>) -> tensor<4xf32>
    %ticket = pc.start (%a1 = %a : tensor<4xf32> -> tensor<4xf32>) {
      %sum = pc.all_reduce sum %a1 on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
      pc.yield %sum : tensor<4xf32>
    } : !pc.ticket
    %b = pc.log %x : (tensor<4xf32>) -> tensor<4xf32>
    %s = pc.wait %ticket : tensor<4xf32>
    %y = pc.add %s, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    ```

    * With one microbatch, moves of values that `pc.accumulate` yields (gradients, the loss) go into its body, where they can start as soon as
      the gradient is computed. So do gathers before it that only its body reads. With several microbatches both stay outside: one move of the
      sum is less traffic than one of each addend, and one gather is less than one per microbatch.
    * Moves whose results are needed only at the end of the block, and moves of sums over microbatches, share *buckets*: moves of one kind,
      group and element width, up to `bucket-bytes`, in the order in which their operands are ready (for gradients: backward). A bucket starts
      when its last operand is ready. Unless its moves work in place, it is waited for when the second bucket after it starts, which limits the
      operands that are kept. `pc.update`s of moved values come last, so that nothing waits for them. In each task of a
      stage, additions of reduced gradients to the sums of earlier tasks also come last; their moves share buckets only
      within the task.
    * Gathers of stored tensors (parameters split over a data axis, or their rounded copies) are grouped into *units*:
      tensors whose names agree up to the first number ("h.3"). A unit is gathered when the one `prefetch` + 1 before it
      has been used for the last time. At most `prefetch` + 1 units are therefore in memory at any time, and fewer if
      their payload would exceed `prefetch-bytes`. A unit does not wait for an earlier unit that is still used after
      this unit is needed, such as an embedding that is also the head; such earlier units are kept in addition.
    * Carries to the device also belong to units: in the passes, to units of layers; in the optimizer, to units of updates
      that follow each other, with up to `bucket-bytes`, or one parameter. An update frees a gradient, so small parameters
      are updated first; then there is room when the states of the largest ones arrive.
    * Other gathers, and steps around a ring, start one matrix product before their position, because their results are
      large.
    * All other moves start as soon as they can. A move stays blocking if nothing could run between its start and its wait.
    * Waits are as late as possible, in the order of the starts within a group.

    All ranks run the same program, so they issue the moves of each communicator in the same order. Post-condition:
    `pc-verify-scheduled`.
  }];
  let options = [
    Option<"bucketBytes", "bucket-bytes", "int64_t", "25 << 20", "Payload of a bucket">,
    Option<"prefetch", "prefetch", "int64_t", "1", "Number of units that are gathered ahead of the one in use">,
    Option<"prefetchBytes", "prefetch-bytes", "int64_t", "0", "Limit of the payload of a unit and the units gathered ahead of it; 0: no limit">,
  ];
}

def VerifyScheduled : Pass<"pc-verify-scheduled", "mlir::ModuleOp"> {
  let summary = "Check the order of moves, and that starts and waits are enough synchronization";
  let description = [{
    The pass checks the order of moves in scheduled and planned programs, and that starts and waits are enough
    synchronization. It runs the program as streams would: one stream computes, and every group of ranks has a stream
    for its moves. `pc.start` is the edge from what has been computed so far to the group's stream, and `pc.wait` is the
    edge back. A move that blocks is both. There is no other order between streams. The pass is independent of
    `pc-schedule`. It checks that:

    * (S1) every block is a straight line (a function body, or the body of `pc.accumulate`, which all ranks repeat
      equally often), and no move is in a kernel (`pc.fusion`). Therefore all ranks issue the same moves in the same
      order;
    * (S2) every start has one wait after it in its block;
    * (S3) waits of one group come in the order of its starts, and no move blocks while an earlier one of its group is
      in flight, because a communicator runs its moves in order;
    * (S4) two ops that use the same bytes, one of them writing, are ordered by edges. In planned programs these are
      bytes of the arena, otherwise bytes of the value.

    Functions of tasks (`pc.call`) are checked separately. No move is in flight during a call (S3), and a call accesses
    its operands, its results and its frame.

    ```mlir
    // pc-opt --pc-verify-scheduled
    pc.mesh <tp = 2>
    func.func @step(%x: tensor<4xf32>) {
      %ticket = pc.start (%x1 = %x : tensor<4xf32> -> tensor<4xf32>) {
        %s = pc.all_reduce sum %x1 on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
        pc.yield %s : tensor<4xf32>
      } : !pc.ticket
      %y = pc.all_reduce sum %x on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
      %z = pc.wait %ticket : tensor<4xf32>
      return
    }
    // error: is a blocking move while an earlier move of the same communicator is in flight (S3)
    ```
  }];
}

#endif
