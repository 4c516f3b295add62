//===- Plan.cpp - The mesh and the ordered tactics ----------------------------------------===//
// Builds plans from flags, from plan files and from programs to which some tactics have already been applied. Refuses
// tactics that cannot be combined. Rules of one tactic are in Tactics.cpp.
//===--------------------------------------------------------------------------------------===//
#include "pc/Plan/Plan.h"

#include "pc/IR/MeshText.h"
#include "pc/Plan/Tactics.h"
#include "pc/Support/Source.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include <numeric>

using namespace mlir;
using namespace pc;

std::string Plan::meshText() const {
  std::string text;
  for (const auto &[axis, size] : mesh)
    text += (text.empty() ? "" : ",") + axis + "=" + std::to_string(size);
  return text;
}

int64_t Plan::sizeOf(StringRef axis) const {
  for (const auto &[name, size] : mesh)
    if (name == axis)
      return size;
  return 0;
}

/// Multiplies the sizes of the axes over which tactics split the vocabulary.
int64_t Plan::vocabularyRanks() const {
  int64_t ranks = 1;
  for (const Tactic &tactic : tactics)
    if (const TacticInfo *info = tactic.info(); info && info->splitsVocabulary)
      if (SmallVector<StringRef> axes = tactic.axes(); !axes.empty())
        ranks *= std::max<int64_t>(sizeOf(axes.back()), 1);
  return ranks;
}

int64_t Plan::dataRanks() const {
  int64_t ranks = 1;
  for (const Tactic &tactic : tactics)
    if (const TacticInfo *info = tactic.info();
        tactic.as<ExpertParallelTactic>() || (info && (info->splitsBatch || info->shardsParameters)))
      ranks *= std::max<int64_t>(sizeOf(tactic.axis()), 1);
  return ranks;
}

int64_t Plan::sequenceChunks() const {
  int64_t chunks = 1;
  for (const Tactic &tactic : tactics)
    if (auto context = tactic.as<ContextParallelTactic>(); context && !context->isRing())
      chunks *= std::max<int64_t>(sizeOf(context->axis()), 1);
  return chunks;
}

bool Plan::packsProducts() const {
  return llvm::none_of(tactics, [](const Tactic &tactic) {
    const TacticInfo *info = tactic.info();
    return info && info->takesQkvApart;
  });
}

int64_t Plan::vocabularyMultiple(bool cuda, int64_t wanted) const {
  if (wanted)
    return std::lcm(wanted, vocabularyRanks());
  // Kernels of products copy and load 16 bytes at once, which are 8 elements in bf16, so the rows of every rank must be
  // multiples of them. 64 is the width of their smallest tiles.
  return cuda ? std::lcm<int64_t>(8 * vocabularyRanks(), 64) : vocabularyRanks();
}

SmallVector<Tactic> Plan::tacticsOf(Phase phase) const {
  SmallVector<Tactic> ofPhase;
  for (const Tactic &tactic : tactics)
    if (const TacticInfo *info = tactic.info(); info && info->phase == phase)
      ofPhase.push_back(tactic);
  return ofPhase;
}

std::optional<PipelineTactic> Plan::pipeline() const {
  for (const Tactic &tactic : tactics)
    if (auto pipeline = tactic.as<PipelineTactic>(); pipeline && sizeOf(pipeline->axis()) != 1)
      return pipeline;
  return std::nullopt;
}

/// The form of a tactic that works over a grid, or null.
static const TacticForm *gridOf(const Tactic &tactic) {
  const TacticInfo *info = tactic.info();
  const TacticForm *form = info ? info->formOf(tactic) : nullptr;
  return form && form->weightAxis >= 0 ? form : nullptr;
}

bool Plan::splitsEmbed() const { return llvm::any_of(tactics, gridOf); }

/// The padding makes dims divisible by all ranks that shard parameters, in addition to the ranks of tensor parallelism.
std::optional<PadShardsOptions> Plan::padding() const {
  auto sizeAtLeastOne = [&](StringRef axis) { return std::max<int64_t>(sizeOf(axis), 1); };
  PadShardsOptions options;
  for (const Tactic &tactic : tactics)
    if (const TacticInfo *info = tactic.info(); info && info->shardsParameters)
      options.ranks *= sizeAtLeastOne(tactic.axis());
  if (options.ranks == 1)
    return std::nullopt;
  // Dims that tensor parallelism splits are not padded, even if its axis has one rank.
  for (const Tactic &tactic : tactics) {
    const TacticInfo *info = tactic.info();
    if (!info || !info->splitsVocabulary)
      continue;
    options.forms.push_back(tactic.option(info->formOption).str());
    SmallVector<StringRef> axes = tactic.axes();
    if (const TacticForm *grid = gridOf(tactic); grid && grid->weightAxis < static_cast<int>(axes.size()))
      options.ranks *= sizeAtLeastOne(axes[grid->weightAxis]);
  }
  options.takenRanks = vocabularyRanks();
  return options;
}

SmallVector<std::string> Plan::ownerAxes() const {
  SmallVector<std::string> axes;
  for (const Tactic &tactic : tactics) {
    const TacticInfo *info = tactic.info();
    auto tensor = tactic.as<TensorParallelTactic>();
    auto data = tactic.as<DataParallelTactic>();
    bool dividesTokens = tactic.as<ContextParallelTactic>() || tactic.as<ExpertParallelTactic>();
    if ((info && info->shardsParameters) || (tensor && tensor->form() == "1d") || (data && !data->isNaive()) ||
        dividesTokens)
      if (std::string axis = tactic.axis().str(); !llvm::is_contained(axes, axis))
        axes.push_back(axis);
  }
  return axes;
}

std::string Plan::key() const {
  std::string key = meshText();
  for (const Tactic &tactic : tactics)
    key += " " + tactic.text();
  return key + " " + std::to_string(microbatches);
}

/// The op keeps tactics as text, as plan files do.
PlanOp Plan::build(OpBuilder &builder) const {
  SmallVector<StringAttr> names;
  SmallVector<int64_t> sizes;
  for (const auto &[axis, size] : mesh) {
    names.push_back(builder.getStringAttr(axis));
    sizes.push_back(size);
  }
  auto list = llvm::map_to_vector(tactics, [](const Tactic &tactic) -> StringRef { return tactic.text(); });
  return PlanOp::create(builder, builder.getUnknownLoc(), MeshAttr::get(builder.getContext(), names, sizes),
                        builder.getStrArrayAttr(list), builder.getI64IntegerAttr(microbatches));
}

std::string Plan::text(MLIRContext *context) const {
  OpBuilder builder(context);
  OwningOpRef<PlanOp> op = build(builder);
  std::string result;
  llvm::raw_string_ostream stream(result);
  op->print(stream);
  return result + "\n";
}

/// Sets the mesh of `plan`; false after setting `error`.
static bool setMesh(StringRef text, Plan &plan, std::string &error) {
  auto axes = parseMesh(text, error);
  if (!axes)
    return false;
  for (const MeshAxisText &axis : *axes) {
    if (axis.isSearched) {
      error = "--mesh=" + text.str() + ": the size of '" + axis.name +
              "' is '?', which needs --auto; give a number, or add --auto";
      return false;
    }
    plan.mesh.push_back({axis.name, axis.size});
  }
  return true;
}

/// Names that a mesh axis may not have, and why.
static constexpr std::pair<StringRef, StringRef> reserved[] = {
    {"sp",
     "sequence parallelism uses the tensor-parallel axis; replace sp by tp=N in --mesh and add --sequence-parallel"},
};

/// An axis of the mesh that no tactic works over, or "".
static std::string unusedAxis(const Plan &plan) {
  llvm::StringSet<> used;
  for (const Tactic &tactic : plan.tactics)
    for (StringRef axis : tactic.axes())
      used.insert(axis);
  for (const auto &[axis, size] : plan.mesh)
    if (!used.contains(axis))
      return axis;
  return "";
}

static std::string whyUnused(StringRef axis) {
  return ("no tactic uses the mesh axis '" + axis + "'; name it in a strategy flag, as in --data-parallel=ddp:" + axis)
      .str();
}

/// Adds the tactics of the flags for phases after `done`, and tactics that belong to them.
static std::optional<Refusal> addTactics(const StrategyFlags &flags, Phase done, Plan &plan) {
  for (const TacticInfo &row : tactics())
    if (row.phase > done && row.fromFlags)
      if (std::optional<Refusal> refusal = row.fromFlags(row, flags, plan))
        return refusal;
  for (auto [axis, why] : reserved)
    if (plan.sizeOf(axis))
      return Refusal{PCRT_INFEASIBLE, why.str()};
  return std::nullopt;
}

/// Checks the mesh, lets every row of the table add its tactics, and refuses axes that no tactic uses.
std::optional<Plan> pc::planFromFlags(const StrategyFlags &flags, std::string &error, pcrt_status &status) {
  auto refuse = [&](pcrt_status why, const Twine &message) {
    status = why;
    error = message.str();
    return std::nullopt;
  };
  Plan plan;
  if (!setMesh(flags.text("mesh"), plan, error)) {
    status = PCRT_USAGE;
    return std::nullopt;
  }
  plan.microbatches = flags.number("microbatches", plan.microbatches);
  if (plan.microbatches < 1)
    return refuse(PCRT_USAGE, "--microbatches must be positive, got " + Twine(plan.microbatches));
  if (std::optional<Refusal> refusal = addTactics(flags, Phase::Model, plan))
    return refuse(refusal->status, refusal->why);
  if (std::string axis = unusedAxis(plan); !axis.empty())
    return refuse(PCRT_USAGE, whyUnused(axis));
  status = PCRT_OK;
  return plan;
}

/// Reads the flags as a separate plan (`asked`). A later phase takes its tactics from `asked` if flags are about
/// it, and from `known` otherwise. A flag for an earlier phase must agree with `known`.
std::optional<Plan> pc::planAfter(Phase done, const Plan &known, bool whole, const StrategyFlags &flags,
                                  std::string &error, pcrt_status &status) {
  auto refuse = [&](pcrt_status why, const Twine &message) {
    status = why;
    error = message.str();
    return std::nullopt;
  };
  Plan plan, asked;
  bool newMesh = flags.given("mesh");
  if (newMesh && !setMesh(flags.text("mesh"), asked, error)) {
    status = PCRT_USAGE;
    return std::nullopt;
  }
  if (!newMesh)
    asked.mesh = known.mesh;
  plan.mesh = asked.mesh;
  plan.microbatches = asked.microbatches = known.microbatches;
  // Flags are read together with existing tactics, such as sequence parallelism with tensor parallelism.
  if (std::optional<Refusal> refusal = addTactics(flags, done, asked))
    return refuse(refusal->status, refusal->why);
  auto isAsked = [&](Phase phase) {
    return phase > done && (newMesh || !whole || llvm::any_of(tactics(), [&](const TacticInfo &row) {
                              return row.phase == phase && llvm::any_of(row.flags, [&](const TacticFlag &flag) {
                                       return flags.given(flag.name);
                                     });
                            }));
  };
  auto take = [&](const Plan &from, bool areAsked) {
    for (const Tactic &tactic : from.tactics)
      if (isAsked(tactic.info()->phase) == areAsked)
        plan.tactics.push_back(tactic);
  };
  for (const Tactic &tactic : asked.tactics)
    if (tactic.info()->phase <= done && !llvm::is_contained(known.tactics, tactic))
      return refuse(PCRT_USAGE, "'" + tactic.text() + "' belongs to phase " + nameOf(tactic.info()->phase) +
                                    ", but this program was made without it and is past that phase");
  take(known, false);
  take(asked, true);
  if (std::string axis = unusedAxis(plan); done < Phase::Placed && !axis.empty())
    return refuse(PCRT_USAGE, whyUnused(axis));
  status = PCRT_OK;
  return plan;
}

/// The reason why `text` is not one tactic with its options, or "".
static std::string whyNoTactic(StringRef text) {
  StringRef options = text.drop_until([](char c) { return c == '{'; });
  int depth = 0;
  bool isOne = llvm::all_of(llvm::enumerate(options), [&](auto one) {
    depth += (one.value() == '{') - (one.value() == '}');
    return depth > 0 || one.index() + 1 == options.size();
  });
  std::string names;
  for (const TacticInfo &row : tactics()) {
    if (isOne && depth == 0 && text.drop_back(options.size()) == row.pass)
      return "";
    names += (names.empty() ? "" : ", ") + row.pass;
  }
  return ("'" + text +
          "' is not a valid tactic; expected a form such as 'pc-zero{axis=dp stage=3}', with one of these tactics: " +
          names)
      .str();
}

/// Returns the reason why tactics of a plan cannot be combined, or "". Errors that a single pass can find, such as an
/// axis that is already used, are reported by the pass.
static std::string conflictOf(const Plan &plan) {
  if (std::string axis = unusedAxis(plan); !axis.empty())
    return "no tactic uses the mesh axis '" + axis + "'";
  for (const TacticInfo &row : tactics()) {
    SmallVector<StringRef> given;
    for (const Tactic &tactic : plan.tactics)
      if (tactic.pass() == row.pass)
        given.push_back(tactic.text());
    if (!row.once.empty() && given.size() > 1)
      return llvm::formatv(/*Validate=*/false, row.once.c_str(), given[0], given[1]).str();
  }
  auto isOffload = [](const Tactic &tactic) { return tactic.as<OffloadTactic>().has_value(); };
  auto away = llvm::find_if(plan.tactics, isOffload);
  for (const Tactic &tactic : llvm::make_range(away, plan.tactics.end()))
    if (const TacticInfo *info = tactic.info();
        info && info->phase == Phase::Placed && !isOffload(tactic) && !tactic.as<CodeGradientsTactic>())
      return "'" + tactic.text() + "' changes placements after '" + away->text() +
             "' has moved values; put it before that tactic";
  return "";
}

/// Every tactic of the list must be a tactic with valid options.
std::optional<Plan> Plan::fromAttribute(Attribute attribute, std::string &error) {
  auto fields = dyn_cast<DictionaryAttr>(attribute);
  auto mesh = fields ? fields.getAs<StringAttr>("mesh") : StringAttr();
  auto list = fields ? fields.getAs<ArrayAttr>("tactics") : ArrayAttr();
  Plan plan;
  if (!mesh || !list || !llvm::all_of(list, llvm::IsaPred<StringAttr>))
    error = R"(not as in {mesh = "dp=2", tactics = ["pc-data-parallel{axis=dp}"]})";
  else if (setMesh(mesh, plan, error))
    for (StringRef tactic : list.getAsValueRange<StringAttr>()) {
      if (error.empty())
        error = whyNoTactic(tactic);
      plan.tactics.push_back(tactic.str());
    }
  if (!error.empty())
    return std::nullopt;
  return plan;
}

/// Checks the single pc.plan op, its tactics, and whether these can be combined.
std::optional<Plan> pc::planFromFile(MLIRContext *context, StringRef file, pcrt_status &status) {
  status = PCRT_BAD_INPUT;
  context->loadDialect<PCDialect>();
  llvm::SourceMgr sources;
  OwningOpRef<ModuleOp> module = parseProgram(file, sources, context);
  if (!module)
    return std::nullopt;
  if (!llvm::hasSingleElement(*module->getBody()) || !isa<PlanOp>(module->getBody()->front())) {
    module->emitError() << "a plan file must contain one pc.plan and nothing else";
    return std::nullopt;
  }
  auto op = cast<PlanOp>(module->getBody()->front());
  Plan plan;
  plan.microbatches = op.getMicrobatches();
  for (auto [name, size] : llvm::zip_equal(op.getMesh().getNames(), op.getMesh().getSizes()))
    plan.mesh.push_back({name.str(), size});
  // Each tactic is checked by itself, and then all of them together: a plan file is text that a person may have
  // written.
  for (StringRef tactic : op.getTactics().getAsValueRange<StringAttr>()) {
    if (std::string why = whyNoTactic(tactic); !why.empty()) {
      op.emitError() << why;
      return std::nullopt;
    }
    plan.tactics.push_back(tactic.str());
  }
  if (std::string conflict = conflictOf(plan); !conflict.empty()) {
    op.emitError() << conflict;
    status = PCRT_INFEASIBLE;
    return std::nullopt;
  }
  status = PCRT_OK;
  return plan;
}
