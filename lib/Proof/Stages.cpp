//===- Stages.cpp - The programs of all stages together -------------------------------------===//
#include "Walk.h"

#include "pc/IR/Liveness.h"
#include "pc/IR/Parts.h"
#include "pc/IR/Stages.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

bool Walk::run(ModuleOp module) {
  if (!begin(module))
    return false;
  StageRunner runner(stageAxis);
  SmallVector<Block *> blocks;
  for (auto &stage : stages)
    blocks.push_back(&stage->step.getBody().front());
  if (failed(runner.run(blocks, *this)))
    return false;
  for (size_t s = 0; s < stages.size(); ++s)
    if (Operation *op = runner.waitingAt(static_cast<int>(s)))
      return refuse(op, "waits for another stage for ever");
  return end();
}

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
      return refuse(program, "has no program of one block");
    stage->module = program;
    stage->step = steps[0];
    stage->number = stageOf(program);
    int64_t position = 0; // a packed parameter stands for its parts
    stage->step.walk([&](ParameterOp op) {
      stage->positions[op] = position;
      position += numParts(op);
    });
    for (auto arena : program.getOps<ArenaOp>())
      stage->arena = static_cast<int64_t>(arena.getBytes());
    for (auto about : program.getOps<ProgramOp>()) {
      Attribute says = about->getPropertiesAsAttribute();
      facts.about = reference ? reference->about : facts.about ? facts.about : says;
      if (facts.about != says)
        return refuse(about, "says something else than in the one-device program");
    }
    stages.push_back(std::move(stage));
  }
  // Leaves lie in the arena from the start.
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

bool Walk::end() {
  if (!mail.empty())
    return refuse(stages[mail.begin()->first.first.to]->step, "never receives message " +
                                                                  Twine(mail.begin()->first.second) + " of stage " +
                                                                  Twine(mail.begin()->first.first.from));
  for (auto &stage : stages) {
    for (auto &[name, held] : stage->held)
      if ((reference ? reference : &facts)->updates.contains(name) && !held.updated)
        return refuse(held.leaf, "is never updated");
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

/// The sum of what all stages bring.
bool Walk::overStages(Stage &, MoveOpInterface move, State &result) {
  ArrayRef<Arrival> arrivals = meetings[meetingOf.lookup(move)];
  if (move.getMoveKind() != MoveKind::AllReduce || move.getReduction() != PartialKind::Sum ||
      move.getMoveAxes().size() != 1)
    return refuse(move, "crosses stages, which sums over their axis alone may");
  Point total;
  for (Arrival arrival : arrivals) {
    if (arrival.move->getName() != move->getName() || arrival.move.getReduction() != move.getReduction() ||
        arrival.move.getMoveAxes() != move.getMoveAxes() || arrival.state.where != result.where)
      return refuse(move, "is another move than that of other stages, or of what lies differently there");
    total = total + arrival.state.value;
  }
  result.value = total;
  return true;
}

bool Walk::send(Stage &stage, SendOp send) {
  State state = stateOf(send.getX());
  if (!state.where || !read(stage, send, send.getX(), state))
    return refuse(send, "sends a value that is not there yet");
  auto key = std::pair(StageFlow(stage.number, send), static_cast<int64_t>(send.getMessage()));
  if (key.first.to < 0 || key.first.to >= static_cast<int64_t>(stages.size()))
    return refuse(send, "sends to a stage that does not exist");
  Type type = withEncoding(send.getX().getType(), placement(send.getX()));
  return mail.try_emplace(key, state, type).second || refuse(send, "sends a message twice");
}

bool Walk::receive(Stage &stage, ReceiveOp receive) {
  auto it = mail.find({StageFlow(stage.number, receive), static_cast<int64_t>(receive.getMessage())});
  if (it == mail.end())
    return refuse(receive, "receives a message that has not been sent");
  auto [state, type] = it->second;
  if (type != withEncoding(receive.getValue().getType(), placement(receive.getValue())))
    return refuse(receive, "receives another type than was sent");
  mail.erase(it);
  if (!placer.agreesWithType(receive.getValue(), *state.where, stageAxisSet))
    return refuse(receive, placer.wrong);
  set(receive, receive.getValue(), state);
  return write(stage, receive, receive.getValue(), state);
}
