//===- SameRun.h - The ranks of a run do the same -------------------------===//
// Launchers start every rank by itself. Ranks of other programs, other flags or other files would train on together, to
// numbers that mean nothing.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_SAMERUN_H
#define PCRT_RUN_SAMERUN_H

#include "base/Program.h"
#include "comm/Comm.h"
#include "data/Options.h"

#include <string>
#include <vector>

namespace pcrt {

/// Something that has to be the same on all ranks.
struct SharedFact {
  std::string name;  ///< "--lr".
  std::string value; ///< What is compared.
  std::string shown; ///< How messages say it; empty: `value`.
};

/// That a run of `size` ranks is none for this program.
std::string otherSize(const Program &program, int size);

/// The flags that have to be the same on all ranks.
std::vector<SharedFact> sharedFlagFacts(const Options &options);

/// The sum of this process's program: of its code and constants, as they are in memory.
std::string sumOfProgram();

/// Throws PCRT_USAGE on all ranks, with the names, the values and whose they are, where a fact differs between ranks.
/// All call it with as many facts of the same names.
void requireSame(Comm &comm, const std::vector<SharedFact> &facts);

} // namespace pcrt

#endif // PCRT_RUN_SAMERUN_H
