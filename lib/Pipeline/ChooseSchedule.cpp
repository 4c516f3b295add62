//===- ChooseSchedule.cpp - Chooses chunks, their stages, and the order of tasks -----------===//
// A named schedule has a rule for its order; a file gives the order itself. "auto" tries four chunk maps, and several
// memory limits if none is given. Among the orders within 1 % of the fastest, it chooses the one that keeps the fewest
// bytes. If no order is found, it falls back to `naive`.
//===-----------------------------------------------------------------------------===//
#include "ChooseSchedule.h"
#include "pc/Support/Source.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Debug.h"

#define DEBUG_TYPE "pc-pipeline"

using namespace llvm;
using namespace pc::pipeline;

namespace {

std::optional<Problem> problemOf(const Shape &shape, int microbatches, ProblemFor problemFor, std::string &error) {
  std::optional<Problem> problem = problemFor(shape, error);
  if (problem)
    problem->microbatches = microbatches;
  return problem;
}

/// Parses a task such as "W12.3".
bool parseTask(StringRef word, Task &task) {
  const auto *kind = find_if(taskKinds, [&](pc::TaskKind one) { return word.starts_with(letterOf(one)); });
  auto [chunk, microbatch] = word.drop_front(word.empty() ? 0 : 1).split('.');
  if (kind == taskKinds.end() || chunk.getAsInteger(10, task.chunk) || microbatch.getAsInteger(10, task.microbatch) ||
      task.chunk < 0 || task.microbatch < 0)
    return false;
  task.kind = *kind;
  return true;
}

/// Reads an order from the text of a file, which has one line per stage. '#' begins a comment.
std::optional<Order> readOrder(StringRef text, std::string &error) {
  Order order;
  SmallVector<StringRef> lines;
  text.split(lines, '\n');
  for (auto [number, whole] : enumerate(lines)) {
    SmallVector<StringRef> words;
    SplitString(whole.split('#').first, words, " \t\r");
    if (words.empty())
      continue;
    std::vector<Task> &tasks = order.emplace_back();
    for (StringRef word : words)
      if (!parseTask(word, tasks.emplace_back())) {
        error = "line " + std::to_string(number + 1) + ": '" + word.str() +
                "' is not a task; write kind (F, R, B or W), chunk and microbatch, as in F0.3";
        return std::nullopt;
      }
  }
  return order;
}

/// An order that the user wrote: the chunks of each stage, and whether weight gradients are separate, follow from its
/// tasks.
std::optional<Schedule> fromFile(StringRef path, int stages, int microbatches, ProblemFor problemFor,
                                 std::string &error) {
  std::string why;
  std::unique_ptr<MemoryBuffer> buffer = pc::readFile(path, why);
  std::optional<Order> order;
  if (!buffer)
    error = "'" + path.str() + "' is not a schedule, and there is no such file (" + why + ")";
  else
    order = readOrder(buffer->getBuffer(), error);
  if (!order)
    return std::nullopt;
  if (static_cast<int>(order->size()) != stages) {
    error = "'" + path.str() + "' has tasks of " + std::to_string(order->size()) + " stages, but the mesh has " +
            std::to_string(stages);
    return std::nullopt;
  }
  Shape shape;
  for (auto [stage, tasks] : enumerate(*order))
    for (const Task &task : tasks) {
      if (task.chunk >= stages * 64) {
        error = "'" + text(task) + "': a stage can have at most 64 chunks";
        return std::nullopt;
      }
      shape.stageOf.resize(std::max<size_t>(shape.stageOf.size(), task.chunk + 1), 0);
      shape.stageOf[task.chunk] = static_cast<int>(stage);
      shape.split |= task.kind == TaskKind::Weight;
    }
  std::optional<Problem> problem = problemOf(shape, microbatches, problemFor, error);
  if (!problem)
    return std::nullopt;
  problem->limit.clear();
  return Schedule{path.str(), *problem, *order};
}

/// The best order for all chunk maps. Without a limit, it is the one that keeps the fewest bytes among those at most 1
/// % slower than the fastest.
std::optional<Schedule> best(int stages, int microbatches, ProblemFor problemFor, std::string &error) {
  /// A schedule that fits, with the figures by which it is compared.
  struct Candidate {
    Schedule schedule;
    double span, memory;
  };
  std::vector<Candidate> found;
  std::string refused; // includes cuts into more chunks than the model has layers
  for (const Shape &shape : {Shape{roundRobin(stages, 1), true, {}}, Shape{roundRobin(stages, 1), false, {}},
                             Shape{roundRobin(stages, 2), true, {}}, Shape{vShape(stages), true, {}}}) {
    std::optional<Problem> problem = problemOf(shape, microbatches, problemFor, refused);
    if (!problem)
      continue;
    // Without a memory limit, tries one for `stages` microbatches at a time, one for 2 `stages` - 1, and none.
    bool limited = !problem->limit.empty();
    for (int times : limited ? std::vector{0} : std::vector{stages, 2 * stages - 1, 0}) {
      for (int d = 0; d < stages && times; ++d) {
        problem->limit.resize(stages);
        problem->limit[d] = times * problem->floor(d);
      }
      if (!limited && !times)
        problem->limit.clear();
      std::optional<AutoOrder> order = autoOrder(*problem, Goal::Span, refused);
      if (std::optional<Measure> figures = order ? measure(*problem, order->order) : std::nullopt)
        found.push_back({{"auto: " + order->name, *problem, order->order},
                         figures->span,
                         *std::max_element(figures->memory.begin(), figures->memory.end())});
    }
  }
  if (found.empty()) { // the order with the least memory; memory planning finds out whether it fits
    std::optional<Schedule> naive = chooseSchedule("naive", stages, microbatches, problemFor, error);
    if (!naive && error.empty())
      error = refused;
    return naive;
  }
  double fastest = found.front().span;
  for (const Candidate &candidate : found)
    fastest = std::min(fastest, candidate.span);
  const Candidate *chosen = nullptr;
  for (const Candidate &candidate : found)
    if (candidate.span <= 1.01 * fastest && (!chosen || candidate.memory < chosen->memory))
      chosen = &candidate;
  LLVM_DEBUG({
    for (const Candidate &one : found)
      dbgs() << (&one == chosen ? "take " : "leave ") << one.schedule.name << ", " << one.schedule.problem.chunks()
             << " chunks: " << one.span << " s, " << one.memory << " bytes\n";
  });
  return chosen->schedule;
}

} // namespace

/// A name without chunks uses the schedule's usual number of them. Any other word is the name of a file.
std::optional<Schedule> pc::pipeline::chooseSchedule(StringRef schedule, int stages, int microbatches,
                                                     ProblemFor problemFor, std::string &error) {
  if (schedule == "auto")
    return best(stages, microbatches, problemFor, error);
  auto [name, number] = schedule.split(':');
  const NamedSchedule *named = findSchedule(name);
  if (!named || (!number.empty() && !named->anyChunks))
    return fromFile(schedule, stages, microbatches, problemFor, error);
  int perStage = 0;
  if (!number.empty() && (number.getAsInteger(10, perStage) || perStage < 1 || perStage > 64)) {
    error = schedule.str() + ": expected a number of chunks per stage from 1 to 64";
    return std::nullopt;
  }
  Shape shape{named->stageOfChunks(stages, perStage), named->split, {}};
  if (static_cast<int>(shape.stageOf.size()) == stages)
    for (int d = 0; d < stages; ++d)
      shape.inFlight.push_back(named->inFlight ? std::min(named->inFlight(stages, d), microbatches) : microbatches);
  std::optional<Problem> problem = problemOf(shape, microbatches, problemFor, error);
  std::optional<Order> order = problem ? named->order(*problem, error) : std::nullopt;
  if (!order)
    return std::nullopt;
  problem->limit.clear();
  return Schedule{name.str(), *problem, *order};
}
