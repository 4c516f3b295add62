//===- SameRun.h - Checks that all ranks run the same ---------------------===//
// Launchers start every rank separately. Without this check, ranks with different programs, flags or files would train
// together and compute meaningless numbers.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_SAMERUN_H
#define PCRT_RUN_SAMERUN_H

#include "base/Program.h"
#include "comm/Comm.h"
#include "data/Options.h"

#include <string>
#include <vector>

namespace pcrt {

/// A fact that has to be the same on all ranks.
struct SharedFact {
  std::string name;  ///< "--lr".
  std::string value; ///< The text that is compared.
  std::string shown; ///< The text in messages; empty: `value`.
};

/// The message that this program does not run on `size` ranks.
std::string otherSize(const Program &program, int size);

/// The flags that have to be the same on all ranks.
std::vector<SharedFact> sharedFlagFacts(const Options &options);

/// The sum of this process's program, over its code and constants as they are in memory.
std::string sumOfProgram();

/// Throws PCRT_USAGE on all ranks if a fact differs between ranks, with its name, its values and their ranks. All ranks
/// call it with facts of the same names.
void requireSame(Comm &comm, const std::vector<SharedFact> &facts);

} // namespace pcrt

#endif // PCRT_RUN_SAMERUN_H
