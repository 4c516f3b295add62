//===- Stall.h - Who waits for whom --------------------------------------------------------===//
// Input: the instructions of all stages. Result: whether they can deadlock, whatever the timing, and if so, the waits
// that do.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_STALL_H
#define PC_LIB_PIPELINE_STALL_H

#include "pc/Pipeline/Program.h"

namespace pc::pipeline {

/// Runs programs abstractly. The graph has two nodes per instruction, reached and done. Matching is by position on each
/// flow and communicator, so the outcome does not depend on timing, and everything finishes exactly if the graph has no
/// circle.
struct StallResult {
  std::string circle; ///< the shortest circle of waits, printed; empty: everything finishes
  int length = 0;     ///< of the circle
};
StallResult findStall(const Program &program, int buffered);

} // namespace pc::pipeline

#endif
