//===- Stages.cpp - The programs of all stages together -------------------------------------===//
// Starts a walk, runs all stages together (IR/StageRunner.h) and ends it. Messages carry states between stages;
// collectives over the stage axis add the values of the stages. The proof fails if there is a deadlock, or if a message
// is not received or is received twice. Most of the file finds the message or move to blame.
//===-----------------------------------------------------------------------------===//
#include "Walk.h"

#include "pc/IR/Liveness.h"
#include "pc/IR/Parts.h"
#include "pc/IR/Stages.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

static constexpr StringLiteral oddWhy = "is a message without a matching partner on the other stage, or a duplicate";

/// Memory for states is reserved by the size of the last program. If stages exchange wrong messages, the message is
/// blamed instead of the op that failed later.
bool Walk::run(ModuleOp module) {
  env.reserve(shared.owners);
  bool ok = runAll(module);
  shared.owners = env.size();
  if (!ok && failure.fault != FaultKind::Message && stages.size() > 1)
    if (auto [odd, other] = oddMessage(); odd) { // a value read from a wrong message fails only later
      failure = Failure();
      refuse(odd, oddWhy, FaultKind::Message, other);
    }
  if (failure.why.empty() && !wrongBytes.why.empty())
    failure = wrongBytes;
  return ok && failure.why.empty();
}

/// Stages run until all have ended or none can continue; then the ends of all stages are checked.
bool Walk::runAll(ModuleOp module) {
  if (!begin(module))
    return false;
  StageRunner runner(stageAxis);
  SmallVector<Block *> blocks;
  for (auto &stage : stages)
    blocks.push_back(&stage->step.getBody().front());
  if (failed(runner.run(blocks, *this)))
    return false;
  for (size_t s = 0; s < stages.size(); ++s)
    if (Operation *op = runner.waitingAt(static_cast<int>(s))) {
      if (auto [odd, other] = oddMessage(); odd)
        return refuse(odd, oddWhy, FaultKind::Message, other);
      if (Operation *odd = oddMove())
        return refuse(odd, "is a move that other stages do not make, so one of them waits forever");
      return refuse(op, "waits forever for another stage", FaultKind::Message);
    }
  return end();
}

/// Reads the mesh and the stages, checks what all programs must have in common, and lets planned programs hold their
/// leaves.
bool Walk::begin(ModuleOp module) {
  facts.isReference = isStep;
  stageAxis = stageAxisOf(module);
  axis.setMesh(meshOf(programsOf(module).front()));
  if (stageAxis)
    stageAxisSet = axis.setOf({stageAxis});
  for (ModuleOp program : programsOf(module)) {
    auto stage = std::make_unique<Stage>();
    SmallVector<func::FuncOp> steps = stepsOf(program);
    if (steps.size() != 1 || !steps[0].getBody().hasOneBlock())
      return refuse(program, "does not have exactly one function with one block");
    stage->module = program;
    stage->step = steps[0];
    stage->number = stageOf(program);
    for (auto arena : program.getOps<ArenaOp>())
      stage->arena = static_cast<int64_t>(arena.getBytes()), stage->arenaOp = arena;
    for (auto about : program.getOps<ProgramOp>()) {
      Attribute says = about->getPropertiesAsAttribute();
      // Inputs depend on the sizes of the vocabulary and the batch, so every stage must have the sizes of the step
      // program.
      facts.about = reference ? reference->about : facts.about ? facts.about : says;
      if (facts.about != says)
        return refuse(about, "has different attributes than in the one-device program", FaultKind::Data);
    }
    stages.push_back(std::move(stage));
  }
  // Leaves are in the arena from the start.
  for (auto &stage : stages) {
    if (stage->arena < 0)
      continue;
    WalkResult walked = stage->step.walk([&](Operation *op) {
      if (!isLeaf(op) || isa<FusionOp, StartOp>(op->getParentOp()))
        return WalkResult::advance();
      bool named = isa<ParameterOp, StateOp, InputOp, RopeTableOp>(op);
      stage->inKernel = true;
      bool ok = named ? leaf(*stage, op) : compute(*stage, op);
      stage->inKernel = false;
      return ok && holdLeaf(*stage, op) ? WalkResult::advance() : WalkResult::interrupt();
    });
    if (walked.wasInterrupted())
      return false;
  }
  return true;
}

/// Checks the end of the step: no message is left, every state is updated, and outputs still have their bytes.
bool Walk::end() {
  if (!mail.empty())
    return refuse(stages[mail.begin()->first.first.to]->step,
                  "never receives message " + Twine(mail.begin()->first.second) + " of stage " +
                      Twine(mail.begin()->first.first.from),
                  FaultKind::Message);
  for (auto &stage : stages) {
    for (auto &[name, held] : stage->held)
      if (auto wanted = reference ? reference->updates.find(name) : facts.updates.end();
          reference && wanted != reference->updates.end() && !held.updated) {
        failure.wanted = wanted->second;
        return refuse(held.leaf, "is never updated", FaultKind::Update);
      }
    for (auto &[op, last] : stage->last)
      if (!isHeld(*stage, op, last))
        return false;
  }
  return compareSinks();
}

LogicalResult Walk::visit(int stage, Operation *op) {
  return success(op->hasTrait<OpTrait::IsTerminator>() || runOp(*stages[stage], op));
}

void Walk::arrive(int, MoveOpInterface move, Value input, int meeting) {
  meetings[meeting].push_back({move, stateOf(input)});
  meetingOf[move] = meeting;
}

/// Returns true if the places are equal, except that only one stage may know that its value sums copies.
static bool areSame(Where a, const Where &b) {
  a.copies = b.copies;
  return a == b;
}

/// The sum of the values of all stages.
bool Walk::overStages(Stage &, MoveOpInterface move, State &result, SmallVectorImpl<int> &from) {
  ArrayRef<Arrival> arrivals = meetings[meetingOf.lookup(move)];
  if (move.getMoveKind() != MoveKind::AllReduce || move.getReduction() != PartialKind::Sum ||
      move.getMoveAxes().size() != 1)
    return refuse(move, "communicates between stages, but only sums over the axis of stages may do that");
  Point total;
  from.clear();
  for (Arrival arrival : arrivals) {
    if (arrival.move->getName() != move->getName() || arrival.move.getReduction() != move.getReduction() ||
        arrival.move.getMoveAxes() != move.getMoveAxes() || !areSame(*arrival.state.where, *result.where))
      return refuse(oddMove() ? oddMove() : move.getOperation(),
                    "does not match the move of other stages, or moves a value that has a different placement there",
                    FaultKind::Place, oddMove() ? move : arrival.move);
    total = total + among(arrival.state);
    if (arrival.state.microbatch != State::ofAny)
      result.microbatch = State::ofSeveral;
    from.push_back(arrival.state.made);
  }
  result.value = total;
  return true;
}

/// Finds a send without a receive or a receive without a send. Suspects are a message in a flow with only one side, a
/// message with a repeated number, and a message that would be in order if it had the missing number. Also returns an
/// unmatched op of the other kind, if there is one.
std::pair<Operation *, Operation *> Walk::oddMessage() {
  using Side = SmallVector<std::pair<int64_t, Operation *>>; // by message number, in the order of the program
  std::map<StageFlow, std::pair<Side, Side>> flows;
  for (auto &stage : stages)
    for (Operation &op : stage->step.getBody().front()) {
      if (auto send = dyn_cast<SendOp>(op))
        flows[{stage->number, send}].first.push_back({send.getMessage(), send});
      else if (auto receive = dyn_cast<ReceiveOp>(op))
        flows[{stage->number, receive}].second.push_back({receive.getMessage(), receive});
    }
  /// An op that may be the wrong one, with the weight of the evidence against it.
  struct Odd {
    int oddness;
    Operation *op;
    StageFlow flow;
    int64_t message;
  };
  SmallVector<Odd> odd;
  auto count = [](const Side &side, int64_t message) {
    return llvm::count_if(side, [&](auto &one) { return one.first == message; });
  };
  // Weights of evidence: a repeated number is the strongest, then a flow with one side, then a number that breaks the
  // order of its flow.
  auto find = [&](const StageFlow &flow, const Side &own, const Side &others) {
    for (auto [i, one] : llvm::enumerate(own)) {
      auto fits = [&, i = i](auto &other) {
        return !count(own, other.first) && (i == 0 || own[i - 1].first < other.first) &&
               (i + 1 == own.size() || own[i + 1].first > other.first);
      };
      bool isInOrder =
          (i == 0 || own[i - 1].first < one.first) && (i + 1 == own.size() || own[i + 1].first > one.first);
      bool skips = one.first > 0 && !count(own, one.first - 1);
      int oddness = count(own, one.first) > 1 ? 16 : others.empty() ? 8 : 0;
      oddness += 2 * llvm::any_of(others, fits) + skips + !isInOrder;
      if (count(own, one.first) != count(others, one.first))
        odd.push_back({oddness, one.second, flow, one.first});
    }
  };
  for (auto &[key, flow] : flows) {
    find(key, flow.first, flow.second);
    find(key, flow.second, flow.first);
  }
  if (odd.empty())
    return {};
  auto less = [](const Odd &a, const Odd &b) { return a.oddness < b.oddness; };
  Odd most = *llvm::max_element(odd, less);
  llvm::erase_if(odd, [&](const Odd &other) { return other.op->getName() == most.op->getName(); });
  auto likeness = [&](const Odd &other) {
    bool isSameFlow = !(other.flow < most.flow) && !(most.flow < other.flow);
    return 16 * isSameFlow + 16 * (other.message == most.message) + other.oddness;
  };
  auto *other = llvm::max_element(odd, [&](auto &a, auto &b) { return likeness(a) < likeness(b); });
  return {most.op, other == odd.end() ? nullptr : other->op};
}

/// Finds a move over the axis of stages that does more than sum over this axis. If there is none, finds a move of the
/// result of such a sum.
Operation *Walk::oddMove() {
  Operation *odd = nullptr;
  for (auto &stage : stages)
    stage->step.walk([&](MoveOpInterface move) {
      if (!isOverStages(move, stageAxis))
        return;
      auto before = move->getOperand(0).getDefiningOp<MoveOpInterface>();
      if (move.getMoveAxes().size() != 1 || move.getMoveKind() != MoveKind::AllReduce ||
          move.getReduction() != PartialKind::Sum || (!odd && before && isOverStages(before, stageAxis)))
        odd = move;
    });
  return odd;
}

/// Stores the value under its flow and number, where the receive finds it.
bool Walk::send(Stage &stage, SendOp send) {
  State state = stateOf(send.getX());
  if (!state.where || !read(stage, send, send.getX(), state))
    return refuse(send, "sends a value before it is computed", FaultKind::Message);
  auto key = std::pair(StageFlow(stage.number, send), static_cast<int64_t>(send.getMessage()));
  if (key.first.to < 0 || key.first.to >= static_cast<int64_t>(stages.size()))
    return refuse(send, "sends to a stage that does not exist", FaultKind::Message);
  Type type = withEncoding(send.getX().getType(), placement(send.getX()));
  if (mail.try_emplace(key, state, type).second)
    return true;
  auto [odd, other] = oddMessage();
  return refuse(odd ? odd : send, "sends a message twice, or leaves one out", FaultKind::Message, other);
}

/// If no message has this number, the send or receive that is most likely wrong is blamed.
bool Walk::receive(Stage &stage, ReceiveOp receive) {
  auto it = mail.find({StageFlow(stage.number, receive), static_cast<int64_t>(receive.getMessage())});
  if (it == mail.end()) {
    auto [odd, other] = oddMessage();
    return refuse(odd ? odd : receive,
                  isa_and_nonnull<SendOp>(odd) ? "sends a message that no stage receives"
                                               : "receives a message that has not been sent",
                  FaultKind::Message, other);
  }
  auto [state, type] = it->second;
  if (type != withEncoding(receive.getValue().getType(), placement(receive.getValue())))
    return refuse(receive, "receives a different type than was sent", FaultKind::Message);
  mail.erase(it);
  if (!placer.agreesWithType(receive.getValue(), *state.where, stageAxisSet))
    return refuse(receive, placer.wrong);
  set(receive, receive.getValue(), state, state.made);
  return write(stage, receive, receive.getValue(), state);
}
