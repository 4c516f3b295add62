//===- Simulate.cpp - Simulates the time of a step -------------------------------------------===//
// A StageRunner runs the programs of all stages. This file implements the effect of their ops on the clocks.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Simulate.h"
#include "MemoryUse.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/Calls.h"
#include "pc/IR/LeavesByName.h"
#include "pc/IR/StageRunner.h"
#include "pc/IR/Stages.h"
#include <cmath>
#include <deque>

using namespace mlir;
using namespace pc;

namespace {

/// The effect of an op, or of a run of computing ops, on its own stage.
struct Action {
  enum Type { Work, Move, Start, Wait } type = Work;
  double seconds = 0;
  double copying = 0;      ///< Start: the part of these seconds at the speed of a node's links
  int start = 0;           ///< Wait: the number of its start in the block
  Operation *op = nullptr; ///< the op for a listener, or the first of several ops
  StepPhase phase = StepPhase::Forward;
};

/// Two events are expected at times that differ by `distance`, but their actual times vary. `apart` is the standard
/// deviation of the difference of the two actual times. Returns the mean actual time of the later event, minus the
/// later expected time (Clark 1961).
double lastOfTwo(double distance, double apart) {
  if (apart <= 0)
    return 0;
  double x = std::abs(distance) / apart;
  return apart * (std::exp(-x * x / 2) / std::sqrt(2 * M_PI) - x * std::erfc(x / std::sqrt(2)) / 2);
}

/// Numbers the starts of a block in order. Starts in functions and accumulations count each time.
struct Starts {
  std::map<Operation *, int> number;
  int count = 0;
  StepPhase phase = StepPhase::Forward; ///< the phase of the last op
};

/// The actions of a function or of the body of an accumulation.
struct Actions {
  std::vector<Action> list;
  Starts starts;
};

/// The clock of one stage. Work is recorded in spans, in order. Moves run at the same time as the work, one after
/// another on one link, and slow the work down. Times never decrease.
struct Stage : StageTimeline {
  Starts starts;
  std::vector<double> moved; ///< for each start, when its moves are done; for moves over stages, their seconds
  double linkFree = 0;       ///< when the link is free
  /// Moves in flight, in the order of time, and the rate of the work during each.
  struct Hindrance {
    double from, until, rate;
  };
  std::deque<Hindrance> hindrances;
  double sinceMet = 0;        ///< seconds of work since it last synchronised with other stages
  std::optional<double> next; ///< seconds of consecutive work that is not recorded yet
  int open = -1;              ///< the span in which work is recorded; -1: none
  bool begun = false;         ///< whether that span contains work

  void run(const Action &action, const MachineModel &machine);
  /// The extra wait, after `done` or now, for ranks that are synchronised with this one. Ranks with equal work do not
  /// finish at exactly the same time.
  double meet(double done, const MachineModel &machine);
  void workAhead();
  /// The time at which work of `seconds` that begins now is done.
  double workUntil(double seconds) const;
  void wait(double until);
  /// Records the time until `until` as `what`: waiting for moves, or for a message.
  void spend(double until, const StageSpan &what);
  void begin(TaskOp task, int64_t liveBytes);
  void close();
};

double Stage::workUntil(double seconds) const {
  double now = end;
  for (const Hindrance &moves : hindrances) {
    if (moves.until <= now)
      continue;
    if (now + seconds <= moves.from)
      break;
    double ahead = std::max(moves.from - now, 0.0), beside = (moves.until - now - ahead) * moves.rate;
    if (seconds - ahead <= beside)
      return now + ahead + (seconds - ahead) / moves.rate;
    seconds -= ahead + beside;
    now = moves.until;
  }
  return now + seconds;
}

/// Records the work so far, since the next action is not work. It belongs to the open span, which is for a task or for
/// ops outside of tasks.
void Stage::workAhead() {
  if (!next)
    return;
  if (open < 0) {
    open = static_cast<int>(spans.size());
    spans.emplace_back();
    begun = false;
  }
  StageSpan &span = spans[open];
  if (!begun)
    span.start = end;
  begun = true;
  double done = workUntil(*next);
  work[static_cast<int>(span.kind)] += done - end;
  sinceMet += done - end;
  span.end = end = done;
  next.reset();
  while (!hindrances.empty() && hindrances.front().until <= end)
    hindrances.pop_front();
}

double Stage::meet(double done, const MachineModel &machine) {
  // If two ranks are expected at the same time, they wait for 1 / sqrt(2 pi) times the standard deviation of their
  // difference.
  double apart = std::sqrt(2 * M_PI * machine.jitterSeconds * sinceMet);
  if (done >= end)
    sinceMet = 0;
  return lastOfTwo(done - end, apart);
}

/// Waits for other stages. Then work outside of tasks begins a new span.
void Stage::wait(double until) {
  if (until <= end)
    return;
  idle += until - end;
  movesBesideIdle += std::clamp(linkFree - end, 0.0, until - end);
  end = until;
  if (open >= 0 && !spans[open].isTask())
    open = -1;
}

/// Waits for its own moves or for a message that is in flight.
void Stage::spend(double until, const StageSpan &what) {
  if (until <= end)
    return;
  (what.type == StageSpan::Move ? moves : messages) += until - end;
  if (what.type == StageSpan::Move && open >= 0 && spans[open].isTask()) {
    StageSpan &span = spans[open];
    if (!begun)
      span.start = end;
    begun = true;
    span.moves += until - end;
    span.end = end = until;
    return;
  }
  // The wait comes before a task that has not begun. Then work outside of tasks begins a new span.
  bool waitsAhead = open >= 0 && !begun;
  size_t place = waitsAhead ? open : spans.size();
  if (StageSpan *last = place ? &spans[place - 1] : nullptr;
      last && last->type == what.type && last->end == end && last->what == what.what && last->from == what.from) {
    last->end = until;
  } else {
    auto span = spans.insert(spans.begin() + static_cast<int64_t>(place), what);
    span->start = end;
    span->end = until;
    open += waitsAhead;
  }
  end = until;
  if (open >= 0 && !spans[open].isTask())
    open = -1;
}

/// Begins a span for the task. The optimizer has no separate span.
void Stage::begin(TaskOp task, int64_t liveBytes) {
  close();
  if (task.getKind() == TaskKind::Optimizer)
    return;
  movesBesideIdle = 0;
  open = static_cast<int>(spans.size());
  begun = false;
  spans.push_back({StageSpan::Work, task.getKind(), "", -1, static_cast<int64_t>(*task.getChunk()),
                   static_cast<int64_t>(*task.getMicrobatch()), end, end, 0, liveBytes});
}

/// A task without work begins and ends at the current time.
void Stage::close() {
  if (open >= 0 && !begun)
    spans[open].start = spans[open].end = end;
  open = -1;
}

const StageSpan ownMoves{StageSpan::Move, {}, "moves"}, stageMoves{StageSpan::Move, {}, "sum over stages"};

/// Work is collected until an action of another kind comes. A start puts its moves on the link after those that are in
/// flight.
void Stage::run(const Action &action, const MachineModel &machine) {
  if (action.type == Action::Work) {
    next = next.value_or(0) + action.seconds;
    return;
  }
  workAhead();
  if (action.type == Action::Wait) {
    double done = moved[action.start];
    return spend(std::max(done, end) + meet(done, machine), ownMoves);
  }
  double begin = std::max(end, linkFree), done = begin + action.seconds;
  if (action.type == Action::Move) {
    done += meet(begin, machine);
    spend(done, ownMoves);
  } else {
    moved.push_back(done);
    if (double lost = machine.contendShare * action.copying; lost > 0)
      hindrances.push_back({begin, done, std::max(1 - lost / action.seconds, 0.01)});
  }
  linkFree = done;
}

/// Simulates one planned program. The StageRunner calls arrive() and visit(); the actions of a task function are read
/// once and replayed for every microbatch.
class Simulation : public StageRunner::Visitor {
public:
  Simulation(ModuleOp planned, const MachineModel &machine, const OpSeconds &known, StepListener listener,
             bool withBytes)
      : planned(planned), machine(machine), known(known), axis(stageAxisOf(planned)), runner(axis), listener(listener),
        withBytes(withBytes) {}

  FailureOr<Prediction> run();

private:
  void arrive(int number, MoveOpInterface move, Value input, int meeting) override;
  LogicalResult visit(int number, Operation *op) override;

  /// Calls `tell` for each action of an op that does not wait for other stages.
  void read(Operation *op, Starts &starts, llvm::function_ref<void(const Action &)> tell);
  const Actions &actionsOf(Block &body);
  void run(Stage &stage, const Action &action);
  void readMemory(Block &body);
  bool isOver(Operation *op) const;
  /// The time at which the last stage reached the last of `moves`.
  double lastArrival(ArrayRef<MoveOpInterface> moves) const;
  /// Seconds of a message between two stages.
  double hop(int64_t from, int64_t to, Value message) const {
    return messageSeconds(static_cast<double>(byteSize(message.getType())),
                          NodeSpread::between(mesh, axis, from, to, machine), machine);
  }

  ModuleOp planned;
  MachineModel machine;
  const OpSeconds &known;
  StringAttr axis; ///< The axis of stages; null if there are no stages.
  MeshAttr mesh;
  StageRunner runner;
  StepListener listener;
  bool withBytes;
  std::vector<Stage> stages;
  /// A flow: when each of its messages was sent, and when it was taken from its slot.
  struct Messages {
    std::vector<double> sent, taken;
  };
  std::map<StageFlow, Messages> flows;
  std::vector<double> arrivals; ///< for each collective, the last arrival
  TaskFunctions functions;
  std::map<Block *, Actions> blocks;
  llvm::DenseMap<Block *, LeavesByName> leavesOf;
  llvm::DenseMap<Operation *, int64_t> liveBytes; ///< by task
};

/// Returns true if the op is a collective of all stages, or starts one.
bool Simulation::isOver(Operation *op) const {
  if (auto start = dyn_cast<StartOp>(op))
    return llvm::any_of(start.getMoves(), [&](MoveOpInterface move) { return isOverStages(move, axis); });
  auto move = dyn_cast<MoveOpInterface>(op);
  return move && isOverStages(move, axis);
}

/// Most ops are one action. Accumulations and calls repeat the actions of their bodies, and an update in place costs
/// nothing.
void Simulation::read(Operation *op, Starts &starts, llvm::function_ref<void(const Action &)> tell) {
  // An op may begin a phase of the step, which holds until another op begins one.
  starts.phase = phaseBegunBy(op).value_or(starts.phase);
  if (isLeaf(op) || op->hasTrait<OpTrait::IsTerminator>() || isa<MicrobatchOp, OutputOp>(op))
    return;
  if (auto update = dyn_cast<UpdateOp>(op)) {
    auto [leaves, isNew] = leavesOf.try_emplace(op->getBlock());
    if (isNew)
      leaves->second = LeavesByName(*op->getBlock());
    if (leaves->second.isInPlace(update))
      return;
  }
  auto call = dyn_cast<CallOp>(op);
  auto accumulate = dyn_cast<AccumulateOp>(op);
  if (call || accumulate) { // the same each time, except for sums
    Block &body = call ? *functions.of(call).body : accumulate.getBody().front();
    const Actions &inner = actionsOf(body);
    const int64_t times = accumulate ? accumulate.getMicrobatches() : 1;
    auto sumsOf = [&](bool first) {
      Action sums;
      sums.op = op;
      sums.phase = inner.starts.phase;
      for (Value yielded : body.getTerminator()->getOperands())
        sums.seconds += secondsOfSum(yielded, first, machine);
      return sums;
    };
    // The first microbatch writes the sums, and the others read them too, which takes longer.
    const Action first = times > 1 ? sumsOf(true) : Action(), later = times > 1 ? sumsOf(false) : Action();
    for (int64_t i = 0; i < times; ++i) {
      for (Action action : inner.list) {
        action.start += starts.count;
        tell(action);
      }
      starts.count += inner.starts.count;
      if (times > 1)
        tell(i == 0 ? first : later);
    }
    return;
  }
  Action action;
  action.op = op;
  action.phase = starts.phase;
  if (auto start = dyn_cast<StartOp>(op)) {
    action.type = Action::Start;
    for (auto [move, seconds] : llvm::zip_equal(start.getMoves(), secondsOfMoves(start, machine))) {
      action.seconds += seconds;
      action.copying += copySeconds(static_cast<double>(trafficOf(move, meshOf(op)).wire), seconds, machine);
    }
    starts.number[op] = starts.count++;
  } else if (auto wait = dyn_cast<WaitOp>(op)) {
    action.type = Action::Wait;
    action.start = starts.number.at(wait.getStart());
  } else {
    auto move = dyn_cast<MoveOpInterface>(op);
    action.type = move && hasTraffic(move.getMoveKind()) ? Action::Move : Action::Work;
    auto it = known.find(op);
    action.seconds = it == known.end() ? secondsOf(op, machine) : it->second;
  }
  tell(action);
}

/// The actions of a block, in which consecutive work is merged into one action unless there is a listener.
const Actions &Simulation::actionsOf(Block &body) {
  auto [it, first] = blocks.try_emplace(&body);
  Actions &actions = it->second;
  if (first)
    for (Operation &op : body)
      read(&op, actions.starts, [&](const Action &action) {
        if (action.type == Action::Work && !listener && !actions.list.empty() &&
            actions.list.back().type == Action::Work)
          actions.list.back().seconds += action.seconds;
        else
          actions.list.push_back(action);
      });
  return actions;
}

/// Tells the listener when the action takes place, on the stage's clock or on the link.
void Simulation::run(Stage &stage, const Action &action) {
  double start = listener ? stage.workUntil(stage.next.value_or(0)) : 0;
  if (action.type != Action::Work)
    start = std::max(start, stage.linkFree);
  stage.run(action, machine);
  if (listener && action.type != Action::Wait)
    listener(action.op, action.phase, start,
             action.type == Action::Work ? stage.workUntil(*stage.next) : stage.linkFree);
}

/// Finds the most bytes of activations that are live during each task.
void Simulation::readMemory(Block &body) {
  MemoryProfile profile(body);
  const Liveness &liveness = profile.liveness();
  std::vector<int64_t> change(liveness.size() + 1);
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
  TaskOp before;
  for (auto task : body.getOps<TaskOp>()) {
    int64_t most = passUntil(liveness.position(task));
    if (before)
      liveBytes[before] = most;
    before = task;
  }
  if (before)
    liveBytes[before] = passUntil(liveness.size());
}

void Simulation::arrive(int number, MoveOpInterface, Value, int meeting) {
  Stage &stage = stages[number];
  stage.workAhead();
  arrivals.resize(std::max<size_t>(arrivals.size(), meeting + 1));
  arrivals[meeting] = std::max(arrivals[meeting], stage.end);
}

double Simulation::lastArrival(ArrayRef<MoveOpInterface> moves) const {
  double last = 0;
  for (MoveOpInterface move : moves)
    last = std::max(last, arrivals[runner.meetingOf(move)]);
  return last;
}

/// Ops that several stages take part in are handled here; all others by their actions.
LogicalResult Simulation::visit(int number, Operation *op) {
  Stage &stage = stages[number];
  auto meet = [&](ArrayRef<MoveOpInterface> moves, double seconds) {
    double last = lastArrival(moves);
    last += stage.meet(last, machine);
    stage.wait(last);
    stage.spend(last + seconds, stageMoves);
  };
  if (auto task = dyn_cast<TaskOp>(op)) {
    stage.workAhead();
    stage.begin(task, liveBytes.lookup(task));
  } else if (auto send = dyn_cast<SendOp>(op)) {
    stage.workAhead();
    Messages &flow = flows[StageFlow(number, send)];
    // A flow has a few slots: another message waits until the receiver has read the one in its slot.
    if (flow.sent.size() >= send.getSlots())
      stage.wait(flow.taken[flow.sent.size() - send.getSlots()]);
    flow.sent.push_back(stage.end);
  } else if (auto receive = dyn_cast<ReceiveOp>(op)) {
    stage.workAhead();
    Messages &flow = flows[StageFlow(number, receive)];
    // A message is in flight from its send on, so it is hidden while the receiver works.
    double sent = flow.sent[flow.taken.size()];
    auto from = static_cast<int64_t>(receive.getStage());
    stage.wait(std::max(sent, stage.end) + stage.meet(sent, machine));
    stage.spend(sent + hop(from, number, receive.getValue()), {StageSpan::Message, {}, "", from});
    flow.taken.push_back(stage.end);
  } else if (auto wait = dyn_cast<WaitOp>(op); wait && isOver(wait.getStart())) {
    stage.workAhead();
    meet(wait.getStart().getMoves(), stage.moved[stage.starts.number.at(wait.getStart())]);
  } else if (isa<StartOp>(op) && isOver(op)) {
    read(op, stage.starts, [&](const Action &action) { stage.moved.push_back(action.seconds); });
  } else if (isOver(op)) {
    meet(cast<MoveOpInterface>(op), secondsOf(op, machine));
  } else {
    read(op, stage.starts, [&](const Action &action) { run(stage, action); });
  }
  return success();
}

/// Checks that each program has one step, reads the memory of tasks if it is asked for, and then runs all stages.
FailureOr<Prediction> Simulation::run() {
  SmallVector<Block *> programs;
  for (ModuleOp program : programsOf(planned)) {
    SmallVector<func::FuncOp> steps = stepsOf(program);
    if (steps.size() != 1 || !steps[0].getBody().hasOneBlock())
      return program.emitError() << "a timeline needs a planned program, with one function of one block";
    mesh = meshOf(program);
    programs.push_back(&steps[0].getBody().front());
    if (axis && withBytes)
      readMemory(*programs.back());
  }
  stages.resize(programs.size());
  if (failed(runner.run(programs, *this)))
    return failure();
  Prediction prediction;
  for (auto [number, stage] : llvm::enumerate(stages)) {
    if (Operation *op = runner.waitingAt(static_cast<int>(number)))
      return op->emitError() << "stage " << number << " waits here forever; pc-verify-staged shows what it waits for";
    stage.workAhead();
    stage.close();
    llvm::erase_if(stage.spans, [](const StageSpan &span) { return !span.isTask() && span.end <= span.start; });
    prediction.programSeconds = std::max(prediction.programSeconds, stage.end);
  }
  prediction.stepSeconds = machine.wholeStep(prediction.programSeconds, mesh ? mesh.numRanks() : 1);
  // Stages that end early wait for the last one.
  for (Stage &stage : stages) {
    stage.idle = stage.idle + prediction.programSeconds - stage.end;
    if (axis)
      prediction.timeline.push_back(std::move(stage));
  }
  return prediction;
}

} // namespace

FailureOr<Prediction> pc::predictStep(ModuleOp planned, const MachineModel &machine, const OpSeconds &known,
                                      StepListener listener, bool withBytes) {
  return Simulation(planned, machine, known, listener, withBytes).run();
}
