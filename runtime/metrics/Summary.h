//===- Summary.h - The summary of a run -----------------------------------===//
// The report's schema (pc-compile --report), filled with measurements: the traffic of one step as the moves were
// called, the arena, heap allocations inside steps, peak memory and the time per kind of kernel.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_SUMMARY_H
#define PCRT_METRICS_SUMMARY_H

#include "device/Context.h"

namespace pcrt {

/// The measurements of a run on this rank.
struct RunFigures {
  int64_t steps = 0;
  int64_t skipped = 0; ///< The number of skipped steps among them.
  double seconds = 0;  ///< The time of all steps.
  Json bf16;           ///< The CPU's ways to multiply bf16 (cpu/Bf16.h), if it does.
};

/// Gathers the figures of all ranks; rank 0 gets the summary, the others null. All ranks call it.
Json makeSummary(const pcrt_context &context, const RunFigures &figures);

/// The bytes that a rank of a group of `members` sends under the bandwidth-optimal algorithm, given the bytes of the
/// group's full tensor (`payload`); in a rooted move, the bytes that it sends or gets.
int64_t wireBytes(const pcrt_move_desc &move, int64_t payload, int64_t members, bool isRoot);

/// The bytes of the full tensor of a move in a group of `members`.
int64_t payloadBytes(const pcrt_move_desc &move, int64_t members);

} // namespace pcrt

#endif // PCRT_METRICS_SUMMARY_H
