//===- transfers.cpp - Orders with one stream per flow --------------------===//
// Programs with overlapping messages, for tests of the verifier with mutants. The compiler itself writes only programs
// with one thread per stage (PlaceInline.cpp).
//===----------------------------------------------------------------------===//
#include "transfers.h"

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
