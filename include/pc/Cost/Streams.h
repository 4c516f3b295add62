//===- Streams.h - When the ranks of a plan without stages compute and move -----------------===//
// Input: a planned program without stages. Result: JSON of two kinds of rows over time, computing and moves by axis,
// for the chart of a report page.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_STREAMS_H
#define PC_COST_STREAMS_H

#include "pc/Cost/Simulate.h"
#include "pc/IR/PC.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// The step of a planned program on the clock of `machine`, as predictStep plays it with `known`, for the page of a
/// report:
/// {"microseconds": N, "rows": [{"axis": "dp", "stretches": [[phase, start, length, busy, count, name], ...]}, ...]}.
/// The first row has no axis and is what computes; the others are the moves over an axis, which go one after another.
/// Times are microseconds. What is too short to be seen is one stretch with its neighbours: `busy` of `length` for
/// `count` moves. Fails as predictStep does.
llvm::FailureOr<llvm::json::Value> stepStreams(mlir::ModuleOp planned, const MachineModel &machine,
                                               const OpSeconds &known = OpSeconds());

} // namespace pc

#endif
