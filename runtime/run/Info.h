//===- Info.h - The answer of --info --------------------------------------===//
// Describes a compiled program from its description and tables, without running it.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_INFO_H
#define PCRT_RUN_INFO_H

#include "base/Program.h"

namespace pcrt {

/// The text of --info, which has one line per fact.
std::string describeProgram(const Program &program);

/// The JSON of --info=json (docs/command-line.md).
Json describeAsJson(const Program &program);

/// The sum of the program's certificate; empty if it has none.
std::string certificateSum();

/// The text of --version: the compiler that made the program, and the runtime that it is linked with.
std::string describeVersions(const Program &program);

} // namespace pcrt

#endif // PCRT_RUN_INFO_H
