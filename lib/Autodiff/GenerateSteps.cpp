//===- GenerateSteps.cpp - Forward pass of a decoder -> one step that generates ------------------===//
// The model's ops stay as they are, with other sizes: batch rows are groups of slots, and the sequence is the tokens of
// a step. Each token has a slot and a position. Values of positions are looked up by the tokens' positions, attention
// reads caches, and only the rows that choose a token go through the head.
//===--------------------------------------------------------------------------------------------===//
#define GEN_PASS_DEF_GENERATESTEPS
#include "pc/Autodiff/Passes.h"

#include "LayerOrder.h"
#include "pc/IR/DimClasses.h"
#include "pc/IR/Generation.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pc;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The sizes of a step.
struct StepSizes {
  int64_t groups, slots, rows, context, parts; ///< `rows`: slots that choose a token in one step
  bool sampling;
};

/// Rewrites one function that computes a model. State: the function, its inputs, and the logits that it chooses from.
class StepWriter {
public:
  /// The step reads `size` tokens per group. The names of its inputs and outputs end with `suffix`.
  StepWriter(func::FuncOp model, ProgramOp program, const StepSizes &sizes, int64_t size, StringRef suffix)
      : model(model), program(program), sizes(sizes), size(size), suffix(suffix), builder(model) {}

  LogicalResult write() {
    if (failed(findInputs()) || failed(findLogits()))
      return failure();
    dropTraining();
    if (failed(cacheAttention()) || failed(lookUpPositions()))
      return failure();
    chooseRows();
    if (failed(checkTokensApart()))
      return failure();
    resize();
    chooseTokens();
    sweep();
    return success();
  }

private:
  LogicalResult findInputs();
  LogicalResult findLogits();
  void dropTraining();
  LogicalResult cacheAttention();
  LogicalResult lookUpPositions();
  void chooseRows();
  LogicalResult checkTokensApart();
  void resize();
  void chooseTokens();
  void sweep();

  Value dataInput(StringRef name, ArrayRef<StringRef> dims, ArrayRef<int64_t> shape, Type element, int64_t below);
  Value cacheOf(StringRef kind, StringRef owner, Value x);
  Value attend(AttentionOp attention, Value keys, Value values);
  Value lookUp(Value table);
  /// Returns true if `value` has rows of positions, the same ones for all sequences of the batch.
  bool isByPosition(DimClasses &classes, Value value);

  func::FuncOp model;
  ProgramOp program;
  const StepSizes &sizes;
  const int64_t size;
  StringRef suffix;
  OpBuilder builder;
  InputOp tokens;
  Value logits, slotOf, positionOf, chosen; ///< the logits, and inputs
  llvm::DenseMap<Value, Value> lookedUp;    ///< by table of positions
};

/// The pass pc-generate-steps. It rewrites @model in place and renames it to @step.
struct GenerateSteps : pc::impl::GenerateStepsBase<GenerateSteps> {
  using GenerateStepsBase::GenerateStepsBase;

  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model) {
      getOperation().emitError() << "pc-generate-steps: this module has no function @model";
      return signalPassFailure();
    }
    if (failed(checkOptions(model)))
      return signalPassFailure();
    // Layers must be in order, because attention is numbered.
    sortByLayers(model.getBody().front());
    func::FuncOp other = chunk ? model.clone() : func::FuncOp();
    if (other) {
      other.setSymName("chunk");
      getOperation().push_back(other);
    }
    if (failed(StepWriter(model, program, sizes, size, "").write()) ||
        (other && failed(StepWriter(other, program, sizes, chunk, ".chunk").write())))
      return signalPassFailure();
    if (other)
      append(model, other);
    model.setSymName("step");
    program.setBatch(sizes.groups);
    program.setSequence(sizes.context);
  }

private:
  LogicalResult checkOptions(func::FuncOp model);
  void append(func::FuncOp step, func::FuncOp other);

  ProgramOp program;
  StepSizes sizes;
};

} // namespace

/// Moves the ops of `other` to the end of `step`. Both have the same parameters, tables and caches. The caches of
/// `other` are erased, and its ops write into the caches of `step`, after the ops of `step`.
void GenerateSteps::append(func::FuncOp step, func::FuncOp other) {
  llvm::StringMap<Value> leaves; // the key is the text of the op
  auto textOf = [](Operation *leaf) {
    std::string text;
    llvm::raw_string_ostream os(text);
    leaf->getAttrDictionary().print(os);
    os << leaf->getResult(0).getType() << leaf->getName();
    return text;
  };
  auto isShared = [](Operation &op) { return isa<ParameterOp, StateOp, RopeTableOp>(op); };
  for (Operation &op : step.getBody().front())
    if (isShared(op))
      leaves[textOf(&op)] = op.getResult(0);
  for (UpdateOp update : llvm::make_early_inc_range(step.getOps<UpdateOp>())) {
    Value cache = update.getValue().getDefiningOp<CacheWriteOp>().getCache();
    leaves[textOf(cache.getDefiningOp())] = update.getValue();
    update.erase();
  }
  for (Operation &op : llvm::make_early_inc_range(other.getBody().front())) {
    Value known = isShared(op) ? leaves.lookup(textOf(&op)) : Value();
    if (known) {
      op.getResult(0).replaceAllUsesWith(known);
      op.erase();
    } else if (!isa<func::ReturnOp>(op)) {
      op.moveBefore(step.getBody().front().getTerminator());
    }
  }
  other.erase();
}

LogicalResult GenerateSteps::checkOptions(func::FuncOp model) {
  for (ProgramOp op : getOperation().getOps<ProgramOp>())
    program = op;
  if (!program)
    return model.emitError() << "pc-generate-steps: the module needs a pc.program";
  sizes = {groups,
           slots,
           slots / std::max<int64_t>(microbatches, 1),
           context ? context : static_cast<int64_t>(program.getSequence()),
           parts,
           sampling};
  auto refuse = [&](const Twine &text) { return model.emitError() << "pc-generate-steps: " << text; };
  if (sizes.groups < 1 || sizes.slots < 1 || size < 1 || sizes.context < 1 || sizes.parts < 1 || chunk < 0)
    return refuse("groups, slots, context, parts and size must be positive, and chunk not negative");
  if (sizes.context % sizes.parts)
    return refuse("a context of " + Twine(sizes.context) + " tokens cannot be divided evenly over " +
                  Twine(sizes.parts) + " ranks; use --context=" + Twine(sizes.context / sizes.parts * sizes.parts));
  if (microbatches < 1 || slots % microbatches)
    return refuse(Twine(slots) + " slots are not a multiple of " + Twine(microbatches) + " microbatches");
  if (size < sizes.rows)
    return refuse("a step of " + Twine(size) + " tokens is too small for " + Twine(sizes.rows) +
                  " slots: every slot needs one");
  if (sizes.context > static_cast<int64_t>(program.getSequence()))
    return refuse("a context of " + Twine(sizes.context) + " tokens is longer than the model's sequence of " +
                  Twine(program.getSequence()) + "; import the model with --seq=" + Twine(sizes.context));
  return success();
}

/// A decoder reads tokens. All other inputs belong to training.
LogicalResult StepWriter::findInputs() {
  for (InputOp input : model.getOps<InputOp>()) {
    switch (input.getKind()) {
    case InputKind::Tokens:
      tokens = input;
      break;
    case InputKind::Targets:
    case InputKind::LossWeights:
    case InputKind::Random:
      break;
    case InputKind::Starts:
    case InputKind::Positions:
      return input.emitError() << "a program that generates has no documents; import the model without --documents";
    default:
      return input.emitError() << "a program that generates reads only tokens, not an input of kind "
                               << stringifyInputKind(input.getKind());
    }
  }
  if (!tokens)
    return model.emitError() << "a program that generates needs an input of tokens";
  return success();
}

/// Finds the logits that the loss reads, in which padding of the vocabulary is masked; without a loss, the output.
LogicalResult StepWriter::findLogits() {
  OutputOp shown;
  for (OutputOp output : model.getOps<OutputOp>())
    if (output.getKind() == OutputKind::Logits)
      shown = output;
  if (shown)
    logits = shown.getValue();
  for (CrossEntropyOp loss : model.getOps<CrossEntropyOp>())
    logits = loss.getLogits();
  if (!logits || typeOf(logits).getRank() != 3)
    return model.emitError() << "a program that generates needs logits of [batch, sequence, vocabulary]";
  return success();
}

/// Removes the outputs with all ops that only they need, and dropout.
void StepWriter::dropTraining() {
  for (OutputOp output : llvm::make_early_inc_range(model.getOps<OutputOp>()))
    output.erase();
  for (DropoutOp dropout : llvm::make_early_inc_range(model.getOps<DropoutOp>())) {
    if (logits == dropout.getResult())
      logits = dropout.getX();
    dropout.getResult().replaceAllUsesWith(dropout.getX());
    dropout.erase();
  }
  builder.setInsertionPointAfter(tokens);
  int64_t rows = typeOf(tokens.getValue()).getDimSize(0), length = typeOf(tokens.getValue()).getDimSize(1);
  Type i32 = builder.getI32Type();
  Value ids = dataInput("tokens", {"batch", "sequence"}, {rows, length}, i32, program.getVocabulary());
  tokens.getValue().replaceAllUsesWith(ids);
  slotOf = dataInput("slots", {"batch", "sequence"}, {rows, length}, i32, sizes.slots + 1);
  positionOf = dataInput("positions", {"batch", "sequence"}, {rows, length}, i32, sizes.context);
  chosen = dataInput("chosen", {"batch", "chosen"}, {rows, sizes.rows}, i32, size);
  tokens.erase();
  tokens = ids.getDefiningOp<InputOp>();
  // Erases ops whose results nothing reads, from the last to the first. The logits have no reader yet, but are kept.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(model.getBody().front())))
    if (op.getNumResults() && op.use_empty() && op.getResult(0) != logits && &op != tokens &&
        !llvm::is_contained({slotOf, positionOf, chosen}, op.getResult(0)))
      op.erase();
}

Value StepWriter::dataInput(StringRef name, ArrayRef<StringRef> dims, ArrayRef<int64_t> shape, Type element,
                            int64_t below) {
  StringAttr full = builder.getStringAttr(name + suffix);
  return InputOp::create(builder, NameLoc::get(full), RankedTensorType::get(shape, element), InputKind::Data,
                         builder.getStrArrayAttr(dims), nullptr, nullptr, nullptr, full,
                         below ? builder.getI64IntegerAttr(below) : nullptr, nullptr);
}

/// A cache for the keys or the values `x` [b, s, k, d] of one attention.
Value StepWriter::cacheOf(StringRef kind, StringRef owner, Value x) {
  ArrayRef<int64_t> of = typeOf(x).getShape();
  OpBuilder leaves(tokens);
  SmallVector<int64_t> shape = {of[0], sizes.slots, of[2], sizes.context / sizes.parts, of[3]};
  SmallVector<StringRef> dims = {"batch", "slot", "kv_heads", "cached", "head_dim"};
  if (sizes.parts > 1) {
    shape.insert(shape.begin(), sizes.parts);
    dims.insert(dims.begin(), "parts");
  }
  auto type = RankedTensorType::get(shape, typeOf(x).getElementType());
  Value cache = StateOp::create(leaves, x.getLoc(), type, builder.getStringAttr(kind), builder.getStringAttr(owner),
                                builder.getStrArrayAttr(dims), nullptr, nullptr, builder.getUnitAttr());
  Value written = CacheWriteOp::create(builder, x.getLoc(), type, cache, x, slotOf, positionOf, Value());
  UpdateOp::create(builder, x.getLoc(), builder.getStringAttr(kind), builder.getStringAttr(owner), written);
  return written;
}

/// Attention to the caches. Results of parts are summed with the softmax of their logarithms as weights.
Value StepWriter::attend(AttentionOp attention, Value keys, Value values) {
  RankedTensorType type = typeOf(attention.getO()), ofParts = type, lse;
  if (sizes.parts > 1) {
    SmallVector<int64_t> shape(type.getShape()), rows(type.getShape().drop_back());
    shape.insert(shape.begin(), sizes.parts);
    rows.push_back(sizes.parts);
    ofParts = RankedTensorType::get(shape, type.getElementType());
    lse = RankedTensorType::get(rows, builder.getF32Type());
  }
  Location loc = attention.getLoc();
  auto cached = CachedAttentionOp::create(
      builder, loc, ofParts, lse, attention.getQ(), keys, values, slotOf, positionOf, attention.getBias(),
      attention.getSinks(), Value(), attention.getScaleAttr(), attention.getWindowAttr(), attention.getSoftcapAttr());
  if (!lse)
    return cached.getO();
  Value weights = SoftmaxOp::create(builder, loc, lse, cached.getLse());
  return EinsumOp::create(builder, loc, type, "r b s k g d, b s k g r -> b s k g d",
                          ValueRange{cached.getO(), weights});
}

/// Keys and values go into caches, which attention reads.
LogicalResult StepWriter::cacheAttention() {
  int64_t number = 0;
  for (AttentionOp attention : llvm::make_early_inc_range(model.getOps<AttentionOp>())) {
    auto refuse = [&](StringRef why) {
      return attention.emitError() << "a program that generates cannot have " << why;
    };
    if (!attention.getCausal())
      return refuse("attention that is not causal: its tokens would see those that are not generated yet");
    if (attention.getStarts() || attention.getSees())
      return refuse("attention to a part of the sequence");
    std::string owner = "attention " + std::to_string(number++);
    builder.setInsertionPoint(attention);
    Value keys = cacheOf("keys", owner, attention.getK()), values = cacheOf("values", owner, attention.getV());
    Value bias = attention.getBias();
    if (bias && typeOf(bias).getDimSize(2) != 2 * sizes.context - 1)
      return refuse("a bias for " + std::to_string((typeOf(bias).getDimSize(2) + 1) / 2) +
                    " positions with a context of " + std::to_string(sizes.context) +
                    "; import the model with this --seq");
    attention.getO().replaceAllUsesWith(attend(attention, keys, values));
    attention.erase();
  }
  if (!number)
    return model.emitError() << "a program that generates needs causal attention, which this model does not have";
  return success();
}

bool StepWriter::isByPosition(DimClasses &classes, Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  unsigned batch = classes.classOf(tokens.getValue(), 0), sequence = classes.classOf(tokens.getValue(), 1);
  if (!type || type.getRank() == 0 || classes.classOf(value, 0) != sequence)
    return false;
  return llvm::none_of(llvm::seq<int64_t>(1, type.getRank()), [&](int64_t d) {
    return classes.classOf(value, d) == batch || classes.classOf(value, d) == sequence;
  });
}

/// The rows of `table` at the positions of the step's tokens: [s, ...] -> [b, s, ...].
Value StepWriter::lookUp(Value table) {
  Value &rows = lookedUp[table];
  if (rows)
    return rows;
  OpBuilder at(builder.getContext());
  at.setInsertionPointAfterValue(table);
  if (table.getDefiningOp()->isBeforeInBlock(positionOf.getDefiningOp()))
    at.setInsertionPointAfterValue(positionOf);
  SmallVector<int64_t> shape(typeOf(positionOf).getShape());
  llvm::append_range(shape, typeOf(table).getShape().drop_front());
  return rows = EmbeddingOp::create(at, table.getLoc(), RankedTensorType::get(shape, typeOf(table).getElementType()),
                                    table, positionOf, Value(), IntegerAttr(), IntegerAttr());
}

/// Only few ops combine rotary tables or rows of learned positions with values of tokens. The lookups are placed there.
LogicalResult StepWriter::lookUpPositions() {
  // Uses are collected before any lookup is written, because `classes` describes the program without lookups.
  DimClasses classes(model);
  SmallVector<std::pair<OpOperand *, bool>> uses; // and whether the op is an einsum
  WalkResult walked = model.walk([&](Operation *op) -> WalkResult {
    if (!isa<FactorOpInterface>(op) ||
        llvm::all_of(op->getResults(), [&](Value v) { return isByPosition(classes, v); }))
      return WalkResult::advance();
    for (OpOperand &use : op->getOpOperands()) {
      if (!isByPosition(classes, use.get()))
        continue;
      if (!isa<RopeOp, EinsumOp>(op))
        return op->emitError() << "a program that generates cannot have '" << op->getName()
                               << "' with an operand of tokens and one of rows for positions";
      uses.push_back({&use, isa<EinsumOp>(op)});
    }
    return WalkResult::advance();
  });
  if (walked.wasInterrupted())
    return failure();
  for (auto [use, isEinsum] : uses) {
    unsigned number = use->getOperandNumber();
    // Rows for positions have no batch, but looked-up rows differ between sequences. In the result, the batch is the
    // dim before the sequence; its letter is put in front of the operand's letters.
    if (isEinsum) { // the operand gets the dim of the batch
      auto einsum = cast<EinsumOp>(use->getOwner());
      FactorRule rule = einsum.getFactorRule();
      const auto *sequence = llvm::find(rule.results[0], rule.operands[number][0]);
      if (sequence == rule.results[0].begin() || sequence == rule.results[0].end())
        return einsum.emitError() << "a program that generates cannot sum over positions";
      const std::string &batch = rule.factors[*std::prev(sequence)].name;
      auto [operands, result] = einsum.getSpec().split("->");
      SmallVector<StringRef> parts;
      operands.split(parts, ',');
      std::string changed = batch + " " + parts[number].trim().str();
      parts[number] = changed;
      einsum.setSpec(llvm::join(parts, ", ") + " ->" + result.str());
    }
    use->set(lookUp(use->get()));
  }
  return success();
}

/// Starts at the logits and follows ops with a single operand that has tokens, back to the norm before the head. There
/// it selects the rows that choose a token.
void StepWriter::chooseRows() {
  DimClasses classes(model);
  unsigned batch = classes.classOf(tokens.getValue(), 0), sequence = classes.classOf(tokens.getValue(), 1);
  auto hasTokens = [&](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.getRank() >= 2 && classes.classOf(value, 0) == batch && classes.classOf(value, 1) == sequence;
  };
  Value at = logits;
  OpOperand *edge = nullptr;
  while (Operation *op = at.getDefiningOp()) {
    SmallVector<OpOperand *> operands;
    for (OpOperand &use : op->getOpOperands())
      if (hasTokens(use.get()))
        operands.push_back(&use);
    // The layers end at a residual sum.
    if (operands.size() != 1 || (at != logits && !at.hasOneUse()))
      break;
    edge = operands[0];
    at = edge->get();
    if (isa<LayerNormOp, RMSNormOp>(op))
      break;
  }
  if (edge)
    builder.setInsertionPoint(edge->getOwner());
  else
    builder.setInsertionPointAfterValue(logits);
  Value x = edge ? edge->get() : logits;
  SmallVector<int64_t> shape(typeOf(x).getShape());
  shape[1] = sizes.rows;
  Value rows = EmbeddingOp::create(builder, x.getLoc(), RankedTensorType::get(shape, typeOf(x).getElementType()), x,
                                   chosen, Value(), IntegerAttr(), builder.getI64IntegerAttr(1));
  if (!edge) {
    logits = rows;
    return;
  }
  edge->set(rows);
  DimClasses after(model);
  after.resize(after.classOf(rows, 1), sizes.rows);
}

/// Except in attention, no op may relate tokens of a step to each other, because they are of several sequences.
LogicalResult StepWriter::checkTokensApart() {
  DimClasses classes(model);
  unsigned sequence = classes.classOf(tokens.getValue(), 1);
  WalkResult walked = model.walk([&](Operation *op) -> WalkResult {
    auto factored = dyn_cast<FactorOpInterface>(op);
    if (!factored || isa<CacheWriteOp, CachedAttentionOp>(op))
      return WalkResult::advance();
    FactorRule rule = factored.getFactorRule();
    for (auto [operand, dims] : llvm::zip(op->getOperands(), rule.operands))
      for (auto [d, factor] : llvm::enumerate(dims)) {
        if (classes.classOf(operand, d) != sequence)
          continue;
        bool isTaken = operand == op->getOperand(0) && isa<EmbeddingOp>(op) && op->getOperand(1) == chosen;
        bool isKept =
            llvm::all_of(rule.results, [&](ArrayRef<int> result) { return llvm::is_contained(result, factor); });
        if (!isTaken && (rule.factors[factor].whole || isDivided(op, rule, factor) || !isKept))
          return op->emitError() << "a program that generates cannot have '" << op->getName()
                                 << "', which relates the tokens of a sequence to each other";
      }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

/// Batch rows become groups, and the sequence becomes the tokens of a step.
void StepWriter::resize() {
  DimClasses classes(model);
  unsigned batch = classes.classOf(tokens.getValue(), 0), sequence = classes.classOf(tokens.getValue(), 1);
  classes.resize(batch, sizes.groups);
  classes.resize(sequence, size);
}

/// The class with the largest logit, with noise if tokens are sampled, and its logarithmic probability. Classes are
/// f32, in which ids of vocabularies are exact, so that one maximum finds both.
void StepWriter::chooseTokens() {
  builder.setInsertionPoint(model.getBody().front().getTerminator());
  Location loc = NameLoc::get(builder.getStringAttr("choice"));
  Type f32 = builder.getF32Type();
  const int64_t classes = typeOf(logits).getDimSize(2);
  auto row = RankedTensorType::get({sizes.groups, sizes.rows}, f32),
       all = RankedTensorType::get({sizes.groups, sizes.rows, classes}, f32);
  auto ids = RankedTensorType::get({classes}, f32);
  if (typeOf(logits) != all)
    logits = CastOp::create(builder, loc, all, logits);
  Value scores = logits;
  if (sizes.sampling) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfterValue(chosen);
    Value settings = dataInput("sampling", {"batch", "chosen", "setting"}, {sizes.groups, sizes.rows, 4}, f32, 0);
    Value seeds =
        dataInput("seeds", {"batch", "chosen", "word"}, {sizes.groups, sizes.rows, 3}, builder.getI32Type(), INT64_MAX);
    builder.setInsertionPoint(model.getBody().front().getTerminator());
    Value least = SamplingThresholdOp::create(builder, loc, row, logits, settings);
    scores = GumbelOp::create(builder, loc, all, logits, settings, seeds, least, Value());
  }
  auto spread = [&](StringRef spec, Value x) -> Value {
    return EinsumOp::create(builder, loc, all, spec, ValueRange{x});
  };
  auto largest = [&](Value x) -> Value { return ReduceMaxOp::create(builder, loc, row, "b m v -> b m", x); };
  Value numbers = CastOp::create(builder, loc, ids,
                                 IotaOp::create(builder, loc, RankedTensorType::get({classes}, builder.getI32Type()),
                                                Value(), IntegerAttr(), DenseI64ArrayAttr(), DenseI64ArrayAttr()));
  Value negated = spread("v -> b m v", ScaleOp::create(builder, loc, ids, numbers, builder.getF64FloatAttr(-1)));
  Value none = spread("-> b m v",
                      ConstantOp::create(builder, loc, RankedTensorType::get({}, f32), builder.getF64FloatAttr(-1e9)));
  Value best = spread("b m -> b m v", largest(scores));
  // If logits are equal, the first class is chosen: the one whose negated number is the largest.
  Value choice = largest(SelectOp::create(builder, loc, all, ComparisonKind::Equal, scores, best, negated, none));
  Value isChoice = spread("b m -> b m v", choice);
  Value low = spread("-> b m v",
                     ConstantOp::create(builder, loc, RankedTensorType::get({}, f32), builder.getF64FloatAttr(-1e30)));
  Value logit = largest(SelectOp::create(builder, loc, all, ComparisonKind::Equal, negated, isChoice, logits, low));
  Value top = largest(logits), sum = SumExpOp::create(builder, loc, row, logits, top);
  Value logprob = SubOp::create(builder, loc, row, SubOp::create(builder, loc, row, logit, top),
                                LogOp::create(builder, loc, row, sum));
  Value token = ScaleOp::create(builder, loc, row, choice, builder.getF64FloatAttr(-1));
  auto show = [&](StringRef name, Value value) {
    OutputOp::create(builder, loc, OutputKind::Generated, (name + suffix).str(), value, nullptr, nullptr, nullptr);
  };
  show("token", token);
  show("logprob", logprob);
}

/// Removes inputs and parameters that only training read. Outputs with the choices of experts are also removed.
void StepWriter::sweep() {
  for (TopKOp choice : model.getOps<TopKOp>())
    choice.removeLayerAttr();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(model.getBody().front()))) {
    auto input = dyn_cast<InputOp>(op);
    if (op.getNumResults() && op.use_empty() && !(input && input.getKind() == InputKind::Data))
      op.erase();
  }
}
