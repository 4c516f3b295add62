//===- Tasks.cpp - Calls of the functions of a pipeline's tasks ------------------------------===//
// A function is called once a microbatch, of values that are alike, and adds what it makes of them to sums. So two
// calls tell what all others make: results that do not depend on sums are the same, and of the others the same is
// added. That it is the same for two sums whose fingerprints are random shows that it does not depend on them.
//===-----------------------------------------------------------------------------===//
#include "Walk.h"

#include "pc/IR/Liveness.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

bool Walk::call(Stage &stage, CallOp call) {
  const TaskFunction &called = functions.of(call);
  if (call->getParentOfType<func::FuncOp>() == called.function || stage.places ||
      !called.body->getOps<CallOp>().empty())
    return refuse(call, "is a call in what is called", FaultKind::Message);
  std::optional<Task> task = taskOf(stage, call, called);
  if (!task)
    return runCalled(stage, call, called);
  std::deque<Task> &known = tasks[&called];
  auto like = llvm::find_if(known, [&](const Task &other) { return other.isLike(*task); });
  if (like != known.end() && like->isKnown)
    return repeat(stage, call, *like, *task);
  size_t outputs = shown.size();
  if (!runCalled(stage, call, called))
    return false;
  task->shown.assign(shown.begin() + outputs, shown.end());
  learn(stage, call, std::move(*task), known);
  return true;
}

bool Walk::runCalled(Stage &stage, CallOp call, const TaskFunction &called) {
  std::map<int64_t, int64_t> places;
  auto map = [&](ValueRange inside, ValueRange outside) {
    for (auto [from, to] : llvm::zip_equal(inside, outside))
      places[homeOrNone(from)] = homeOrNone(to);
  };
  places[0] = call.getFrame().value_or(0);
  map(called.body->getArguments(), call.getInputs());
  map(called.results(), call.getResults());
  for (auto [argument, input] : llvm::zip_equal(called.body->getArguments(), call.getInputs()))
    assign(argument, stateOf(input));
  stage.places = &places;
  calling = call;
  bool ok = runBlock(stage, *called.body);
  calling = nullptr;
  stage.places = nullptr;
  if (!ok)
    return false;
  for (auto [result, value] : llvm::zip_equal(call.getResults(), called.results())) {
    assign(result, stateOf(value));
    if (!read(stage, call, result, stateOf(value)))
      return false;
  }
  return true;
}

/// The call as one of others that may be alike; none if it must be run.
std::optional<Walk::Task> Walk::taskOf(Stage &stage, CallOp call, const TaskFunction &called) {
  Task task;
  if (trace)
    return std::nullopt;
  std::map<int, int> count;
  for (Value input : call.getInputs()) {
    State state = stateOf(input);
    if (!state.where)
      return std::nullopt;
    if (state.microbatch >= 0 && ++count[state.microbatch] > count[task.microbatch])
      task.microbatch = state.microbatch;
    task.in.push_back(state);
  }
  for (const State &state : task.in)
    task.isSum.push_back(state.microbatch != State::ofAny && state.microbatch != task.microbatch);
  if (stage.arena < 0)
    return task;
  for (Value value : llvm::concat<Value>(llvm::to_vector(call.getInputs()), llvm::to_vector(call.getResults()))) {
    int64_t home = homeOrNone(value);
    if (home < 0)
      return std::nullopt;
    task.ranges.push_back({home, home + byteSize(value.getType())});
  }
  int64_t frame = call.getFrame().value_or(0);
  if (called.frameBytes)
    task.ranges.push_back({frame, frame + called.frameBytes});
  auto order = llvm::to_vector(llvm::seq<int>(task.ranges.size()));
  auto key = [&](int i) { return std::tuple(task.ranges[i].begin, task.ranges[i].end, i); };
  llvm::sort(order, [&](int a, int b) { return key(a) < key(b); });
  task.sameRange.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Range &range = task.ranges[order[i]];
    bool isSame = i > 0 && task.ranges[order[i - 1]] == range;
    if (i > 0 && !isSame && task.ranges[order[i - 1]].overlaps(range))
      return std::nullopt;
    task.sameRange[order[i]] = isSame ? task.sameRange[order[i - 1]] : order[i];
  }
  return task;
}

bool Walk::Task::isLike(const Task &other) const {
  auto isSameIn = [&](size_t i) {
    return in[i].where == other.in[i].where &&
           (isSum[i] || (in[i].value == other.in[i].value &&
                         (in[i].microbatch == State::ofAny) == (other.in[i].microbatch == State::ofAny)));
  };
  return isSum == other.isSum && sameRange == other.sameRange && llvm::all_of(llvm::seq(in.size()), isSameIn);
}

/// Notes what the call, which has run, has made, and what all calls like it make, where that can be told.
void Walk::learn(Stage &stage, CallOp call, Task task, std::deque<Task> &known) {
  for (Value result : call.getResults())
    task.out.push_back(stateOf(result));
  for (auto [state, range] : llvm::zip(task.in, task.ranges))
    task.isLost.push_back(!holds(stage, range, state));
  auto isAny = [&](const State &state) {
    return state.microbatch == State::ofAny || state.microbatch == task.microbatch;
  };
  task.addedTo.assign(task.out.size(), -1);
  if (!llvm::all_of(task.shown, [&](const Shown &one) { return isAny(one.state); }))
    return;
  task.isKnown = llvm::all_of(task.out, isAny);
  auto like = llvm::find_if(known, [&](const Task &other) { return other.isLike(task); });
  if (like == known.end()) {
    known.push_back(std::move(task));
    return;
  }
  size_t sum = 0, sums = task.in.size();
  auto added = [&](const Task &one, size_t result) {
    return values.any(among(one.out[result]) - among(one.in[sum]), one.microbatch);
  };
  for (auto [r, state] : llvm::enumerate(task.out)) {
    if (isAny(state) && state.value == like->out[r].value)
      continue;
    auto isAddedTo = [&] { return task.isSum[sum] && task.microbatch >= 0 && added(task, r) == added(*like, r); };
    size_t tries = 0; // results are in the order of sums
    while (tries < sums && !isAddedTo())
      sum = (sum + 1) % sums, ++tries;
    if (tries == sums)
      return;
    task.addedTo[r] = static_cast<int>(sum);
    state.value = added(task, r);
  }
  task.isKnown = true;
  for (auto [lost, other] : llvm::zip_equal(task.isLost, like->isLost))
    lost = lost || other;
  *like = std::move(task);
}

/// What a call makes, by one like it.
bool Walk::repeat(Stage &stage, CallOp call, const Task &known, const Task &task) {
  const TaskFunction &called = functions.of(call);
  for (auto [argument, input] : llvm::zip_equal(called.body->getArguments(), call.getInputs()))
    if (!argument.use_empty() && !read(stage, call, input, stateOf(input)))
      return false;
  State gone{values.named({"gone"}), nullptr};
  for (auto [range, lost] : llvm::zip(task.ranges, known.isLost))
    if (lost)
      stage.bytes.write(range, gone);
  if (stage.arena >= 0 && called.frameBytes) {
    if (task.ranges.back().end > stage.arena)
      return refuse(call, "has a frame that ends behind the arena", FaultKind::Memory);
    stage.bytes.write(task.ranges.back(), gone);
  }
  for (auto [result, out, sum] : llvm::zip_equal(call.getResults(), known.out, known.addedTo)) {
    State state = out;
    if (sum >= 0) {
      state.value = among(task.in[sum]) + values.of(out.value, task.microbatch);
      state.microbatch = State::ofSeveral;
    } else if (out.microbatch != State::ofAny) {
      state.microbatch = task.microbatch;
    }
    assign(result, state);
    if (!write(stage, call, result, state))
      return false;
  }
  return showAgain(known.shown, task.microbatch);
}
