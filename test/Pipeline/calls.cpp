//===- calls.cpp - Pipelines on devices whose calls begin in one order ----===//
// The calls of every schedule, with the receives that the runtime adds (comm/MessageOrder.h), are given to the verifier
// of schedules and timed. Without receives they are those of placeInline, where a stage is one thread.
//===----------------------------------------------------------------------===//
#include "../Checks.h"
#include "../Runtime/comm/EarlyReceives.h"
#include "mutants.h"

#include <algorithm>

using namespace pc::pipeline;
using pcrt::StageCall;

namespace {

/// How the times of a step differ from those by which the runtime places receives.
struct Times {
  int moves;     ///< Moves between ranks of a stage, in every task.
  double flight; ///< Seconds of a message.
  double error;  ///< The share by which tasks take longer or shorter, at most.
};

/// The calls of each stage that runs `thread`, a program of placeInline, as the runtime notes them. `work` has the
/// seconds before each call as they will be.
struct Calls {
  std::vector<std::vector<StageCall>> stages;
  std::vector<std::vector<double>> work;
  std::vector<pcrt::MessageFlow> flows;
  std::map<Flow, int> numbers;

  Calls(const Problem &problem, const Program &thread, int slots, const Times &times = {}, Random *random = nullptr) {
    for (const auto &instructions : thread.stages) {
      stages.emplace_back();
      work.emplace_back();
      double expected = 0, actual = 0;
      auto add = [&](StageCall::Kind kind, int number) {
        stages.back().push_back({kind, number, static_cast<int64_t>(1e6 * expected)});
        work.back().push_back(actual);
        expected = actual = 0;
      };
      auto differs = [&] {
        return random ? std::uniform_real_distribution<double>(-times.error / 2, times.error / 2)(*random) : 0;
      };
      double ofStage = 1 + differs();
      for (const Instruction &x : instructions) {
        if (x.type == Instruction::Compute) {
          double seconds = problem.seconds(x.task) / (times.moves + 1), factor = ofStage + differs();
          for (int move = 0; move <= times.moves; ++move) {
            expected += seconds;
            actual += seconds * factor;
            if (move < times.moves)
              add(StageCall::Move, 0);
          }
        }
        for (const Part &part : x.parts) {
          auto [at, isNew] = numbers.try_emplace(part.flow, static_cast<int>(numbers.size()));
          if (isNew)
            flows.push_back({part.flow.source, part.flow.destination, slots, static_cast<int64_t>(1e6 * times.flight)});
          add(part.send ? StageCall::Send : StageCall::Read, at->second);
        }
      }
    }
  }
};

} // namespace

/// Adds sends and receives to an order. A stage makes all its calls one after the other, beside its tasks. Receives
/// begin where the runtime places them, or, if `early`, as soon as their slot is free.
static Program placeOneByOne(const Problem &problem, const Order &order, int slots, bool early = false) {
  Program thread = placeInline(problem, order), program;
  Calls calls(problem, thread, slots);
  auto receives = early ? earlyReceives(calls.stages, calls.flows) : placeReceives(calls.stages, calls.flows);
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

namespace {

/// The times of a step's calls. They only grow, until they are the earliest ones that are possible.
class Clock {
public:
  Clock(const Calls &calls, const std::vector<std::vector<pcrt::PlacedReceive>> &receives, const Times &times,
        bool inOrder)
      : calls(calls), receives(receives), times(times), inOrder(inOrder), messages(calls.flows.size()) {}

  double run() {
    double end = 0;
    do {
      changed = false;
      for (size_t stage = 0; stage < calls.stages.size(); ++stage)
        end = std::max(end, runStage(stage));
    } while (changed);
    return end;
  }

private:
  /// When the sends and receives of one flow begin, and when its messages are read.
  struct Messages {
    std::vector<double> sent, received, read;
  };

  static double at(const std::vector<double> &times, int number) {
    return number >= 0 && number < static_cast<int>(times.size()) ? times[number] : 0;
  }
  /// When a message has arrived, which frees the lane at both ends.
  double arrived(int flow, int number) const {
    if (number < 0)
      return 0;
    return std::max(at(messages[flow].sent, number), at(messages[flow].received, number)) + times.flight;
  }
  void set(std::vector<double> &times, int number, double time) {
    times.resize(std::max<size_t>(times.size(), number + 1));
    changed |= times[number] != time;
    times[number] = time;
  }

  double runStage(size_t stage) {
    double now = 0, lastBegun = 0;
    std::map<int, int> begun, sent, read;
    auto next = receives[stage].begin();
    auto begin = [&](double earliest) { return lastBegun = std::max(inOrder ? lastBegun : 0, earliest); };
    for (size_t i = 0; i < calls.stages[stage].size(); ++i) {
      for (; next != receives[stage].end() && next->call == i; ++next) {
        int flow = next->flow, number = begun[flow]++;
        double isFree = at(messages[flow].read, number - calls.flows[flow].slots);
        set(messages[flow].received, number, begin(std::max(isFree, arrived(flow, number - 1))));
      }
      const StageCall &call = calls.stages[stage][i];
      now += calls.work[stage][i];
      if (call.kind == StageCall::Move) {
        now = begin(now) + times.flight;
      } else if (call.kind == StageCall::Send) {
        int number = sent[call.number]++;
        now = std::max(now, arrived(call.number, number - calls.flows[call.number].slots));
        set(messages[call.number].sent, number, begin(std::max(now, arrived(call.number, number - 1))));
      } else {
        int number = read[call.number]++;
        now = std::max(now, arrived(call.number, number));
        set(messages[call.number].read, number, now);
      }
    }
    return now;
  }

  const Calls &calls;
  const std::vector<std::vector<pcrt::PlacedReceive>> &receives;
  const Times &times;
  bool inOrder, changed = false;
  std::vector<Messages> messages;
};

} // namespace

/// Returns by which factor a step takes longer because a call begins after all earlier calls of its stage.
static double costOfOrder(const Problem &problem, const Order &order, const Times &times, Random &random) {
  Program thread = placeInline(problem, order);
  Calls calls(problem, thread, slotsFor(problem, thread), times, &random);
  auto receives = placeReceives(calls.stages, calls.flows);
  return Clock(calls, receives, times, true).run() / Clock(calls, receives, times, false).run();
}

static Order orderOf(const NamedSchedule &schedule, const Problem &problem) {
  std::string error;
  std::optional<Order> order = schedule.order(problem, error);
  require(order.has_value(), error.c_str());
  return *order;
}

/// Every schedule on devices that make one call at a time, where both ends of a message wait for each other. Receives
/// that begin as early as possible are no order for that.
static void oneByOne() {
  int cases = 0, faults = 0, earlyFaults = 0;
  auto check = [&](const std::string &name, const Problem &problem, const Order &order) {
    int slots = slotsFor(problem, placeInline(problem, order));
    ++cases;
    if (std::optional<Fault> fault = verify(problem, placeOneByOne(problem, order, slots), {0, 0})) {
      ++faults;
      std::printf("%s, %d stages, %d microbatches: %s: %s\n", name.c_str(), problem.stages, problem.microbatches,
                  fault->kind.c_str(), fault->text.c_str());
    }
    std::optional<Fault> early = verify(problem, placeOneByOne(problem, order, slots, true), {0, 0});
    earlyFaults += early && early->kind == "deadlock";
  };
  for (const NamedSchedule &schedule : namedSchedules())
    for (int p : {1, 2, 3, 4, 6, 8})
      for (int m : std::set<int>{1, 2, p, p + 1, 2 * p - 1, 2 * p, 4 * p + 1})
        for (int v : schedule.anyChunks ? std::vector{1, 2, 3} : std::vector{schedule.chunksPerStage}) {
          Problem problem = uniform(m, schedule.stageOfChunks(p, v), 2, 3, 1, schedule.split);
          check(std::string(schedule.name), problem, orderOf(schedule, problem));
        }
  Random random(3);
  for (int n = 0; n < 200; ++n) {
    Problem problem = randomProblem(random);
    std::string error;
    if (std::optional<AutoOrder> best = autoOrder(problem, Goal::Span, error))
      check("auto", problem, best->order);
  }
  std::printf("one call at a time: %d programs, %d refused; with early receives %d deadlock\n", cases, faults,
              earlyFaults);
}

/// How much longer steps take because calls begin in one order. Tasks take up to 30 % longer or shorter than expected.
static void costs() {
  Random random(7);
  for (double error : {0.0, 0.3}) {
    double sum = 0, most = 0;
    int steps = 0;
    for (const NamedSchedule &schedule : namedSchedules())
      for (int p : {2, 4, 8})
        for (int m : {p, 4 * p})
          for (int moves : {0, 4})
            for (double flight : {0.02, 0.2}) {
              Problem problem = uniform(m, schedule.stageOfChunks(p), 2, schedule.split ? 2 : 4, 2, schedule.split);
              double cost = costOfOrder(problem, orderOf(schedule, problem), {moves, flight, error}, random) - 1;
              sum += cost;
              most = std::max(most, cost);
              ++steps;
            }
    std::printf("one order of calls, times off by %g %%: %d steps, %.1f %% longer, at most %.1f %%\n", 100 * error,
                steps, 100 * sum / steps, 100 * most);
  }
}

int main() {
  oneByOne();
  costs();
  return failures != 0;
}
