//===- Plan.cpp - The mesh and the ordered tactics ----------------------------------------===//
#include "pc/Driver/Plan.h"

#include "pc/IR/PC.h"
#include "pc/IR/Source.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
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

int64_t Plan::vocabularyRanks() const {
  int64_t ranks = 1;
  for (const Tactic &tactic : tactics)
    if (tactic.pass() == "pc-tensor-parallel") {
      // Every form splits the vocabulary over its last axis.
      StringRef axes = tactic.option("axis", "tp");
      ranks *= std::max<int64_t>(sizeOf(axes.contains(',') ? axes.rsplit(',').second : axes), 1);
    }
  return ranks;
}

int64_t Plan::vocabularyMultiple(bool cuda) const {
  // Kernels of products copy and load 16 bytes at once, 8 elements in bf16: every rank's rows are whole numbers of
  // them. 64 is the width of their smallest tiles.
  return cuda ? std::lcm<int64_t>(8 * vocabularyRanks(), 64) : vocabularyRanks();
}

const Tactic *Plan::pipeline() const {
  const Tactic *it = llvm::find_if(tactics, [](const Tactic &tactic) { return tactic.cutsStages(); });
  return it == tactics.end() ? nullptr : it;
}

bool Plan::splitsEmbed() const {
  return llvm::any_of(tactics, [](const Tactic &tactic) {
    return tactic.pass() == "pc-tensor-parallel" && tactic.option("form", "1d") != "1d";
  });
}

SmallVector<std::string> Plan::shardAxes() const {
  SmallVector<std::string> axes;
  for (const Tactic &tactic : tactics)
    if (tactic.pass() == "pc-zero")
      axes.push_back(tactic.option("axis", "dp").str());
  return axes;
}

/// The axis over which a form of tensor parallelism shards weights as ZeRO does: row of a grid, i of 3d; or "".
static StringRef rowAxis(const Tactic &tactic) {
  SmallVector<StringRef> axes;
  tactic.option("axis", "tp").split(axes, ',');
  if (axes.size() < 2)
    return "";
  return tactic.option("form", "1d") == "3d" ? axes.front() : axes[axes.size() - 2];
}

std::string Plan::padding() const {
  int64_t ranks = 1, taken = vocabularyRanks();
  for (StringRef axis : shardAxes())
    ranks *= std::max<int64_t>(sizeOf(axis), 1);
  if (ranks == 1)
    return "";
  // On an axis of one rank, too, tensor parallelism takes its dims as the model has them.
  SmallVector<StringRef> forms;
  for (const Tactic &tactic : tactics)
    if (tactic.pass() == "pc-tensor-parallel") {
      forms.push_back(tactic.option("form", "1d"));
      ranks *= std::max<int64_t>(sizeOf(rowAxis(tactic)), 1);
    }
  return "pc-pad-shards{ranks=" + std::to_string(ranks) +
         (forms.empty() ? "" : " forms=" + llvm::join(forms, ",") + " taken-ranks=" + std::to_string(taken)) + "}";
}

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

/// "dp=2,tp=2" -> axes; false after a message.
static bool parseMesh(StringRef text, Plan &plan, std::string &error) {
  SmallVector<StringRef> parts;
  text.split(parts, ',', -1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    auto [axis, size] = part.split('=');
    int64_t n = 0;
    if (axis.empty() || size.getAsInteger(10, n) || n < 1 || n > (1 << 20)) {
      error = "bad mesh entry '" + part.str() + "'; expected axis=size, as in --mesh dp=2,tp=2";
      return false;
    }
    if (!llvm::isAlpha(axis[0]) || !llvm::all_of(axis, [](char c) { return llvm::isAlnum(c) || c == '_'; })) {
      error = "'" + axis.str() +
              "' is no name of a mesh axis; a letter and then letters, digits and '_' make one, as in --mesh dp=2,tp=2";
      return false;
    }
    for (const auto &other : plan.mesh)
      if (other.first == axis) {
        error = "mesh axis '" + axis.str() + "' is named twice";
        return false;
      }
    plan.mesh.push_back({axis.str(), n});
  }
  return true;
}

/// "form:axis" or "form" or ":axis"; the axis falls back to `defaultAxis`.
static std::pair<std::string, std::string> formAndAxis(StringRef value, StringRef defaultForm, StringRef defaultAxis) {
  auto [form, axis] = value.split(':');
  return {form.empty() ? defaultForm.str() : form.str(), axis.empty() ? defaultAxis.str() : axis.str()};
}

std::optional<Plan> pc::planFromFlags(const StrategyFlags &flags, std::string &error, pcrt_status &status) {
  Plan plan;
  status = PCRT_USAGE;
  if (!parseMesh(flags.mesh, plan, error))
    return std::nullopt;
  if (flags.microbatches < 1) {
    error = "--microbatches must be positive, got " + std::to_string(flags.microbatches);
    return std::nullopt;
  }
  plan.microbatches = flags.microbatches;
  auto sizeOf = [&](StringRef axis) { return plan.sizeOf(axis); };
  auto refuse = [&](const Twine &message) {
    error = message.str();
    return std::nullopt;
  };
  llvm::SmallVector<std::string> used;
  if (flags.precision != "f32" && flags.precision != "bf16")
    return refuse("--precision=" + flags.precision + " is not a precision (f32, bf16)");
  if (flags.gradientPrecision != "f32" && flags.gradientPrecision != "bf16")
    return refuse("--gradient-precision=" + flags.gradientPrecision + " is not a precision (f32, bf16)");
  if (flags.gradientPrecision == "bf16")
    plan.tactics.push_back("pc-mixed-precision{compute=" + flags.precision + " gradients=bf16}");
  else if (flags.precision == "bf16")
    plan.tactics.push_back("pc-mixed-precision{compute=bf16}");
  if (flags.recompute == "full" || flags.recompute == "selective" || flags.recompute == "auto")
    plan.tactics.push_back("pc-recompute{mode=" + flags.recompute + "}");
  else if (flags.recompute != "none")
    return refuse("--recompute=" + flags.recompute + " is not a mode (none, selective, full, auto)");
  // What tensor parallelism splits does not depend on the batch; ZeRO takes the dims that the others leave.
  if (flags.tensorParallel || sizeOf("tp")) {
    auto [form, axis] = formAndAxis(flags.tensorParallel.value_or(""), "1d", "");
    if (axis.empty())
      axis = form == "2d" ? "row,col" : form == "2.5d" ? "depth,row,col" : form == "3d" ? "i,j,l" : "tp";
    if (form != "1d" && form != "2d" && form != "2.5d" && form != "3d")
      return refuse("--tensor-parallel=" + form + " is not a form (1d, 2d, 2.5d, 3d)");
    SmallVector<StringRef> axes;
    StringRef(axis).split(axes, ',');
    size_t wanted = form == "1d" ? 1 : form == "2d" ? 2 : 3;
    if (axes.size() != wanted)
      return refuse("--tensor-parallel=" + form + " works over " + Twine(wanted) + " mesh axes, got '" + axis + "'");
    for (StringRef name : axes) {
      if (!sizeOf(name))
        return refuse("--tensor-parallel needs the mesh axis '" + name + "'; add " + name + "=N to --mesh");
      used.push_back(name.str());
    }
    plan.tactics.push_back("pc-tensor-parallel{axis=" + axis + " form=" + form + "}");
    if (flags.sequenceParallel && form != "1d") {
      status = PCRT_INFEASIBLE;
      return refuse("--sequence-parallel goes with --tensor-parallel=1d; " + form +
                    " splits those activations already");
    }
    if (flags.sequenceParallel)
      plan.tactics.push_back("pc-sequence-parallel{axis=" + axis + "}");
  } else if (flags.sequenceParallel) {
    status = PCRT_INFEASIBLE;
    return refuse("--sequence-parallel goes with tensor parallelism; add tp=N to --mesh");
  }
  if (flags.contextParallel || sizeOf("cp")) {
    auto [form, axis] = formAndAxis(flags.contextParallel.value_or(""), "heads", "cp");
    if (form != "heads" && form != "ring")
      return refuse("--context-parallel=" + form + " is not a form (heads, ring)");
    if (!sizeOf(axis))
      return refuse("--context-parallel needs the mesh axis '" + axis + "'; add " + axis + "=N to --mesh");
    if (form == "ring")
      plan.tactics.push_back("pc-zigzag{ranks=" + std::to_string(sizeOf(axis)) + "}");
    plan.tactics.push_back("pc-context-parallel{axis=" + axis + " form=" + form + "}");
    used.push_back(axis);
  }
  auto [stage, zeroAxis] = formAndAxis(flags.zero, "", "dp");
  if (stage != "0" && stage != "1" && stage != "2" && stage != "3")
    return refuse("--zero=" + stage + " is not a stage (0, 1, 2, 3)");
  if (stage == "0")
    zeroAxis.clear();
  else if (!sizeOf(zeroAxis)) {
    status = PCRT_INFEASIBLE;
    return refuse("--zero=" + stage + " needs a data axis; add " + zeroAxis + "=N to --mesh");
  }
  if (flags.dataParallel || (sizeOf("dp") && zeroAxis != "dp")) {
    auto [mode, axis] = formAndAxis(flags.dataParallel.value_or(""), "ddp", "dp");
    if (mode != "ddp" && mode != "naive")
      return refuse("--data-parallel=" + mode + " is not a mode (ddp, naive)");
    if (mode == "naive" && axis == zeroAxis) {
      status = PCRT_INFEASIBLE;
      return refuse("--data-parallel=naive keeps parameters and optimizer state on one rank, --zero=" + stage +
                    " splits them over the same axis '" + axis + "'; give one of the two");
    }
    if (!sizeOf(axis))
      return refuse("--data-parallel needs the mesh axis '" + axis + "'; add " + axis + "=N to --mesh");
    if (axis != zeroAxis) { // ZeRO is data parallelism already
      plan.tactics.push_back("pc-data-parallel{axis=" + axis + " mode=" + mode + "}");
      used.push_back(axis);
    }
  }
  if (!flags.zeroKeep.empty() && stage != "3")
    return refuse("--zero-keep goes with --zero=3: only there are parameters gathered");
  if (StringRef(flags.zeroKeep).find_first_of(" {}'\"") != StringRef::npos)
    return refuse("--zero-keep=" + flags.zeroKeep + ": patterns must have no spaces, braces or quotes");
  if (!zeroAxis.empty()) {
    std::string keep = flags.zeroKeep.empty() ? "" : " keep=" + flags.zeroKeep;
    plan.tactics.push_back("pc-zero{axis=" + zeroAxis + " stage=" + stage + keep + "}");
    used.push_back(zeroAxis);
  }
  status = PCRT_INFEASIBLE;
  if (sizeOf("sp"))
    return refuse("sequence parallelism has no axis of its own; give --sequence-parallel with tp=N in --mesh");
  if (flags.pipeline || sizeOf(flags.pipelineAxis)) {
    std::string schedule = flags.pipeline.value_or("1f1b");
    status = PCRT_USAGE;
    if (!sizeOf(flags.pipelineAxis))
      return refuse("--pipeline needs the mesh axis '" + flags.pipelineAxis + "'; add " + flags.pipelineAxis +
                    "=N to --mesh");
    if (flags.interleave > 1) {
      if (flags.pipeline && schedule != "interleaved")
        return refuse("--interleave goes with --pipeline=interleaved");
      schedule = "interleaved:" + std::to_string(flags.interleave);
    }
    if (StringRef(schedule).find_first_of(" {}'\"") != StringRef::npos)
      return refuse("--pipeline=" + schedule + ": a file's name must have no spaces, quotes or braces");
    if (StringRef(flags.stages).find_first_of(" {}'\"") != StringRef::npos)
      return refuse("--stages=" + flags.stages + " is neither cost nor layers nor a list like 3,5,4");
    plan.tactics.push_back("pc-pipeline-parallel{axis=" + flags.pipelineAxis + " schedule=" + schedule +
                           " stages=" + flags.stages + "}");
    used.push_back(flags.pipelineAxis);
    status = PCRT_INFEASIBLE;
  } else if (flags.pipelineAxis != "pp" || flags.interleave > 1 || flags.stages != "cost") {
    status = PCRT_USAGE;
    return refuse("--interleave, --stages and --pipeline-axis are about a pipeline; add " + flags.pipelineAxis +
                  "=N to --mesh");
  }
  if (sizeOf("ep"))
    return refuse("expert parallelism is not available yet");
  SmallVector<StringRef> windows;
  StringRef(flags.window).split(windows, ',', -1, /*KeepEmpty=*/false);
  for (StringRef axis : windows)
    if (!sizeOf(axis))
      return refuse("--window=" + flags.window + ": the mesh has no axis '" + axis + "'");
  if (!windows.empty())
    plan.tactics.push_back("pc-window-moves{axes=" + llvm::join(windows, ",") + "}");
  status = PCRT_USAGE;
  for (const auto &[axis, size] : plan.mesh)
    if (!llvm::is_contained(used, axis))
      return refuse("no tactic uses the mesh axis '" + axis +
                    "'; name it in a strategy flag, as in --data-parallel=ddp:" + axis);
  status = PCRT_OK;
  return plan;
}

/// The passes that are tactics, and the mesh axis of each where it does not say.
struct Kind {
  StringRef pass, axis;
};
static constexpr Kind kinds[] = {{"pc-mixed-precision", ""},
                                 {"pc-recompute", ""},
                                 {"pc-zigzag", ""},
                                 {"pc-tensor-parallel", "tp"},
                                 {"pc-sequence-parallel", "tp"},
                                 {"pc-context-parallel", "cp"},
                                 {"pc-data-parallel", "dp"},
                                 {"pc-zero", "dp"},
                                 {"pc-propagate", ""},
                                 {"pc-pipeline-parallel", "pp"},
                                 {"pc-window-moves", ""}};

/// Why `text` is not one tactic with its options, or "".
static std::string whyNoTactic(StringRef text) {
  StringRef options = text.drop_until([](char c) { return c == '{'; });
  int depth = 0;
  bool isOne = llvm::all_of(llvm::enumerate(options), [&](auto one) {
    depth += (one.value() == '{') - (one.value() == '}');
    return depth > 0 || one.index() + 1 == options.size();
  });
  std::string names;
  for (const Kind &kind : kinds) {
    if (isOne && depth == 0 && text.drop_back(options.size()) == kind.pass)
      return "";
    names += (names.empty() ? "" : ", ") + kind.pass.str();
  }
  return ("'" + text + "' is no tactic with its options, as in 'pc-zero{axis=dp stage=3}'; tactics are " + names).str();
}

/// An axis of the mesh that no tactic works over, or "".
static std::string unusedAxis(const Plan &plan) {
  llvm::StringSet<> used;
  for (const Tactic &tactic : plan.tactics)
    for (const Kind &kind : kinds) {
      SmallVector<StringRef> axes;
      if (tactic.pass() == kind.pass)
        tactic.option("axis", kind.axis).split(axes, ',');
      used.insert(axes.begin(), axes.end());
    }
  for (const auto &[axis, size] : plan.mesh)
    if (!used.contains(axis))
      return axis;
  return "";
}

/// Why tactics of a plan do not go together, or "". What one tactic finds out by itself, as that an axis is used
/// already, it says itself.
static std::string conflictOf(const Plan &plan) {
  if (std::string axis = unusedAxis(plan); !axis.empty())
    return "no tactic uses the mesh axis '" + axis + "'";
  if (llvm::count_if(plan.tactics, [](const Tactic &tactic) { return tactic.isOfMoves(); }) > 1)
    return "pc-window-moves is given twice; one takes a list of axes: pc-window-moves{axes=tp,dp}";
  for (const Tactic &tactic : plan.tactics)
    if (tactic.cutsStages() && &tactic != plan.pipeline())
      return "a program is cut into stages once; give '" + plan.pipeline()->text() + "' or '" + tactic.text() + "'";
  return "";
}

std::optional<Plan> pc::planFromFile(MLIRContext *context, StringRef file, pcrt_status &status) {
  status = PCRT_BAD_INPUT;
  context->loadDialect<PCDialect>();
  llvm::SourceMgr sources;
  OwningOpRef<ModuleOp> module = parseProgram(file, sources, context);
  if (!module)
    return std::nullopt;
  if (!llvm::hasSingleElement(*module->getBody()) || !isa<PlanOp>(module->getBody()->front())) {
    module->emitError() << "a plan file holds one pc.plan and nothing else";
    return std::nullopt;
  }
  auto op = cast<PlanOp>(module->getBody()->front());
  Plan plan;
  plan.microbatches = op.getMicrobatches();
  for (auto [name, size] : llvm::zip_equal(op.getMesh().getNames(), op.getMesh().getSizes()))
    plan.mesh.push_back({name.str(), size});
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
