//===- Moves.h - The arithmetic of moves, without any transport -----------===//
// Defines which elements a member reads from which other member, and how addends are combined. A transport gives access
// to the members' memory and calls these functions. Ranges [lo, hi) count elements of the result, so that threads can
// share the work. Equivalents in NCCL: all_reduce, all_gather, reduce_scatter, broadcast and reduce have the same
// meaning; all_to_all, scatter, gather and permute are grouped ncclSend and ncclRecv.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_MOVES_H
#define PCRT_COMM_MOVES_H

#include "base/Types.h"
#include "comm/Comm.h"

namespace pcrt {

/// The name of a kind, such as "all_reduce".
const char *moveKindName(int32_t kind);

/// How many elements `in` and `out` of one member have, for groups of `n`.
int64_t inElements(const pcrt_move_desc &desc, int n);
int64_t outElements(const pcrt_move_desc &desc, int n);

/// "op (f32 [outer, extent, inner] over 4 ranks)" for messages.
std::string describeMove(const pcrt_move_desc &desc, int n);

/// The error in this call, or "". `desc` may hold any bytes.
std::string checkMove(const pcrt_move_desc &desc, const Group &group, const void *in, const void *out);

/// For slice and insert, returns the coordinate whose block member `me` takes or fills. For permute, returns the member
/// whose value `me` gets. `desc.shift` does not include the coordinate on `desc.with`.
inline int sourceOf(const pcrt_move_desc &desc, int n, int me) {
  return desc.with ? (desc.shift + n - me) % n : (me + n - desc.shift) % n;
}
/// For permute, returns the member that gets the value of `me`.
inline int targetOf(const pcrt_move_desc &desc, int n, int me) {
  return desc.with ? sourceOf(desc, n, me) : (me + desc.shift) % n;
}

/// Whether a move has no traffic, because of its kind or because its group is one rank. checkMove must have accepted
/// its kind.
inline bool isLocalMove(const pcrt_move_desc &desc, const Group &group) {
  return pcrt_facts_of_move(desc.kind)->way == PCRT_WAY_LOCAL || group.size() == 1;
}
void localMove(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
               const ParallelFor &parallelFor);

/// Computes outs[k][i] = ins[0][i + shift] (+) ins[1][i + shift] (+) ..., in this order, for i in [lo, hi) and every k.
/// bf16 is added in f32 and rounded once; i32 wraps; max keeps NaNs. An output may be an input's memory if `shift` is
/// 0.
void reduceElements(int32_t dtype, int32_t reduction, const char *const *ins, int numIns, char *const *outs,
                    int numOuts, int64_t lo, int64_t hi, int64_t shift = 0);

/// Sets [lo, hi) to the part of all_reduce's elements that member `me` of `n` adds. The part consists of whole cache
/// lines, except at the end of the elements.
void allReducePart(int64_t elements, int n, int me, int64_t *lo, int64_t *hi);

/// Reads elements [lo, hi) of member `me`'s result from the inputs of all members.
void pullAllGather(const pcrt_move_desc &desc, int n, const char *const *ins, char *out, int64_t lo, int64_t hi);
void pullReduceScatter(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *out, int64_t lo,
                       int64_t hi);
void pullAllToAll(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *out, int64_t lo, int64_t hi);

/// Carries out member `me`'s share of a move between `n` members that can read and write each other's buffers. The
/// share is all of the member's own result or, in an all_reduce, its part of all results. Only an all_reduce uses the
/// `outs` of other members. Returns null, or a message about what went wrong.
const char *carryOutShare(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *const *outs,
                          const ParallelFor &parallelFor);

} // namespace pcrt

#endif // PCRT_COMM_MOVES_H
