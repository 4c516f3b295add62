//===- EarlyReceives.h - Receives that begin as early as possible ---------===//
// Orders of calls that devices must not use, because ranks then wait for each other in a cycle.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_RUNTIME_COMM_EARLYRECEIVES_H
#define PC_TEST_RUNTIME_COMM_EARLYRECEIVES_H

#include "comm/MessageOrder.h"

#include <algorithm>

/// The receives of each stage, each right after the read that frees its slot.
inline std::vector<std::vector<pcrt::PlacedReceive>>
earlyReceives(const std::vector<std::vector<pcrt::StageCall>> &stages, const std::vector<pcrt::MessageFlow> &flows) {
  std::vector<std::vector<pcrt::PlacedReceive>> receives(stages.size());
  std::vector<int> messages(flows.size()), read(flows.size());
  for (const auto &stage : stages)
    for (const pcrt::StageCall &call : stage)
      if (call.kind == pcrt::StageCall::Read)
        ++messages[call.number];
  for (size_t flow = 0; flow < flows.size(); ++flow)
    for (int i = 0; i < std::min(messages[flow], flows[flow].slots); ++i)
      receives[flows[flow].target].push_back({0, static_cast<int>(flow)});
  for (size_t stage = 0; stage < stages.size(); ++stage)
    for (size_t call = 0; call < stages[stage].size(); ++call)
      if (int flow = stages[stage][call].number; stages[stage][call].kind == pcrt::StageCall::Read)
        if (++read[flow] + flows[flow].slots <= messages[flow])
          receives[stage].push_back({call + 1, flow});
  return receives;
}

#endif
