//===- Stall.h - Finds deadlocks between stages --------------------------------------------===//
// Input: the instructions of all stages. Result: whether they can deadlock, for any timing, and if so, the waits of the
// deadlock.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_STALL_H
#define PC_LIB_PIPELINE_STALL_H

#include "pc/Pipeline/Program.h"

namespace pc::pipeline {

/// Runs programs abstractly. The graph has two nodes per instruction, reached and done. Matching is by position on each
/// flow and communicator, so the outcome does not depend on timing, and all instructions finish if and only if the
/// graph has no cycle.
struct StallResult {
  std::string circle; ///< the shortest cycle of waits, as text; empty: everything finishes
  int length = 0;     ///< the length of the cycle
};
StallResult findStall(const Program &program, int buffered);

} // namespace pc::pipeline

#endif
