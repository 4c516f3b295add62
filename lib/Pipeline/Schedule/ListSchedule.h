//===- ListSchedule.h - Greedy orders under a memory limit ---------------------------------===//
// Input: a scheduling problem and a rule. Result: an order of tasks per stage that keeps the problem's memory limits.
// The search for schedules calls it with many rules.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_LISTSCHEDULE_H
#define PC_LIB_PIPELINE_LISTSCHEDULE_H

#include "pc/Pipeline/Schedule.h"

#include <random>

namespace pc::pipeline {

/// How the list scheduler chooses.
struct ListRule {
  enum Prefer {
    Backward,
    Forward,
    Alternate
  } prefer = Backward;            ///< which kind goes first if several tasks can start at the same time
  bool deepestFirst = true;       ///< among forward tasks, the last chunk goes first; otherwise the first chunk
  double gap = 1;                 ///< a weight gradient runs if nothing else can start within `gap` times its seconds
  std::vector<int> inFlight;      ///< for each stage, the most microbatches; empty: no cap
  double noise = 0;               ///< the largest random number that is added to priorities
  std::mt19937 *random = nullptr; ///< used if there is noise
  const Order *fixed = nullptr;   ///< keeps this order of all tasks except weight gradients
};

/// Repeatedly chooses the task that can start earliest. It never stalls if every stage can hold one microbatch, because
/// a forward task runs only if the oldest microbatches can still finish (the banker's test, separately for each stage;
/// the oldest microbatch is the same on all stages). Returns std::nullopt if a `fixed` order needs more memory than
/// there is.
std::optional<Order> listSchedule(const Problem &problem, const ListRule &rule);

} // namespace pc::pipeline

#endif
