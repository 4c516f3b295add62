//===- ChooseSchedule.cpp - Which chunks, on which stages, in which order ------------------===//
#include "ChooseSchedule.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace pc::pipeline;

namespace {

/// Where chunks lie and what their tasks are.
struct Shape {
  std::vector<int> device;
  bool split;
};

using ProblemFor = function_ref<std::optional<Problem>(int chunks, bool split, std::string &error)>;

std::optional<Problem> problemOf(const Shape &shape, int stages, int microbatches, ProblemFor problemFor,
                                 std::string &error) {
  std::optional<Problem> problem = problemFor(static_cast<int>(shape.device.size()), shape.split, error);
  if (!problem)
    return std::nullopt;
  problem->devices = stages;
  problem->microbatches = microbatches;
  problem->device = shape.device;
  return problem;
}

/// "W12.3" -> a task.
bool parseTask(StringRef word, Task &task) {
  static constexpr StringLiteral kinds = "FRBW";
  size_t kind = word.empty() ? StringRef::npos : kinds.find(word[0]);
  auto [chunk, microbatch] = word.drop_front(word.empty() ? 0 : 1).split('.');
  if (kind == StringRef::npos || chunk.getAsInteger(10, task.chunk) || microbatch.getAsInteger(10, task.microbatch) ||
      task.chunk < 0 || task.microbatch < 0)
    return false;
  task.kind = static_cast<Kind>(kind);
  return true;
}

/// An order from a file: a line per stage; '#' begins a comment.
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
                "' is no task; F0.3 is one (kind F, R, B or " + "W, chunk, microbatch)";
        return std::nullopt;
      }
  }
  return order;
}

std::optional<Schedule> fromFile(StringRef path, int stages, int microbatches, ProblemFor problemFor,
                                 std::string &error) {
  auto buffer = MemoryBuffer::getFile(path);
  std::optional<Order> order;
  if (!buffer)
    error = "'" + path.str() + "' is neither a schedule nor a file (" + buffer.getError().message() + ")";
  else
    order = readOrder((*buffer)->getBuffer(), error);
  if (!order)
    return std::nullopt;
  if (static_cast<int>(order->size()) != stages) {
    error = "'" + path.str() + "' has tasks of " + std::to_string(order->size()) + " stages, the mesh has " +
            std::to_string(stages);
    return std::nullopt;
  }
  Shape shape{{}, false};
  for (auto [stage, tasks] : enumerate(*order))
    for (const Task &task : tasks) {
      if (task.chunk >= stages * 64) {
        error = "'" + text(task) + "': more than 64 chunks a stage";
        return std::nullopt;
      }
      shape.device.resize(std::max<size_t>(shape.device.size(), task.chunk + 1), 0);
      shape.device[task.chunk] = static_cast<int>(stage);
      shape.split |= task.kind == Kind::W;
    }
  std::optional<Problem> problem = problemOf(shape, stages, microbatches, problemFor, error);
  if (!problem)
    return std::nullopt;
  return Schedule{path.str(), *problem, *order};
}

/// The best of all chunk maps.
std::optional<Schedule> best(int stages, int microbatches, ProblemFor problemFor, std::string &error) {
  std::optional<Schedule> found;
  double least = 0;
  std::string refused; // deeper cuts of a model with few layers
  for (const Shape &shape : {Shape{roundRobin(stages, 1), true}, Shape{roundRobin(stages, 1), false},
                             Shape{roundRobin(stages, 2), true}, Shape{vShape(stages), true}}) {
    std::optional<Problem> problem = problemOf(shape, stages, microbatches, problemFor, refused);
    std::optional<AutoOrder> order = problem ? autoOrder(*problem, Goal::Span, refused) : std::nullopt;
    std::optional<Measure> figures = order ? measure(*problem, order->order) : std::nullopt;
    if (figures && (!found || figures->span < least)) {
      least = figures->span;
      found = Schedule{"auto: " + order->name, *problem, order->order};
    }
    if (!found)
      error = refused;
  }
  return found;
}

} // namespace

std::optional<Schedule> pc::pipeline::chooseSchedule(StringRef schedule, int stages, int microbatches,
                                                     ProblemFor problemFor, std::string &error) {
  if (schedule == "auto")
    return best(stages, microbatches, problemFor, error);
  auto [name, number] = schedule.split(':');
  if (!is_contained(orderNames(), std::string_view(name)) || (!number.empty() && name != "interleaved"))
    return fromFile(schedule, stages, microbatches, problemFor, error);
  int perStage = name == "interleaved" ? 2 : 1;
  if (!number.empty() && (number.getAsInteger(10, perStage) || perStage < 1 || perStage > 64)) {
    error = "interleaved:" + number.str() + ": expected a number of chunks per stage, 1 to 64";
    return std::nullopt;
  }
  Shape shape{name == "zb-v" ? vShape(stages) : roundRobin(stages, perStage), name.starts_with("zb-")};
  std::optional<Problem> problem = problemOf(shape, stages, microbatches, problemFor, error);
  std::optional<Order> order = problem ? namedOrder(*problem, name.str(), error) : std::nullopt;
  if (!order)
    return std::nullopt;
  return Schedule{name.str(), *problem, *order};
}
