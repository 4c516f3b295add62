//===- Cost.h - Operations, bytes and traffic of one op -----------------------------------===//
// All figures follow from factor rules and types. For a local program, they are the cost on one rank; for a step
// program, the cost of the whole step.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_COST_H
#define PC_COST_COST_H

#include "pc/Cost/Machine.h"
#include "pc/IR/PC.h"

namespace pc {

/// Returns the floating point operations of the matrix products in one execution of `op`:
/// * an einsum that sums over a factor of at least two operands: 2 per product of two numbers;
/// * attention: two products over the whole rectangle of scores, even if it is causal;
/// * the gradient of attention: five products, because the scores are computed again;
/// * a kernel: the sum over its ops;
/// * any other op: 0.
double flopsOf(mlir::Operation *op);

/// The axes of a move as reports name them, such as "dp+tp".
std::string axesText(MoveOpInterface move);

/// Whether an attention or its gradient is causal; none for all other ops.
std::optional<bool> isCausalAttention(mlir::Operation *op);

/// Bytes that `op` reads and writes if nothing is cached: its operands and results.
int64_t bytesOf(mlir::Operation *op);

/// The bytes that one execution of a move sends, with n ranks in the group.
struct Traffic {
  /// The bytes of the group's full tensor: the operand (all_reduce, reduce_scatter), the result (all_gather), or n
  /// operands (all_to_all, permute).
  int64_t payload = 0;
  /// The bytes that this rank sends with the bandwidth-optimal algorithm, rounded down, as a part of the payload:
  /// * all_reduce 2 (n-1) / n; all_gather and reduce_scatter (n-1) / n; all_to_all (n-1) / n^2;
  /// * permute 1 / n, or 0 with a shift of 0: one of a window's n exchanges is between a rank and itself;
  /// * rooted moves, where both directions count: n-1 payloads at the root and one elsewhere (broadcast, reduce), (n-1)
  ///   / n and 1 / n (scatter, gather).
  int64_t wire = 0;
};

/// The traffic of a move in a local program; zeros for slice, mask, pad and insert. If `isRoot` is true, it is the
/// traffic of the rank with coordinate 0.
Traffic trafficOf(MoveOpInterface move, MeshAttr mesh, bool isRoot = true);

/// How the ranks of one group, or two ranks that exchange a message, are distributed over the nodes of a machine. Ranks
/// fill nodes in the order of their numbers. For several groups, this describes the slowest one.
struct NodeSpread {
  bool inNode = true; ///< all ranks are on one node
  int64_t fewest = 1; ///< the smallest number of ranks on one node; this many network adapters carry its traffic

  /// Describes all groups over `axes`.
  static NodeSpread ofGroups(MeshAttr mesh, llvm::ArrayRef<mlir::StringAttr> axes, const MachineModel &machine);
  /// Describes all pairs of ranks whose coordinates differ only on `axis`: one rank has coordinate `from`, the other
  /// `to`.
  static NodeSpread between(MeshAttr mesh, mlir::StringAttr axis, int64_t from, int64_t to,
                            const MachineModel &machine);
};

/// Returns the seconds of a message of `bytes`. The link limits the speed. Between devices, it also limits the size of
/// the blocks in which the message is sent (pcrt/messages.h).
double messageSeconds(double bytes, const NodeSpread &spread, const MachineModel &machine);

/// Seconds of a move in groups of n ranks over `axes`, if a rank sends `wire` bytes.
double moveSeconds(MoveKind kind, double wire, MeshAttr mesh, llvm::ArrayRef<mlir::StringAttr> axes,
                   const MachineModel &machine);

/// Returns how long a move copies at the speed of a node's links, and therefore slows kernels down. A rank sends `wire`
/// bytes in this move, which takes `seconds` in all.
double copySeconds(double wire, double seconds, const MachineModel &machine);

/// `count` matrix products [m, k] x [k, n] on operands of bf16, f32 or, if the machine multiplies these, 8 bits.
struct ProductWork {
  double count, m, n, k;
  bool bf16;
  bool unaligned; ///< rows of a matrix do not begin at multiples of 16 bytes
  bool fp8 = false;
};
/// Returns the seconds of a product whose tiles run in whole waves over the multiprocessors. The tiles are cut along k
/// if that is faster.
double productSeconds(const ProductWork &work, const MachineModel &machine);

/// Describes an attention or its gradient. Operations are counted over the whole rectangle of scores, although kernels
/// skip the masked half if the attention is causal.
struct AttentionWork {
  double flops;
  int64_t keys, headDim; ///< the number of keys of one head, and the elements of a key
  bool causal, bf16;
};
/// Returns the seconds at a share of the machine's peak rate. The share grows with the number of keys and the size of
/// heads.
double attentionSeconds(const AttentionWork &work, const MachineModel &machine);
/// Describes `op`, which is attention or its gradient.
AttentionWork attentionWork(mlir::Operation *op);

/// Returns the seconds of one execution of a local op on one rank: the longer of the time for computing and the time
/// for reading or sending.
double secondsOf(mlir::Operation *op, const MachineModel &machine);

/// Returns the seconds for adding one microbatch's yielded value to the sum. The op that computes the value does not
/// count. A product adds its result to the sum itself. Otherwise the first value is copied and later ones are added.
double secondsOfSum(mlir::Value yielded, bool isFirst, const MachineModel &machine);

/// Returns the seconds of a part of an op that has no placement yet: the longer of the time of its products, with the
/// sizes of factors in `part`, and the time to read and write `bytes`. The fixed cost of an operation does not count.
double secondsOfPart(mlir::Operation *op, const FactorRule &part, double bytes, const MachineModel &machine);

/// Returns the seconds of each move of `start`, one after another. Moves over the same axes are one launch (an NCCL
/// group). Their hops overlap, so only the longest latency counts.
llvm::SmallVector<double> secondsOfMoves(StartOp start, const MachineModel &machine);

} // namespace pc

#endif
