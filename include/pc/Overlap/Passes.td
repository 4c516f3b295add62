//===- Passes.td - Passes of the Overlap room ---------------------------------------===//
#ifndef PC_OVERLAP_PASSES_TD
#define PC_OVERLAP_PASSES_TD

include "mlir/Pass/PassBase.td"

def WindowMoves : Pass<"pc-window-moves", "mlir::ModuleOp"> {
  let summary = "Gathers and reduce_scatters -> steps round a ring, each with a part of the attention or of a matrix product";
  let description = [{
    Local program -> local program, in front of `pc-fuse`. Attention whose queries are split over the n ranks of the zigzag order, with keys
    and values gathered over them, becomes n attentions: to the own block and to those that come round the ring by n - 1
    `pc.permute`s, put together by `pc.merge_attention` (running maxima and sums). What is gathered never exists as a whole, and the next
    block is on its way while one is worked on. The gradient likewise: keys and values come round again, and the sums of their
    gradients travel with them, in place of the reduce_scatters. The bytes are those of the moves that go.

    In zigzag order rank r has chunks r and 2n-1-r of the sequence, so that every rank sees half of each other rank's keys, and the keys
    that a query sees are the first ones of a block (`pc.key_counts`). The text is unrolled over the steps. Fails where the
    queries are split but keys and values are not gathered so.

    With `axes`, the same for matrix products. A gather over such axes that feeds a product becomes n - 1 `pc.permute`s: coordinate i has its own
    block, then those of i - 1, i - 2, ... What is computed from it is computed block by block: where the gathered dim is summed, as a sum of
    products with slices of the other operand; where it stays, as blocks of the result, on which pointwise ops work as well, and which
    `pc.insert` puts together where something needs all of them. A reduce_scatter of a product becomes a sum that travels: each
    rank adds the product for the block at hand, its own last.

    Where two such moves over two axes of one size meet in a product, along one of its factors (2D and 3D: both operands of a product are
    gathered, or one is and the result is scattered), both become n exchanges (`pc.permute ... with`): on coordinates (i, j) step t works on
    block k with i + j + k = t mod n, gets it from the ranks that have it, and sends the product to the ranks that it is for, which add as
    addends come. That is Cannon's order without its skew: blocks do not go round but come from where they lie.

    The bytes are those of the moves that go. A gather that something needs whole stays; where it meets a product, as where a scattered
    product cannot be made in the order of its scatter, a remark says why. Fails over an axis where no move meets a product.
  }];
  let options = [ListOption<"axes", "axes", "std::string", "Mesh axes whose moves meet matrix products step by step">];
}

def Schedule : Pass<"pc-schedule", "mlir::ModuleOp"> {
  let summary = "Local program -> scheduled program: moves go on while the ranks compute";
  let description = [{
    Splits moves with traffic into `pc.start` and `pc.wait` where something can run in between. Computing ops keep their order; only moves
    go elsewhere, and only where their operands are there already and their results are not needed yet.

    * With one microbatch, moves of what `pc.accumulate` yields (gradients, the loss) come into its body, where they can start as soon as
      the gradient exists. With several, they stay behind the sum: one move of the sum is less traffic than one of each addend.
    * Moves that nothing computes with before the end of the block, and moves of sums over microbatches, share *buckets*: moves of one
      kind, group and element width, up to `bucket-bytes`, in the order in which their operands are ready (for gradients: backward).
      A bucket starts when its last operand is ready; where the moves do not work in place, it is waited for when the next but one
      starts, so that what they read does not pile up. `pc.update`s of moved values come last, so that nothing waits for them.
    * Gathers of stored tensors (parameters split over a data axis, or what they are rounded to) come by *unit*: tensors whose names agree up to the first number
      ("h.3"). A unit is gathered when the one `prefetch` + 1 before it has been used for the last time, so that at most `prefetch` + 1
      units are there at any time; fewer where their payload would be more than `prefetch-bytes`. A unit that is still used then, like
      an embedding that is the head too, counts from its first use on.
    * Other gathers, and steps round a ring, start one matrix product ahead: what they make is large.
    * All other moves start as soon as they can. A move stays as it is, and blocks, where nothing could run behind its start.
    * Waits stand as late as possible, in the order of the starts within a group.

    All ranks run the same text, which is one order of issue per communicator. Post-condition: `pc-verify-scheduled`.
  }];
  let options = [
    Option<"bucketBytes", "bucket-bytes", "int64_t", "25 << 20", "Payload of a bucket">,
    Option<"prefetch", "prefetch", "int64_t", "1", "Units that are gathered ahead of the one in use">,
    Option<"prefetchBytes", "prefetch-bytes", "int64_t", "0", "Payload of a unit and those gathered ahead of it; 0: any">,
  ];
}

def VerifyScheduled : Pass<"pc-verify-scheduled", "mlir::ModuleOp"> {
  let summary = "Check the order of moves, and that starts and waits are all the synchronization it needs";
  let description = [{
    For scheduled and planned programs. Runs the program as streams would: one stream computes, and every group of ranks has a stream for
    its moves. `pc.start` is the edge from what has been computed so far to the group's stream, `pc.wait` is the edge back; a move that
    blocks is both; nothing else orders two streams. Independent of `pc-schedule`.

    (S1) Every block is a straight line (a function body, or the body of `pc.accumulate`, which all ranks repeat equally often), and no
    move stands in a kernel (`pc.fusion`): all ranks issue the same moves in the same order. (S2) Every start has one wait behind it in
    its block. (S3) Waits of one group come in the order of its starts, and no move blocks while an earlier one of its group is under
    way: that is how a communicator works. (S4) Two ops that use the same bytes, one of them writing, are ordered by edges. Bytes are those
    of the arena in planned programs, and otherwise the value's own. Functions of tasks (`pc.call`) are run by themselves; a call is made
    with nothing under way (S3) and uses its operands, its results and its frame.
  }];
}

#endif
