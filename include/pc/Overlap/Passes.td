//===- Passes.td - Passes of the Overlap room ---------------------------------------===//
#ifndef PC_OVERLAP_PASSES_TD
#define PC_OVERLAP_PASSES_TD

include "mlir/Pass/PassBase.td"

def WindowMoves : Pass<"pc-window-moves", "mlir::ModuleOp"> {
  let summary = "Ring attention and collective matmuls: gathers and reduce_scatters -> steps, each with a part of the work";
  let description = [{
    Local program -> local program, in front of `pc-fuse`.

    *Ring attention.* Attention whose queries are split over the n ranks of the zigzag order, with keys and values gathered over them, becomes
    n attentions: to the rank's own block of keys, and to those that come round the ring by n - 1 `pc.permute`s. `pc.merge_attention` merges their
    results (running maxima and sums). The gathered tensor never exists as a whole, and the next block arrives during the work on one. For the
    gradient, keys and values come round again, and the sums of their gradients travel with them, in place of the reduce_scatters. As many bytes
    are sent as before. In zigzag order rank r has chunks r and 2n-1-r of the sequence, so every rank sees half of the keys of each other rank,
    and the keys that a query sees are the first ones of a block (`pc.key_counts`). The program is unrolled over the steps. Fails where the
    queries are split but keys and values are not gathered in this way.

    *Collective matmuls*, over `axes`. A gather that feeds a matrix product becomes n - 1 `pc.permute`s: coordinate i works on its own block first,
    then on those of i - 1, i - 2, ... Values computed from the gathered one are computed block by block. If the product contracts the gathered
    dim, it becomes a sum of products with slices of the other operand. If it keeps that dim, its result exists as blocks; so do results of
    pointwise ops on them, and `pc.insert` puts the blocks together for ops that need all of them. A reduce_scatter of a product becomes a sum
    that travels round the ring, to which each rank adds the product for the block at hand, its own last.

    Two such moves over two axes of one size may meet along one factor of a product: both operands are gathered, or one is and the result is
    scattered (2D and 3D tensor parallelism). Then both become n exchanges (`pc.permute ... with`). On coordinates (i, j) step t works on block k
    with i + j + k = t mod n, which comes directly from the ranks that own it, and the product goes directly to the ranks that it is for. That is
    Cannon's order without its initial skew.

    As many bytes are sent as before. A gather stays where some op needs it as a whole. If it feeds a product, or if a scattered product cannot be
    computed in the order of its scatter, a remark says why. Fails over an axis none of whose moves feeds or follows a product.
  }];
  let options = [ListOption<"axes", "axes", "std::string", "Mesh axes over which gathers and reduce_scatters of matrix products become collective matmuls">];
}

def VerifyWindows : Pass<"pc-verify-windows", "mlir::ModuleOp"> {
  let summary = "Check that every axis of windows has one in some stage";
  let description = [{
    The programs of all stages, after `pc-window-moves` with the same `axes`: a stage may have no move over an axis that meets a product,
    but some stage has. One program alone is asked by `pc-window-moves` itself.
  }];
  let options = [ListOption<"axes", "axes", "std::string", "Those of pc-window-moves">];
}

def Schedule : Pass<"pc-schedule", "mlir::ModuleOp"> {
  let summary = "Local program -> scheduled program: moves go on while the ranks compute";
  let description = [{
    Splits moves with traffic into `pc.start` and `pc.wait` where something can run in between. Computing ops keep their order. Moves go
    elsewhere only where their operands are computed already and their results are not needed yet.

    * With one microbatch, moves of values that `pc.accumulate` yields (gradients, the loss) go into its body, where they can start as soon as
      the gradient is computed; and so do gathers in front of it that its body alone reads. With several, both stay outside: one move of the
      sum is less traffic than one of each addend, and one gather less than one for each of them.
    * Moves whose results are needed at the end of the block only, and moves of sums over microbatches, share *buckets*: moves of one
      kind, group and element width, up to `bucket-bytes`, in the order in which their operands are ready (for gradients: backward).
      A bucket starts when its last operand is ready. Unless its moves work in place, it is waited for when the second bucket after it
      starts, which limits the operands that are held. `pc.update`s of moved values come last, so that nothing waits for them; and so do,
      in each task of a stage, additions of what it has sent to the sums of tasks before it, whose buckets are the task's.
    * Gathers of stored tensors (parameters split over a data axis, or their rounded copies) come by *unit*: tensors whose names agree up to the
      first number ("h.3"). A unit is gathered when the one `prefetch` + 1 before it has been used for the last time, so at most `prefetch` + 1
      units are in memory at any time; fewer where their payload would be more than `prefetch-bytes`. An earlier unit that is used even after
      this one is needed, as an embedding that is also the head, counts from its first use on.
    * Other gathers, and steps round a ring, start one matrix product ahead of where they stand, because their results are large.
    * All other moves start as soon as they can. A move stays blocking where nothing could run between its start and its wait.
    * Waits stand as late as possible, in the order of the starts within a group.

    All ranks run the same program, so they issue the moves of each communicator in one order. Post-condition: `pc-verify-scheduled`.
  }];
  let options = [
    Option<"bucketBytes", "bucket-bytes", "int64_t", "25 << 20", "Payload of a bucket">,
    Option<"prefetch", "prefetch", "int64_t", "1", "Units that are gathered ahead of the one in use">,
    Option<"prefetchBytes", "prefetch-bytes", "int64_t", "0", "Most payload of a unit and those gathered ahead of it; 0: any">,
  ];
}

def VerifyScheduled : Pass<"pc-verify-scheduled", "mlir::ModuleOp"> {
  let summary = "Check the order of moves, and that starts and waits are all the synchronization it needs";
  let description = [{
    For scheduled and planned programs. Runs the program as streams would: one stream computes, and every group of ranks has a stream for
    its moves. `pc.start` is the edge from what has been computed so far to the group's stream, `pc.wait` is the edge back; a move that
    blocks is both; nothing else orders two streams. Independent of `pc-schedule`.

    (S1) Every block is a straight line (a function body, or the body of `pc.accumulate`, which all ranks repeat equally often), and no
    move stands in a kernel (`pc.fusion`): all ranks issue the same moves in the same order. (S2) Every start has one wait after it in
    its block. (S3) Waits of one group come in the order of its starts, and no move blocks while an earlier one of its group is under
    way: that is how a communicator works. (S4) Two ops that use the same bytes, one of them writing, are ordered by edges. Bytes are those
    of the arena in planned programs, and otherwise the value's own. Functions of tasks (`pc.call`) are run by themselves; a call is made
    with nothing under way (S3) and uses its operands, its results and its frame.
  }];
}

#endif
