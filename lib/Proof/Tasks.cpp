//===- Tasks.cpp - Calls of the functions of a pipeline's tasks ------------------------------===//
// A function is called once per microbatch, with corresponding values, and adds its results to sums. So two calls
// determine the results of all others: results that do not depend on sums are equal, and every call adds the same value
// to the sums. If a call adds the same value to two sums with different random fingerprints, that value does not depend
// on the sums.
//===-----------------------------------------------------------------------------===//
#include "Walk.h"

#include "pc/IR/Liveness.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// The facts about the function that `call` names, computed once per function.
Walk::Called &Walk::calledBy(CallOp call) {
  Called *&known = calledByName[{call->getParentOp(), call.getCalleeAttr()}];
  if (known)
    return *known;
  known = &called.emplace_back();
  known->function = &functions.of(call);
  known->calls = !known->function->body->getOps<CallOp>().empty();
  for (BlockArgument argument : known->function->body->getArguments())
    known->reads.push_back(!argument.use_empty());
  for (Type type : llvm::concat<const Type>(call.getInputs().getTypes(), call.getResultTypes()))
    known->bytes.push_back(byteSize(type));
  return *known;
}

/// A call is run only if no earlier call of the function had the same effect. With a trace, every call is run.
bool Walk::call(Stage &stage, CallOp call) {
  Called &called = calledBy(call);
  const TaskFunction &function = *called.function;
  if (stage.places || called.calls || call->getParentOp() == function.function)
    return refuse(call, "is a call inside a called function", FaultKind::Message);
  const Ranges *ranges = stage.arena < 0 ? &noRanges : rangesOf(stage, call, called);
  if (trace || !ranges || !readTask(call))
    return runCalled(stage, call, function);
  task.sameRange = ranges->same;
  auto like = llvm::find_if(called.tasks, [&](const Task &other) { return other.isLike(task); });
  if (like != called.tasks.end() && like->isKnown)
    return repeat(stage, call, called, *ranges, *like);
  Task own = task;
  size_t outputs = shown.size();
  if (!runCalled(stage, call, function))
    return false;
  own.shown.assign(shown.begin() + outputs, shown.end());
  learn(stage, call, std::move(own), *ranges, called.tasks);
  return true;
}

/// Walks the function's body with the caller's operands; homes inside it are mapped to the caller's arena.
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

/// Fills `task` with the data by which calls are compared. Returns false if the call must be run.
bool Walk::readTask(CallOp call) {
  task.microbatch = State::ofAny;
  task.in.clear();
  task.isSum.clear();
  SmallVector<std::pair<int, int>, 4> counts; // how many arguments belong to each microbatch
  int most = 0;
  for (Value input : call.getInputs()) {
    const State &state = task.in.emplace_back(stateOf(input));
    if (!state.where)
      return false;
    if (state.microbatch < 0)
      continue;
    auto *count = llvm::find_if(counts, [&](auto &one) { return one.first == state.microbatch; });
    if (count == counts.end())
      count = counts.insert(count, {state.microbatch, 0});
    if (++count->second > most) {
      most = count->second;
      task.microbatch = state.microbatch;
    }
  }
  for (const State &state : task.in)
    task.isSum.push_back(state.microbatch != State::ofAny && state.microbatch != task.microbatch);
  return true;
}

/// The ranges of the call; null if it must be run, because values have no homes or overlap partly.
const Walk::Ranges *Walk::rangesOf(Stage &stage, CallOp call, Called &called) {
  int64_t frame = call.getFrame().value_or(0), frameBytes = called.function->frameBytes;
  SmallVector<Range, 0> &list = rangesAtHand;
  list.clear();
  auto add = [&](Value value) {
    int64_t home = homeOrNone(value), begin = home + elementOffsetOf(value);
    list.push_back({begin, begin + called.bytes[list.size()]});
    return home >= 0;
  };
  if (!llvm::all_of(call.getInputs(), add) || !llvm::all_of(call.getResults(), add))
    return nullptr;
  if (frameBytes)
    list.push_back({frame, frame + frameBytes});
  Ranges &ranges = called.ranges[llvm::hash_combine_range(list)];
  if (ArrayRef<Range>(ranges.list) == ArrayRef<Range>(list))
    return ranges.overlap ? nullptr : &ranges;
  ranges.list.assign(list.begin(), list.end());
  auto order = llvm::to_vector(llvm::seq<int>(list.size()));
  auto key = [&](int i) { return std::tuple(list[i].begin, list[i].end, i); };
  llvm::sort(order, [&](int a, int b) { return key(a) < key(b); });
  ranges.same.assign(list.size(), 0);
  ranges.overlap = false;
  for (size_t i = 0; i < order.size(); ++i) {
    const Range &range = list[order[i]];
    bool isSame = i > 0 && list[order[i - 1]] == range;
    ranges.overlap |= i > 0 && !isSame && list[order[i - 1]].overlaps(range);
    ranges.same[order[i]] = isSame ? ranges.same[order[i - 1]] : order[i];
  }
  return ranges.overlap ? nullptr : &ranges;
}

/// Returns true if both calls have the same effect: apart from sums, their values and places are equal.
bool Walk::Task::isLike(const Task &other) const {
  auto isSameIn = [&](size_t i) {
    return in[i].where == other.in[i].where && in[i].rows == other.in[i].rows &&
           (isSum[i] || (in[i].value == other.in[i].value &&
                         (in[i].microbatch == State::ofAny) == (other.in[i].microbatch == State::ofAny)));
  };
  return isSum == other.isSum && sameRange == other.sameRange && llvm::all_of(llvm::seq(in.size()), isSameIn);
}

/// Records the results of the call, which has run, and from them the results of all calls like it, if possible.
void Walk::learn(Stage &stage, CallOp call, Task task, const Ranges &ranges, std::deque<Task> &known) {
  for (Value result : call.getResults())
    task.out.push_back(stateOf(result));
  for (auto [state, range] : llvm::zip(task.in, ranges.list))
    // If the call overwrote the bytes of an argument, the argument is lost after every equal call.
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
  // If a result differs from that of a similar call, it must be a sum, to which both calls add the same.
  for (auto [r, state] : llvm::enumerate(task.out)) {
    if (isAny(state) && state.value == like->out[r].value)
      continue;
    auto isAddedTo = [&] { return task.isSum[sum] && task.microbatch >= 0 && added(task, r) == added(*like, r); };
    size_t tries = 0; // results have the order of the sums
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

/// Computes the results of a call from a similar call, `known`.
bool Walk::repeat(Stage &stage, CallOp call, const Called &called, const Ranges &ranges, const Task &known) {
  size_t inputs = task.in.size(), place = inputs;
  auto range = [&](size_t i) { return stage.arena < 0 ? std::nullopt : std::optional(ranges.list[i]); };
  if (stage.arena >= 0) {
    for (size_t i = 0; i < inputs; ++i)
      if (called.reads[i] && !isIn(stage, call, call.getInputs()[i], task.in[i], range(i)))
        return false;
    for (size_t i = 0; i < inputs; ++i)
      if (known.isLost[i])
        stage.bytes.write(ranges.list[i], gone);
  }
  if (stage.arena >= 0 && called.function->frameBytes) {
    if (ranges.list.back().end > stage.arena)
      return refuse(call, "has a frame that ends after the end of the arena", FaultKind::Memory);
    stage.bytes.write(ranges.list.back(), gone);
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
    if (!put(stage, call, state, range(place++)))
      return false;
  }
  return showAgain(known.shown, task.microbatch);
}
