//===- Run.h - One run of a compiled program ------------------------------===//
#ifndef PCRT_RUN_RUN_H
#define PCRT_RUN_RUN_H

#include "base/Failure.h"
#include "base/Program.h"
#include "comm/Comm.h"
#include "data/Options.h"

#include <optional>

namespace pcrt {

/// Sets up, runs the steps and writes what was asked for. Throws a Failure; one that not all ranks have seen says which
/// rank it is from. Returns what could not be written though the run has saved, on all ranks.
std::optional<Failure> runProgram(const Program &program, const Options &options, Comm &comm);

} // namespace pcrt

#endif // PCRT_RUN_RUN_H
