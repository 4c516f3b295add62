//===- Results.h - The files that a run writes at its end -----------------===//
// The summary and the trace are gathered from all ranks and written by rank 0.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_RESULTS_H
#define PCRT_RUN_RESULTS_H

#include "metrics/Summary.h"

namespace pcrt {

/// Writes the trace of all ranks to `path`, unless that is empty. All ranks call it. A file that cannot be written is a
/// warning.
void writeTrace(pcrt_context &context, const std::string &path);

/// Writes the summary to `path`. All ranks call it. If the file cannot be written, all throw PCRT_RESOURCE.
void writeSummary(const pcrt_context &context, const RunFigures &figures, const std::string &path);

} // namespace pcrt

#endif // PCRT_RUN_RESULTS_H
