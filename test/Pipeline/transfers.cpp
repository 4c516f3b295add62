//===- transfers.cpp - Orders with one stream per flow --------------------===//
// Programs with overlapping messages, for tests of the verifier with mutants. The compiler itself writes only programs
// with one thread per stage (PlaceInline.cpp).
//===----------------------------------------------------------------------===//
#include "transfers.h"
#include "../Checks.h"
#include "comm/MessageOrder.h"

#include <algorithm>
#include <numeric>
#include <tuple>

using namespace pc::pipeline;

namespace {

/// Tasks and messages in the order of simulated time: an event is a task that starts or a message that is ready.
struct Event {
  double time;
  bool after; ///< among events at one time, messages whose producer took time come first, then tasks
  int rank;   ///< even for a task, odd for its message; an order that extends the dependencies
  Task task;

  bool isTask() const { return rank % 2 == 0; }
};

/// Makes the program of a schedule with one stream per flow, with `slots` slots per channel.
class Placer {
public:
  Placer(const Problem &problem, const Order &order, int slots)
      : p(problem), slots(slots), time(*simulate(problem, order)) {
    program.stages.resize(p.stages);
    taskAt.assign(p.tasks(), -1);
    receiveAt.assign(p.tasks(), -1);
  }

  Program run() {
    for (const Event &event : events())
      event.isTask() ? compute(event.task) : transfer(event.task);
    return std::move(program);
  }

private:
  std::vector<Event> events() const {
    std::vector<std::tuple<double, double, int>> byTime; // start, end, place in the sequence
    for (const Task &task : time.sequence)
      byTime.push_back({time.start[p.id(task)], time.end[p.id(task)], static_cast<int>(byTime.size())});
    std::sort(byTime.begin(), byTime.end());
    std::vector<Event> list;
    for (int rank = 0; rank < static_cast<int>(byTime.size()); ++rank) {
      auto [start, end, number] = byTime[rank];
      const Task &task = time.sequence[number];
      list.push_back({start, true, 2 * rank, task});
      if (consumer(p, task))
        list.push_back({end, end <= start, 2 * rank + 1, task});
    }
    std::sort(list.begin(), list.end(), [](const Event &a, const Event &b) {
      return std::tuple(a.time, a.after, a.rank) < std::tuple(b.time, b.after, b.rank);
    });
    return list;
  }

  int add(int stage, Instruction instruction) {
    program.stages[stage].push_back(std::move(instruction));
    return static_cast<int>(program.stages[stage].size()) - 1;
  }

  void compute(const Task &task) {
    int stage = p.stageOf[task.chunk];
    std::vector<int> after;
    for (const auto &[needed, delay] : p.inputs(task))
      if (p.stageOf[needed.chunk] != stage)
        after.push_back(receiveAt[p.id(needed)]);
    int id = p.id(task);
    taskAt[id] = add(stage, Instruction::compute(task, std::move(after)));
    // Receives that waited for this task's slot are issued now, because an event must be recorded before a wait for it.
    for (const auto &[flow, message] : waiting[id])
      receive(flow, message, {taskAt[id]});
    waiting.erase(id);
  }

  void transfer(const Task &message) {
    Task reader = *consumer(p, message);
    Flow flow{p.stageOf[message.chunk], p.stageOf[reader.chunk], message.kind, message.chunk};
    add(flow.source, {Instruction::Transfer,
                      stream("to", flow.destination, message),
                      {},
                      {{true, flow, message}},
                      "",
                      "",
                      {taskAt[p.id(message)]}});
    std::vector<Task> &sent = flows[flow];
    size_t n = sent.size();
    sent.push_back(message);
    if (n < static_cast<size_t>(slots))
      return receive(flow, message, {});
    int frees = p.id(*consumer(p, sent[n - slots]));
    if (taskAt[frees] < 0)
      waiting[frees].push_back({flow, message});
    else
      receive(flow, message, {taskAt[frees]});
  }

  void receive(const Flow &flow, const Task &message, std::vector<int> after) {
    receiveAt[p.id(message)] = add(flow.destination, {Instruction::Transfer,
                                                      stream("from", flow.source, message),
                                                      {},
                                                      {{false, flow, message}},
                                                      "",
                                                      "",
                                                      std::move(after)});
  }

  static std::string stream(const char *direction, int peer, const Task &message) {
    return direction + std::to_string(peer) + letterOf(message.kind) + std::to_string(message.chunk);
  }

  const Problem &p;
  int slots;
  Timeline time;
  Program program;
  /// For each task, the index in its stage's program; for each message, the index of its receive.
  std::vector<int> taskAt, receiveAt;
  std::map<Flow, std::vector<Task>> flows;
  std::map<int, std::vector<std::pair<Flow, Task>>> waiting; ///< by the task that frees the slot
};

} // namespace

Program placeTransfers(const Problem &problem, const Order &order, int slots) {
  return Placer(problem, order, slots).run();
}

namespace {

/// The calls of each stage that runs `thread`, a program of placeInline, as the runtime notes them.
struct Calls {
  std::vector<std::vector<pcrt::StageCall>> stages;
  std::vector<pcrt::MessageFlow> flows;
  std::map<Flow, int> numbers;

  Calls(const Problem &problem, const Program &thread, int slots) {
    for (const auto &instructions : thread.stages) {
      double work = 0;
      auto &calls = stages.emplace_back();
      for (const Instruction &x : instructions) {
        if (x.type == Instruction::Compute)
          work += problem.seconds(x.task);
        for (const Part &part : x.parts) {
          auto [at, isNew] = numbers.try_emplace(part.flow, static_cast<int>(numbers.size()));
          if (isNew)
            flows.push_back({part.flow.source, part.flow.destination, slots, 1});
          calls.push_back({part.send ? pcrt::StageCall::Send : pcrt::StageCall::Read, at->second,
                           static_cast<int64_t>(1e6 * work)});
          work = 0;
        }
      }
    }
  }

  /// The receives of each stage, each right after the read that frees its slot.
  std::vector<std::vector<pcrt::PlacedReceive>> early() const {
    std::vector<std::vector<pcrt::PlacedReceive>> receives;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      auto &own = receives.emplace_back();
      std::vector<int> messages(flows.size()), read(flows.size());
      for (const pcrt::StageCall &call : stages[stage])
        messages[call.number] += call.kind == pcrt::StageCall::Read;
      for (size_t flow = 0; flow < flows.size(); ++flow)
        for (int i = 0; i < std::min(messages[flow], flows[flow].slots); ++i)
          own.push_back({0, static_cast<int>(flow)});
      for (size_t call = 0; call < stages[stage].size(); ++call)
        if (int flow = stages[stage][call].number; stages[stage][call].kind == pcrt::StageCall::Read)
          if (++read[flow] + flows[flow].slots <= messages[flow])
            own.push_back({call + 1, flow});
    }
    return receives;
  }
};

} // namespace

Program placeOneByOne(const Problem &problem, const Order &order, int slots, bool early) {
  Program thread = placeInline(problem, order), program;
  Calls calls(problem, thread, slots);
  auto receives = early ? calls.early() : placeReceives(calls.stages, calls.flows);
  std::string fault = checkReceives(calls.stages, calls.flows, receives);
  expect(fault.empty() || early, fault);
  for (size_t d = 0; d < thread.stages.size(); ++d) {
    std::vector<Instruction> &stage = program.stages.emplace_back();
    std::map<int, std::vector<Instruction>> incoming; // by flow, in order
    std::map<int, std::vector<int>> begun;
    std::map<int, size_t> read;
    for (const Instruction &x : thread.stages[d])
      for (const Part &part : x.parts)
        if (!part.send)
          incoming[calls.numbers.at(part.flow)].push_back(x);
    size_t call = 0, next = 0;
    std::vector<int> needed;
    for (const Instruction &x : thread.stages[d]) {
      const int last = static_cast<int>(stage.size()) - 1;
      if (x.type == Instruction::Compute) {
        stage.push_back(Instruction::compute(x.task, needed));
        needed.clear();
        continue;
      }
      int task = last;
      while (task >= 0 && stage[task].type != Instruction::Compute)
        --task;
      for (; next < receives[d].size() && receives[d][next].call == call; ++next) {
        int flow = receives[d][next].flow;
        Instruction receive = incoming[flow][begun[flow].size()];
        receive.stream = "calls";
        begun[flow].push_back(static_cast<int>(stage.size()));
        stage.push_back(receive);
      }
      ++call;
      const Part &part = x.parts.front();
      if (int flow = calls.numbers.at(part.flow); !part.send) {
        needed.push_back(begun[flow].at(read[flow]++));
        continue;
      }
      Instruction send = x;
      send.stream = "calls";
      send.after = {task};
      stage.push_back(send);
    }
  }
  return program;
}
