//===- Machine.cpp - Runs one op after another on all ranks -----------------------------------===//
// Runs ops one by one on the tensors of all ranks. It checks values in three ways: against the trace of one device
// (`expected`), between ranks that should agree, and, with an arena, that no op disturbs a move in flight. In planned
// programs, updates change leaves at once, as in memory; in other programs they are only collected.
//===-----------------------------------------------------------------------------===//
#include "Machine.h"

#include "Evaluators.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/Parts.h"
#include "pc/Reference/Evaluate.h"

#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace pc;

LogicalResult Machine::run() {
  if (failed(begin()) || failed(runBlock(function.getBody().front())))
    return failure();
  return finish();
}

LogicalResult Machine::begin() {
  return failure(
      store.hasArena() &&
      function.walk([&](Operation *op) { return WalkResult(isLeaf(op) ? runLeaf(op) : success()); }).wasInterrupted());
}

LogicalResult Machine::finish() {
  for (UpdateOp update : updates)
    if (failed(collectUpdate(update, leaves.of(update))))
      return failure();
  return success();
}

/// Splits results of a packed parameter by its parts and names each after its part.
Results Machine::takeResults() {
  std::map<std::pair<StringRef, StringRef>, StateOp> states; // by name and parameter
  function.walk([&](StateOp state) { states[{state.getName(), state.getParameter()}] = state; });
  Results byPart;
  for (NamedTensor &result : results) {
    auto [kind, rest] = StringRef(result.name).split(' '); // "gradient w", "update w", "update exp_avg of w"
    size_t at = rest.find(" of ");
    StringRef name = at == StringRef::npos ? rest : rest.drop_front(at + 4);
    auto state = states.find({rest.take_front(at), name});
    SmallVector<ParameterPart> parts = feeds.packedParts(name, state == states.end() ? StateOp() : state->second);
    if (parts.empty()) {
      byPart.push_back(std::move(result));
      continue;
    }
    std::string prefix = StringRef(result.name).drop_back(name.size()).str();
    for (const ParameterPart &part : parts)
      byPart.push_back({prefix + part.name.str(), result.value.box(part.start, part.size)});
  }
  return byPart;
}

LogicalResult Machine::runBlock(Block &block) {
  for (Operation &op : block)
    if (failed(step(&op)))
      return failure();
  return success();
}

LogicalResult Machine::step(Operation *op) {
  bool isThere = op->hasTrait<OpTrait::IsTerminator>() || (store.hasArena() && isLeaf(op));
  return isThere ? success() : runOp(op);
}

/// Operands are stored as if earlier ops had computed them.
FailureOr<std::vector<Tensor>> Machine::runAlone(Operation *op, ArrayRef<Tensor> operands) {
  for (auto [value, tensor] : llvm::zip_equal(op->getOperands(), operands))
    if (!store.set(value, {tensor}))
      return failure();
  if (failed(runOp(op)))
    return failure();
  std::vector<Tensor> results;
  for (Value result : op->getResults())
    results.push_back(store.get(result)[0]);
  return results;
}

FailureOr<RankTensors> Machine::apply(MoveOpInterface move, Value input) {
  // Operands of a collective over the stages are in other Machines; the link has collected them.
  if (link && link->isOver(move))
    return link->result(stage, move);
  return ranks.apply(move, store.get(input));
}

/// Kinds of ops with effects have their own functions; the rest compute. A result that is added to a sum is added at
/// once.
LogicalResult Machine::runOp(Operation *op) {
  auto dispatch = [&]() -> LogicalResult {
    if (auto accumulate = dyn_cast<AccumulateOp>(op))
      return runAccumulate(accumulate);
    if (auto fusion = dyn_cast<FusionOp>(op))
      return runFusion(fusion);
    if (auto update = dyn_cast<UpdateOp>(op))
      return runUpdate(update);
    if (auto output = dyn_cast<OutputOp>(op))
      return runOutput(output);
    if (auto move = dyn_cast<MoveOpInterface>(op)) {
      // In an erased program, moves are identities, because each value is whole on the only rank.
      if (erased)
        return set(op->getResult(0), store.get(op->getOperand(0)));
      if (auto insert = dyn_cast<InsertOp>(op); insert && insert.getBase())
        return set(insert.getResult(), ranks.apply(move, store.get(insert.getX()), store.get(insert.getBase())));
      FailureOr<RankTensors> moved = apply(move, op->getOperand(0));
      return failed(moved) ? failure() : set(op->getResult(0), std::move(*moved));
    }
    if (isa<SendOp, ReceiveOp, TaskOp, MicrobatchOp, AddendOp>(op))
      return runStageOp(op);
    if (auto start = dyn_cast<StartOp>(op))
      return runStart(start);
    if (auto wait = dyn_cast<WaitOp>(op))
      return runWait(wait);
    return isLeaf(op) || isa<SeedOp>(op) ? runLeaf(op) : compute(op);
  };
  if (failed(dispatch()))
    return failure();
  for (Value result : op->getResults())
    if (!isa<TicketType>(result.getType()) && failed(check(op, result)))
      return failure();
  // A product may accumulate into a sum over microbatches right away, as its kernel does.
  for (OpOperand &use : op->getUses())
    if (addedAfter(use) && failed(addToSum(use)))
      return failure();
  return success();
}

/// Rounds a value of type bf16 before it is stored. Inside a fusion only yielded values are rounded.
LogicalResult Machine::set(Value value, RankTensors tensors) {
  auto yielded = [](Operation *user) { return isa<YieldOp>(user); };
  // Inside a kernel values stay in f32; only stored values are rounded.
  if (rounds && (!inFusion || llvm::any_of(value.getUsers(), yielded)) &&
      cast<RankedTensorType>(value.getType()).getElementType().isBF16())
    for (Tensor &tensor : tensors)
      llvm::transform(tensor.data, tensor.data.begin(), roundToBf16);
  if (store.set(value, std::move(tensors)))
    return success();
  return emitError(value.getLoc()) << "a value of type " << value.getType() << " is outside the arena";
}

LogicalResult Machine::setAll(ValueRange values, MutableArrayRef<RankTensors> tensors) {
  for (auto [value, own] : llvm::zip_equal(values, tensors))
    if (failed(set(value, std::move(own))))
      return failure();
  return success();
}

/// A leaf is drawn whole from the seed and then split, so it does not depend on the plan.
LogicalResult Machine::runLeaf(Operation *leaf) {
  if (auto offset = dyn_cast<BlockOffsetOp>(leaf)) {
    RankTensors tensors(ranks.count());
    for (auto [rank, tensor] : llvm::enumerate(tensors))
      tensor[0] = ranks.index(rank, axisList(offset.getAxes())) * offset.getBlock();
    return set(offset.getValue(), std::move(tensors));
  }
  FailureOr<Tensor> global = feeds.read(leaf);
  if (failed(global))
    return failure();
  if (options.feed)
    options.feed(leaf, *global);
  Value value = leaf->getResult(0);
  return set(value, ranks.split(*global, layoutOf(leaf, value).place));
}

/// Every rank evaluates the op on its own tensors, with its own offset.
LogicalResult Machine::compute(Operation *op) {
  EvaluateContext context;
  context.rounds = rounds;
  context.unrounded = options.exact ? &unrounded : nullptr;
  for (Type type : op->getResultTypes())
    context.shapes.push_back(localShape(type));
  SmallVector<const RankTensors *> operands;
  for (Value operand : op->getOperands())
    operands.push_back(&store.get(operand));
  SmallVector<RankTensors> outs(op->getNumResults());
  for (int64_t rank = 0; rank < ranks.count(); ++rank) {
    SmallVector<const Tensor *> in;
    for (const RankTensors *operand : operands)
      in.push_back(&(*operand)[rank]);
    context.offset = offsetOf(op, rank);
    if (auto drawn = dyn_cast<DrawnOpInterface>(op); drawn && drawn.getDropAttr()) {
      context.drawnStart = drawnStart(drawn, rank);
      context.drawnSizes = drawnSizes(drawn);
    }
    auto tensors = evaluate(op, in, context);
    if (failed(tensors))
      return failure();
    for (auto [i, tensor] : llvm::enumerate(*tensors)) {
      if (tensor.shape != context.shapes[i])
        return op->emitOpError() << "result " << i << " has a different shape on rank " << rank
                                 << " than its type says";
      outs[i].push_back(std::move(tensor));
    }
  }
  return setAll(op->getResults(), outs);
}

/// Ops without an indexed dim have the offset 0.
int64_t Machine::offsetOf(Operation *op, int64_t rank) {
  auto indexed = dyn_cast<IndexedOpInterface>(op);
  if (!indexed)
    return 0;
  // Local programs pass the offset as an operand; in placed programs it follows from the type.
  if (MutableOperandRange offset = indexed.getOffsetMutable(); !offset.empty()) {
    Value start = offset[0].get(); // for attention this may also be the key counts, not an offset
    return cast<RankedTensorType>(start.getType()).getRank() ? 0 : store.get(start)[rank][0];
  }
  auto [value, dim] = indexed.getIndexedDim();
  PlaceAttr place = erased ? PlaceAttr() : placement(value);
  return dim < 0 ? 0 : ranks.blockStart(rank, cast<RankedTensorType>(value.getType()).getShape(), place)[dim];
}

/// In placed programs the start follows from the placement, in local programs from operands for split dims.
Shape Machine::drawnStart(DrawnOpInterface op, int64_t rank) {
  DropAttr drop = op.getDropAttr();
  Shape start;
  for (IndexedDim dim : op.getDrawnDims()) {
    PlaceAttr place = erased ? PlaceAttr() : placement(dim.value);
    start.push_back(ranks.blockStart(rank, cast<RankedTensorType>(dim.value.getType()).getShape(), place)[dim.dim]);
  }
  MutableOperandRange offsets = op.getOffsetsMutable();
  for (auto [i, d] : llvm::enumerate(drop.getSplit()))
    start[d] = static_cast<int64_t>(store.get(offsets[i].get())[rank][0]);
  if (drop.getShift()) {
    IndexedDim last = op.getDrawnDims().back();
    int64_t block = cast<RankedTensorType>(last.value.getType()).getDimSize(last.dim), whole = drop.getGlobal().back();
    start.back() = ((start.back() - drop.getShift() * block) % whole + whole) % whole;
  }
  return start;
}

/// Element `m` along the first dim of every rank's tensor, without that dim.
static RankTensors element(ArrayRef<Tensor> stacks, int64_t m) {
  RankTensors elements;
  for (const Tensor &stack : stacks) {
    Shape start(stack.rank(), 0), sizes = stack.shape;
    start[0] = m;
    sizes[0] = 1;
    elements.push_back(stack.box(start, sizes));
    elements.back().shape.erase(elements.back().shape.begin());
  }
  return elements;
}

/// Runs views, addends, markers of tasks, and messages.
LogicalResult Machine::runStageOp(Operation *op) {
  if (auto microbatch = dyn_cast<MicrobatchOp>(op))
    return set(microbatch.getElement(), element(store.get(microbatch.getStack()), microbatch.getIndex()));
  if (auto addend = dyn_cast<AddendOp>(op))
    return set(addend.getResult(), store.get(addend.getX()));
  if (isa<TaskOp>(op))
    return success();
  if (!link)
    return op->emitOpError() << "can only be run together with the programs of all stages";
  if (auto send = dyn_cast<SendOp>(op)) {
    link->send(stage, send, store.get(send.getX()));
    return success();
  }
  auto receive = cast<ReceiveOp>(op);
  FailureOr<RankTensors> tensors = link->receive(stage, receive);
  return failed(tensors) ? failure() : set(receive.getValue(), std::move(*tensors));
}

/// Runs the body on one microbatch after another, and adds what it yields.
LogicalResult Machine::runAccumulate(AccumulateOp accumulate) {
  Block &body = accumulate.getBody().front();
  int64_t microbatches = accumulate.getMicrobatches();
  if (microbatches > 1) // the buffers of the sums are live from the start
    for (Value result : accumulate.getResults())
      if (failed(set(result, RankTensors(ranks.count(), Tensor(localShape(result.getType()))))))
        return failure();
  for (int64_t m = 0; m < microbatches; ++m) {
    for (auto [argument, input] : llvm::zip_equal(body.getArguments(), accumulate.getInputs()))
      store.setElement(argument, element(store.get(input), m), m);
    if (failed(runBlock(body)))
      return failure();
    for (OpOperand &use : body.getTerminator()->getOpOperands())
      if (!addedAfter(use) && failed(addToSum(use)))
        return failure();
  }
  return success();
}

/// The first microbatch is added to zeros, which were stored when the accumulation began.
LogicalResult Machine::addToSum(OpOperand &yielded) {
  auto accumulate = cast<AccumulateOp>(yielded.getOwner()->getParentOp());
  Value result = accumulate.getResult(yielded.getOperandNumber());
  RankTensors sum = store.get(yielded.get());
  if (accumulate.getMicrobatches() > 1)
    for (auto [s, before] : llvm::zip_equal(sum, store.get(result)))
      for (int64_t i = 0; i < s.size(); ++i)
        s[i] += before[i];
  return set(result, std::move(sum));
}

/// Values of the body have no homes, so nothing in the arena changes before the results are set.
LogicalResult Machine::runFusion(FusionOp fusion) {
  Block &body = fusion.getBody().front();
  for (auto [argument, input] : llvm::zip_equal(body.getArguments(), fusion.getInputs()))
    store.setElement(argument, store.get(input), 0);
  inFusion = true;
  LogicalResult ran = runBlock(body);
  inFusion = false;
  if (failed(ran))
    return failure();
  SmallVector<RankTensors> outs; // all sources are read before a result is written
  for (Value value : body.getTerminator()->getOperands())
    outs.push_back(store.get(value));
  return setAll(fusion.getResults(), outs);
}

/// The moves are carried out at once, on copies of the operands. The results stay here until the wait.
LogicalResult Machine::runStart(StartOp start) {
  WaitOp wait = start.getWait();
  std::vector<RankTensors> &results = inFlight[start];
  results.clear();
  for (auto [move, input] : llvm::zip_equal(start.getMoves(), start.getInputs())) {
    bool overStages = link && link->isOver(move); // other stages may not have contributed yet: runWait takes the result
    results.push_back(overStages ? store.get(input) : ranks.apply(move, store.get(input)));
  }
  for (Value result : wait->getResults())
    if (store.hasArena() &&
        failed(set(result, RankTensors(ranks.count(), Tensor(localShape(result.getType()), std::nan(""))))))
      return failure();
  return success();
}

/// Compares all bits.
static bool isSame(const RankTensors &a, const RankTensors &b) {
  return llvm::all_of(llvm::zip_equal(a, b), [](auto pair) {
    auto &[x, y] = pair;
    return x.data.size() == y.data.size() && !std::memcmp(x.data.data(), y.data.data(), x.data.size() * sizeof(double));
  });
}

/// Checks that nothing wrote the results, and nothing changed the operands, while the moves were in flight. A move that
/// may work in place is the exception.
LogicalResult Machine::runWait(WaitOp wait) {
  StartOp start = wait.getStart();
  std::vector<RankTensors> results = inFlight.lookup(start);
  for (auto [i, move] : llvm::enumerate(start.getMoves())) {
    Value input = start.getInputs()[i], result = wait.getResult(i);
    bool inPlace = store.hasArena() && store.homeOf(input) == store.homeOf(result);
    if (store.hasArena())
      for (const Tensor &tensor : store.get(result))
        if (!llvm::all_of(tensor.data, [](double x) { return std::isnan(x); }))
          return wait.emitOpError() << "finds that result " << i << " was written while the move was in progress";
    bool overStages = link && link->isOver(move);
    if (!inPlace && !isSame(overStages ? store.get(input) : ranks.apply(move, store.get(input)), results[i]))
      return wait.emitOpError() << "finds that input " << i
                                << " of its pc.start was changed while the move was in progress";
    if (!overStages)
      continue;
    FailureOr<RankTensors> moved = apply(move, input);
    if (failed(moved))
      return failure();
    results[i] = std::move(*moved);
  }
  return setAll(wait->getResults(), results);
}

/// With an arena, the new value is collected at the end, from the leaf's home.
LogicalResult Machine::runUpdate(UpdateOp update) {
  Value leaf = leaves.of(update);
  if (!leaf)
    return update.emitOpError() << "sets '" << update.getName()
                                << "', which is not a parameter or state of this program";
  if (!store.hasArena())
    return collectUpdate(update, update.getValue());
  updates.push_back(update);
  return set(leaf, store.get(update.getValue()));
}

/// Collects the new value of a parameter or a state, under the name that outputs have on one device.
LogicalResult Machine::collectUpdate(UpdateOp update, Value value) {
  StringRef parameter = update.getParameter().value_or(update.getName());
  std::string name = ("update " + update.getName()).str();
  if (update.getParameter())
    name += (" of " + *update.getParameter()).str();
  Value leaf = leaves.of(update); // in local programs only the leaf has the layout
  std::optional<Shape> valid = feeds.validShape(parameter, leaf.getDefiningOp<StateOp>());
  return collect(update, value, layoutOf(leaf.getDefiningOp(), leaf), name, valid ? &*valid : nullptr);
}

LogicalResult Machine::runOutput(OutputOp output) {
  std::string name = (stringifyOutputKind(output.getKind()) + " " + output.getName()).str();
  Shape valid(output.getValid().value_or(ArrayRef<int64_t>()));
  return collect(output, output.getValue(), layoutOf(output, output.getValue()), name,
                 output.getValid() ? &valid : nullptr);
}

/// Assembles the blocks of all ranks to one result. Ranks that should have equal data must have it.
LogicalResult Machine::collect(Operation *op, Value value, const LeafLayout &layout, const std::string &name,
                               const Shape *valid) {
  double disagreement = 0;
  const RankTensors &parts = store.get(value);
  if (parts[0].shape != ranks.localShape(layout.global, layout.place))
    return op->emitOpError() << "the value does not have the shape of a rank's block of " << name;
  // From here on the result does not depend on the plan: global shape, no padding, plain order of the sequence.
  Tensor whole = ranks.assemble(parts, layout.global, layout.place, disagreement);
  if (disagreement > options.tolerance)
    return op->emitOpError() << "ranks have different values of " << name << ": relative difference "
                             << llvm::formatv("{0:e}", disagreement).str();
  if (valid)
    whole = whole.box(Shape(valid->size(), 0), *valid);
  if (auto output = dyn_cast<OutputOp>(op); output && output.getKind() == OutputKind::Logits)
    whole = reorderSequence(op, whole, 1, /*back=*/true);
  Tensor *before = find(results, name);
  if (!before) {
    results.push_back({name, std::move(whole)});
    return success();
  }
  auto output = dyn_cast<OutputOp>(op); // seen once per microbatch
  bool perMicrobatch = isa<AccumulateOp>(op->getParentOp()) || link;
  if (!output || !perMicrobatch)
    return op->emitOpError() << "outputs '" << name << "' a second time";
  // Logits of microbatches are concatenated along the batch; other outputs are sums.
  Tensor &seen = *before;
  if (output.getKind() == OutputKind::Logits) {
    seen.data.insert(seen.data.end(), whole.data.begin(), whole.data.end());
    seen.shape[0] += whole.shape[0];
  } else {
    for (int64_t i = 0; i < seen.size(); ++i)
      seen[i] += whole[i];
  }
  return success();
}

bool Machine::isLossy(Operation *op, Value value) {
  auto has = [&](Value operand) { return lossy.contains(operand); };
  bool is = llvm::any_of(op->getOperands(), has);
  if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
    Block &body = accumulate.getBody().front();
    is = has(body.getTerminator()->getOperand(cast<OpResult>(value).getResultNumber()));
    for (auto [argument, input] : llvm::zip_equal(body.getArguments(), accumulate.getInputs()))
      if (has(input))
        lossy.insert(argument);
  }
  if (is)
    lossy.insert(value);
  return is;
}

LogicalResult Machine::checkSumOfCodes(MoveOpInterface move, const Tensor &whole, const Tensor &found) {
  RankTensors bounds;
  for (const Tensor &part : store.get(move->getOperand(0)))
    bounds.push_back(boundOfRounding(part, move.getMoveWire()));
  Ranks exact = ranks;
  exact.exact = true;
  double disagreement = 0;
  Value sum = move->getResult(0);
  Tensor bound = ranks.assemble(exact.apply(move, bounds), whole.shape, placement(sum), disagreement);
  // Sums of addends on one device and on several ranks differ by `tolerance`.
  const double slack = options.tolerance * std::max(largestElement(whole), 1e-6);
  for (int64_t i = 0; i < whole.size(); ++i)
    if (double difference = std::abs(found[i] - whole[i]); !(difference <= bound[i] * (1 + 1e-6) + slack))
      return move->emitOpError() << "differs in element " << i << " by " << llvm::formatv("{0:e}", difference).str()
                                 << " from the sum on one device, while codes explain at most "
                                 << llvm::formatv("{0:e}", bound[i]).str();
  return success();
}

/// Compares with the trace if there is one, else only the ranks with each other.
LogicalResult Machine::check(Operation *op, Value value) {
  if (record)
    record->push_back(store.get(value)[0]);
  if (options.observe && ranks.count() == 1 && (record || !expected))
    options.observe(value, store.get(value)[0]);
  double disagreement = 0;
  if (link && placement(value)) // there is no trace, so the ranks are compared with each other
    ranks.assemble(store.get(value), cast<RankedTensorType>(value.getType()).getShape(), placement(value),
                   disagreement);
  auto refuse = [&](const Twine &what, double difference) {
    return op->emitOpError() << what << ": relative difference " << llvm::formatv("{0:e}", difference).str()
                             << ", type " << value.getType();
  };
  if (disagreement > options.tolerance)
    return refuse("ranks of a stage have different values of a tensor that should be the same", disagreement);
  if (!expected)
    return success();
  const Tensor &whole = (*expected)[next++];
  Tensor found = ranks.assemble(store.get(value), whole.shape, placement(value), disagreement);
  double difference = largestDifference(whole, found);
  if (disagreement > options.tolerance)
    return refuse("ranks have different values of a tensor that should be the same", disagreement);
  if (!options.exact && isLossy(op, value))
    return success();
  if (auto move = dyn_cast<MoveOpInterface>(op); move && move.getMoveWire() && !options.exact) {
    lossy.insert(value);
    return rounds ? success() : checkSumOfCodes(move, whole, found);
  }
  if (difference > options.tolerance && !rounds)
    return refuse("gives a different result on " + Twine(ranks.count()) + " ranks than on one device", difference);
  return success();
}

LeafLayout Machine::layoutOf(Operation *op, Value value) const {
  LeafLayout layout = leafLayout(op, value);
  if (erased)
    layout.place = {};
  return layout;
}

Shape Machine::localShape(Type type) const {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
  return erased ? Shape(shape) : ranks.localShape(shape, placement(type));
}
