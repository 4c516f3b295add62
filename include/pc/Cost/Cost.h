//===- Cost.h - Operations, bytes and traffic of one op -----------------------------------===//
// Everything follows from factor rules and types: of a local program, the cost to one rank; of a step program, the
// whole.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_COST_H
#define PC_COST_COST_H

#include "pc/Cost/Machine.h"
#include "pc/IR/PC.h"

namespace pc {

/// Floating point operations of matrix products in `op`, once: einsums that sum over a factor of two or more operands
/// (2 per product of two), attention (two products over the whole rectangle of scores, also where it is causal) and its
/// gradient (five: the scores are computed again). 0 for all other ops. Kernels count what is in them.
double flopsOf(mlir::Operation *op);

/// The axes of a move as reports name them: "dp+tp".
std::string axesText(MoveOpInterface move);

/// Whether an attention or its gradient is causal; none for other ops.
std::optional<bool> isCausalAttention(mlir::Operation *op);

/// Bytes that `op` reads and writes if nothing is cached: its operands and results.
int64_t bytesOf(mlir::Operation *op);

/// What one execution of a move sends, with n ranks in the group.
struct Traffic {
  /// The bytes of the group's full tensor: of the operand (all_reduce, reduce_scatter), of the result (all_gather), of
  /// n operands (all_to_all, permute).
  int64_t payload = 0;
  /// What this rank sends under the bandwidth-optimal algorithm, rounded down: all_reduce 2 (n-1) / n of the payload,
  /// all_gather and reduce_scatter (n-1) / n, all_to_all (n-1) / n^2, permute 1 / n (0 with a shift of 0: of a window's
  /// n exchanges a rank has one with itself). Of a rooted move, what this rank sends or gets: n-1 payloads at the root
  /// and one elsewhere (broadcast, reduce), (n-1) / n and 1 / n (scatter, gather).
  int64_t wire = 0;
};

/// The traffic of a move in a local program; zeros for slice, mask, pad and insert. `isRoot`: of the rank with
/// coordinate 0.
Traffic trafficOf(MoveOpInterface move, MeshAttr mesh, bool isRoot = true);

/// Ranks of one group, or two that send each other something, on the nodes of a machine. Ranks fill nodes in the order
/// of their numbers; for all groups, the slowest one.
struct NodeSpread {
  bool inNode = true; ///< all of them on one node
  int64_t fewest = 1; ///< of them on one node: as many network adapters carry the traffic between nodes

  /// The groups over `axes`.
  static NodeSpread ofGroups(MeshAttr mesh, llvm::ArrayRef<mlir::StringAttr> axes, const MachineModel &machine);
  /// All pairs of ranks with the same coordinates but on `axis`, where one has `from` and the other `to`.
  static NodeSpread between(MeshAttr mesh, mlir::StringAttr axis, int64_t from, int64_t to,
                            const MachineModel &machine);
};

/// Seconds of a message of `bytes`: by its link or, between devices, as fast as its blocks are (pcrt/messages.h).
double messageSeconds(double bytes, const NodeSpread &spread, const MachineModel &machine);

/// Seconds of a move in groups of n ranks over `axes`, if a rank sends `wire` bytes.
double moveSeconds(MoveKind kind, double wire, MeshAttr mesh, llvm::ArrayRef<mlir::StringAttr> axes,
                   const MachineModel &machine);

/// Seconds in which a move of which a rank sends `wire` bytes, and which takes `seconds`, copies at the speed of a
/// node's links, and so is in the way of kernels.
double copySeconds(double wire, double seconds, const MachineModel &machine);

/// Matrix products [m, k] x [k, n], `count` of them, on operands of bf16 or of f32.
struct ProductWork {
  double count, m, n, k;
  bool bf16;
  bool unaligned; ///< a matrix has rows that do not begin at multiples of 16 bytes
};
/// The result's tiles in whole waves over the multiprocessors, cut along k where that is faster.
double productSeconds(const ProductWork &work, const MachineModel &machine);

/// Attention, or its gradient: operations over the whole rectangle of scores; kernels skip the masked half of a causal
/// one.
struct AttentionWork {
  double flops;
  int64_t keys, headDim; ///< of a head: its keys, the elements of one
  bool causal, bf16;
};
/// Seconds at a share of the machine's peak rate, which is larger for more keys and for larger heads.
double attentionSeconds(const AttentionWork &work, const MachineModel &machine);
/// What `op`, attention or its gradient, is to that.
AttentionWork attentionWork(mlir::Operation *op);

/// Seconds of one execution of a local op on one rank: the larger of computing and reading, or sending.
double secondsOf(mlir::Operation *op, const MachineModel &machine);

/// Seconds in which the sum over microbatches of what each of them yields takes up a microbatch's, besides what makes
/// that: a product adds its result as it makes it; else the first one is copied, and later ones are added.
double secondsOfSum(mlir::Value yielded, bool isFirst, const MachineModel &machine);

/// Seconds of a part of an op that is not placed yet: its products with the sizes that the factors have in `part`, or
/// the `bytes` that it reads and writes, without what an operation takes whatever its size.
double secondsOfPart(mlir::Operation *op, const FactorRule &part, double bytes, const MachineModel &machine);

/// Seconds of each move of `start`, one after another. Those over the same axes are one launch (a group of NCCL's),
/// whose hops overlap: only the longest of their latencies counts.
llvm::SmallVector<double> secondsOfMoves(StartOp start, const MachineModel &machine);

} // namespace pc

#endif
