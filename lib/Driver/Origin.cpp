//===- Origin.cpp - Finds the phase, the plan and the target of a program ------------------===//
// The phase of a program follows only from its ops. Its plan and target come from the attributes that earlier phases
// wrote into it (writeOrigin); ranks and stages of the plan must agree with the ops. Without a plan attribute, the plan
// is derived from the ops.
//===-----------------------------------------------------------------------------===//
#include "pc/Driver/Origin.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "pc/IR/Stages.h"

using namespace mlir;
using namespace pc;

/// The latest phase whose ops or functions the program contains.
std::optional<Phase> pc::phaseOf(ModuleOp module) {
  if (module.lookupSymbol("model"))
    return Phase::Model;
  if (module.lookupSymbol<LLVM::LLVMFuncOp>("pc_step") || module.lookupSymbol<LLVM::LLVMFuncOp>("pc_step_stage0"))
    return Phase::Kernels;
  bool hasStep = false, isPlaced = false, hasMesh = false, isScheduled = false, isPlanned = false;
  module.walk([&](Operation *op) {
    auto function = dyn_cast<func::FuncOp>(op);
    hasStep |= function && function.getSymName() == "step";
    hasMesh |= isa<MeshOp>(op);
    isScheduled |= isa<FusionOp, StartOp>(op);
    isPlanned |= isa<ArenaOp>(op);
    isPlaced |= llvm::any_of(op->getResults(), [](Value value) { return placement(value) != nullptr; });
  });
  if (!hasStep)
    return std::nullopt;
  return isPlanned     ? Phase::Planned
         : isScheduled ? Phase::Scheduled
         : isPlaced    ? stageAxisOf(module) ? Phase::Staged : Phase::Placed
         : hasMesh     ? Phase::Local
                       : Phase::Step;
}

/// The part of the plan that follows from the ops of a program.
static Plan shownPlan(ModuleOp module) {
  Plan plan;
  module.walk([&](Operation *op) {
    if (auto accumulate = dyn_cast<AccumulateOp>(op))
      plan.microbatches = accumulate.getMicrobatches();
    else if (auto task = dyn_cast<TaskOp>(op); task && task.getMicrobatch())
      plan.microbatches = std::max<int64_t>(plan.microbatches, *task.getMicrobatch() + 1);
  });
  if (MeshAttr mesh = meshOf(programsOf(module).front()))
    for (auto [name, size] : llvm::zip_equal(mesh.getNames(), mesh.getSizes()))
      plan.mesh.push_back({name.str(), size});
  return plan;
}

static int64_t ranksOf(const Plan &plan) {
  int64_t ranks = 1;
  for (const auto &[axis, size] : plan.mesh)
    ranks *= size;
  return ranks;
}

/// The plan of the attribute must agree with the ops.
static LogicalResult readPlan(ModuleOp module, Origin &origin) {
  Plan shown = shownPlan(module);
  Attribute said = module->getAttr(planAttribute);
  if (!said) {
    origin.plan = std::move(shown);
    if (origin.zigzag)
      origin.plan.tactics.push_back(ZigzagTactic::of(origin.zigzag));
  } else {
    std::string error;
    std::optional<Plan> plan = Plan::fromAttribute(said, error);
    if (!plan)
      return module.emitError() << planAttribute << ": " << error;
    origin.plan = std::move(*plan);
    origin.plan.microbatches = shown.microbatches;
    origin.hasPlan = true;
    if (origin.phase >= Phase::Placed && origin.phase <= Phase::Planned && ranksOf(shown) != ranksOf(origin.plan))
      return module.emitError() << planAttribute << " is a plan for " << ranksOf(origin.plan)
                                << " ranks, but the program is for " << ranksOf(shown)
                                << "; correct the attribute, or remove it to derive the plan from the program";
  }
  StringAttr stages = stageAxisOf(module);
  if (!stages && origin.plan.pipeline() && origin.phase >= Phase::Staged && origin.phase < Phase::Kernels)
    return module.emitError() << planAttribute
                              << " has a pipeline, but the program has no stages; correct the attribute, or remove it "
                                 "to derive the plan from the program";
  if (stages && !origin.plan.pipeline())
    origin.plan.tactics.push_back(PipelineTactic::over(stages.getValue()));
  return success();
}

/// The target decides which kernels a program can have, so a malformed attribute is an error.
static LogicalResult readTarget(ModuleOp module, Origin &origin) {
  Attribute said = module->getAttr(targetAttribute);
  if (!said)
    return success();
  auto fields = dyn_cast<DictionaryAttr>(said);
  auto text = [&](StringRef name) { return fields ? fields.getAs<StringAttr>(name) : StringAttr(); };
  auto archs = fields ? fields.getAs<ArrayAttr>("archs") : ArrayAttr();
  bool isRight = text("name") && (text("name") == "cpu" || text("name") == "cuda") && text("attention") && archs &&
                 llvm::all_of(archs, llvm::IsaPred<StringAttr>);
  if (!isRight)
    return module.emitError()
           << targetAttribute
           << " is malformed; expected a form such as {archs = [], attention = \"library\", name = \"cpu\"}";
  origin.hasTarget = true;
  origin.target.target = text("name").str();
  origin.target.attention = text("attention").str();
  for (StringRef arch : archs.getAsValueRange<StringAttr>())
    origin.target.archs.push_back(arch.str());
  return success();
}

/// The reason why a run could not use an output, or "". A run identifies a gradient by the name of its parameter, and
/// other outputs by their kind.
static std::string whyNoOutput(OutputOp output, const llvm::StringMap<ParameterOp> &parameters, bool hasTokens) {
  auto type = cast<RankedTensorType>(output.getValue().getType());
  switch (output.getKind()) {
  case OutputKind::Loss:
  case OutputKind::GradNorm:
    return type.getRank() || !type.getElementType().isF32() ? "must be a scalar of type f32" : "";
  case OutputKind::Logits:
    if (!hasTokens)
      return type.getRank() ? "" : "must have the batch as its first dim";
    return type.getRank() != 3 ? "must have three dims: sequences, tokens and vocabulary" : "";
  case OutputKind::Gradient: {
    ParameterOp parameter = parameters.lookup(output.getName());
    if (!parameter)
      return "must have the name of a parameter of this program, but no parameter is called '" +
             output.getName().str() + "'";
    bool isBlock = output.getGlobal().has_value(); // it states its global size
    auto of = cast<RankedTensorType>(parameter.getValue().getType());
    return !isBlock && of.getShape() != type.getShape() ? "must have the shape of its parameter" : "";
  }
  case OutputKind::Generated:
    return type.getRank() != 2 || !type.getElementType().isF32() ? "must be f32 with two dims: groups and slots" : "";
  }
  return "";
}

/// Checks the outputs of a program, which a run reads by name and kind.
static LogicalResult checkShown(ModuleOp module) {
  llvm::StringMap<ParameterOp> parameters;
  module.walk([&](ParameterOp parameter) { parameters[parameter.getName()] = parameter; });
  bool hasTokens = true;
  module.walk([&](InputOp input) { hasTokens &= input.getKind() != InputKind::Data; });
  WalkResult walked = module.walk([&](OutputOp output) -> WalkResult {
    std::string why = whyNoOutput(output, parameters, hasTokens);
    return why.empty() ? WalkResult::advance()
                       : output.emitError() << "pc.output: an output of kind " << stringifyOutputKind(output.getKind())
                                            << " " << why << ", got " << output.getValue().getType();
  });
  return failure(walked.wasInterrupted());
}

/// A model has no plan yet, and its target comes from the flags.
FailureOr<Origin> pc::originOf(ModuleOp module) {
  std::optional<Phase> phase = phaseOf(module);
  if (!phase)
    return module.emitError() << "this module has neither @model nor @step; make a model program with pc-import";
  if (failed(checkShown(module)))
    return failure();
  Origin origin;
  origin.phase = *phase;
  module.walk([&](ProgramOp program) { origin.zigzag = program.getZigzag().value_or(0); });
  if (*phase > Phase::Model && (failed(readPlan(module, origin)) || failed(readTarget(module, origin))))
    return failure();
  return origin;
}

/// The options of pc-sign-step that write this plan and this target.
SignStepOptions pc::signatureOf(const Plan &plan, const GenerateKernelsOptions &kernels) {
  SignStepOptions options;
  options.mesh = plan.meshText();
  for (const Tactic &tactic : plan.tactics)
    options.tactics.push_back(tactic.text());
  options.target = kernels.target;
  options.attention = kernels.attention;
  options.archs = kernels.archs;
  return options;
}

/// Writes what originOf reads.
void pc::writeOrigin(ModuleOp module, const SignStepOptions &options) {
  Builder b(module.getContext());
  auto list = [&](ArrayRef<std::string> texts) {
    return b.getStrArrayAttr(llvm::map_to_vector(texts, [](const std::string &text) -> StringRef { return text; }));
  };
  module->setAttr(planAttribute, b.getDictionaryAttr({b.getNamedAttr("mesh", b.getStringAttr(options.mesh)),
                                                      b.getNamedAttr("tactics", list(options.tactics))}));
  module->setAttr(targetAttribute, b.getDictionaryAttr({b.getNamedAttr("archs", list(options.archs)),
                                                        b.getNamedAttr("attention", b.getStringAttr(options.attention)),
                                                        b.getNamedAttr("name", b.getStringAttr(options.target))}));
}
