//===- CheckSums.cpp - Checks sums over microbatches, chunks and stages --------------------===//
// Runs all stages abstractly. A value depends on no microbatch, belongs to one, or is a sum. For a sum, the state is
// how often it contains the part of each (chunk, microbatch) or, for the norm, the square of each gradient. The chunks
// that read a parameter determine which parts its gradient must contain.
//===-----------------------------------------------------------------------------===//
#include "StagePrograms.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Generation.h"
#include "pc/IR/StageRunner.h"

#include <deque>
#include <set>

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

namespace {

/// Counts how often a sum contains the part of each (chunk, microbatch). Consecutive microbatches with equal counts
/// form one run, so that sums over many microbatches stay short.
class Parts {
public:
  /// Microbatches `first` to `last` of one chunk, each of which occurs `count` times.
  struct Run {
    int chunk, first, last, count;
    bool isBefore(const Run &other) const { return std::pair(chunk, last) < std::pair(other.chunk, other.first); }
  };

  ArrayRef<Run> runs() const { return list; }

  /// Returns how often an addend is in the sum.
  int count(int chunk, int microbatch) const {
    for (const Run &run : list)
      if (run.chunk == chunk && run.first <= microbatch && microbatch <= run.last)
        return run.count;
    return 0;
  }

  /// Adds a run. The list stays sorted and its runs disjoint: if `run` overlaps one of them, both are cut and their
  /// counts added.
  void add(Run run) {
    if (list.empty() || list.back().isBefore(run))
      return put(run);
    for (const Run &own : std::exchange(list, {})) {
      if (own.isBefore(run)) {
        put(own);
        continue;
      }
      int both = std::max(run.first, own.first), end = std::min(run.last, own.last);
      if (run.chunk != own.chunk || both > end) { // `run` comes before it
        put(run);
        run.first = run.last + 1;
        put(own);
        continue;
      }
      put({run.chunk, run.first, both - 1, run.count});
      put({run.chunk, own.first, both - 1, own.count});
      put({run.chunk, both, end, run.count + own.count});
      put({run.chunk, end + 1, own.last, own.count});
      run.first = end + 1;
    }
    put(run);
  }

  void add(const Parts &other, int times = 1) {
    for (Run run : other.list) {
      run.count *= times;
      add(run);
    }
  }

private:
  /// Appends `run`, which comes after all others or is empty.
  void put(const Run &run) {
    if (run.first > run.last)
      return;
    Run *last = list.empty() ? nullptr : &list.back();
    if (last && last->chunk == run.chunk && last->last + 1 == run.first && last->count == run.count)
      last->last = run.last;
    else
      list.push_back(run);
  }

  SmallVector<Run, 1> list; ///< by chunk and microbatch
};

/// The addends in a value. Fixed and Local values are not counted. Sums and norms record how often they contain each
/// part.
struct State {
  enum Class { Fixed, Local, Sum, Norm } is = Fixed;
  bool clips = false;                                ///< Fixed: it is the clip coefficient
  SmallVector<int64_t, 1> scaled;                    ///< Fixed: the reads of clipped gradients on which it depends
  std::vector<SmallVector<int64_t, 1>> entries = {}; ///< Fixed: `scaled` of each entry of a stack
  int chunk = 0, microbatch = 0;                     ///< Local
  SmallVector<int64_t, 1> parameters; ///< Fixed: keys of the parameters that it is computed from, ascending
  Parts parts;                        ///< Sum
  Value root;                         ///< Sum: the value at which it was computed; moves and casts keep it
  llvm::DenseMap<Value, int> squares; ///< Norm: root of a squared sum -> how often

  bool isTracked() const { return is == Sum || is == Norm; }
};

/// `x` as a sum with one addend.
State asSum(State x, Value root) {
  if (x.is != State::Local)
    return x;
  State sum;
  sum.is = State::Sum;
  sum.parts.add({x.chunk, x.microbatch, x.microbatch, 1});
  sum.root = root;
  return sum;
}

/// The sum of two sums. `root` is the value at which it was computed, by which readers identify it.
State merge(State a, const State &b, Value root) {
  if (a.is == State::Fixed)
    return b;
  a.parts.add(b.parts);
  for (const auto &[square, count] : b.squares)
    a.squares[square] += count;
  a.root = root;
  return a;
}

void unite(SmallVectorImpl<int64_t> &keys, ArrayRef<int64_t> more) {
  for (int64_t key : more)
    if (auto it = llvm::lower_bound(keys, key); it == keys.end() || *it != key)
      keys.insert(it, key);
}

/// Runs all stages on States instead of tensors. Afterwards checkReads() checks that the sums that the optimizer and
/// the outputs read contain each required part once.
class SumChecker : public StageRunner::Visitor {
public:
  explicit SumChecker(const StagePrograms &all) : all(all), runner(all.axis), walks(all.stages()) {
    for (auto [stage, walk] : llvm::enumerate(walks))
      walk.stage = static_cast<int>(stage);
    for (func::FuncOp step : all.steps)
      for (auto parameter : step.getOps<ParameterOp>())
        names[parameter.getName()] = keyOf(parameter);
  }

  /// Runs all stages, in the order of their messages, and then the checks that need all sums.
  LogicalResult run() {
    SmallVector<Block *> programs;
    for (func::FuncOp step : all.steps)
      programs.push_back(&step.getBody().front());
    if (failed(runner.run(programs, *this)))
      return failure();
    for (int stage = 0; stage < all.stages(); ++stage)
      if (Operation *op = runner.waitingAt(stage))
        return op->emitOpError() << "of stage " << stage << " waits forever (P5)";
    return success(succeeded(checkReads()) && succeeded(checkNorms()));
  }

private:
  /// The state of the run of one stage.
  struct Walk {
    int stage = 0;
    std::optional<Task> task;
    bool optimizer = false;
    llvm::DenseMap<Value, State> states;
  };
  /// An op after the tasks that does not just add its operands.
  struct Read {
    Operation *op;
    SmallVector<State> operands;
    SmallVector<int64_t, 1> parameters;
  };

  static int64_t keyOf(ParameterOp parameter) {
    return parameter.getKey() ? static_cast<int64_t>(*parameter.getKey()) : -1;
  }

  //===-------------------------------------------------------------------------===//
  // Between stages
  //===-------------------------------------------------------------------------===//

  void arrive(int stage, MoveOpInterface, Value input, int meeting) override {
    meetings[meeting][stage] = asSum(walks[stage].states[input], input);
  }
  /// Merges the states that the stages contribute to a move over stages.
  State resultOf(MoveOpInterface move, Value root) {
    State sum;
    for (auto &[stage, part] : meetings[runner.meetingOf(move)])
      if (part.is != State::Fixed)
        sum = merge(sum, part, root);
    return sum;
  }
  LogicalResult visit(int stage, Operation *op) override { return visit(walks[stage], op); }

  //===-------------------------------------------------------------------------===//
  // One op
  //===-------------------------------------------------------------------------===//

  /// Computes the states of an op's results from those of its operands.
  LogicalResult visit(Walk &walk, Operation *op) {
    if (auto marker = dyn_cast<TaskOp>(op)) {
      walk.optimizer = marker.getKind() == TaskKind::Optimizer;
      walk.task.reset();
      if (!walk.optimizer) // the kinds of states do not matter here
        walk.task =
            Task{TaskKind::Forward, static_cast<int>(*marker.getChunk()), static_cast<int>(*marker.getMicrobatch())};
      return success();
    }
    auto state = [&](Value value) -> State & { return walk.states[value]; };
    if (auto parameter = dyn_cast<ParameterOp>(op)) {
      state(parameter.getValue()).parameters = {keyOf(parameter)};
    } else if (auto element = dyn_cast<MicrobatchOp>(op)) {
      state(element.getElement()) = local(walk.task ? walk.task->chunk : 0, element.getIndex());
    } else if (auto send = dyn_cast<SendOp>(op)) {
      State sent = state(send.getX());
      if (!walk.optimizer && failed(works(walk, op, sent)))
        return failure();
      flows[StageFlow(walk.stage, send)].push_back(asSum(std::move(sent), send.getX()));
    } else if (auto receive = dyn_cast<ReceiveOp>(op)) {
      std::deque<State> &flow = flows[StageFlow(walk.stage, receive)];
      state(receive.getValue()) = walk.task ? local(walk.task->chunk, walk.task->microbatch) : std::move(flow.front());
      flow.pop_front();
    } else if (auto fusion = dyn_cast<FusionOp>(op)) {
      return visitFusion(walk, fusion);
    } else if (auto call = dyn_cast<CallOp>(op)) {
      return visitCall(walk, call);
    } else if (isa<StartOp>(op)) {
      return success();
    } else if (auto wait = dyn_cast<WaitOp>(op)) {
      StartOp start = wait.getStart();
      // The moves of a start take effect at its wait.
      for (auto [i, move] : llvm::enumerate(start.getMoves()))
        state(wait.getResult(i)) =
            all.isOverStages(move) ? resultOf(move, wait.getResult(i)) : stateIn(walk, start.getInputs()[i]);
    } else if (auto move = dyn_cast<MoveOpInterface>(op); move && all.isOverStages(move)) {
      if (!walk.optimizer)
        return op->emitOpError() << "sums over stages inside a task, which is not allowed (P6)";
      state(op->getResult(0)) = resultOf(move, op->getResult(0));
    } else {
      return walk.optimizer ? visitAfter(walk, op) : visitInTask(walk, op);
    }
    return success();
  }

  /// The state of a value that continues under another name. After the tasks, the value of one microbatch is a sum,
  /// whose root is the value in its task.
  static State stateIn(Walk &walk, Value value) {
    State state = walk.states[value];
    return walk.optimizer ? asSum(std::move(state), value) : state;
  }

  /// Visits the ops of a fusion one by one.
  LogicalResult visitFusion(Walk &walk, FusionOp fusion) {
    Block &body = fusion.getBody().front();
    for (auto [argument, input] : llvm::zip_equal(body.getArguments(), fusion.getInputs()))
      walk.states[argument] = stateIn(walk, input);
    for (Operation &op : body.without_terminator())
      if (failed(visit(walk, &op)))
        return failure();
    for (auto [result, value] : llvm::zip_equal(fusion.getResults(), body.getTerminator()->getOperands()))
      walk.states[result] = State(walk.states[value]);
    return success();
  }

  /// A function has the same effect in every call. At the first call, it is run on placeholders: placeholder sum i
  /// contains "microbatch i of chunk -1" once. For each call, the placeholders in the result are replaced by the
  /// arguments.
  LogicalResult visitCall(Walk &walk, CallOp call) {
    const Task task = *walk.task;
    size_t numInputs = call.getInputs().size();
    for (Value value : call.getInputs())
      walk.states.try_emplace(value);
    SmallVector<const State *> operands; // the pointers are valid until a state is added
    for (Value value : call.getInputs())
      operands.push_back(&walk.states.find(value)->second);
    // A value of another microbatch is a sum of one term here.
    auto classOf = [&](const State &operand) {
      bool other = operand.is == State::Local && operand.microbatch != task.microbatch;
      return other ? State::Sum : operand.is;
    };
    const TaskFunction &function = functions.of(call);
    Effect &effect = effects[function.function];
    bool known = effect.chunk == task.chunk && effect.operands.size() == numInputs;
    for (size_t i = 0; known && i < numInputs; ++i)
      known =
          effect.operands[i].is == classOf(*operands[i]) && effect.operands[i].parameters == operands[i]->parameters;
    if (!known) {
      effect = {task.chunk, SmallVector<State>(numInputs), {}};
      Walk inside;
      inside.stage = walk.stage;
      inside.task = Task{TaskKind::Forward, task.chunk, 0};
      for (auto [i, standIn] : llvm::enumerate(effect.operands)) {
        standIn.is = classOf(*operands[i]);
        standIn.parameters = operands[i]->parameters;
        int number = static_cast<int>(i);
        if (standIn.is == State::Local)
          standIn = local(task.chunk, 0);
        else if (standIn.isTracked())
          standIn.parts.add({-1, number, number, 1});
        inside.states[function.body->getArgument(i)] = standIn;
      }
      for (Operation &op : function.body->without_terminator())
        if (failed(visit(inside, &op)))
          return failure();
      for (Value value : function.results())
        effect.results.push_back(inside.states[value]);
    }
    // The results for this call: parts of placeholder i become the parts of argument i, and microbatch 0 becomes the
    // call's microbatch.
    SmallVector<State> results;
    for (auto [value, result] : llvm::zip_equal(call.getResults(), effect.results)) {
      State &state = results.emplace_back();
      state.is = result.is;
      state.parameters = result.parameters;
      if (result.is == State::Local)
        state = local(task.chunk, task.microbatch);
      state.root = value;
      for (const Parts::Run &run : result.parts.runs())
        if (run.chunk >= 0)
          state.parts.add({run.chunk, task.microbatch, task.microbatch, run.count});
        else
          for (int i = run.first; i <= run.last; ++i)
            state.parts.add(asSum(*operands[i], {}).parts, run.count);
    }
    // A value that only this call reads is not needed any more. Without this, states of long programs would take much
    // memory.
    for (Value value : call.getInputs())
      if (value.hasOneUse())
        walk.states.erase(value);
    for (auto [value, state] : llvm::zip_equal(call.getResults(), results))
      walk.states[value] = std::move(state);
    return success();
  }

  static State local(int chunk, int64_t microbatch) {
    State state;
    state.is = State::Local;
    state.chunk = chunk;
    state.microbatch = static_cast<int>(microbatch);
    return state;
  }

  /// Returns true if an op is linear in its first operand and has no other operand except the start of a block.
  static bool isLinear(Operation *op) {
    auto isOffset = [](Value value) {
      auto type = cast<RankedTensorType>(value.getType());
      return type.getRank() == 0 && type.getElementType().isInteger(32);
    };
    return isa<MoveOpInterface, AddendOp>(op) ||
           (op->getNumOperands() && isLinearIn(op, 0) && llvm::all_of(llvm::drop_begin(op->getOperands()), isOffset));
  }

  /// Checks that an operand of a task is a whole value of the task's microbatch.
  LogicalResult works(Walk &walk, Operation *op, const State &operand) {
    if (operand.isTracked())
      return op->emitOpError() << "reads a sum over microbatches inside a task, which is not allowed (P6)";
    if (operand.is == State::Local && walk.task && operand.microbatch != walk.task->microbatch)
      return op->emitOpError() << "in a task of microbatch " << walk.task->microbatch << " reads a value of microbatch "
                               << operand.microbatch << " (P6)";
    return success();
  }

  /// Within a task, an addition may add up sums; every other op works on one microbatch.
  LogicalResult visitInTask(Walk &walk, Operation *op) {
    State result;
    bool isLocal = false;
    for (Value operand : op->getOperands())
      isLocal |= walk.states[operand].is == State::Local;
    if (isa<AddOp>(op)) {
      State a = walk.states[op->getOperand(0)], b = walk.states[op->getOperand(1)];
      bool sums = a.isTracked() || b.isTracked() ||
                  (a.is == State::Local && b.is == State::Local && a.microbatch != b.microbatch);
      if (sums) {
        // Gradients of different microbatches are added. The sum keeps the list of its terms, which is checked at the
        // update.
        walk.states[op->getResult(0)] =
            merge(asSum(std::move(a), op->getOperand(0)), asSum(std::move(b), op->getOperand(1)), op->getResult(0));
        return success();
      }
    }
    if (isLinear(op) && walk.states[op->getOperand(0)].isTracked()) {
      walk.states[op->getResult(0)] = State(walk.states[op->getOperand(0)]);
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
        unite(result.parameters, from.parameters);
    }
    if (isa<CacheWriteOp>(op)) // a cache has entries of every microbatch
      result = State();
    for (Value value : op->getResults())
      walk.states[value] = result;
    return success();
  }

  /// After the tasks: linear ops keep a sum, squares turn sums into norms, and all other readers are checked at the
  /// end.
  LogicalResult visitAfter(Walk &walk, Operation *op) {
    SmallVector<State> operands;
    int tracked = 0;
    SmallVector<int64_t, 1> parameters;
    for (Value operand : op->getOperands()) {
      operands.push_back(asSum(walk.states[operand], operand));
      tracked += operands.back().isTracked();
      unite(parameters, operands.back().parameters);
    }
    State result;
    for (const State &operand : operands) {
      unite(result.scaled, operand.scaled);
      if (isa<StackOp>(op))
        result.entries.push_back(operand.scaled);
      result.entries.resize(std::max(result.entries.size(), operand.entries.size()));
      for (auto [own, more] : llvm::zip(result.entries, operand.entries))
        unite(own, more);
    }
    if (auto unstack = dyn_cast<UnstackOp>(op); unstack && unstack.getIndex() < result.entries.size()) {
      result.scaled = result.entries[unstack.getIndex()];
      result.entries.clear();
    }
    if (auto update = dyn_cast<UpdateOp>(op))
      for (int64_t read : result.scaled)
        reads[read].parameters = {names.lookup(update.getParameter().value_or(update.getName()))};
    if (isa<EinsumOp>(op) && operands.size() == 2 && operands[0].clips && operands[1].is == State::Sum) {
      // Here the optimizer reads a gradient, and updates the gradient's parameter with the values that it computes. The
      // result is no longer a sum over microbatches.
      result.scaled = {static_cast<int64_t>(reads.size())};
      reads.push_back({op, operands, {}});
    } else if (!tracked) {
      result.parameters = parameters;
      result.clips = isa<ClipCoefficientOp>(op) || (isLinear(op) && operands[0].clips);
    } else if (isa<AddOp>(op)) {
      result = merge(operands[0], operands[1], op->getResult(0));
    } else if (auto *sum = llvm::find_if(operands, [](const State &s) { return s.isTracked(); });
               tracked == 1 && (isa<AddendOp>(op) || isLinearIn(op, sum - operands.begin()))) {
      result = *sum;
    } else if (isa<EinsumOp>(op)) {
      result.is = State::Norm;
      for (const State &operand : operands)
        if (operand.is == State::Sum)
          result.squares[operand.root] = 1;
    } else {
      reads.push_back({op, operands, parameters});
      result.clips = isa<ClipCoefficientOp>(op);
    }
    for (Value value : op->getResults())
      walk.states[value] = result;
    return success();
  }

  //===-------------------------------------------------------------------------===//
  // Checks of complete sums
  //===-------------------------------------------------------------------------===//

  /// Runs after all tasks, which show which chunks read which parameters.
  LogicalResult checkReads() {
    for (const Read &read : reads)
      for (const State &operand : read.operands)
        if (operand.is == State::Sum && failed(checkRead(read, operand)))
          return failure();
    return success();
  }

  /// A gradient must have the addends of every chunk that reads its parameter.
  LogicalResult checkRead(const Read &read, const State &sum) {
    auto output = dyn_cast<OutputOp>(read.op);
    std::set<int> chunks;
    if (output && output.getKind() == OutputKind::Gradient) {
      chunks = readers[names.lookup(output.getName())];
    } else if (!output && read.parameters.size() == 1) {
      chunks = readers[read.parameters.front()];
      gradients[read.parameters.front()].push_back(sum.root);
    } else {
      chunks = {sum.parts.runs().front().chunk};
    }
    return isWhole(read.op, sum, chunks);
  }

  /// Checks that a sum contains every microbatch of `chunks` once, and nothing else.
  LogicalResult isWhole(Operation *op, const State &sum, const std::set<int> &chunks) {
    auto refuse = [&](int chunk, int microbatch, int count) {
      return op->emitOpError() << "of " << sourceName(op) << " reads a sum that contains microbatch " << microbatch
                               << " of chunk " << chunk << " (stage " << all.stageOf(chunk) << ") " << count
                               << " times, not once (P6)";
    };
    for (int chunk : chunks)
      for (int i = 0; i < all.problem.microbatches; ++i)
        if (int count = sum.parts.count(chunk, i); count != 1)
          return refuse(chunk, i, count);
    for (const Parts::Run &run : sum.parts.runs())
      if (!chunks.count(run.chunk))
        return op->emitOpError() << "of " << sourceName(op)
                                 << " reads a gradient sum that contains microbatches of chunk " << run.chunk
                                 << " (stage " << all.stageOf(run.chunk)
                                 << "), although that chunk does not use this parameter (P6)";
    return success();
  }

  /// Checks that the norm contains the square of every parameter's gradient once, no matter which stage adds it.
  LogicalResult checkNorms() {
    for (const Read &read : reads)
      for (const State &operand : read.operands)
        if (operand.is == State::Norm && failed(checkNorm(read.op, operand)))
          return failure();
    return success();
  }
  /// Checks that the norm contains each gradient once, also for parameters that several stages have.
  LogicalResult checkNorm(Operation *op, const State &norm) {
    size_t known = 0;
    for (auto &[key, roots] : gradients) {
      int count = 0;
      llvm::DenseSet<Value> seen;
      for (Value root : roots)
        if (auto it = norm.squares.find(root); it != norm.squares.end() && seen.insert(root).second) {
          count += it->second;
          ++known;
        }
      if (count != 1)
        return op->emitOpError() << "reads a norm that includes the gradient of '" << nameOf(key) << "' " << count
                                 << " times, not once (P6)";
    }
    if (known != norm.squares.size())
      return op->emitOpError() << "reads a norm that includes a value that is not a gradient (P6)";
    return success();
  }
  StringRef nameOf(int64_t key) const {
    for (const auto &entry : names)
      if (entry.second == key)
        return entry.first();
    return "";
  }

  /// The results of a function on placeholders.
  struct Effect {
    int chunk = -1;
    SmallVector<State> operands, results;
  };

  const StagePrograms &all;
  StageRunner runner;
  std::vector<Walk> walks;
  TaskFunctions functions;
  std::map<Operation *, Effect> effects;           ///< for each function, the effect of its first call
  llvm::StringMap<int64_t> names;                  ///< the keys of parameters, by name
  std::map<int64_t, std::set<int>> readers;        ///< the chunks that read a parameter
  std::map<int64_t, SmallVector<Value>> gradients; ///< roots of each parameter's gradient, as the optimizer reads it
  std::vector<Read> reads;
  std::map<StageFlow, std::deque<State>> flows;
  std::map<int, std::map<int, State>> meetings; ///< for each collective, the contribution of each stage
};

} // namespace

LogicalResult pc::pipeline::checkSums(const StagePrograms &stages) { return SumChecker(stages).run(); }
