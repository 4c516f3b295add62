//===- Walk.cpp - One abstract run of a program ----------------------------------------------===//
// Runs each op once on abstract values. An abstract value is a fingerprint (Values.h), a place (Where.h), a microbatch
// and, in planned programs, the bytes that hold it (Bytes.h). Refuses the first wrong op. Equal ops share their
// analysis (Memo). The results of all microbatches follow from the first one or two, without running the others.
//===-----------------------------------------------------------------------------===//
#include "Walk.h"

#include "pc/IR/Liveness.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Stages.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// Records the first failure, and the ops that computed its operands. Always returns false.
bool Walk::refuse(Operation *op, const Twine &why, FaultKind fault, Operation *other) {
  if (!failure.why.empty())
    return false;
  failure.op = op;
  failure.why = why.str();
  failure.fault = fault;
  failure.other = other == op ? nullptr : other;
  for (Value operand : op->getOperands())
    failure.from.push_back(stateOf(operand).made);
  return false;
}

int Walk::record(Operation *op, const State &state, ArrayRef<int> from) {
  if (!trace)
    return -1;
  trace->made.push_back({op, state, llvm::to_vector<3>(from), calling});
  return static_cast<int>(trace->made.size()) - 1;
}

/// Records the value of `result`: in the facts of the phase, in the trace, and as its state.
void Walk::set(Operation *op, Value result, State state, ArrayRef<int> from) {
  if (!facts.isReference)
    facts.states.push_back(state.hash());
  if (trace) {
    SmallVector<int> all(from);
    if (from.empty())
      for (Value operand : op->getOperands())
        all.push_back(stateOf(operand).made);
    state.made = record(op, state, all);
  }
  assign(result, state);
}

bool Walk::runBlock(Stage &stage, Block &block) {
  return llvm::all_of(block.without_terminator(), [&](Operation &op) { return runOp(stage, &op); });
}

/// Ops of other dialects are unknown to the proof. Every kind of op with an effect on memory or messages has its own
/// function; all others compute.
bool Walk::runOp(Stage &stage, Operation *op) {
  if (!isa_and_nonnull<PCDialect>(op->getDialect()))
    return refuse(op, "is not an op that the proof knows", FaultKind::Value);
  bool ok = llvm::TypeSwitch<Operation *, bool>(op)
                .Case<TaskOp>([](auto) { return true; })
                .Case([&](AccumulateOp op) { return accumulate(stage, op); })
                .Case([&](FusionOp op) { return fusion(stage, op); })
                .Case([&](CallOp op) { return call(stage, op); })
                .Case([&](StartOp op) { return start(stage, op); })
                .Case([&](WaitOp op) { return wait(stage, op); })
                .Case([&](MicrobatchOp op) { return microbatch(stage, op); })
                .Case([&](SendOp op) { return send(stage, op); })
                .Case([&](ReceiveOp op) { return receive(stage, op); })
                .Case([&](UpdateOp op) { return update(stage, op); })
                .Case([&](OutputOp op) { return output(stage, op); })
                .Case<ParameterOp, StateOp, InputOp, RopeTableOp>([&](auto op) { return leaf(stage, op); })
                .Default([&](Operation *op) { return compute(stage, op); });
  if (!ok)
    return false;
  auto accumulate = dyn_cast_or_null<AccumulateOp>(op->getParentOp());
  if (!accumulate || accumulate.getMicrobatches() == 1)
    return true;
  return llvm::all_of(op->getUses(), [&](OpOperand &use) { return !addedAfter(use) || addToSum(stage, use); });
}

static bool isBf16(Value value) { return cast<RankedTensorType>(value.getType()).getElementType().isBF16(); }

/// Returns true if two ops share their analysis: they have the same name, attributes and types, except for homes.
static bool areAlike(Operation *a, Operation *b) {
  auto areTypes = [](TypeRange types, TypeRange others) {
    return types.size() == others.size() && llvm::all_of(llvm::zip_equal(types, others), [](auto pair) {
             auto [x, y] = pair;
             if (x == y)
               return true;
             auto s = cast<RankedTensorType>(x), t = cast<RankedTensorType>(y);
             return s.getShape() == t.getShape() && s.getElementType() == t.getElementType() &&
                    !rowsOf(x) == !rowsOf(y) && placement(x) == placement(y);
           });
  };
  return a->getName() == b->getName() &&
         a->getName().compareOpProperties(a->getPropertiesStorage(), b->getPropertiesStorage()) &&
         areTypes(a->getOperandTypes(), b->getOperandTypes()) && areTypes(a->getResultTypes(), b->getResultTypes());
}

/// Adds the sizes of the dims that are whole on every rank. These are equal to the sizes in the one-device program: an
/// op on fewer entries computes another value, even if its operand is a broadcast, which fits any size.
static void addWholeSizes(Key &key, Operation *op, const Rule &rule) {
  auto add = [&](Value value, const Rule::Letters &letters) {
    for (auto [f, size] : llvm::zip(letters, cast<RankedTensorType>(value.getType()).getShape()))
      if (rule.whole[f])
        key.add(size);
  };
  for (auto [value, letters] : llvm::zip(op->getOperands(), rule.operands))
    add(value, letters);
  for (auto [value, letters] : llvm::zip(op->getResults(), rule.results))
    add(value, letters);
}

/// The places of `op`'s results and the recipe for their fingerprints. They are shared with earlier ops like it, so
/// equal layers and the tasks of a pipeline cost little more than their fingerprints.
const Walk::Memo *Walk::memoOf(Operation *op, ArrayRef<const Where *> in) {
  // For the broadcast of a rounded bias, the readers also matter (Values.cpp).
  bool isShared =
      !isa<EinsumOp>(op) || op->getNumOperands() != 1 || !isBf16(op->getOperand(0)) || isBf16(op->getResult(0));
  // The hash finds candidates; `areAlike` decides.
  size_t hash = llvm::hash_combine(op->getName(), op->getName().hashOpProperties(op->getPropertiesStorage()),
                                   llvm::hash_combine_range(in));
  auto [begin, end] = memosByHash.equal_range(hash);
  for (auto it = begin; isShared && it != end; ++it)
    if (ArrayRef<const Where *>(it->second->in) == in && areAlike(op, it->second->example))
      return it->second;
  std::optional<Placed> placed = placer.place(op, in);
  if (!placed) {
    refuse(op, placer.wrong, placer.fault);
    if (placer.operand >= 0)
      failure.from = {stateOf(op->getOperand(placer.operand)).made};
    return nullptr;
  }
  Memo &memo = memos.emplace_back();
  memo.example = op;
  memo.in.assign(in.begin(), in.end());
  memo.same = std::move(placed->same);
  memo.scale = placed->scale;
  memo.scales = std::move(placed->scales);
  if (placed->isSame) {
    memo.recipe.kind = Recipe::Same;
    memo.recipe.operands = op->getNumOperands();
    for (auto [i, result] : llvm::enumerate(op->getResults())) // sums of rounded addends are treated as rounded
      memo.recipe.rounds.push_back(isBf16(result) && !isBf16(op->getOperand(i)));
  } else {
    std::optional<Rule> rule = ruleOf(op);
    int linear = rule && rule->linear.size() == 1 ? static_cast<int>(rule->linear[0]) : -1;
    memo.recipe = values.recipe(op, rule ? rule->operands.size() : op->getNumOperands(), linear);
    if (rule && countsWhole(op))
      addWholeSizes(memo.recipe.key, op, *rule);
  }
  for (auto [result, where] : llvm::zip_equal(op->getResults(), placed->results)) {
    if (!placer.agreesWithType(result, where, stageAxisSet)) {
      refuse(op, placer.wrong);
      return nullptr;
    }
    memo.out.push_back(shared.intern(std::move(where)));
  }
  if (auto choice = dyn_cast<TopKOp>(op); choice && choice.getLayout() && !isShownWhereItLies(choice, *memo.out[0]))
    return nullptr;
  if (isShared)
    memosByHash.emplace(hash, &memo);
  return &memo;
}

/// The number of the operand that is the mask of rows; -1: none.
static int64_t maskOf(Operation *op) {
  if (isa<AllToAllRowsOp>(op))
    return 1;
  auto einsum = dyn_cast<EinsumOp>(op);
  return einsum && einsum.getMask() ? static_cast<int64_t>(einsum.getNumOperands()) - 1 : -1;
}

/// Runs any op that a rank computes alone or with other ranks of its stage.
bool Walk::compute(Stage &stage, Operation *op) {
  if (stage.arena >= 0 && isLeaf(op) && !stage.inKernel)
    return true; // present from the start
  auto move = dyn_cast<MoveOpInterface>(op);
  if (isa<AddendOp>(op) || (move && isOverStages(move, stageAxis))) {
    State result = stateOf(op->getOperand(0));
    SmallVector<int> from{result.made};
    if (!read(stage, op, op->getOperand(0), result) || !mayWrite(stage, op))
      return false;
    if (move && !overStages(stage, move, result, from))
      return false;
    set(op, op->getResult(0), result, from);
    return write(stage, op, op->getResult(0), result);
  }

  SmallVector<const Where *, 6> in;
  SmallVector<Point, 6> points;
  SmallVector<int, 6> microbatches;
  std::optional<Point> rows; // the mask of the rows that are read or computed
  int microbatch = State::ofAny;
  for (Value operand : op->getOperands()) {
    State state = stateOf(operand);
    if (!state.where)
      return refuse(op, "uses a value before it is computed", FaultKind::Memory);
    if (!read(stage, op, operand, state))
      return false;
    if (rowsOf(operand) || state.where->note.kind == Note::Round) {
      if (rows && *rows != state.rows)
        return refuse(op, "reads routed tokens of two different masks", FaultKind::Value);
      rows = state.rows;
    }
    in.push_back(state.where);
    points.push_back(state.value);
    microbatches.push_back(state.microbatch);
    if (microbatch == State::ofAny)
      microbatch = state.microbatch;
    else if (state.microbatch != State::ofAny && state.microbatch != microbatch)
      microbatch = State::ofSeveral;
  }
  // Operands of several microbatches must not cancel or be exchanged, so each is multiplied by the share of its
  // microbatch.
  for (size_t i = 0; microbatch == State::ofSeveral && i < points.size(); ++i)
    if (microbatches[i] >= 0)
      points[i] = values.of(points[i], microbatches[i]);
  if (int64_t mask = maskOf(op); mask >= 0) {
    if (rows && *rows != points[mask])
      return refuse(op, "reads routed tokens of a different mask than its own", FaultKind::Value);
    rows = points[mask];
  }
  auto encode = dyn_cast<EncodeAddendOp>(op);
  if (WireAttr wire = encode ? encode.getWire() : move ? move.getMoveWire() : WireAttr())
    if (AxisSet axes = axis.setOf(encode ? axisList(encode.getAxes()) : move.getMoveAxes()))
      facts.rounded.insert({points[0].x, points[0].y, axes, wire.getBits()});
  bool runsOnce = op->getBlock() == &stage.step.getBody().front();
  // Ops in loops meet the same operands again and again, so the last memo of each op is tried before the search by
  // hash.
  const Memo *none = nullptr, *&last = runsOnce ? none : memoOfLast[op];
  if (!last || last->in != in)
    last = memoOf(op, in);
  if (!last)
    return false;
  const Memo &memo = *last;
  // The op assembles parts, such as blocks of a window, which must be parts of the same value.
  for (auto [a, b] : memo.same)
    if (points[a] != points[b])
      return refuse(op, "combines parts of different values", FaultKind::Value);
  if (!mayWrite(stage, op, memo.sharing))
    return false;
  for (auto [i, by] : memo.scales)
    points[i] = scaled(points[i], by);
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    State state{{}, memo.out[i], microbatch};
    if (isa<MergeAttentionOp>(op) && memo.recipe.kind == Recipe::Same)
      state.value = values.result(memo.recipe, i, points[i]); // the points of o1, lse1, o2, lse2
    else if (auto constant = dyn_cast<ConstantOp>(op))
      state.value = values.constant(constant.getNumber().convertToDouble());
    else
      state.value = values.result(memo.recipe, i, points);
    if (memo.scale != 1)
      state.value = values.times(state.value, memo.scale);
    if (isa<RoundOfRowsOp>(op))
      rows = points[0];
    if (rowsOf(result) || memo.out[i]->note.kind == Note::Round) {
      if (!rows)
        return refuse(op, "creates routed tokens without a mask", FaultKind::Value);
      state.rows = *rows;
    }
    set(op, result, state);
    if (!write(stage, op, result, state))
      return false;
  }
  return true;
}

/// Returns the state of an element: the fingerprint of the stack's elements, and its own microbatch. The bytes of the
/// element must lie in the stack.
std::optional<State> Walk::element(Operation *op, const State &stack, int64_t number) {
  auto shape = cast<RankedTensorType>(op->getOperand(0).getType()).getShape();
  if (!stack.where || shape.empty() || number < 0 || number >= shape[0]) {
    refuse(op, "takes a microbatch that is not in its stack", FaultKind::Data);
    return std::nullopt;
  }
  std::optional<Where> where = placer.element(*stack.where);
  if (!where) {
    refuse(op, placer.wrong);
    return std::nullopt;
  }
  State state{values.element(stack.value), shared.intern(std::move(*where)),
              shape[0] == 1 ? State::ofAny : static_cast<int>(number)};
  stacks[{state.value, state.microbatch}] = {stack, number, shape[0]};
  return state;
}

/// The element of a stack. With a trace, records a view whose index is not that of its task.
bool Walk::microbatch(Stage &stage, MicrobatchOp view) {
  std::optional<State> state = element(view, stateOf(view.getStack()), static_cast<int64_t>(view.getIndex()));
  if (!state)
    return false;
  if (trace && !trace->strayView)
    for (Operation *op = view; op; op = op->getPrevNode())
      if (auto task = dyn_cast<TaskOp>(op)) {
        if (state->microbatch >= 0 && task.getMicrobatch() &&
            static_cast<int64_t>(*task.getMicrobatch()) != state->microbatch)
          trace->strayView = view;
        break;
      }
  set(view, view.getElement(), *state);
  return read(stage, view, view.getElement(), *state);
}

/// Walks the body once per microbatch. As soon as all microbatches are known to be equal, the values of the remaining
/// ones are added without a walk.
bool Walk::accumulate(Stage &stage, AccumulateOp accumulate) {
  Block &body = accumulate.getBody().front();
  int64_t count = accumulate.getMicrobatches();
  SmallVector<State> &sum = sums[accumulate];
  sum.assign(accumulate.getNumResults(), State());
  if (count > 1) // the buffers of sums are zero at the start
    for (Value result : accumulate.getResults())
      if (!write(stage, accumulate, result, State()))
        return false;
  for (int64_t m = 0; m < count; ++m) {
    size_t outputs = shown.size();
    for (auto [argument, input] : llvm::zip_equal(body.getArguments(), accumulate.getInputs())) {
      std::optional<State> state = element(accumulate, stateOf(input), m);
      if (!state)
        return false;
      set(accumulate, argument, *state, stateOf(input).made);
      elementOffsets[argument] = m * byteSize(argument.getType());
    }
    if (!runBlock(stage, body))
      return false;
    for (OpOperand &use : body.getTerminator()->getOpOperands())
      if (!addedAfter(use) && !addToSum(stage, use))
        return false;
    // All microbatches are equal. The bytes can differ only between the first and the second one.
    auto isAlike = [&](const State &state) { return state.microbatch != State::ofSeveral; };
    ArrayRef<Shown> outputsNow = ArrayRef(shown).drop_front(outputs);
    if (trace || count == 1 || m < (stage.arena >= 0) ||
        !llvm::all_of(
            outputsNow, [&](const Shown &one) { return isAlike(one.state); }) ||
        !llvm::all_of(body.getTerminator()->getOperands(), [&](Value value) { return isAlike(stateOf(value)); }))
      continue;
    for (int64_t other = m + 1; other < count; ++other)
      if (!showAgain(outputsNow, static_cast<int>(other)))
        return false;
    for (auto [result, whole, added] :
         llvm::zip_equal(accumulate.getResults(), sum, body.getTerminator()->getOperands())) {
      State state = stateOf(added);
      whole.value = among(whole);
      whole.microbatch = State::ofSeveral;
      for (int64_t other = m + 1; other < count; ++other) {
        if (state.microbatch != State::ofAny)
          state.microbatch = static_cast<int>(other);
        whole.value = whole.value + among(state);
      }
      if (!write(stage, accumulate, result, whole))
        return false;
    }
    break;
  }
  for (auto [result, state] : llvm::zip_equal(accumulate.getResults(), sum)) {
    if (!placer.agreesWithType(result, *state.where, stageAxisSet))
      return refuse(accumulate, placer.wrong);
    set(accumulate, result, state, state.made);
  }
  return true;
}

/// A value that is added to a sum must be complete or an addend itself. Each addend is multiplied by the share of its
/// microbatch.
bool Walk::addToSum(Stage &stage, OpOperand &yielded) {
  auto accumulate = cast<AccumulateOp>(yielded.getOwner()->getParentOp());
  unsigned number = yielded.getOperandNumber();
  Value result = accumulate.getResult(number);
  State &sum = sums[accumulate][number], state = stateOf(yielded.get());
  if (!state.where || !read(stage, accumulate, yielded.get(), state))
    return refuse(accumulate, "yields a value that is not computed", FaultKind::Memory);
  if (state.where->note.kind != Note::None ||
      (state.where->combine != Combine::None && state.where->combine != Combine::Sum))
    return refuse(accumulate, "accumulates a value that is not a sum: " + state.where->text(axis.names()));
  bool isFirst = !sum.where, isOnly = accumulate.getMicrobatches() == 1;
  // Addends of a sum must have the same placement, or the sum would mix parts of different elements.
  if (!isFirst && sum.where != state.where)
    return refuse(accumulate, "adds microbatches with different placements: " + sum.where->text(axis.names()) +
                                  " and " + state.where->text(axis.names()));
  if (!isOnly && !read(stage, accumulate, result, sum))
    return false;
  SmallVector<int> from{sum.made, state.made};
  if (isFirst) {
    sum = state;
  } else {
    sum.value = among(sum) + among(state);
    sum.microbatch = State::ofSeveral;
    sum.made = record(accumulate, sum, from);
  }
  return write(stage, accumulate, result, sum);
}

/// Values inside a fusion are in registers, so only its operands and results are in memory.
bool Walk::fusion(Stage &stage, FusionOp fusion) {
  Block &body = fusion.getBody().front();
  for (auto [argument, input] : llvm::zip_equal(body.getArguments(), fusion.getInputs())) {
    State state = stateOf(input);
    if (!state.where || !read(stage, fusion, input, state))
      return refuse(fusion, "uses a value before it is computed", FaultKind::Memory);
    assign(argument, state);
  }
  bool outer = std::exchange(stage.inKernel, true), ok = runBlock(stage, body);
  stage.inKernel = outer;
  if (!ok || !mayWrite(stage, fusion))
    return false;
  for (auto [result, value] : llvm::zip_equal(fusion.getResults(), body.getTerminator()->getOperands())) {
    assign(result, stateOf(value));
    if (!write(stage, fusion, result, stateOf(value)))
      return false;
  }
  return true;
}

/// Until the wait, the operands of the moves must not change, and no op may read or write the bytes of their results.
bool Walk::start(Stage &stage, StartOp start) {
  WaitOp wait = start.getWait();
  SmallVector<MoveOpInterface> moves = start.getMoves();
  if (!wait || moves.size() != start.getNumOperands() || wait.getNumResults() != moves.size())
    return refuse(start, "has no pc.wait of its own", FaultKind::Memory);
  SmallVector<State> results;
  for (auto [move, input] : llvm::zip_equal(moves, start.getInputs())) {
    State state = stateOf(input);
    if (!state.where || !read(stage, start, input, state))
      return refuse(start, "uses a value before it is computed", FaultKind::Memory);
    assign(move->getOperand(0), state);
    if (!isOverStages(move, stageAxis)) {
      bool outer = std::exchange(stage.inKernel, true), ok = compute(stage, move);
      stage.inKernel = outer;
      if (!ok)
        return false;
      state = stateOf(move->getResult(0));
    }
    results.push_back(state);
  }
  if (!mayWrite(stage, start))
    return false;
  // Until the wait, the results' bytes hold a value that no op can read.
  State taken{values.named({"under way", std::to_string(started++)}), nullptr};
  for (Value result : wait.getResults())
    if (!write(stage, start, result, taken))
      return false;
  results.push_back(taken);
  underWay[start] = std::move(results);
  return true;
}

/// Defines the results of a start's moves. The operands must still have their bytes, and no op may have written to the
/// bytes of the results.
bool Walk::wait(Stage &stage, WaitOp wait) {
  StartOp start = wait.getStart();
  auto it = underWay.find(start);
  if (!start || it == underWay.end())
    return refuse(wait, "waits for a move that has not started", FaultKind::Memory);
  State taken = it->second.back();
  for (auto [i, move] : llvm::enumerate(start.getMoves())) {
    Value input = start.getInputs()[i], result = wait.getResult(i);
    State state = it->second[i];
    bool inPlace = stage.arena >= 0 && homeOrNone(input) == homeOrNone(result);
    if (!inPlace && !read(stage, wait, input, stateOf(input)))
      return false;
    if (!read(stage, wait, result, taken))
      return false;
    SmallVector<int> from{stateOf(input).made};
    if (isOverStages(move, stageAxis) && !overStages(stage, move, state, from))
      return false;
    set(move, result, state, from);
    if (!write(stage, wait, result, state))
      return false;
  }
  underWay.erase(it);
  return true;
}
