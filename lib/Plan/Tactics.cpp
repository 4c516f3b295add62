//===- Tactics.cpp - The table of tactics --------------------------------------------------===//
// Each row states which flags add the tactic, which axes it uses, in which phase it runs, and what it does not allow.
// Functions before the rows read the flags of one tactic.
//===---------------------------------------------------------------------------------------===//
#include "pc/Plan/Tactics.h"
#include "pc/IR/MeshText.h"
#include "pc/Pipeline/Schedule.h"

#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace pc;

using Refused = std::optional<Refusal>;

static Refused usage(const Twine &why) { return Refusal{PCRT_USAGE, why.str()}; }
static Refused infeasible(const Twine &why) { return Refusal{PCRT_INFEASIBLE, why.str()}; }

/// Returns true if a value cannot be an option of a tactic, because it contains a character that would end it.
static bool hasNoText(StringRef value) { return value.find_first_of(" {}'\"") != StringRef::npos; }

const TacticForm *TacticInfo::formOf(const Tactic &tactic) const {
  auto it = find_if(forms, [&](const TacticForm &form) { return form.name == tactic.option(formOption); });
  return it == forms.end() ? nullptr : &*it;
}

/// The form lists positions in the tactic's list of axes.
SmallVector<StringRef> pc::sequenceAxes(const Tactic &tactic) {
  const TacticInfo *row = tactic.info();
  const TacticForm *form = row ? row->formOf(tactic) : nullptr;
  SmallVector<StringRef> named = tactic.axes(), axes;
  for (int place : form ? ArrayRef(form->sequenceAxes) : ArrayRef<int>())
    if (place < std::ssize(named))
      axes.push_back(named[place]);
  return axes;
}

/// The flag is FORM:AXIS, and either part may be missing. Without the flag, the tactic is added if the mesh has the
/// default axis.
Refused pc::alongAxis(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  const Tactic byDefault(row.pass);
  const std::string flag = "--" + row.flags.front().name;
  StringRef implied = byDefault.axis();
  if (!flags.given(row.flags.front().name) && !plan.sizeOf(implied))
    return {};
  std::string text = flags.text(row.flags.front().name);
  auto [form, axis] = StringRef(text).split(':');
  std::string chosen = (form.empty() ? byDefault.option(row.formOption) : form).str();
  const TacticForm *known = row.formOf(row.pass + "{" + row.formOption + "=" + chosen + "}");
  if (!known)
    return usage(flag + "=" + chosen + " is not a " + row.formOption + " (" +
                 join(map_range(row.forms, [](const TacticForm &one) { return one.name; }), ", ") + ")");
  StringRef usual = known->axes.empty() ? implied : StringRef(known->axes);
  Tactic tactic = byDefault.with("axis", axis.empty() ? usual : axis).with(row.formOption, chosen);
  SmallVector<StringRef> axes = tactic.axes();
  bool hasGrids = any_of(row.forms, [](const TacticForm &one) { return !one.axes.empty(); });
  if (size_t wanted = 1 + usual.count(','); hasGrids && !known->anyAxes && axes.size() != wanted)
    return usage(flag + "=" + chosen + " works over " + Twine(wanted) + " mesh axes, got '" + tactic.axis() + "'");
  for (StringRef name : axes)
    if (!plan.sizeOf(name))
      return usage(flag + " needs the mesh axis '" + name + "'; add " + name + "=N to --mesh");
  plan.tactics.push_back(tactic);
  return {};
}

/// The bits of the codes that --gradient-precision names; 0 if it names none.
static int64_t bitsOf(StringRef precision) { return precision == "int8" ? 8 : precision == "int4" ? 4 : 0; }

static Refused codeGradients(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  if (int64_t bits = bitsOf(flags.text("gradient-precision")))
    plan.tactics.push_back(Tactic(row.pass).with("bits", std::to_string(bits)));
  return {};
}

/// --precision and --gradient-precision share a tactic. It is added if at least one of them is not f32.
static Refused mixedPrecision(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  Tactic tactic(row.pass);
  for (auto [flag, option] : {std::pair("precision", "compute"), std::pair("gradient-precision", "gradients")}) {
    std::string precision = flags.text(flag, "f32");
    const bool isCompute = option == StringRef("compute"), isGradients = option == StringRef("gradients");
    if (isGradients && bitsOf(precision))
      precision = "f32"; // addends are rounded by another tactic
    if (precision != "f32" && precision != "bf16" && !(isCompute && precision == "fp8"))
      return usage("--" + Twine(flag) + "=" + precision + " is not a precision (f32, bf16" +
                   (isCompute     ? ", fp8)"
                    : isGradients ? ", int8, int4)"
                                  : ")"));
    if (precision != "f32" || flags.text("gradient-precision") == "bf16")
      tactic = tactic.with(option, precision);
  }
  const std::string compute = flags.text("precision", "f32");
  if (flags.given("fp8-gradients")) {
    std::string format = flags.text("fp8-gradients");
    if (format != "e4m3" && format != "e5m2")
      return usage("--fp8-gradients=" + Twine(format) + " is not a float of 8 bits (e4m3, e5m2)");
    if (compute != "fp8")
      return usage("--fp8-gradients needs --precision=fp8");
    tactic = tactic.with("float8-gradients", format);
  }
  if (flags.given("fp8-scaling")) {
    std::string scaling = flags.text("fp8-scaling");
    if (scaling != "blocks" && scaling != "current" && scaling != "delayed")
      return usage("--fp8-scaling=" + Twine(scaling) + " is not a way to choose scales (blocks, current, delayed)");
    if (compute != "fp8")
      return usage("--fp8-scaling needs --precision=fp8");
    tactic = tactic.with("float8-scaling", scaling);
  }
  if (flags.given("residual-precision")) {
    std::string residual = flags.text("residual-precision");
    if (residual != "f32" && residual != "bf16")
      return usage("--residual-precision=" + Twine(residual) + " is not a precision (f32, bf16)");
    if (compute == "f32")
      return usage("--residual-precision needs --precision=bf16 or fp8");
    tactic = tactic.with("residual", residual);
  }
  if (tactic.text() != row.pass)
    plan.tactics.push_back(tactic);
  return {};
}

static Refused recompute(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  std::string mode = flags.text("recompute", "none");
  if (mode != "none" && mode != "selective" && mode != "full" && mode != "auto")
    return usage("--recompute=" + mode + " is not a mode (none, selective, full, auto)");
  if (mode != "none")
    plan.tactics.push_back(Tactic(row.pass).with("mode", mode));
  return {};
}

/// Sequence parallelism extends the one-dimensional form of tensor parallelism and uses its axis.
static Refused sequenceParallel(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  if (flags.text("sequence-parallel") != "true")
    return {};
  auto tensor = plan.find<TensorParallelTactic>();
  if (!tensor)
    return infeasible("--sequence-parallel needs tensor parallelism; add tp=N to --mesh");
  const TacticForm &form = *(*tensor)->info()->formOf(*tensor);
  if (form.weightAxis >= 0)
    return infeasible("--sequence-parallel works with --tensor-parallel=1d only; " + form.name +
                      " already splits those activations");
  if (form.anyAxes)
    return infeasible("--sequence-parallel works with --tensor-parallel=1d only; free already splits those activations "
                      "if that is faster");
  plan.tactics.push_back(Tactic(row.pass).with("axis", tensor->axis()));
  return {};
}

/// A ring also needs the sequence in zigzag order, which an earlier pass, pc-zigzag, sets.
static Refused contextParallel(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  size_t before = plan.tactics.size();
  Refused refused = alongAxis(row, flags, plan);
  if (plan.tactics.size() > before && ContextParallelTactic(plan.tactics.back()).isRing())
    plan.tactics.insert(plan.tactics.end() - 1, ZigzagTactic::of(plan.sizeOf(plan.tactics.back().axis())));
  return refused;
}

/// The stage and the axis of --zero=stage:axis; stage 0 has no axis.
static std::pair<std::string, std::string> zeroOf(const StrategyFlags &flags) {
  std::string text = flags.text("zero", "0");
  auto [stage, axis] = StringRef(text).split(':');
  if (stage == "0")
    return {"0", ""};
  return {stage.str(), (axis.empty() ? Tactic(ZeroTactic::pass).axis() : axis).str()};
}

/// Whether ZeRO works over this axis, which then needs no tactic for data parallelism.
static bool isOfZero(const StrategyFlags &flags, StringRef axis) {
  return !axis.empty() && (zeroOf(flags).second == axis || flags.text("zero-outer") == axis);
}

/// The mesh axis that splits experts; "": none.
static std::string expertsAxis(const StrategyFlags &flags, const Plan &plan) {
  std::string axis = flags.text("expert-parallel");
  if (axis.empty())
    axis = Tactic(ExpertParallelTactic::pass).axis().str();
  return flags.given("expert-parallel") || plan.sizeOf(axis) ? axis : "";
}

/// Adds pc-dispatch-experts before expert parallelism, if ranks send routed tokens to each other (on CPUs).
static Refused dispatchExperts(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  std::string exchange = flags.text("expert-exchange", "auto"), axis = expertsAxis(flags, plan);
  if (exchange != "auto" && exchange != "gather" && exchange != "rows")
    return usage("--expert-exchange=" + Twine(exchange) + " is not a way to exchange tokens (auto, gather, rows)");
  int64_t ranks = plan.sizeOf(axis);
  if (flags.given("expert-exchange") && !ranks)
    return usage("--expert-exchange needs expert parallelism; add " +
                 (axis.empty() ? Tactic(ExpertParallelTactic::pass).axis() : StringRef(axis)) + "=N to --mesh");
  if (exchange != "gather" && ranks > 1) // the ranks of this mesh; --auto also tries other meshes
    plan.tactics.push_back(exchange == "auto" ? Tactic(row.pass) : Tactic(row.pass).with("exchange", exchange));
  return {};
}

/// If a tactic already uses the axis, it splits something else outside of experts, and also splits experts.
static Refused expertParallel(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  std::string axis = expertsAxis(flags, plan);
  if (axis.empty())
    return {};
  if (!plan.sizeOf(axis))
    return usage("--expert-parallel needs the mesh axis '" + axis + "'; add " + axis + "=N to --mesh");
  auto *other = find_if(plan.tactics, [&](const Tactic &tactic) { return is_contained(tactic.axes(), axis); });
  if (other == plan.tactics.end()) {
    if (zeroOf(flags).second != axis) // otherwise ZeRO includes it
      plan.tactics.push_back(Tactic(row.pass).with("axis", axis));
    return {};
  }
  auto tensor = other->as<TensorParallelTactic>();
  if (tensor && tensor->form() != "1d")
    return infeasible("--expert-parallel=" + axis +
                      " shares its axis with tensor parallelism, which must then be --tensor-parallel=1d; " +
                      tensor->form() + " splits every expert");
  *other = other->with("experts", "true");
  if (!tensor || plan.find<SequenceParallelTactic>())
    return {};
  if (flags.text("expert-exchange") == "rows")
    return infeasible("--expert-exchange=rows has nothing to exchange, because all ranks of '" + axis +
                      "' have all tokens; add --sequence-parallel to split them, or use --expert-exchange=gather");
  erase_if(plan.tactics, [](const Tactic &tactic) { return tactic.as<DispatchExpertsTactic>().has_value(); });
  return {};
}

/// Stage 0 stands for no ZeRO and needs no axis.
static Refused whyNoZero(const StrategyFlags &flags, const Plan &plan) {
  auto [stage, axis] = zeroOf(flags);
  if (stage != "0" && stage != "1" && stage != "2" && stage != "3")
    return usage("--zero=" + stage + " is not a stage (0, 1, 2, 3)");
  if (stage != "0" && !plan.sizeOf(axis))
    return infeasible("--zero=" + stage + " needs a data axis; add " + axis + "=N to --mesh");
  return {};
}

/// Data parallelism may be implied by the mesh. Then ZeRO or expert parallelism over the same axis replaces it, since
/// both include it.
static Refused dataParallel(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  if (Refused refused = whyNoZero(flags, plan))
    return refused;
  std::string stage = zeroOf(flags).first;
  size_t before = plan.tactics.size();
  Refused refused = alongAxis(row, flags, plan);
  StringRef axis = plan.tactics.size() == before ? StringRef() : plan.tactics.back().axis();
  bool hasExperts = !axis.empty() && axis == expertsAxis(flags, plan);
  if (axis.empty() || (!isOfZero(flags, axis) && !hasExperts))
    return refused;
  bool isNaive = DataParallelTactic(plan.tactics.back()).isNaive();
  if (isNaive && hasExperts)
    return infeasible("--data-parallel=naive keeps parameters on one rank, but --expert-parallel splits experts over "
                      "the same axis '" +
                      axis + "'; use --data-parallel=ddp");
  if (isNaive)
    return infeasible("--data-parallel=naive keeps parameters and optimizer state on one rank, but --zero=" + stage +
                      " splits them over the same axis '" + axis + "'; give only one of the two");
  plan.tactics.pop_back(); // ZeRO over this axis includes data parallelism, and so does expert parallelism
  return {};
}

/// Stage 0 means no ZeRO. Only stage 3 gathers parameters, so --zero-keep and --zero-outer need stage 3. An outer axis
/// splits the shards further, but each step gathers over it only once. It is placed last, so that these gathers come
/// first and make shards of the inner axis.
static Refused zero(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  auto [stage, axis] = zeroOf(flags);
  std::string keep = flags.text("zero-keep"), outer = flags.text("zero-outer");
  if (!outer.empty() && stage != "3")
    return usage("--zero-outer needs --zero=3, the only stage that gathers parameters");
  if (!outer.empty() && outer == axis)
    return usage("--zero-outer=" + outer + " is the axis of --zero already; name another axis of --mesh");
  if (!outer.empty() && !plan.sizeOf(outer))
    return usage("--zero-outer needs the mesh axis '" + outer + "'; add " + outer + "=N to --mesh");
  if (!keep.empty() && stage != "3")
    return usage("--zero-keep needs --zero=3, the only stage that gathers parameters");
  if (hasNoText(keep))
    return usage("--zero-keep=" + keep + ": patterns must not contain spaces, braces or quotes");
  if (stage == "0")
    return {};
  Tactic tactic = Tactic(row.pass).with("axis", axis).with("stage", stage);
  if (axis == expertsAxis(flags, plan))
    tactic = tactic.with("experts", "true");
  plan.tactics.push_back(keep.empty() ? tactic : tactic.with("keep", keep));
  if (!outer.empty())
    plan.tactics.push_back(Tactic(row.pass).with("axis", outer).with("stage", stage).with("keep", "*"));
  return {};
}

/// --offload=WHAT[:SPACE],...; the default space is disk. completePlan() replaces --offload=auto.
static Refused offload(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  std::string text = flags.text("offload");
  if (text == "auto") {
    plan.tactics.push_back(Tactic(row.pass).with("what", text));
    return {};
  }
  SmallVector<StringRef> items;
  StringRef(text).split(items, ',');
  for (StringRef item : flags.given("offload") ? items : SmallVector<StringRef>()) {
    auto [what, space] = item.split(':');
    if (!is_contained({"states", "masters", "parameters", "activations"}, what) ||
        (item.contains(':') && !is_contained({"host", "disk"}, space)))
      return infeasible("--offload=" + text + ": '" + item +
                        "' is not supported; expected states, masters, parameters or activations, then :host or :disk "
                        "(default disk), and commas between them, or auto");
    plan.tactics.push_back(Tactic(row.pass).with("what", what).with("to", space.empty() ? "disk" : space));
  }
  return {};
}

/// --pipeline names the schedule; the axis, the stages and other options have separate flags. The tactic is added
/// if the flag is given or the mesh has the axis.
static Refused pipelineParallel(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  const Tactic written(row.pass);
  const PipelineTactic byDefault(written);
  std::string axis = flags.text("pipeline-axis", byDefault.axis());
  std::string named = flags.text("pipeline");
  std::string schedule = named.empty() ? byDefault.schedule().str() : named;
  std::string stages = flags.text("stages", byDefault.stages());
  if (!flags.given("pipeline") && !plan.sizeOf(axis)) {
    if (axis == byDefault.axis() && stages == byDefault.stages())
      return {};
    return usage("--stages and --pipeline-axis need a pipeline; add " + axis + "=N to --mesh");
  }
  if (!plan.sizeOf(axis))
    return usage("--pipeline needs the mesh axis '" + axis + "'; add " + axis + "=N to --mesh");
  if (hasNoText(schedule))
    return usage("--pipeline=" + schedule + ": a file name must not contain spaces, quotes or braces");
  if (hasNoText(stages))
    return usage("--stages=" + stages +
                 " is not a way to divide the layers; expected cost, layers or a list such as 3,5,4");
  plan.tactics.push_back(written.with("axis", axis).with("schedule", schedule).with("stages", stages));
  return {};
}

/// Every axis of --window must be in the mesh.
static Refused windowMoves(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  Tactic tactic = Tactic(row.pass).with("axes", flags.text("window"));
  SmallVector<StringRef> axes = WindowMovesTactic(tactic).axes();
  for (StringRef axis : axes)
    if (!plan.sizeOf(axis))
      return infeasible("--window=" + flags.text("window") + ": the mesh has no axis '" + axis + "'");
  if (!axes.empty())
    plan.tactics.push_back(tactic.with("axes", join(axes, ",")));
  return {};
}

/// --local-sgd=AXIS:STEPS adds the tactic; the flags of the outer optimizer set its options and need it.
static Refused localSgd(const TacticInfo &row, const StrategyFlags &flags, Plan &plan) {
  std::string text = flags.text("local-sgd");
  Tactic tactic(row.pass);
  for (auto [flag, option] :
       {std::pair("outer-rate", "rate"), std::pair("outer-momentum", "momentum"), std::pair("outer-deltas", "deltas")})
    if (flags.given(flag)) {
      double number;
      if (text.empty())
        return usage("--" + Twine(flag) + " needs --local-sgd=AXIS:STEPS");
      std::string value = flags.text(flag);
      if (StringRef(option) == "deltas" && value != "f32" && value != "int8")
        return usage("--" + Twine(flag) + " takes f32 or int8, not '" + value + "'");
      if (StringRef(option) != "deltas" && StringRef(value).getAsDouble(number))
        return usage("--" + Twine(flag) + " takes a number, not '" + flags.text(flag) + "'");
      tactic = tactic.with(option, flags.text(flag));
    }
  auto [axis, every] = StringRef(text).split(':');
  std::string why;
  // An open axis may gain and lose members during a run, which only replicas that train separately tolerate.
  for (const MeshAxisText &other : parseMesh(flags.text("mesh"), why).value_or(SmallVector<MeshAxisText>())) {
    if (other.isOpen && other.name != axis)
      return usage("'" + other.name + "=open' needs replicas that train separately; add --local-sgd=" + other.name +
                   ":32");
    if (other.isOpen && flags.text("outer-deltas") == "int8")
      return usage("--outer-deltas=int8 does not work with an open axis, whose members exchange f32");
  }
  if (text.empty())
    return {};
  int64_t steps = 0;
  if (axis.empty() || every.getAsInteger(10, steps) || steps < 1)
    return usage("--local-sgd=" + text + ": expected a mesh axis and the number of steps of a round, as in outer:32");
  if (plan.sizeOf(axis) < 1)
    return usage("--local-sgd needs the mesh axis '" + axis + "'; add " + axis + "=N to --mesh");
  plan.tactics.push_back(tactic.with("axis", axis).with("every", std::to_string(steps)));
  return {};
}

//===---------------------------------------------------------------------------===//
// The rows
//===---------------------------------------------------------------------------===//

static std::vector<std::string> scheduleNames() {
  std::vector<std::string> names = {"auto"};
  for (const pipeline::NamedSchedule &schedule : pipeline::namedSchedules())
    names.emplace_back(schedule.name);
  return names;
}

/// The rows, in the order in which flags add tactics to a plan.
static std::deque<TacticInfo> &table() {
  // Tensor parallelism comes before data parallelism and ZeRO: the dims that it splits do not depend on the batch, and
  // ZeRO splits dims that are left.
  static std::deque<TacticInfo> rows = {
      {.pass = DispatchExpertsTactic::pass.str(),
       .phase = Phase::Step,
       .flags = {{"expert-exchange",
                  "How tokens reach experts on other ranks: gather sends all tokens, rows only the routed ones, and "
                  "auto picks rows if a token has fewer experts than there are ranks"}},
       .fromFlags = dispatchExperts},
      {.pass = MixedPrecisionTactic::pass.str(),
       .phase = Phase::Step,
       .flags =
           {{"precision",
             "Type of activations and of operands of matrix products: f32, bf16, or fp8, which is bf16 with the "
             "operands of layers' products in 8 bits (default f32)"},
            {"fp8-gradients", "With --precision=fp8, gradients as operands: e4m3 or e5m2 (default e4m3)"},
            {"fp8-scaling", "With --precision=fp8, scales per block (blocks, the default), or per operand: current, "
                            "from its largest magnitude, or delayed, from its magnitudes in the last steps"},
            {"gradient-precision",
             "Type in which ranks send gradients: f32 (default), bf16 (also stores them, with one microbatch), "
             "or int8 or int4, in codes with a scale per 256 elements"},
            {"residual-precision",
             "With --precision=bf16 or fp8, type of the residual stream and its gradient: bf16 or f32 (default bf16)"}},
       .fromFlags = mixedPrecision},
      {.pass = RecomputeTactic::pass.str(),
       .phase = Phase::Step,
       .flags = {{"recompute",
                  "Which activations are recomputed in the backward pass: none, selective, full, or auto, which "
                  "recomputes as little as --memory-limit allows (default none)",
                  TacticFlag::Text,
                  "",
                  {"selective", "full"}}},
       .fromFlags = recompute},
      {.pass = ZigzagTactic::pass.str(), .phase = Phase::Step, .sharesTokens = true}, // comes with ring attention
      {.pass = TensorParallelTactic::pass.str(),
       .phase = Phase::Placed,
       .flags = {{.name = "tensor-parallel", .kind = TacticFlag::OptionalText, .searchedUnknown = {"free"}}},
       .formOption = "form",
       .forms = {{"1d"},
                 {.name = "2d", .axes = "row,col", .weightAxis = 0, .sequenceAxes = {0}},
                 {.name = "2.5d",
                  .axes = "depth,row,col",
                  .weightAxis = 1,
                  .dataAxis = 0,
                  .besides = "2d",
                  .sequenceAxes = {0, 1}},
                 {.name = "3d", .axes = "i,j,l", .weightAxis = 0, .sequenceAxes = {0, 2}},
                 {.name = "free", .anyAxes = true}},
       .splitsVocabulary = true,
       .fromFlags = alongAxis},
      {.pass = SequenceParallelTactic::pass.str(),
       .phase = Phase::Placed,
       .flags = {{"sequence-parallel",
                  "Split the sequence over the tensor-parallel axis wherever activations would be whole",
                  TacticFlag::Switch,
                  "",
                  {"true"}}},
       .fromFlags = sequenceParallel},
      {.pass = ContextParallelTactic::pass.str(),
       .phase = Phase::Placed,
       .flags = {{"context-parallel", "", TacticFlag::OptionalText, "", {"ring"}}},
       .formOption = "form",
       .forms = {{"heads"}, {"ring"}},
       .sharesTokens = true,
       .takesQkvApart = true,
       .fromFlags = contextParallel},
      {.pass = ExpertParallelTactic::pass.str(),
       .phase = Phase::Placed,
       .flags = {{"expert-parallel",
                  "Split the experts of an MoE model over this axis (default ep), which another tactic may use "
                  "outside the experts",
                  TacticFlag::OptionalText,
                  "",
                  {"tp", "cp"}}},
       .ofExperts = true,
       .fromFlags = expertParallel},
      {.pass = DataParallelTactic::pass.str(),
       .phase = Phase::Placed,
       .flags = {{"data-parallel", "", TacticFlag::OptionalText}},
       .formOption = "mode",
       .forms = {{"ddp"}, {"naive"}},
       .splitsBatch = true,
       .fromFlags = dataParallel},
      {.pass = ZeroTactic::pass.str(),
       .phase = Phase::Placed,
       .flags = {{"zero",
                  "ZeRO stage from 0 to 3, or STAGE:AXIS (default axis: the data-parallel one)",
                  TacticFlag::Text,
                  "",
                  {"1", "2", "3"}},
                 {"zero-keep", "Parameters that ZeRO-3 gathers once per step, as globs such as wte.*|h.11.*"},
                 {"zero-outer", "Slower axis over which ZeRO-3 also splits, but gathers only once per step (hpZ)"}},
       .shardsParameters = true,
       .fromFlags = zero},
      {.pass = "pc-propagate", .phase = Phase::Placed, .takesQkvApart = true}, // only in plan files
      {.pass = OffloadTactic::pass.str(),
       .phase = Phase::Placed,
       .flags =
           {{"offload",
             "Keep values elsewhere and copy them in before they are read: states, masters, parameters, activations, "
             "or several with commas, each followed by :disk (default) or :host (CUDA); or auto, the "
             "cheapest of these that fit --memory-limit; may be repeated",
             TacticFlag::List}},
       .fromFlags = offload},
      {.pass = CodeGradientsTactic::pass.str(), // of --gradient-precision
       .phase = Phase::Placed,
       .once = "gradients can be sent in one number of bits only; give '{0}' or '{1}'",
       .fromFlags = codeGradients},
      {.pass = PipelineTactic::pass.str(),
       .phase = Phase::Staged,
       .flags = {{"pipeline",
                  "Pipeline schedule: " + pipeline::scheduleNames(),
                  TacticFlag::OptionalText,
                  "schedule",
                  {"interleaved:2", "zb-h1", "zb-v"},
                  {},
                  scheduleNames()},
                 {"pipeline-axis", "Mesh axis of the pipeline stages", TacticFlag::Text, "axis"},
                 {"stages",
                  "How layers are divided among the stages: cost (equal time), layers (equal numbers) or a list such "
                  "as 3,5,4",
                  TacticFlag::Text, "stages"}},
       .once = "a program can be cut into stages only once; give '{0}' or '{1}'",
       .fromFlags = pipelineParallel},
      {.pass = WindowMovesTactic::pass.str(),
       .phase = Phase::Scheduled,
       .flags = {{"window", "Mesh axes whose gathers and reduce-scatters become collective matmuls, which overlap "
                            "communication and products in ring steps"}},
       .once = "pc-window-moves is given twice; give it once with a list of axes, as in pc-window-moves{{axes=tp,dp}",
       .fromFlags = windowMoves},
      {.pass = LocalSgdTactic::pass.str(),
       .phase = Phase::Planned,
       .flags = {{"local-sgd",
                  "AXIS:STEPS makes the coordinates of the axis replicas that are averaged every STEPS steps (DiLoCo)"},
                 {"outer-rate", "Learning rate of the outer optimizer of --local-sgd", TacticFlag::Text, "rate"},
                 {"outer-momentum", "Nesterov momentum of the outer optimizer of --local-sgd", TacticFlag::Text,
                  "momentum"},
                 {"outer-deltas", "Type in which replicas of --local-sgd send their parameter changes: f32 or int8",
                  TacticFlag::Text, "deltas"}},
       .once = "only one axis can have replicas that train separately; give '{0}' or '{1}'",
       .fromFlags = localSgd},
  };
  return rows;
}

const std::deque<TacticInfo> &pc::tactics() { return table(); }

void pc::registerTactic(TacticInfo info) { table().push_back(std::move(info)); }

const TacticInfo *Tactic::info() const {
  auto it = find_if(tactics(), [&](const TacticInfo &row) { return row.pass == name; });
  return it == tactics().end() ? nullptr : &*it;
}
