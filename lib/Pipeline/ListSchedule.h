//===- ListSchedule.h - Greedy orders under a memory limit ---------------------------------===//
// Input: a scheduling problem and a rule. Result: an order of tasks per stage that keeps the problem's memory limits.
// The search for schedules calls it with many rules.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_LISTSCHEDULE_H
#define PC_LIB_PIPELINE_LISTSCHEDULE_H

#include "pc/Pipeline/Schedule.h"

#include <random>

namespace pc::pipeline {

/// How the greedy chooses.
struct ListRule {
  enum Prefer { Backward, Forward, Alternate } prefer = Backward; ///< among tasks that can start at the same time
  bool deepestFirst = true;                                       ///< of forwards: the last chunk, else the first
  double gap = 1;            ///< a weight gradient is run where nothing else can start within `gap` times its seconds
  std::vector<int> inFlight; ///< per stage: microbatches at most; empty: no cap
  double noise = 0;          ///< added to priorities, at most
  std::mt19937 *random = nullptr; ///< where there is noise
  const Order *fixed = nullptr;   ///< keep the order of all but the weight gradients
};

/// Takes again and again the task that can start earliest. Never stalls if every stage can hold one microbatch,
/// because a forward is only run where the oldest microbatches can still finish (the banker's test, stage by stage:
/// the oldest is the oldest everywhere). Nothing where a `fixed` order needs more memory than there is.
std::optional<Order> listSchedule(const Problem &problem, const ListRule &rule);

} // namespace pc::pipeline

#endif
