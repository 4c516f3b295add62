//===- Info.h - What a compiled program is --------------------------------===//
#ifndef PCRT_RUN_INFO_H
#define PCRT_RUN_INFO_H

#include "base/Program.h"

namespace pcrt {

/// What --info prints: a line for each thing.
std::string describeProgram(const Program &program);

/// What --info=json prints (docs/command-line.md).
Json describeAsJson(const Program &program);

/// The sum of the program's certificate; empty where it has none.
std::string certificateSum();

/// The text of --version: the compiler that made the program, and the runtime that it is linked with.
std::string describeVersions(const Program &program);

} // namespace pcrt

#endif // PCRT_RUN_INFO_H
