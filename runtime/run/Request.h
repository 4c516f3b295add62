//===- Request.h - Checks that a program can do what its flags ask --------===//
// A run checks its request before it opens any file.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_REQUEST_H
#define PCRT_RUN_REQUEST_H

#include "base/Program.h"
#include "data/Options.h"

namespace pcrt {

/// Throws PCRT_USAGE, or PCRT_INFEASIBLE, if the flags do not fit the program or `ranks`, the size of the run.
void checkRequest(const Program &program, const Options &options, int ranks);

} // namespace pcrt

#endif // PCRT_RUN_REQUEST_H
