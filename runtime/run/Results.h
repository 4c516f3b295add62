//===- Results.h - What a run writes when it ends -------------------------===//
// The summary and the trace are gathered from all ranks and written by rank 0.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_RESULTS_H
#define PCRT_RUN_RESULTS_H

#include "metrics/Summary.h"

namespace pcrt {

/// Writes the trace of all ranks to `path`; empty: none. All ranks call it. A file that cannot be written is a warning.
void writeTrace(pcrt_context &context, const std::string &path);

/// Writes the summary to `path`. All ranks call it. Throws PCRT_RESOURCE on all of them.
void writeSummary(const pcrt_context &context, const RunFigures &figures, const std::string &path);

} // namespace pcrt

#endif // PCRT_RUN_RESULTS_H
