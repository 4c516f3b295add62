//===- Differentiate.cpp - Forward pass and loss -> one training step -----------------===//
// The model's ops become the body of `pc.accumulate`, with the batch of one microbatch. Reverse mode appends the
// backward pass after `pc.seed`, and the optimizer follows the accumulation.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_DIFFERENTIATE
#include "pc/Autodiff/Passes.h"

#include "BatchSums.h"
#include "CheckInputs.h"
#include "Gradients.h"
#include "LayerOrder.h"
#include "Sparsity.h"
#include "pc/Autodiff/Optimizers.h"
#include "pc/IR/Layers.h"
#include "pc/IR/MoveRows.h"
#include "pcrt/average.h"
#include "pcrt/description.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// The pass pc-differentiate. It checks the model, divides the batch, writes the step, and removes the model.
struct Differentiate : pc::impl::DifferentiateBase<Differentiate> {
  using DifferentiateBase::DifferentiateBase;

  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model) {
      getOperation().emitError() << "pc-differentiate: this module has no function @model";
      return signalPassFailure();
    }
    Optimizers all;
    optimizers = &all;
    if (optimizer == "none")
      dropNothing(model);
    else if (failed(all.read(getOperation(), model, optimizer)))
      return signalPassFailure();
    // Layers must be in order before the backward pass is built from them. The model function is not needed afterwards.
    sortByLayers(model.getBody().front());
    if (failed(shrinkBatch(model)) || failed(buildStep(model)))
      return signalPassFailure();
    model.erase();
    for (OptimizerOp definition : llvm::make_early_inc_range(getOperation().getOps<OptimizerOp>()))
      definition.erase();
  }

  /// Removes dropout, for a program that only evaluates the model.
  static void dropNothing(func::FuncOp model) {
    model.walk([](Operation *op) {
      if (auto attention = dyn_cast<AttentionOp>(op)) {
        attention.getRandomMutable().clear();
        attention.removeDropAttr();
      } else if (auto dropout = dyn_cast<DropoutOp>(op)) {
        dropout.getResult().replaceAllUsesWith(dropout.getX());
        dropout.erase();
      }
    });
    for (InputOp input : llvm::to_vector(model.getOps<InputOp>()))
      if (input.getKind() == InputKind::Random && input->use_empty())
        input.erase();
  }

  /// Divides the batch by the number of microbatches in every type.
  LogicalResult shrinkBatch(func::FuncOp model) {
    if (microbatches < 1)
      return model.emitError() << "microbatches must be positive, got " << int64_t(microbatches);
    FailureOr<int64_t> found = checkInputs(model);
    if (failed(found) || failed(checkFrozen(model)))
      return failure();
    int64_t batch = *found;
    if (batch % microbatches)
      return model.emitError() << "a batch of " << batch << " does not divide into " << int64_t(microbatches)
                               << " microbatches; the nearest numbers that do are " << nearestDivisors(batch);
    if (microbatches > 1) {
      DimClasses classes(model);
      std::set<unsigned> sequences = batchClasses(model, classes);
      if (failed(checkBatchSums(model, classes, sequences, microbatches)))
        return failure();
      for (unsigned id : sequences)
        classes.resize(id, batch / microbatches);
    }
    return success();
  }

  /// Numbers of microbatches that would work, for an error.
  std::string nearestDivisors(int64_t batch) {
    int64_t below = std::min<int64_t>(microbatches, batch), above = microbatches;
    while (below > 1 && batch % below)
      --below;
    while (above < batch && batch % above)
      ++above;
    return above > batch ? std::to_string(below) : std::to_string(below) + " or " + std::to_string(above);
  }

  LogicalResult buildStep(func::FuncOp model);
  LogicalResult buildBody(func::FuncOp model, OpBuilder &body, IRMapping &mapping,
                          SmallVectorImpl<ParameterOp> &parameters, SmallVectorImpl<Value> &yields);
  LogicalResult optimize(OpBuilder &builder, MutableArrayRef<ParameterOp> parameters, ValueRange gradients);
  void addSetting(ParameterOp parameter, StringRef group, StringRef name, Attribute value);
  static LogicalResult checkStatesOfTile(ParameterOp parameter);
  void average(OpBuilder &builder, ParameterOp parameter, Value updated, Value coefficient);

  Location location(StringRef name) { return NameLoc::get(StringAttr::get(&getContext(), name)); }

  Optimizers *optimizers = nullptr;
};

/// The values of one expanded cross-entropy, or logsumexp, that its gradient reads.
struct Loss {
  Value logits, max, sumExp, targets, result; ///< A logsumexp has no targets.
};

/// log(sum(exp(logits - max))) + max - logits[target]; the gradient reads the maximum and the sum again.
Loss expandLoss(OpBuilder &builder, Operation *op, const IRMapping &mapping) {
  Location loc = op->getLoc();
  Loss loss;
  loss.logits = mapping.lookup(op->getOperand(0));
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  std::string rows = dimLetters(op->getResult(0));
  loss.max = ReduceMaxOp::create(builder, loc, type, rows + " v -> " + rows, loss.logits);
  loss.sumExp = SumExpOp::create(builder, loc, type, loss.logits, loss.max);
  Value picked;
  if (isa<CrossEntropyOp>(op)) {
    loss.targets = mapping.lookup(op->getOperand(1));
    picked = PickOp::create(builder, loc, type, loss.logits, loss.targets, Value());
  }
  loss.result = AddOp::create(builder, loc, type, LogOp::create(builder, loc, type, loss.sumExp), loss.max);
  if (picked)
    loss.result = SubOp::create(builder, loc, type, loss.result, picked);
  return loss;
}

/// The gradient of the logits, from the gradient `dy` of the result. For a logsumexp it is dy exp(logits - result).
Value lossGradient(OpBuilder &builder, Location loc, const Loss &loss, Value dy) {
  auto type = cast<RankedTensorType>(loss.logits.getType());
  if (loss.targets)
    return CrossEntropyGradOp::create(builder, loc, type, loss.logits, loss.max, loss.sumExp, loss.targets, dy,
                                      Value());
  std::string rows = dimLetters(loss.result), all = rows + " v";
  Value results = EinsumOp::create(builder, loc, type, rows + " -> " + all, ValueRange{loss.result});
  Value share = ExpOp::create(builder, loc, type, SubOp::create(builder, loc, type, loss.logits, results));
  return EinsumOp::create(builder, loc, type, all + ", " + rows + " -> " + all, ValueRange{share, dy});
}

/// All values that depend on a parameter, through which gradients flow. Choices of experts have no gradient.
llvm::DenseSet<Value> dependents(Block &block, ArrayRef<Value> parameters) {
  llvm::DenseSet<Value> live(parameters.begin(), parameters.end());
  for (Operation &op : block)
    if (!isa<TopKOp, TopGroupsOp, AdmitOp>(op) &&
        llvm::any_of(op.getOperands(), [&](Value v) { return live.contains(v); }))
      live.insert(op.result_begin(), op.result_end());
  return live;
}

} // namespace

/// The step around the model: leaves, the accumulation over microbatches, the loss, and the optimizer.
LogicalResult Differentiate::buildStep(func::FuncOp model) {
  OpBuilder builder(model);
  auto step = func::FuncOp::create(builder, model.getLoc(), "step", builder.getFunctionType({}, {}));
  Block *entry = step.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  IRMapping mapping;
  SmallVector<ParameterOp> parameters;
  SmallVector<InputOp> inputs;
  SmallVector<Value> stacks;
  for (Operation &op : model.getBody().front()) {
    if (auto parameter = dyn_cast<ParameterOp>(op)) {
      parameters.push_back(cast<ParameterOp>(builder.clone(op, mapping)));
    } else if (auto input = dyn_cast<InputOp>(op)) {
      // An input of the step has all microbatches; the accumulation divides them along the first dim.
      auto type = cast<RankedTensorType>(input.getValue().getType());
      SmallVector<int64_t> shape{microbatches};
      llvm::append_range(shape, type.getShape());
      SmallVector<Attribute> dims{builder.getStringAttr("microbatch")};
      llvm::append_range(dims, input.getDims());
      stacks.push_back(InputOp::create(builder, op.getLoc(), RankedTensorType::get(shape, type.getElementType()),
                                       input.getKind(), builder.getArrayAttr(dims), nullptr, nullptr,
                                       input.getKeyAttr(), input.getNameAttr(), input.getBelowAttr(),
                                       input.getGroupAttr()));
      inputs.push_back(input);
    } else if (isa<RopeTableOp, ConstantOp, IotaOp>(op)) {
      builder.clone(op, mapping);
    }
  }

  // The body is built before the op, whose result types depend on what the body yields.
  OperationState state(model.getLoc(), AccumulateOp::getOperationName());
  Block *bodyBlock = new Block;
  std::unique_ptr<Region> region = std::make_unique<Region>();
  region->push_back(bodyBlock);
  for (InputOp input : inputs)
    mapping.map(input.getValue(), bodyBlock->addArgument(input.getValue().getType(), input.getLoc()));
  OpBuilder body(&getContext());
  body.setInsertionPointToStart(bodyBlock);
  SmallVector<Value> yields;
  if (failed(buildBody(model, body, mapping, parameters, yields)))
    return failure();
  YieldOp::create(body, model.getLoc(), yields);
  state.addOperands(stacks);
  state.addTypes(ValueRange(yields).getTypes());
  state.addRegion(std::move(region));
  auto accumulate = cast<AccumulateOp>(builder.create(state));

  OutputOp::create(builder, location("loss"), OutputKind::Loss, "loss", accumulate.getResult(0), nullptr, nullptr,
                   nullptr);
  if (optimizer != "none" && failed(optimize(builder, parameters, accumulate.getResults().drop_front())))
    return failure();
  func::ReturnOp::create(builder, model.getLoc());
  return success();
}

/// One microbatch: the model's ops, the seed, and the gradients from the last op to the first.
LogicalResult Differentiate::buildBody(func::FuncOp model, OpBuilder &body, IRMapping &mapping,
                                       SmallVectorImpl<ParameterOp> &parameters, SmallVectorImpl<Value> &yields) {
  SmallVector<Loss> losses;
  Value loss;
  for (Operation &op : model.getBody().front()) {
    if (isa<ParameterOp, InputOp, RopeTableOp, ConstantOp, IotaOp, func::ReturnOp>(op))
      continue;
    if (auto output = dyn_cast<OutputOp>(op)) {
      if (output.getKind() == OutputKind::Loss) {
        loss = mapping.lookup(output.getValue());
        continue;
      }
      auto clone = cast<OutputOp>(body.clone(op, mapping));
      if (auto valid = clone.getValid()) { // the batch may have shrunk
        SmallVector<int64_t> sizes;
        for (auto [v, size] : llvm::zip(*valid, cast<RankedTensorType>(clone.getValue().getType()).getShape()))
          sizes.push_back(std::min(v, size));
        clone.setValid(sizes);
      }
      continue;
    }
    if (isa<CrossEntropyOp, LogSumExpOp>(op)) {
      losses.push_back(expandLoss(body, &op, mapping));
      mapping.map(op.getResult(0), losses.back().result);
      continue;
    }
    body.clone(op, mapping);
  }
  if (!loss)
    return model.emitError()
           << "the model has no output of kind loss; add: pc.output loss \"loss\" %loss : tensor<f32>";
  if (cast<RankedTensorType>(loss.getType()).getRank())
    return model.emitError() << "the loss must be a scalar, got " << loss.getType();
  yields.push_back(loss);
  if (optimizer == "none")
    return success();

  llvm::erase_if(parameters, [](ParameterOp parameter) { return parameter.getFrozen(); });
  SmallVector<Value> wanted;
  for (ParameterOp parameter : parameters)
    wanted.push_back(parameter.getValue());
  llvm::DenseSet<Value> live = dependents(*body.getInsertionBlock(), wanted);
  Gradients gradients(body, live);
  SmallVector<Operation *> tape;
  for (Operation &op : *body.getInsertionBlock())
    tape.push_back(&op);
  gradients.add(loss, SeedOp::create(body, location("loss"), loss.getType()));
  llvm::DenseMap<Operation *, Loss *> lossOf;
  llvm::DenseSet<Operation *> inside; // ops of an expanded cross-entropy, which are differentiated as one
  for (Loss &l : losses) {
    lossOf[l.result.getDefiningOp()] = &l;
    for (Operation *op = l.max.getDefiningOp(); op != l.result.getDefiningOp(); op = op->getNextNode())
      inside.insert(op);
  }
  for (Operation *op : llvm::reverse(tape)) {
    if (Loss *l = lossOf.lookup(op)) {
      if (Value dy = gradients.of(l->result))
        gradients.add(l->logits, lossGradient(body, op->getLoc(), *l, dy));
    } else if (!inside.contains(op) && failed(gradients.differentiate(op))) {
      return failure();
    }
  }
  // A parameter that only choices read has no gradient and is not trained.
  llvm::erase_if(parameters, [](ParameterOp parameter) { return isOfChoices(parameter.getValue()); });
  for (ParameterOp parameter : parameters) {
    Value gradient = gradients.of(parameter.getValue());
    if (!gradient)
      return parameter.emitOpError() << "'" << parameter.getName() << "' does not reach the loss";
    yields.push_back(gradient);
  }
  if (parameters.empty())
    return model.emitError()
           << "the model has no parameter to train: each is frozen, or is read only by ops without a gradient";
  return success();
}

/// Adds the norm of all gradients, the factor that clips them, and an update of each parameter and its states.
LogicalResult Differentiate::optimize(OpBuilder &builder, MutableArrayRef<ParameterOp> parameters,
                                      ValueRange gradients) {
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  Value squares;
  for (auto [parameter, gradient] : llvm::zip_equal(parameters, gradients)) {
    Location loc = parameter.getLoc();
    OutputOp::create(builder, loc, OutputKind::Gradient, parameter.getName(), gradient, parameter.getValidAttr(),
                     nullptr, nullptr);
    std::string x = dimLetters(gradient);
    Value square = EinsumOp::create(builder, loc, scalar, x + ", " + x + " ->", ValueRange{gradient, gradient});
    squares = squares ? AddOp::create(builder, loc, scalar, squares, square).getResult() : square;
  }
  // Each group has an input of hyperparameters; the default group has one too.
  llvm::MapVector<Attribute, Value> hypers; // by group
  auto hyperOf = [&](DictionaryAttr group) {
    Value &hyper = hypers[group];
    if (!hyper)
      hyper = InputOp::create(builder, location("hyper"),
                              RankedTensorType::get({PCRT_HYPER_COUNT}, builder.getF32Type()), InputKind::Hyper,
                              builder.getStrArrayAttr({"hyper"}), nullptr, nullptr, nullptr, nullptr, nullptr, group);
    return hyper;
  };
  Value shared = hyperOf({}); // before the norm, so that the norm and the factor are one fusion
  Value norm = SqrtOp::create(builder, location("grad_norm"), scalar, squares);
  OutputOp::create(builder, location("grad_norm"), OutputKind::GradNorm, "grad_norm", norm, nullptr, nullptr, nullptr);
  // The norm is of the gradients of all parameters, so no update can come before it.
  Value coefficient = ClipCoefficientOp::create(builder, location("clip"), scalar, norm, shared);
  for (auto [parameter, gradient] : llvm::zip_equal(parameters, gradients)) {
    FailureOr<std::string> name = optimizers->nameFor(parameter);
    if (failed(name))
      return failure();
    Value hyper = hyperOf(parameter.getGroupAttr());
    if (*name != "adamw" && *name != "sgd") {
      std::string label = optimizers->labelOf(*name);
      addSetting(parameter, label, "optimizer", builder.getStringAttr(label));
    }
    FailureOr<Value> updated = optimizers->update(builder, {parameter, gradient, coefficient, hyper}, *name);
    if (failed(updated))
      return failure();
    if (std::optional<Sparsity> sparsity = Sparsity::of(parameter)) {
      FailureOr<Value> masked = prune(builder, parameter, *sparsity, *updated, coefficient);
      if (failed(masked))
        return failure();
      for (Operation *user : llvm::make_early_inc_range((*updated).getUsers()))
        if (auto update = dyn_cast<UpdateOp>(user)) {
          update.getValueMutable().assign(*masked);
          update->moveAfter((*masked).getDefiningOp());
        }
      updated = masked;
    }
    if (ema > 0)
      average(builder, parameter, *updated, coefficient);
    if (failed(checkStatesOfTile(parameter)))
      return failure();
  }
  return success();
}

/// Checkpoints must not depend on tiles. So a tile has no state with fewer dims, such as the number of its steps.
LogicalResult Differentiate::checkStatesOfTile(ParameterOp parameter) {
  if (tileOf(parameter.getName()).empty())
    return success();
  for (auto state : parameter->getBlock()->getOps<StateOp>())
    if (state.getParameter() == parameter.getName() && state.getDims().size() < parameter.getDims().size())
      return parameter.emitError() << "--tile divides '" << parameter.getName() << "', whose state '" << state.getName()
                                   << "' belongs to the whole tensor; leave out --tile, or the "
                                   << (state.getName() == PCRT_EMA_BEGUN ? "flag --ema" : "setting that adds it");
  return success();
}

/// Adds the average of a parameter whose new value is `updated`, as torch.optim.swa_utils.get_ema_multi_avg_fn defines
/// it. A skipped step keeps it.
void Differentiate::average(OpBuilder &builder, ParameterOp parameter, Value updated, Value coefficient) {
  Location loc = parameter.getLoc();
  addSetting(parameter, "averaged", PCRT_EMA, builder.getF64FloatAttr(ema));
  StringAttr of = parameter.getNameAttr();
  Type type = parameter.getValue().getType(), scalar = coefficient.getType();
  auto state = [&](StringRef name, Type type, ArrayAttr dims) {
    return StateOp::create(builder, loc, type, builder.getStringAttr(name), of, dims, nullptr, nullptr, nullptr);
  };
  auto number = [&](double value) { return ConstantOp::create(builder, loc, scalar, builder.getF64FloatAttr(value)); };
  Value old = state(PCRT_EMA, type, parameter.getDims());
  Value begun = state(PCRT_EMA_BEGUN, scalar, builder.getArrayAttr({}));
  Value one = number(1);
  Value rate = SelectOp::create(builder, loc, scalar, ComparisonKind::Less, begun, one, one, number(1 - ema));
  std::string x = dimLetters(old);
  Value change = SubOp::create(builder, loc, type, updated, old);
  Value part = EinsumOp::create(builder, loc, type, ", " + x + " -> " + x, ValueRange{rate, change});
  Value sum = AddOp::create(builder, loc, type, old, part);
  UpdateOp::create(builder, loc, builder.getStringAttr(PCRT_EMA), of,
                   keepIfSkipped(builder, spread(builder, coefficient, old), sum, old));
  UpdateOp::create(builder, loc, builder.getStringAttr(PCRT_EMA_BEGUN), of,
                   keepIfSkipped(builder, coefficient, one, begun));
}

/// Adds a setting to the parameter's group, which is called `group` if there was none.
void Differentiate::addSetting(ParameterOp parameter, StringRef group, StringRef name, Attribute value) {
  NamedAttrList settings(parameter.getGroupAttr());
  if (settings.empty())
    settings.set("name", StringAttr::get(&getContext(), group));
  settings.set(name, value);
  parameter.setGroupAttr(settings.getDictionary(&getContext()));
}
