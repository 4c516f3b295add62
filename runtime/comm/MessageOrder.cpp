//===- MessageOrder.cpp - One order of messages and moves on all ranks ----===//
// The order is that of times in a simulation, in which the time grows with every call. Equal times are ordered by
// stage. checkReceives is separate from it and knows no times.
//===----------------------------------------------------------------------===//
#include "comm/MessageOrder.h"
#include "base/Failure.h"

#include <algorithm>
#include <compare>

using namespace pcrt;

namespace {

/// The place of a send or move in the order of all of them. Moves of all stages come before others at the same time.
struct Moment {
  int64_t time = 0;
  int stage = 0;
  friend auto operator<=>(const Moment &, const Moment &) = default;
};

/// Runs the stages in turns, each until it waits for another one. A send waits for a slot, and a move of all stages for
/// all of them.
struct Simulation {
  const std::vector<std::vector<StageCall>> &stages;
  const std::vector<MessageFlow> &flows;
  std::vector<std::vector<Moment>> moments; ///< For each stage and call; of a read: when its message was sent.
  std::vector<size_t> at;                   ///< The next call of each stage.
  std::vector<int64_t> clocks;
  std::vector<std::vector<int64_t>> sent, taken; ///< The times of each flow's messages.

  Simulation(const std::vector<std::vector<StageCall>> &stages, const std::vector<MessageFlow> &flows)
      : stages(stages), flows(flows), moments(stages.size()), at(stages.size()), clocks(stages.size()),
        sent(flows.size()), taken(flows.size()) {}

  const StageCall *next(size_t stage) const {
    return at[stage] < stages[stage].size() ? &stages[stage][at[stage]] : nullptr;
  }

  void pass(int stage, int64_t time, Moment moment) {
    moments[stage].push_back(moment);
    clocks[stage] = time + 1;
    ++at[stage];
  }

  /// Runs the next call of a stage, unless it has to wait.
  bool step(int stage) {
    const StageCall &call = *next(stage);
    int64_t time = clocks[stage] + call.work;
    if (call.kind == StageCall::Send) {
      const MessageFlow &flow = flows[call.number];
      size_t number = sent[call.number].size(), slots = size_t(flow.slots);
      if (number >= slots && taken[call.number].size() <= number - slots)
        return false;
      if (number >= slots)
        time = std::max(time, taken[call.number][number - slots] + 1);
      sent[call.number].push_back(time);
    } else if (call.kind == StageCall::Read) {
      size_t number = taken[call.number].size();
      if (sent[call.number].size() <= number)
        return false;
      const int64_t begun = sent[call.number][number];
      time = std::max(time, begun + flows[call.number].flight + 1);
      taken[call.number].push_back(time);
      pass(stage, time, {begun, flows[call.number].source});
      return true;
    } else if (call.kind == StageCall::Meeting) {
      return meet(call.number);
    }
    pass(stage, time, {time, stage});
    return true;
  }

  /// A move of all stages takes place if all have reached it.
  bool meet(int group) {
    int64_t last = 0;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      const StageCall *call = next(stage);
      if (!call || call->kind != StageCall::Meeting || call->number != group)
        return false;
      last = std::max(last, clocks[stage] + call->work);
    }
    for (size_t stage = 0; stage < stages.size(); ++stage)
      pass(int(stage), last, {last, -1});
    return true;
  }

  void run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t stage = 0; stage < stages.size(); ++stage)
        while (next(stage) && step(int(stage)))
          moves = true;
    }
    for (size_t stage = 0; stage < stages.size(); ++stage)
      if (next(stage))
        fail(PCRT_INTERNAL, "stage " + std::to_string(stage) + " waits forever at call " + std::to_string(at[stage]) +
                                " of its step; this is a bug of the compiler");
  }
};

} // namespace

std::vector<std::vector<PlacedReceive>> pcrt::placeReceives(const std::vector<std::vector<StageCall>> &stages,
                                                            const std::vector<MessageFlow> &flows) {
  Simulation simulation(stages, flows);
  simulation.run();
  struct Incoming {
    Moment sent;
    int flow;
  };
  std::vector<std::vector<Incoming>> incoming(stages.size());
  for (size_t flow = 0; flow < flows.size(); ++flow)
    for (int64_t time : simulation.sent[flow])
      incoming[flows[flow].target].push_back({{time, flows[flow].source}, int(flow)});
  std::vector<std::vector<PlacedReceive>> placed(stages.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    std::vector<Incoming> &messages = incoming[stage];
    std::sort(messages.begin(), messages.end(), [](const Incoming &a, const Incoming &b) { return a.sent < b.sent; });
    auto message = messages.begin();
    for (size_t call = 0; call < stages[stage].size(); ++call)
      for (; message != messages.end() && message->sent <= simulation.moments[stage][call]; ++message)
        placed[stage].push_back({call, message->flow});
  }
  return placed;
}

//===----------------------------------------------------------------------===//
// The check
//===----------------------------------------------------------------------===//

namespace {

/// A stage's calls and receives in the order in which its host makes them.
struct HostCall {
  enum Kind { Send, Receive, Read, Move, Meeting } kind;
  int number;
};

std::vector<HostCall> hostCalls(const std::vector<StageCall> &calls, const std::vector<PlacedReceive> &receives) {
  std::vector<HostCall> all;
  size_t receive = 0;
  for (size_t call = 0; call < calls.size(); ++call) {
    for (; receive < receives.size() && receives[receive].call == call; ++receive)
      all.push_back({HostCall::Receive, receives[receive].flow});
    static constexpr HostCall::Kind kinds[] = {HostCall::Send, HostCall::Read, HostCall::Move, HostCall::Meeting};
    all.push_back({kinds[calls[call].kind], calls[call].number});
  }
  for (; receive < receives.size(); ++receive)
    all.push_back({HostCall::Receive, receives[receive].flow});
  return all;
}

/// All stages at once; each call waits for its other ends.
struct Rendezvous {
  const std::vector<MessageFlow> &flows;
  std::vector<std::vector<HostCall>> stages;
  std::vector<size_t> at;
  std::vector<int64_t> received, read; ///< By flow.
  std::string problem;

  bool isAt(int stage, HostCall::Kind kind, int number) const {
    return at[stage] < stages[stage].size() && stages[stage][at[stage]].kind == kind &&
           stages[stage][at[stage]].number == number;
  }
  bool passAll(int number) {
    for (size_t stage = 0; stage < stages.size(); ++stage)
      if (!isAt(int(stage), HostCall::Meeting, number))
        return false;
    for (size_t &position : at)
      ++position;
    return true;
  }
  bool step(int stage) {
    const HostCall call = stages[stage][at[stage]];
    switch (call.kind) {
    case HostCall::Send: { // with its receive
      const MessageFlow &flow = flows[call.number];
      if (!isAt(flow.target, HostCall::Receive, call.number))
        return false;
      if (received[call.number]++ - read[call.number] >= flow.slots)
        problem = "a receive of flow " + std::to_string(call.number) + " begins before its slot is free";
      ++at[flow.target];
      break;
    }
    case HostCall::Receive:
      return false;
    case HostCall::Read:
      if (read[call.number]++ >= received[call.number])
        problem = "stage " + std::to_string(stage) + " reads a message of flow " + std::to_string(call.number) +
                  " before its receive begins";
      break;
    case HostCall::Move:
      break;
    case HostCall::Meeting:
      return passAll(call.number);
    }
    ++at[stage];
    return true;
  }
};

} // namespace

std::string pcrt::checkReceives(const std::vector<std::vector<StageCall>> &stages,
                                const std::vector<MessageFlow> &flows,
                                const std::vector<std::vector<PlacedReceive>> &receives) {
  Rendezvous all{flows,
                 {},
                 std::vector<size_t>(stages.size()),
                 std::vector<int64_t>(flows.size()),
                 std::vector<int64_t>(flows.size()),
                 ""};
  for (size_t stage = 0; stage < stages.size(); ++stage)
    all.stages.push_back(hostCalls(stages[stage], receives[stage]));
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t stage = 0; stage < stages.size(); ++stage)
      while (all.problem.empty() && all.at[stage] < all.stages[stage].size() && all.step(int(stage)))
        moves = true;
  }
  for (size_t stage = 0; stage < stages.size() && all.problem.empty(); ++stage)
    if (all.at[stage] < all.stages[stage].size())
      all.problem = "stages wait for each other in a cycle; stage " + std::to_string(stage) + " waits at " +
                    std::to_string(all.at[stage]) + " of its calls";
  return all.problem;
}
