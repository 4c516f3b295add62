//===- CheckInputs.cpp - Checks the inputs and frozen leaves of a model ---------------------===//
// Compares shapes of inputs with the sizes of the program, and finds dims that an input indexes out of range. Then
// finds frozen parameters that no output needs.
//===----------------------------------------------------------------------------------------===//
#include "CheckInputs.h"

#include "pc/IR/Parts.h"

using namespace mlir;
using namespace pc;

/// The unpadded size of the dim that `user` indexes by `index`; std::nullopt if `user` does not use it as an index.
static std::optional<int64_t> boundOf(Value index, Operation *user) {
  auto type = [](Value value) { return cast<RankedTensorType>(value.getType()); };
  if (auto embedding = dyn_cast<EmbeddingOp>(user); embedding && embedding.getIds() == index) {
    auto table = embedding.getTable().getDefiningOp<ParameterOp>();
    return table ? validShape(table)[embedding.getBatch()] : embedding.getRows();
  }
  if (auto entropy = dyn_cast<CrossEntropyOp>(user); entropy && entropy.getTargets() == index) {
    auto mask = entropy.getLogits().getDefiningOp<MaskPaddingOp>();
    return mask ? static_cast<int64_t>(mask.getValid()) : type(entropy.getLogits()).getShape().back();
  }
  return std::nullopt;
}

/// Fails at a user that indexes a dim with the numbers of `input`, if the dim has too few entries for them. The numbers
/// are below the input's own bound or, if it has none, below `vocabulary`; 0 means that they are no indices.
/// `mayBeFewer`: the input may have its own bound.
static LogicalResult checkBounds(InputOp input, int64_t vocabulary = 0, bool mayBeFewer = false) {
  auto below = static_cast<int64_t>(input.getBelow().value_or(static_cast<uint64_t>(vocabulary)));
  StringRef name = input.getName().value_or(stringifyInputKind(input.getKind()));
  for (Operation *user : input->getUsers())
    if (std::optional<int64_t> bound = boundOf(input.getValue(), user); bound && *bound < below)
      return user->emitError()
             << "'" << user->getName() << "' op looks up '" << name << "' among " << *bound << " entries, but the "
             << (input.getBelow() ? "input says below " : "pc.program says vocabulary ") << below
             << (mayBeFewer ? "; write 'below " + std::to_string(*bound) + "' on the input if its numbers are" : "");
  return success();
}

/// Fails unless the tokens, targets or weights of the loss have the shape batch x sequence of `program`, and tokens and
/// targets index dims of its whole vocabulary.
static LogicalResult checkSizes(InputOp input, ProgramOp program) {
  auto type = cast<RankedTensorType>(input.getValue().getType());
  bool ofTargets =
      llvm::is_contained({InputKind::Targets, InputKind::LossWeights, InputKind::Shifted}, input.getKind());
  int64_t batch = program.getBatch(), length = ofTargets ? program.targetLength() : program.getSequence();
  bool ofWords = llvm::is_contained({InputKind::Tokens, InputKind::Targets, InputKind::Shifted}, input.getKind());
  if (input.getBelow() && !program.getMasked())
    return input.emitError() << "the targets are the next tokens, which 'below' does not bound; write 'masked' in "
                                "pc.program if a run reads the targets from a separate file";
  if (type.getShape() == ArrayRef({batch, length}))
    return checkBounds(input, ofWords ? program.getVocabulary() : 0,
                       program.getMasked() && input.getKind() == InputKind::Targets && !input.getBelow());
  InFlightDiagnostic error = input.emitError() << "the input of " << stringifyInputKind(input.getKind()) << " is "
                                               << type << ", but pc.program says " << batch << " x " << length;
  error.attachNote(program.getLoc()) << "pc.program is here";
  return error;
}

/// Reads the sizes of the program and compares every input with them.
FailureOr<int64_t> pc::checkInputs(func::FuncOp model) {
  ProgramOp program;
  std::optional<int64_t> batch;
  if (auto module = model->getParentOfType<ModuleOp>())
    for (ProgramOp one : module.getOps<ProgramOp>()) {
      program = one;
      batch = program.getBatch();
    }
  InputOp tokens, data;
  llvm::StringMap<InputOp> named;
  for (InputOp input : model.getOps<InputOp>()) {
    if (input.getKind() == InputKind::Random)
      continue;
    auto type = cast<RankedTensorType>(input.getValue().getType());
    // Without tokens, another input of the same form, such as targets, stands for them in the message below.
    if (input.getKind() != InputKind::Data) {
      if (input.getKind() == InputKind::Tokens || !tokens)
        tokens = input;
      if (program && input.getKind() != InputKind::Hyper && failed(checkSizes(input, program)))
        return failure();
      continue;
    }
    data = input;
    if (!named.try_emplace(*input.getName(), input).second)
      return input.emitError() << "a second input has the name '" << *input.getName() << "'";
    if (type.getDimSize(0) != batch.value_or(type.getDimSize(0)))
      return input.emitError() << "'" << *input.getName() << "' has a batch of " << type.getDimSize(0)
                               << ", but the program has a batch of " << *batch;
    batch = type.getDimSize(0);
    if (failed(checkBounds(input)))
      return failure();
  }
  if (tokens && data)
    return tokens.emitError() << "a program with a named input ('" << *data.getName() << "') has no input of "
                              << stringifyInputKind(tokens.getKind()) << "; also give that input a name: pc.input data";
  if (data)
    return *batch;
  if (!tokens || tokens.getKind() != InputKind::Tokens)
    return model.emitError() << "a model needs an input of tokens, or named inputs";
  return cast<RankedTensorType>(tokens.getValue().getType()).getDimSize(0);
}

/// Goes backwards from the outputs and collects the ops that they need.
LogicalResult pc::checkFrozen(func::FuncOp model) {
  llvm::DenseSet<Operation *> needed;
  for (Operation &op : llvm::reverse(model.getBody().front())) {
    if (!needed.contains(&op) && !isa<OutputOp>(op)) {
      if (auto parameter = dyn_cast<ParameterOp>(op); parameter && parameter.getFrozen())
        return parameter.emitOpError() << "'" << parameter.getName()
                                       << "' is frozen, and no output depends on it; leave it out";
      continue;
    }
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp())
        needed.insert(source);
  }
  return success();
}
