//===- Run.h - One run of a compiled program ------------------------------===//
// The whole life of a rank after it is connected: Run.cpp.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_RUN_H
#define PCRT_RUN_RUN_H

#include "base/Failure.h"
#include "base/Program.h"
#include "comm/Comm.h"
#include "data/Options.h"

#include <optional>

namespace pcrt {

/// Sets up, runs the steps and writes the outputs. Throws a Failure, which names its rank unless all ranks have it.
/// Returns on all ranks the failure of an output that was lost although the run has saved, if there is one.
std::optional<Failure> runProgram(const Program &program, const Options &options, Comm &comm);

} // namespace pcrt

#endif // PCRT_RUN_RUN_H
