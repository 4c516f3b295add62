//===- VerifyProgram.cpp - Verifies the programs of all stages ----------------------------===//
// Checks, in this order: flows, collectives, tasks, dependencies, missing tasks, memory, and freedom from deadlock
// (Stall.h). The first fault is reported with its stage and instruction. No data come from the scheduler.
//===-----------------------------------------------------------------------------===//
#include "Stall.h"

#include <algorithm>
#include <functional>

using namespace pc::pipeline;

/// The instruction as messages show it.
std::string pc::pipeline::text(const Instruction &x) {
  switch (x.type) {
  case Instruction::Compute:
    return text(x.task);
  case Instruction::Collective:
    return x.tag + " on " + x.group;
  case Instruction::Transfer:
    break;
  }
  std::string all;
  for (const Part &part : x.parts)
    all += (all.empty() ? "" : ", ") + std::string(part.send ? "send " : "receive ") +
           (part.input ? text(part.message) : "sum (flow " + std::to_string(part.flow.number) + ")") +
           (part.send ? " -> stage " + std::to_string(part.flow.destination)
                      : " <- stage " + std::to_string(part.flow.source));
  return all;
}

namespace {

/// Checks one program; run() returns the first fault. The checks build on each other: later ones use indices that
/// earlier ones have checked.
class Verifier {
public:
  Verifier(const Problem &problem, const Program &program, const VerifyOptions &options)
      : p(problem), program(program), options(options) {}

  /// A deadlock is looked for last, because its search needs matching messages and calls.
  std::optional<Fault> run() {
    for (auto check : {&Verifier::flows, &Verifier::collectives, &Verifier::tasks, &Verifier::dependencies,
                       &Verifier::missing, &Verifier::memory})
      if (!(this->*check)())
        return fault;
    if (StallResult stall = findStall(program, options.buffered); !stall.circle.empty())
      return Fault{"deadlock", stall.circle};
    return std::nullopt;
  }

private:
  using Place = std::pair<int, int>; ///< stage, index

  bool fail(std::string kind, std::string why) {
    fault = {std::move(kind), std::move(why)};
    return false;
  }
  std::string at(int stage, int index) const {
    return "stage " + std::to_string(stage) + " #" + std::to_string(index) + " " + text(program.stages[stage][index]);
  }
  void each(const std::function<void(int, int, const Instruction &)> &visit) const {
    for (int d = 0; d < static_cast<int>(program.stages.size()); ++d)
      for (int i = 0; i < static_cast<int>(program.stages[d].size()); ++i)
        visit(d, i, program.stages[d][i]);
  }

  /// Checks that the sends and receives of a flow match in order, with the same messages.
  bool flows() {
    struct End {
      Place place;
      Task message;
    };
    std::map<Flow, std::pair<std::vector<End>, std::vector<End>>> ends;
    bool good = true;
    each([&](int d, int i, const Instruction &x) {
      for (int after : x.after)
        if (good && (after < 0 || after >= i))
          good = fail("order", at(d, i) + " waits for #" + std::to_string(after) + ", which is not issued before it");
      for (const Part &part : x.parts) {
        if (good && (part.send ? part.flow.source : part.flow.destination) != d)
          good = fail("flow", at(d, i) + " is not at either end of its flow");
        (part.send ? ends[part.flow].first : ends[part.flow].second).push_back({{d, i}, part.message});
      }
    });
    for (auto &[flow, both] : ends)
      for (size_t n = 0; good && n < std::max(both.first.size(), both.second.size()); ++n) {
        if (n >= both.first.size() || n >= both.second.size()) {
          const End &alone = (n < both.first.size() ? both.first : both.second)[n];
          good = fail("flow", at(alone.place.first, alone.place.second) + " has no partner on the other stage");
        } else if (const End &a = both.first[n], &b = both.second[n]; !(a.message == b.message)) {
          good = fail("flow", at(a.place.first, a.place.second) + " meets " + at(b.place.first, b.place.second));
        }
      }
    return good;
  }

  /// Checks that all members of a group make the same calls in the same order.
  bool collectives() {
    std::map<std::string, std::map<int, std::vector<int>>> calls; // indices by group and stage
    bool good = true;
    each([&](int d, int i, const Instruction &x) {
      if (x.type != Instruction::Collective || !good)
        return;
      auto group = program.groups.find(x.group);
      if (group == program.groups.end() ||
          std::find(group->second.begin(), group->second.end(), d) == group->second.end())
        good = fail("collective", at(d, i) + ": the stage is not a member of " + x.group);
      calls[x.group][d].push_back(i);
    });
    for (const auto &[name, members] : program.groups) {
      for (int d : members) {
        const std::vector<int> &own = calls[name][d], &other = calls[name][members.front()];
        for (size_t n = 0; good && n < std::max(own.size(), other.size()); ++n) {
          std::string a = n < own.size() ? at(d, own[n]) : "stage " + std::to_string(d) + " nothing",
                      b = n < other.size() ? at(members.front(), other[n])
                                           : "stage " + std::to_string(members.front()) + " nothing";
          if (n >= own.size() || n >= other.size() ||
              program.stages[d][own[n]].tag != program.stages[members.front()][other[n]].tag)
            good = fail("collective", "call " + std::to_string(n) + " of " + name + ": " + b + ", but " + a);
        }
      }
    }
    return good;
  }

  /// Checks that every task is a task of the problem, on the stage of its chunk, and occurs once.
  bool tasks() {
    taskAt.assign(p.tasks(), {-1, -1});
    bool good = true;
    each([&](int d, int i, const Instruction &x) {
      if (x.type != Instruction::Compute || !good)
        return;
      const Task &t = x.task;
      if (t.chunk < 0 || t.chunk >= p.chunks() || t.microbatch < 0 || t.microbatch >= p.microbatches ||
          !p.has(t.kind, t.chunk))
        good = fail("unknown", at(d, i) + " is not a task of this program");
      else if (p.stageOf[t.chunk] != d)
        good = fail("stage", at(d, i) + " belongs to stage " + std::to_string(p.stageOf[t.chunk]));
      else if (Place &place = taskAt[p.id(t)]; place.first >= 0)
        good = fail("duplicate", at(d, i) + " is also " + at(place.first, place.second));
      else
        place = {d, i};
    });
    return good;
  }

  /// Computes how many instructions of each stream are certainly done when an instruction of the stage starts.
  void makeClocks(int d) {
    const auto &instructions = program.stages[d];
    std::map<std::string, int> index;
    streamOf.clear();
    number.clear();
    for (const Instruction &x : instructions)
      streamOf.push_back(index.try_emplace(x.stream, static_cast<int>(index.size())).first->second);
    streams = index.size();
    clocks.assign(instructions.size() * streams, 0);
    std::vector<int> last(streams, -1), count(streams);
    for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
      int stream = streamOf[i], *clock = clockOf(i);
      number.push_back(count[stream]++);
      if (last[stream] >= 0)
        std::copy_n(clockOf(last[stream]), streams, clock);
      clock[stream] = number[i];
      for (int after : instructions[i].after) {
        for (size_t s = 0; s < streams; ++s)
          clock[s] = std::max(clock[s], clockOf(after)[s]);
        clock[streamOf[after]] = std::max(clock[streamOf[after]], number[after] + 1);
      }
      last[stream] = i;
    }
  }
  int *clockOf(int i) { return &clocks[i * streams]; }
  /// Returns true if `a` is certainly done when `b` starts, by vector clocks.
  bool before(int a, int b) { return clockOf(b)[streamOf[a]] > number[a]; }

  /// Checks that a message is sent after its task and read after its receive, and that tasks of one stage are ordered.
  bool dependencies() {
    for (int d = 0; d < static_cast<int>(program.stages.size()); ++d) {
      makeClocks(d);
      const auto &instructions = program.stages[d];
      std::vector<int> receiveAt(p.tasks(), -1);
      std::map<Flow, std::vector<int>> received;
      for (int i = 0; i < static_cast<int>(instructions.size()); ++i)
        for (const Part &part : instructions[i].parts) {
          int id = p.id(part.message);
          if (!part.send) {
            if (part.input) {
              receiveAt[id] = i;
              received[part.flow].push_back(i);
            }
            continue;
          }
          if (taskAt[id].first != d)
            return fail("missing", at(d, i) + " sends a value that no task of its stage computes");
          if (!before(taskAt[id].second, i))
            return fail("order", at(d, i) + " may run before " + text(part.message));
        }
      for (int i = 0; i < static_cast<int>(instructions.size()); ++i)
        if (instructions[i].type == Instruction::Compute && !inputsOf(d, i, receiveAt))
          return false;
      if (options.slots && !slots(d, received))
        return false;
    }
    return true;
  }

  /// Returns true if all inputs of a task have certainly arrived when it begins.
  bool inputsOf(int d, int i, const std::vector<int> &receiveAt) {
    for (const auto &[needed, delay] : p.inputs(program.stages[d][i].task)) {
      int id = p.id(needed);
      if (p.stageOf[needed.chunk] != d) {
        if (receiveAt[id] < 0 || !before(receiveAt[id], i))
          return fail("input", at(d, i) + " does not wait for the receive of " + text(needed));
      } else if (taskAt[id].first < 0) {
        return fail("missing", text(needed) + ", which " + at(d, i) + " needs, never runs");
      } else if (!before(taskAt[id].second, i)) {
        return fail("order", at(d, i) + " may run before " + text(needed));
      }
    }
    return true;
  }

  /// Message n is written to the slot of message n - slots, whose consumer must be done.
  bool slots(int d, const std::map<Flow, std::vector<int>> &received) {
    auto messageOf = [&](int i, const Flow &flow) {
      for (const Part &part : program.stages[d][i].parts)
        if (!part.send && part.flow == flow)
          return part.message;
      return Task{};
    };
    for (const auto &[flow, list] : received)
      for (size_t n = options.slots; n < list.size(); ++n) {
        Task old = messageOf(list[n - options.slots], flow);
        std::optional<Task> reader = consumer(p, old);
        if (reader && taskAt[p.id(*reader)].first == d && !before(taskAt[p.id(*reader)].second, list[n]))
          return fail("slot", at(d, list[n]) + " overwrites the slot of " + text(old) + ", which " + text(*reader) +
                                  " may still read");
      }
    return true;
  }

  /// Checks that every task of the problem occurs.
  bool missing() {
    for (const Task &task : p.all())
      if (taskAt[p.id(task)].first < 0)
        return fail("missing", "stage " + std::to_string(p.stageOf[task.chunk]) + " never runs " + text(task));
    return true;
  }

  /// Checks that the bytes that tasks allocate and free, in the order of the stage, stay within its limit.
  bool memory() {
    for (int d = 0; d < static_cast<int>(program.stages.size()) && !p.limit.empty(); ++d) {
      double used = 0;
      for (int i = 0; i < static_cast<int>(program.stages[d].size()); ++i)
        if (const Instruction &x = program.stages[d][i]; x.type == Instruction::Compute) {
          used += p.takes(x.task);
          if (used > p.limit[d] * (1 + 1e-12) + 1e-9)
            return fail("memory", at(d, i) + " needs " + std::to_string(used) + " of memory, but the limit is " +
                                      std::to_string(p.limit[d]));
          used -= p.frees(x.task);
        }
    }
    return true;
  }

  const Problem &p;
  const Program &program;
  const VerifyOptions &options;
  Fault fault;
  std::vector<Place> taskAt;         ///< by task id
  std::vector<int> streamOf, number; ///< for the instructions of one stage
  size_t streams = 0;                ///< the number of its streams
  std::vector<int> clocks;           ///< the clocks of its instructions, one after another
};

} // namespace

std::optional<Fault> pc::pipeline::verify(const Problem &problem, const Program &program,
                                          const VerifyOptions &options) {
  return Verifier(problem, program, options).run();
}
