//===- Program.h - A random model program and a plan for it ---------------===//
// A second kind of random model, with blocks that no importer writes.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_RANDOM_PROGRAM_H
#define PC_TOOLS_RANDOM_PROGRAM_H

#include <cstdint>
#include <string>

/// A small model program that no importer writes, and flags of a compile. The same seed draws the same on every
/// machine.
struct RandomProgram {
  std::string text;  ///< a program of phase model
  std::string flags; ///< of pc-compile, without dashes: "mesh=cp=2 context-parallel=ring"

  explicit RandomProgram(uint64_t seed);
};

#endif
