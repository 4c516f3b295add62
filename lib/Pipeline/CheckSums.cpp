//===- CheckSums.cpp - What is added up over microbatches, chunks and stages ---------------===//
// An abstract run of all stages. A value depends on no microbatch, belongs to one, or is a sum: how often it holds the
// part of each (chunk, microbatch), or for the norm the square of each gradient. The parameter that a chunk reads says
// which parts its gradient must hold.
//===-----------------------------------------------------------------------------===//
#include "StagePrograms.h"
#include "pc/IR/Calls.h"

#include <deque>
#include <set>

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

namespace {

struct State {
  enum Class { Fixed, Local, Sum, Norm } is = Fixed;
  std::set<int64_t> parameters;             ///< Fixed: keys of those it is made of
  int chunk = 0, microbatch = 0;            ///< Local
  std::map<std::pair<int, int>, int> parts; ///< Sum: (chunk, microbatch) -> how often
  Value root;                               ///< Sum: the value where it became what it is; moves and casts keep it
  std::map<void *, int> squares;            ///< Norm: root of what was squared -> how often

  bool isTracked() const { return is == Sum || is == Norm; }
};

/// `x` as a sum of one.
State asSum(State x, Value root) {
  if (x.is != State::Local)
    return x;
  State sum;
  sum.is = State::Sum;
  sum.parts[{x.chunk, x.microbatch}] = 1;
  sum.root = root;
  return sum;
}

State merge(State a, const State &b, Value root) {
  if (a.is == State::Fixed)
    return b;
  for (const auto &[part, count] : b.parts)
    a.parts[part] += count;
  for (const auto &[square, count] : b.squares)
    a.squares[square] += count;
  a.root = root;
  return a;
}

class SumChecker {
public:
  explicit SumChecker(const StagePrograms &all) : all(all), walks(all.stages()) {
    for (auto [stage, walk] : llvm::enumerate(walks)) {
      walk.stage = static_cast<int>(stage);
      walk.at = &all.steps[stage]->getRegion(0).front().front();
    }
    for (func::FuncOp step : all.steps)
      for (auto parameter : step.getOps<ParameterOp>())
        names[parameter.getName()] = keyOf(parameter);
  }

  LogicalResult run() {
    // All tasks first: they say which chunks read which parameters.
    for (Walk &walk : walks)
      for (; walk.at && !walk.optimizer; walk.at = walk.at->getNextNode())
        if (failed(visit(walk, walk.at)))
          return failure();
    for (bool progress = true; progress;) {
      progress = false;
      for (Walk &walk : walks)
        for (; walk.at && isReady(walk, walk.at); walk.at = walk.at->getNextNode(), progress = true)
          if (failed(visit(walk, walk.at)))
            return failure();
    }
    return checkNorms();
  }

private:
  /// Where the run of one stage is.
  struct Walk {
    int stage = 0;
    Operation *at = nullptr;
    std::optional<Task> task;
    bool optimizer = false;
    llvm::DenseMap<Value, State> states;
    std::map<std::string, size_t> calls;        ///< over stages so far, by axes
    llvm::DenseMap<Operation *, size_t> callOf; ///< its number
  };
  /// A call over stages: what each of them puts in.
  using Call = std::map<int, State>;

  static int64_t keyOf(ParameterOp parameter) {
    return parameter.getKey() ? static_cast<int64_t>(*parameter.getKey()) : -1;
  }

  //===-------------------------------------------------------------------------===//
  // Between stages, behind all tasks
  //===-------------------------------------------------------------------------===//

  std::string groupOf(MoveOpInterface move) const {
    std::string name;
    for (StringAttr axis : move.getMoveAxes())
      name += axis.str() + "+";
    return name;
  }
  void contribute(Walk &walk, MoveOpInterface move, const State &state) {
    std::string group = groupOf(move);
    auto [it, first] = walk.callOf.try_emplace(move, 0);
    if (!first)
      return;
    it->second = walk.calls[group]++;
    calls[{group, it->second}][walk.stage] = state;
  }
  bool isComplete(Walk &walk, MoveOpInterface move) {
    return static_cast<int>(calls[{groupOf(move), walk.callOf.lookup(move)}].size()) == all.stages();
  }
  State resultOf(Walk &walk, MoveOpInterface move, Value root) {
    State sum;
    for (auto &[stage, part] : calls[{groupOf(move), walk.callOf.lookup(move)}])
      if (part.is != State::Fixed)
        sum = merge(sum, part, root);
    return sum;
  }
  bool isReady(Walk &walk, Operation *op) {
    if (auto receive = dyn_cast<ReceiveOp>(op))
      return !flows[{receive.getStage(), walk.stage, receive.getFlow()}].empty();
    if (auto move = dyn_cast<MoveOpInterface>(op); move && all.isOverStages(move)) {
      contribute(walk, move, asSum(walk.states[op->getOperand(0)], op->getOperand(0)));
      return isComplete(walk, move);
    }
    if (auto wait = dyn_cast<WaitOp>(op))
      return llvm::all_of(wait.getStart().getMoves(),
                          [&](MoveOpInterface move) { return !all.isOverStages(move) || isComplete(walk, move); });
    return true;
  }

  //===-------------------------------------------------------------------------===//
  // One op
  //===-------------------------------------------------------------------------===//

  LogicalResult visit(Walk &walk, Operation *op) {
    if (auto marker = dyn_cast<TaskOp>(op)) {
      walk.optimizer = marker.getKind() == TaskKind::Optimizer;
      walk.task.reset();
      if (!walk.optimizer) // kinds do not matter here
        walk.task = Task{Kind::F, static_cast<int>(*marker.getChunk()), static_cast<int>(*marker.getMicrobatch())};
      return success();
    }
    auto state = [&](Value value) -> State & { return walk.states[value]; };
    if (auto parameter = dyn_cast<ParameterOp>(op)) {
      state(parameter.getValue()).parameters = {keyOf(parameter)};
    } else if (auto element = dyn_cast<MicrobatchOp>(op)) {
      state(element.getElement()) = local(walk.task ? walk.task->chunk : 0, element.getIndex());
    } else if (auto send = dyn_cast<SendOp>(op)) {
      State sent = state(send.getX());
      if (!walk.optimizer)
        return works(walk, op, sent);
      flows[{walk.stage, send.getStage(), send.getFlow()}].push_back(asSum(sent, send.getX()));
    } else if (auto receive = dyn_cast<ReceiveOp>(op)) {
      if (walk.task) {
        state(receive.getValue()) = local(walk.task->chunk, walk.task->microbatch);
      } else {
        auto &flow = flows[{receive.getStage(), walk.stage, receive.getFlow()}];
        state(receive.getValue()) = flow.front();
        flow.pop_front();
      }
    } else if (auto fusion = dyn_cast<FusionOp>(op)) {
      return visitFusion(walk, fusion);
    } else if (auto call = dyn_cast<CallOp>(op)) {
      return visitCall(walk, call);
    } else if (auto start = dyn_cast<StartOp>(op)) {
      for (auto [move, input] : llvm::zip_equal(start.getMoves(), start.getInputs()))
        if (all.isOverStages(move))
          contribute(walk, move, asSum(state(input), input));
    } else if (auto wait = dyn_cast<WaitOp>(op)) {
      StartOp start = wait.getStart();
      for (auto [i, move] : llvm::enumerate(start.getMoves()))
        state(wait.getResult(i)) =
            all.isOverStages(move) ? resultOf(walk, move, wait.getResult(i)) : State(state(start.getInputs()[i]));
    } else if (auto move = dyn_cast<MoveOpInterface>(op); move && all.isOverStages(move)) {
      if (!walk.optimizer)
        return op->emitOpError() << "adds up over stages within a task (P6)";
      state(op->getResult(0)) = resultOf(walk, move, op->getResult(0));
    } else {
      return walk.optimizer ? visitBehind(walk, op) : visitInTask(walk, op);
    }
    return success();
  }

  LogicalResult visitFusion(Walk &walk, FusionOp fusion) {
    Block &body = fusion.getBody().front();
    for (auto [argument, input] : llvm::zip_equal(body.getArguments(), fusion.getInputs()))
      walk.states[argument] = take(walk, input);
    for (Operation &op : body.without_terminator())
      if (failed(visit(walk, &op)))
        return failure();
    for (auto [result, value] : llvm::zip_equal(fusion.getResults(), body.getTerminator()->getOperands()))
      walk.states[result] = take(walk, value);
    return success();
  }

  /// What a function does once is what it does in every call: the first one is run on stand-ins, sum i of which holds
  /// "microbatch i of chunk -1" once; the others have what they give put in.
  LogicalResult visitCall(Walk &walk, CallOp call) {
    const Task task = *walk.task;
    SmallVector<State> operands, standIns;
    for (auto [i, value] : llvm::enumerate(call.getInputs())) {
      State operand = take(walk, value);
      if (operand.is == State::Local && operand.microbatch != task.microbatch)
        operand = asSum(std::move(operand), value);
      State &standIn = standIns.emplace_back();
      standIn.is = operand.is;
      standIn.parameters = operand.parameters;
      if (operand.is == State::Local)
        standIn = local(task.chunk, 0);
      else if (operand.isTracked())
        standIn.parts[{-1, static_cast<int>(i)}] = 1;
      operands.push_back(std::move(operand));
    }
    const TaskFunction &function = functions.of(call);
    Effect &effect = effects[function.function];
    auto same = [](const State &a, const State &b) { return a.is == b.is && a.parameters == b.parameters; };
    if (effect.chunk != task.chunk || !llvm::equal(effect.operands, standIns, same)) {
      Walk inside;
      inside.stage = walk.stage;
      inside.task = Task{Kind::F, task.chunk, 0};
      for (auto [argument, state] : llvm::zip_equal(function.body->getArguments(), standIns))
        inside.states[argument] = state;
      for (Operation &op : function.body->without_terminator())
        if (failed(visit(inside, &op)))
          return failure();
      effect = {task.chunk, std::move(standIns), {}, {}};
      for (Value value : function.results()) {
        effect.results.push_back(inside.states[value]);
        for (const auto &entry : effect.results.back().parts)
          effect.users[entry.first.second] += entry.first.first < 0;
      }
    }
    for (auto [value, result] : llvm::zip_equal(call.getResults(), effect.results)) {
      State state;
      state.is = result.is;
      state.parameters = result.parameters;
      if (result.is == State::Local)
        state = local(task.chunk, task.microbatch);
      state.root = value;
      for (const auto &[part, count] : result.parts) { // stand-ins come first
        if (part.first >= 0) {
          state.parts[{part.first, task.microbatch}] += count;
          continue;
        }
        State &sum = operands[part.second];
        if (state.parts.empty() && count == 1 && effect.users[part.second] == 1) { // sums are long
          state.parts.swap(sum.parts);
          continue;
        }
        for (const auto &[inner, times] : sum.parts)
          state.parts[inner] += times * count;
      }
      walk.states[value] = std::move(state);
    }
    return success();
  }

  /// The state of an operand, moved where nothing else reads it: sums are long.
  static State take(Walk &walk, Value value) {
    State &state = walk.states[value];
    return state.isTracked() && value.hasOneUse() ? std::move(state) : State(state);
  }

  static State local(int chunk, int64_t microbatch) {
    State state;
    state.is = State::Local;
    state.chunk = chunk;
    state.microbatch = static_cast<int>(microbatch);
    return state;
  }

  static bool isLinear(Operation *op) {
    return isa<MoveOpInterface, CopyOp, CastOp, ScaleOp, AddendOp, MaskPaddingOp, ResizeOp>(op);
  }

  /// A task works on whole values of its own microbatch.
  LogicalResult works(Walk &walk, Operation *op, const State &operand) {
    if (operand.isTracked())
      return op->emitOpError() << "reads a sum over microbatches within a task (P6)";
    if (operand.is == State::Local && walk.task && operand.microbatch != walk.task->microbatch)
      return op->emitOpError() << "in a task of microbatch " << walk.task->microbatch << " reads a value of microbatch "
                               << operand.microbatch << " (P6)";
    return success();
  }

  LogicalResult visitInTask(Walk &walk, Operation *op) {
    State result;
    bool isLocal = false;
    for (Value operand : op->getOperands())
      isLocal |= walk.states[operand].is == State::Local;
    if (isa<AddOp>(op)) {
      State a = take(walk, op->getOperand(0)), b = take(walk, op->getOperand(1));
      bool sums = a.isTracked() || b.isTracked() ||
                  (a.is == State::Local && b.is == State::Local && a.microbatch != b.microbatch);
      if (sums) {
        walk.states[op->getResult(0)] =
            merge(asSum(std::move(a), op->getOperand(0)), asSum(std::move(b), op->getOperand(1)), op->getResult(0));
        return success();
      }
    }
    if (isLinear(op) && walk.states[op->getOperand(0)].isTracked()) {
      walk.states[op->getResult(0)] = take(walk, op->getOperand(0));
      return success();
    }
    if (isLocal && walk.task)
      result = local(walk.task->chunk, walk.task->microbatch);
    for (Value operand : op->getOperands()) {
      State &from = walk.states[operand];
      if (failed(works(walk, op, from)))
        return failure();
      if (isLocal && walk.task) // the chunk reads these parameters
        for (int64_t key : from.parameters)
          readers[key].insert(walk.task->chunk);
      else
        result.parameters.insert(from.parameters.begin(), from.parameters.end());
    }
    for (Value value : op->getResults())
      walk.states[value] = result;
    return success();
  }

  LogicalResult visitBehind(Walk &walk, Operation *op) {
    SmallVector<State> operands;
    int tracked = 0;
    std::set<int64_t> parameters;
    for (Value operand : op->getOperands()) {
      operands.push_back(asSum(walk.states[operand], operand));
      tracked += operands.back().isTracked();
      parameters.insert(operands.back().parameters.begin(), operands.back().parameters.end());
    }
    State result;
    if (!tracked) {
      result.parameters = parameters;
    } else if (isa<AddOp>(op)) {
      result = merge(operands[0], operands[1], op->getResult(0));
    } else if (tracked == 1 && (isLinear(op) || isa<EinsumOp>(op))) {
      result = *llvm::find_if(operands, [](const State &s) { return s.isTracked(); });
    } else if (isa<EinsumOp>(op)) {
      result.is = State::Norm;
      for (const State &operand : operands)
        if (operand.is == State::Sum)
          result.squares[operand.root.getAsOpaquePointer()] = 1;
    } else if (failed(consume(walk, op, operands, parameters))) {
      return failure();
    }
    for (Value value : op->getResults())
      walk.states[value] = result;
    return success();
  }

  //===-------------------------------------------------------------------------===//
  // What must be whole
  //===-------------------------------------------------------------------------===//

  LogicalResult consume(Walk &walk, Operation *op, ArrayRef<State> operands, const std::set<int64_t> &parameters) {
    for (const State &operand : operands) {
      if (operand.is == State::Norm) {
        norms.push_back({op, operand});
        continue;
      }
      if (operand.is != State::Sum)
        continue;
      auto output = dyn_cast<OutputOp>(op);
      std::set<int> chunks;
      if (output && output.getKind() == OutputKind::Gradient) {
        chunks = readers[names.lookup(output.getName())];
      } else if (!output && parameters.size() == 1) {
        chunks = readers[*parameters.begin()];
        gradients[*parameters.begin()].push_back(operand.root);
      } else {
        chunks = {operand.parts.begin()->first.first};
      }
      if (failed(isWhole(op, operand, chunks)))
        return failure();
    }
    return success();
  }

  /// Every microbatch of `chunks` once, and nothing else.
  LogicalResult isWhole(Operation *op, const State &sum, const std::set<int> &chunks) {
    auto refuse = [&](int chunk, int microbatch, int count) {
      return op->emitOpError() << "of " << sourceName(op) << " reads a sum that holds microbatch " << microbatch
                               << " of chunk " << chunk << " (stage " << all.stageOf(chunk) << ") " << count
                               << " times, not once (P6)";
    };
    for (int chunk : chunks)
      for (int i = 0; i < all.problem.microbatches; ++i) {
        auto it = sum.parts.find({chunk, i});
        if (it == sum.parts.end() || it->second != 1)
          return refuse(chunk, i, it == sum.parts.end() ? 0 : it->second);
      }
    for (const auto &[part, count] : sum.parts)
      if (!chunks.count(part.first))
        return op->emitOpError() << "of " << sourceName(op) << " reads a sum that holds a part of chunk " << part.first
                                 << " (stage " << all.stageOf(part.first)
                                 << "), which does not read the parameter (P6)";
    return success();
  }

  /// The norm holds the square of the gradient of every parameter once, whichever stage counts it.
  LogicalResult checkNorms() {
    for (auto &[op, norm] : norms) {
      size_t known = 0;
      for (auto &[key, roots] : gradients) {
        int count = 0;
        std::set<void *> seen;
        for (Value root : roots)
          if (auto it = norm.squares.find(root.getAsOpaquePointer());
              it != norm.squares.end() && seen.insert(it->first).second) {
            count += it->second;
            ++known;
          }
        if (count != 1)
          return op->emitOpError() << "reads a norm that counts the gradient of '" << nameOf(key) << "' " << count
                                   << " times, not once (P6)";
      }
      if (known != norm.squares.size())
        return op->emitOpError() << "reads a norm that counts what is no gradient (P6)";
    }
    return success();
  }
  StringRef nameOf(int64_t key) const {
    for (const auto &entry : names)
      if (entry.second == key)
        return entry.first();
    return "";
  }

  /// What a function makes of stand-ins.
  struct Effect {
    int chunk = -1;
    SmallVector<State> operands, results;
    std::map<int, int> users; ///< results that a stand-in is in
  };

  const StagePrograms &all;
  std::vector<Walk> walks;
  TaskFunctions functions;
  std::map<Operation *, Effect> effects;            ///< of the call before, by function
  llvm::StringMap<int64_t> names;                   ///< of parameters: their keys
  std::map<int64_t, std::set<int>> readers;         ///< chunks that read a parameter
  std::map<int64_t, SmallVector<Value>> gradients;  ///< roots of what the optimizer takes for a parameter's gradient
  std::vector<std::pair<Operation *, State>> norms; ///< where a norm is read
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::deque<State>> flows; ///< behind the tasks
  std::map<std::pair<std::string, size_t>, Call> calls;
};

} // namespace

LogicalResult pc::pipeline::checkSums(const StagePrograms &stages) { return SumChecker(stages).run(); }
