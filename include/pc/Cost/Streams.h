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

/// The step of a planned program on the clock of `machine`, which predictStep simulates with `known`, for the page of a
/// report:
/// {"microseconds": N, "rows": [{"axis": "dp", "stretches": [[phase, start, length, busy, count, name], ...]}, ...]}.
/// The first row has no axis and is the computation. The others are the moves over an axis, which follow each other.
/// Times are in microseconds. Stretches that are too short to be seen are joined with their neighbours: `count` moves
/// are busy for `busy` of `length`. Fails as predictStep does.
llvm::FailureOr<llvm::json::Value> stepStreams(mlir::ModuleOp planned, const MachineModel &machine,
                                               const OpSeconds &known = OpSeconds());

} // namespace pc

#endif
