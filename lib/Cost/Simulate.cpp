//===- Simulate.cpp - A step in time, before anything runs -----------------------------------===//
// Every stage's program becomes a list of steps with their seconds; the stages run in turns, each until it needs what
// another has not done yet.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Simulate.h"
#include "MemoryUse.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Stages.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <map>

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

namespace {

using Use = StageSpan::Use;
constexpr int numUses = 7;
StringRef useName(Use use) {
  static constexpr StringRef names[numUses] = {"forward",   "recompute", "backward", "weight",
                                               "optimizer", "move",      "message"};
  return names[use];
}

/// (from, to, flow).
using FlowKey = std::tuple<int64_t, int64_t, int64_t>;

struct Step {
  enum Type { Work, Move, Start, Wait, StageMove, StageStart, StageWait, Send, Receive, Task } type = Work;
  double seconds = 0;
  Operation *op = nullptr;
  int started = 0;       ///< Wait, StageWait: which start of the stage
  int flow = 0;          ///< Send, Receive
  int64_t slots = 0;     ///< Send
  int64_t liveBytes = 0; ///< Task: until the next
};

struct Flow {
  int64_t from = 0;
  std::vector<double> sent, taken; ///< by message
};

/// A collective of all stages.
struct Meeting {
  int arrived = 0;
  double last = 0;
};

struct Stage {
  std::vector<Step> steps;
  int starts = 0;
  size_t next = 0;
  double clock = 0, linkFree = 0, idleSeconds = 0;
  std::vector<double> startedEnd;   ///< by start: when its moves are done
  std::vector<size_t> startedMeets; ///< by start: its meeting
  size_t meetings = 0;              ///< that it has come to
  bool waits = false;               ///< in a StageMove that it has come to
  std::vector<StageSpan> spans;
  int open = -1;      ///< the span that work goes into; -1: none
  bool begun = false; ///< whether there has been any
  std::array<double, numUses> seconds = {};

  void idle(double until);
  void work(double seconds);
  /// `what`: the use of moves, with what they are; or of a message, with where it comes from.
  void spend(double until, const StageSpan &what);
  void close();
};

/// Waits for other stages. What follows outside of tasks is another stretch.
void Stage::idle(double until) {
  if (until <= clock)
    return;
  idleSeconds += until - clock;
  clock = until;
  if (open >= 0 && !spans[open].isTask())
    open = -1;
}

/// Computes, for the open span: of a task, or of what stands outside of tasks.
void Stage::work(double spent) {
  if (open < 0) {
    open = static_cast<int>(spans.size());
    spans.emplace_back();
    begun = false;
  }
  StageSpan &span = spans[open];
  if (!begun)
    span.start = clock;
  begun = true;
  seconds[span.use] += spent;
  span.end = clock += spent;
}

/// Does nothing but wait for its own moves or for a message that is under way.
void Stage::spend(double until, const StageSpan &what) {
  if (until <= clock)
    return;
  seconds[what.use] += until - clock;
  if (what.use == Use::Move && open >= 0 && spans[open].isTask()) {
    StageSpan &span = spans[open];
    if (!begun)
      span.start = clock;
    begun = true;
    span.moves += until - clock;
    span.end = clock = until;
    return;
  }
  // A task that has not begun comes behind it; what follows outside of tasks is another stretch.
  bool waitsAhead = open >= 0 && !begun;
  size_t place = waitsAhead ? open : spans.size();
  if (StageSpan *last = place ? &spans[place - 1] : nullptr;
      last && last->use == what.use && last->end == clock && last->what == what.what && last->from == what.from) {
    last->end = until;
  } else {
    auto span = spans.insert(spans.begin() + static_cast<int64_t>(place), what);
    span->start = clock;
    span->end = until;
    open += waitsAhead;
  }
  clock = until;
  if (open >= 0 && !spans[open].isTask())
    open = -1;
}

/// A task without work begins and ends where it is passed.
void Stage::close() {
  if (open >= 0 && !begun)
    spans[open].start = spans[open].end = clock;
  open = -1;
}

class Simulation {
public:
  Simulation(ModuleOp planned, const MachineModel &machine) : planned(planned), machine(machine) {}

  LogicalResult run();
  double stepSeconds() const;
  /// Of stages.
  json::Object report(StringRef schedule);
  /// Of stages; what remains is not to be used.
  StepTimeline takeTimeline();

private:
  LogicalResult read(ModuleOp program);
  void readBlock(Block &body, int64_t self, std::vector<Step> &steps, int &numStarts);
  /// Work joins the work before it.
  static void append(std::vector<Step> &steps, const Step &step) {
    if (step.type == Step::Work && !steps.empty() && steps.back().type == Step::Work)
      steps.back().seconds += step.seconds;
    else
      steps.push_back(step);
  }
  void readMemory(Block &body, Stage &stage);
  bool isOverStages(Operation *op);
  /// Seconds of a message between two stages.
  double hop(int64_t from, int64_t to, Value message) const {
    return messageSeconds(static_cast<double>(byteSize(message.getType())), Way::between(mesh, axis, from, to, machine),
                          machine);
  }
  bool advance(int number);
  json::Object describe(int number, double end);
  json::Value theory(StringRef schedule);
  int flowOf(int64_t from, int64_t to, int64_t number);

  ModuleOp planned;
  MachineModel machine;
  StringAttr axis; ///< Of stages; null: there are none.
  MeshAttr mesh;
  std::vector<Stage> stages;
  std::vector<Flow> flows;
  std::map<FlowKey, int> numbersOfFlows;
  std::vector<Meeting> meetings;
  /// What a function does.
  struct Called {
    std::vector<Step> steps;
    int starts = 0;
  };
  TaskFunctions functions;
  llvm::DenseMap<Block *, Called> called;
  int64_t chunks = 0, microbatches = 0, slots = 0;
};

int Simulation::flowOf(int64_t from, int64_t to, int64_t number) {
  auto [it, first] = numbersOfFlows.try_emplace({from, to, number}, flows.size());
  if (first)
    flows.push_back({from, {}, {}});
  return it->second;
}

bool Simulation::isOverStages(Operation *op) {
  if (auto start = dyn_cast<StartOp>(op))
    return llvm::any_of(start.getMoves(), [&](MoveOpInterface move) { return isOverStages(move); });
  auto move = dyn_cast<MoveOpInterface>(op);
  return move && hasTraffic(move.getMoveKind()) && llvm::is_contained(move.getMoveAxes(), axis);
}

LogicalResult Simulation::read(ModuleOp program) {
  SmallVector<func::FuncOp> steps = stepsOf(program);
  if (steps.size() != 1 || !steps[0].getBody().hasOneBlock())
    return program.emitError() << "a timeline needs a planned program: one function of one block";
  Block &body = steps[0].getBody().front();
  Stage &stage = stages.emplace_back();
  readBlock(body, static_cast<int64_t>(stages.size()) - 1, stage.steps, stage.starts);
  if (axis)
    readMemory(body, stage);
  return success();
}

/// Appends the steps of a block. `starts` counts its starts.
void Simulation::readBlock(Block &body, int64_t self, std::vector<Step> &steps, int &numStarts) {
  std::map<Operation *, int> starts;
  for (Operation &op : body) {
    auto call = dyn_cast<CallOp>(op);
    auto accumulate = dyn_cast<AccumulateOp>(op);
    if (call || accumulate) { // the same steps each time
      Block *inner = call ? functions.of(call).body : &accumulate.getBody().front();
      auto [it, first] = called.try_emplace(inner);
      if (first)
        readBlock(*inner, self, it->second.steps, it->second.starts);
      for (int64_t i = 0, times = accumulate ? accumulate.getMicrobatches() : 1; i < times; ++i) {
        for (Step step : it->second.steps) {
          step.started += numStarts;
          append(steps, step);
        }
        numStarts += it->second.starts;
      }
      continue;
    }
    Step step;
    step.op = &op;
    if (isLeaf(&op) || op.hasTrait<OpTrait::IsTerminator>() || isa<MicrobatchOp, OutputOp>(op))
      continue;
    if (auto task = dyn_cast<TaskOp>(op)) {
      step.type = Step::Task;
      chunks = std::max<int64_t>(chunks, task.getChunk().value_or(0) + 1);
      microbatches = std::max<int64_t>(microbatches, task.getMicrobatch().value_or(0) + 1);
    } else if (auto send = dyn_cast<SendOp>(op)) {
      step.type = Step::Send;
      step.seconds = hop(self, send.getStage(), send.getX());
      step.flow = flowOf(self, send.getStage(), send.getFlow());
      step.slots = send.getSlots();
      slots = std::max(slots, step.slots);
    } else if (auto receive = dyn_cast<ReceiveOp>(op)) {
      step.type = Step::Receive;
      step.seconds = hop(receive.getStage(), self, receive.getValue());
      step.flow = flowOf(receive.getStage(), self, receive.getFlow());
    } else if (auto start = dyn_cast<StartOp>(op)) {
      step.type = isOverStages(&op) ? Step::StageStart : Step::Start;
      for (MoveOpInterface move : start.getMoves())
        step.seconds += secondsOf(move, machine);
      starts[&op] = numStarts++;
    } else if (auto wait = dyn_cast<WaitOp>(op)) {
      step.type = isOverStages(wait.getStart()) ? Step::StageWait : Step::Wait;
      step.started = starts.at(wait.getStart());
    } else {
      auto move = dyn_cast<MoveOpInterface>(op);
      step.seconds = secondsOf(&op, machine);
      step.type = isOverStages(&op)                        ? Step::StageMove
                  : move && hasTraffic(move.getMoveKind()) ? Step::Move
                                                           : Step::Work;
    }
    append(steps, step);
  }
}

/// The most activations that are live in every task.
void Simulation::readMemory(Block &body, Stage &stage) {
  Liveness liveness(body);
  std::vector<int64_t> change(liveness.size() + 1);
  MemoryProfile profile(body);
  for (const PlacedBuffer &buffer : profile.buffers())
    if (buffer.kind == MemoryKind::Activation) {
      change[buffer.life.first] += buffer.bytes;
      change[buffer.life.last + 1] -= buffer.bytes;
    }
  int64_t live = 0, position = 0;
  auto passUntil = [&](int64_t end) {
    int64_t most = 0;
    for (; position < end; ++position)
      most = std::max(most, live += change[position]);
    return most;
  };
  Step *task = nullptr;
  for (Step &step : stage.steps)
    if (step.type == Step::Task) {
      int64_t most = passUntil(liveness.position(step.op));
      if (task)
        task->liveBytes = most;
      task = &step;
    }
  if (task)
    task->liveBytes = passUntil(liveness.size());
}

/// Runs a stage until it has to wait for another one; whether it did anything.
bool Simulation::advance(int number) {
  Stage &stage = stages[number];
  auto meet = [&]() { // comes to the next meeting
    if (stage.meetings == meetings.size())
      meetings.emplace_back();
    Meeting &meeting = meetings[stage.meetings];
    ++meeting.arrived;
    meeting.last = std::max(meeting.last, stage.clock);
    return stage.meetings++;
  };
  auto isOpen = [&](size_t meeting) { return meetings[meeting].arrived == static_cast<int>(stages.size()); };
  size_t before = stage.next;
  for (; stage.next < stage.steps.size(); ++stage.next) {
    const Step &step = stage.steps[stage.next];
    switch (step.type) {
    case Step::Task: {
      stage.close();
      auto task = cast<TaskOp>(step.op);
      if (task.getKind() == TaskKind::Optimizer)
        break;
      stage.open = static_cast<int>(stage.spans.size());
      stage.begun = false;
      stage.spans.push_back({static_cast<Use>(task.getKind()), "", -1, static_cast<int64_t>(*task.getChunk()),
                             static_cast<int64_t>(*task.getMicrobatch()), stage.clock, stage.clock, 0, step.liveBytes});
      break;
    }
    case Step::Work:
      stage.work(step.seconds);
      break;
    case Step::Move:
      stage.spend(std::max(stage.clock, stage.linkFree) + step.seconds, {Use::Move, "moves"});
      stage.linkFree = stage.clock;
      break;
    case Step::Start:
      stage.startedMeets.push_back(0);
      stage.startedEnd.push_back(stage.linkFree = std::max(stage.clock, stage.linkFree) + step.seconds);
      break;
    case Step::Wait:
      stage.spend(stage.startedEnd[step.started], {Use::Move, "moves"});
      break;
    case Step::StageStart:
      stage.startedEnd.push_back(step.seconds);
      stage.startedMeets.push_back(meet());
      break;
    case Step::StageMove:
    case Step::StageWait: {
      bool starts = step.type == Step::StageMove;
      if (starts && !stage.waits)
        meet();
      stage.waits = starts;
      size_t meeting = starts ? stage.meetings - 1 : stage.startedMeets[step.started];
      if (!isOpen(meeting))
        return stage.next > before;
      stage.waits = false;
      stage.idle(meetings[meeting].last);
      stage.spend(meetings[meeting].last + (starts ? step.seconds : stage.startedEnd[step.started]),
                  {Use::Move, "sum over stages"});
      break;
    }
    case Step::Send: {
      Flow &flow = flows[step.flow];
      int64_t full = static_cast<int64_t>(flow.sent.size()) - step.slots;
      if (full >= static_cast<int64_t>(flow.taken.size()))
        return stage.next > before;
      if (full >= 0)
        stage.idle(flow.taken[full]);
      flow.sent.push_back(stage.clock);
      break;
    }
    case Step::Receive: {
      Flow &flow = flows[step.flow];
      size_t message = flow.taken.size();
      if (message >= flow.sent.size())
        return stage.next > before;
      stage.idle(flow.sent[message]);
      stage.spend(flow.sent[message] + step.seconds, {Use::Message, "", flow.from});
      flow.taken.push_back(stage.clock);
      break;
    }
    }
  }
  return stage.next > before;
}

LogicalResult Simulation::run() {
  axis = stageAxisOf(planned);
  for (ModuleOp program : programsOf(planned)) {
    mesh = meshOf(program);
    if (failed(read(program)))
      return failure();
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages.size(); ++s)
      moved |= advance(static_cast<int>(s));
  }
  for (auto [number, stage] : llvm::enumerate(stages)) {
    if (stage.next < stage.steps.size())
      return stage.steps[stage.next].op->emitError()
             << "stage " << number << " waits here forever; pc-verify-staged says for whom";
    stage.close();
    llvm::erase_if(stage.spans, [](const StageSpan &span) { return !span.isTask() && span.end <= span.start; });
  }
  return success();
}

json::Object Simulation::describe(int number, double end) {
  Stage &stage = stages[number];
  json::Object seconds;
  for (int use = 0; use < numUses; ++use)
    seconds[useName(static_cast<Use>(use))] = stage.seconds[use];
  seconds["idle"] = stage.idleSeconds + end - stage.clock;
  std::map<int64_t, bool> own; // chunks, and whether weights have tasks of their own
  for (const StageSpan &span : stage.spans)
    if (span.isTask())
      own[span.chunk] |= span.use == Use::Weight;
  int64_t live = 0, most = 0, bytes = 0; // in chunks
  for (const StageSpan &span : stage.spans) {
    bytes = std::max(bytes, span.liveBytes);
    if (!span.isTask())
      continue;
    live += span.use == Use::Forward;
    most = std::max(most, live);
    live -= span.use == (own[span.chunk] ? Use::Weight : Use::Backward);
  }
  json::Array chunkNumbers;
  for (auto &[chunk, split] : own)
    chunkNumbers.push_back(chunk);
  return json::Object{{"stage", number},
                      {"chunks", std::move(chunkNumbers)},
                      {"seconds", std::move(seconds)},
                      {"peak_microbatches", own.empty() ? 0.0 : static_cast<double>(most) / own.size()},
                      {"peak_activation_bytes", bytes}};
}

/// Idle over ideal time for uniform stages and messages that take no time (for the sources see
/// docs/rationale/pipeline.md).
json::Value Simulation::theory(StringRef schedule) {
  double p = static_cast<double>(stages.size()), m = static_cast<double>(microbatches),
         v = static_cast<double>(chunks) / p;
  std::array<double, numUses> mean = {}; // of a stage and microbatch
  for (const Stage &stage : stages)
    for (const StageSpan &span : stage.spans)
      if (span.isTask())
        mean[static_cast<int>(span.use)] += (span.end - span.start) / p / m;
  double f = mean[0], b = mean[1] + mean[2], w = mean[3], all = m * (f + b + w);
  auto formula = [](StringRef text, double value) {
    return json::Object{{"formula", text}, {"idle_over_ideal", value}};
  };
  StringRef name = schedule.split(':').first;
  if (name == "naive")
    return formula("p - 1", p - 1);
  if (name == "gpipe" || name == "1f1b" || name == "1f1b-eager")
    return formula("(p - 1) / m", (p - 1) / m);
  if (name == "interleaved")
    return m >= p ? formula("(p - 1) / (v m)", (p - 1) / (v * m))
                  : formula("(p - 1 + (v - 1) (p - m)) / (v m)", (p - 1 + (v - 1) * (p - m)) / (v * m));
  if (name == "zb-h1" && m >= p)
    return formula("(p - 1) (B + max(0, F - W)) / (m (F + B + W))", (p - 1) * (b + std::max(0.0, f - w)) / all);
  if (name == "zb-h2" && m >= 2 * p - 1)
    return formula("(p - 1) max(0, F + B - 2 W, B - F) / (m (F + B + W))",
                   (p - 1) * std::max({0.0, f + b - 2 * w, b - f}) / all);
  if (name == "zb-v" && m >= 2 * p - 1)
    return formula("0 where F = B = W", 0);
  return nullptr;
}

double Simulation::stepSeconds() const {
  double end = 0;
  for (const Stage &stage : stages)
    end = std::max(end, stage.clock);
  return end;
}

json::Object Simulation::report(StringRef schedule) {
  double end = stepSeconds(), cost = 0, ideal = 0;
  for (const Stage &stage : stages) {
    double first = -1, last = 0, busy = 0;
    for (const StageSpan &span : stage.spans)
      if (span.isTask()) {
        first = first < 0 ? span.start : first;
        last = std::max(last, span.end);
        busy += span.end - span.start;
      }
    cost = std::max(cost, last - first);
    ideal = std::max(ideal, busy);
  }
  json::Array perStage;
  for (size_t s = 0; s < stages.size(); ++s)
    perStage.push_back(describe(static_cast<int>(s), end));
  return json::Object{{"schedule", schedule},
                      {"stages", static_cast<int64_t>(stages.size())},
                      {"chunks", chunks},
                      {"microbatches", microbatches},
                      {"slots", slots},
                      {"machine", machine.name},
                      {"step_seconds", end},
                      {"cost_seconds", cost},
                      {"ideal_seconds", ideal},
                      {"bubble", cost > 0 ? (cost - ideal) / cost : 0},
                      {"idle_over_ideal", ideal > 0 ? (cost - ideal) / ideal : 0},
                      {"theory", theory(schedule)},
                      {"per_stage", std::move(perStage)},
                      {"traceEvents", nullptr}};
}

StepTimeline Simulation::takeTimeline() {
  StepTimeline timeline;
  for (Stage &stage : stages)
    timeline.push_back(std::move(stage.spans));
  return timeline;
}

std::string nameOf(const StageSpan &span) {
  if (span.isTask())
    return llvm::formatv("{0} {1}{2}", useName(span.use), span.microbatch,
                         span.chunk ? " of chunk " + std::to_string(span.chunk) : "");
  if (span.use == Use::Message)
    return "message from stage " + std::to_string(span.from);
  return (span.what.empty() ? useName(span.use) : span.what).str();
}

/// Keys in order, as elsewhere.
void writeEvents(const StepTimeline &timeline, json::OStream &out) {
  for (size_t s = 0; s < timeline.size(); ++s)
    out.value(json::Object{{"ph", "M"},
                           {"name", "process_name"},
                           {"pid", static_cast<int64_t>(s)},
                           {"args", json::Object{{"name", "stage " + std::to_string(s)}}}});
  auto microseconds = [](double seconds) { return std::round(seconds * 1e9) / 1e3; };
  for (auto [number, spans] : llvm::enumerate(timeline))
    for (const StageSpan &span : spans)
      out.object([&, number = number] {
        if (span.isTask())
          out.attributeObject("args", [&] {
            out.attribute("chunk", span.chunk);
            out.attribute("live_bytes", span.liveBytes);
            out.attribute("microbatch", span.microbatch);
            out.attribute("moves", microseconds(span.moves));
          });
        out.attribute("cat", useName(span.use));
        out.attribute("dur", microseconds(span.end) - microseconds(span.start));
        out.attribute("name", nameOf(span));
        out.attribute("ph", "X");
        out.attribute("pid", static_cast<int64_t>(number));
        out.attribute("tid", 0);
        out.attribute("ts", microseconds(span.start));
      });
}

} // namespace

void pc::writeWithTimeline(const json::Value &value, const StepTimeline &timeline, json::OStream &out) {
  if (const json::Array *array = value.getAsArray())
    return out.array([&] {
      for (const json::Value &element : *array)
        writeWithTimeline(element, timeline, out);
    });
  const json::Object *object = value.getAsObject();
  if (!object)
    return out.value(value);
  std::map<StringRef, const json::Value *> sorted;
  for (const auto &[key, element] : *object)
    sorted[key] = &element;
  out.object([&] {
    for (auto [key, element] : sorted) {
      out.attributeBegin(key);
      if (key == "traceEvents")
        out.array([&] { writeEvents(timeline, out); });
      else
        writeWithTimeline(*element, timeline, out);
      out.attributeEnd();
    }
  });
}

FailureOr<Prediction> pc::predictStep(ModuleOp planned, StringRef schedule, const MachineModel &machine) {
  Simulation simulation(planned, machine);
  if (failed(simulation.run()))
    return failure();
  Prediction prediction{simulation.stepSeconds(), std::nullopt, {}};
  if (stageAxisOf(planned)) {
    prediction.pipeline = simulation.report(schedule);
    prediction.timeline = simulation.takeTimeline();
  }
  return prediction;
}
