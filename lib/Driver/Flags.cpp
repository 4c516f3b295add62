//===- Flags.cpp - What a compile can be asked for, by name -------------------------------===//
// CompileFlags holds the flags of a compile. Strategy flags stay text until resolve(), which makes the plan from a plan
// file, from the flags, or from the flags and the plan of a program that was compiled already. With --auto they are
// passed on as the pins of the search.
//===-----------------------------------------------------------------------------===//
#include "pc/Driver/Flags.h"

#include "pc/Codegen/Codegen.h"
#include "pc/Cost/Machine.h"

#include "llvm/ADT/StringExtras.h"

namespace cl = llvm::cl;
using namespace mlir;
using namespace pc;

cl::OptionCategory &pc::categoryOf(FlagGroup group) {
  static cl::OptionCategory categories[] = {
      {"Plan", "How ranks share the work. Axes of the mesh called dp, tp, cp and pp imply their tactics."},
      {"Input and output"},
      {"Target", "What the executable runs on"},
      {"Tuning", "Limits, and what overlaps with what"}};
  return categories[static_cast<int>(group)];
}

namespace {
/// Puts a flag into its group, and on the command line of the tool.
struct InGroup {
  FlagGroup group;
  bool ofTool;
  template <class Flag> void apply(Flag &flag) const {
    flag.addCategory(categoryOf(group));
    if (ofTool)
      flag.addSubCommand(cl::SubCommand::getTopLevel());
  }
};
} // namespace

/// 25M, 8G: a number of bytes; false where it is none.
static bool parseBytes(StringRef text, int64_t &bytes) {
  int64_t shift = 0;
  if (!text.empty())
    if (size_t at = StringRef("KMGT").find(llvm::toUpper(text.back())); at != StringRef::npos) {
      shift = 10 * (static_cast<int64_t>(at) + 1);
      text = text.drop_back();
    }
  int64_t number = 0;
  if (text.getAsInteger(10, number) || std::abs(number) > (std::numeric_limits<int64_t>::max() >> shift))
    return false;
  bytes = number * (int64_t(1) << shift);
  return true;
}

template <typename T, typename... Mods>
CompileFlags::Option<T> &CompileFlags::flag(StringRef name, const Twine &description, Mods &&...mods) {
  texts.push_back(description.str());
  StringRef text = texts.back();
  texts.push_back(name.str());
  phaseOf[name.str()] = phase;
  auto owned = std::make_unique<Option<T>>(*this, texts.back(), cl::desc(text), InGroup{group, ofTool},
                                           std::forward<Mods>(mods)...);
  Option<T> &result = *owned;
  flags.push_back(std::move(owned));
  return result;
}

static std::string shown(int64_t value) { return std::to_string(value); }
static std::string shown(const std::string &value) { return value; }

/// A flag that sets a field of CompileOptions; the field's value is the default.
template <typename T> void CompileFlags::field(T &field, StringRef name, const Twine &description) {
  std::string byDefault;
  if constexpr (!std::is_same_v<T, bool>)
    byDefault = shown(field).empty() ? "" : " (default " + shown(field) + ")";
  flag<T>(name, description + byDefault, cl::init(field)).setCallback([this, &field, name](const T &value) {
    field = value;
    order.push_back(name.str());
  });
}

void CompileFlags::list(SmallVectorImpl<std::string> &field, StringRef name, const Twine &description) {
  flag<std::string>(name, description, cl::ZeroOrMore).setCallback([this, &field, name](const std::string &value) {
    SmallVector<StringRef> parts;
    StringRef(value).split(parts, ',');
    for (StringRef part : parts)
      field.push_back(part.str());
    order.push_back(name.str());
  });
}

void CompileFlags::bytes(int64_t &field, StringRef name, const Twine &description) {
  std::string byDefault = !field              ? ""
                          : field % (1 << 20) ? " (default " + std::to_string(field) + ")"
                                              : " (default " + std::to_string(field >> 20) + "M)";
  flag<std::string>(name, description + byDefault, cl::value_desc("bytes"))
      .setCallback([this, &field, name](const std::string &value) {
        byteFlags.push_back({name.str(), value, &field});
        order.push_back(name.str());
      });
}

/// A strategy flag, kept as it was written.
void CompileFlags::strategy(const TacticFlag &row, const Twine &description, ArrayRef<TacticForm> forms) {
  auto set = [this, name = row.name](const Twine &value) {
    strategyFlags.set(name, value.str());
    order.push_back(name);
  };
  switch (row.kind) {
  case TacticFlag::Text:
    return flag<std::string>(row.name, description).setCallback([set](const std::string &text) { set(text); });
  case TacticFlag::OptionalText:
    namesOf[row.name] = row.names;
    for (const TacticForm &form : forms)
      namesOf[row.name].push_back(form.name);
    return flag<std::string>(row.name, description, cl::ValueOptional).setCallback([set](const std::string &text) {
      set(text);
    });
  case TacticFlag::Number:
    return flag<int64_t>(row.name, description).setCallback([set](const int64_t &number) { set(Twine(number)); });
  case TacticFlag::Switch:
    return flag<bool>(row.name, description).setCallback([set](const bool &on) { set(on ? "true" : "false"); });
  }
}

/// "1d (default), 2d over axes row,col": what a flag form:axis takes.
static std::string formsOf(const TacticInfo &row) {
  const Tactic byDefault(row.pass);
  std::string text;
  for (const TacticForm &form : row.forms) {
    text += (text.empty() ? "" : ", ") + form.name;
    text += form.axes.empty() ? "" : " over axes " + form.axes;
    text += form.name == byDefault.option(row.formOption) ? " (default)" : "";
  }
  return text + "; over axis " + byDefault.axis().str() + ", or " + row.formOption + ":axis";
}

/// All strategy flags, in the order of the tactics.
void CompileFlags::strategies() {
  phase = Phase::Placed;
  strategy({"mesh"}, "Axes, outermost first: dp=2,tp=2");
  for (const TacticInfo &row : tactics())
    for (const TacticFlag &flag : row.flags) {
      phase = row.phase;
      std::string byDefault =
          flag.option.empty() ? "" : " (default " + Tactic(row.pass).option(flag.option).str() + ")";
      strategy(flag, (flag.description.empty() ? formsOf(row) : flag.description) + byDefault,
               flag.description.empty() ? ArrayRef(row.forms) : ArrayRef<TacticForm>());
    }
  phase = Phase::Step;
  strategy({"microbatches", "", TacticFlag::Number},
           "Microbatches per step (default " + Twine(Plan().microbatches) + ")");
}

CompileFlags::CompileFlags(bool ofTool) : ofTool(ofTool) {
  group = FlagGroup::Plan;
  strategies();
  field(planFile, "plan", "A plan file in place of the strategy flags");
  phase = Phase::Step;
  flag<std::string>("auto",
                    "Search the plan; strategy flags that are given stay. Or only these axes and flags: tp,zero",
                    cl::ValueOptional)
      .setCallback([this](const std::string &value) {
        fields.search.isOn = true;
        fields.search.free = value;
        order.push_back("auto");
      });
  field(fields.search.ranks, "ranks", "Ranks of a plan that is searched");
  field(fields.search.compositions, "search-compositions", "Programs that the search compiles, at most");
  field(fields.search.threads, "search-threads", "Threads of the search (default: one a core); all find the same");

  group = FlagGroup::Target;
  field(mode, "mode", "train or eval");
  field(fields.step.optimizer, "optimizer", "adamw or sgd");
  field(fields.kernels.target, "target", "cpu or cuda");
  phase = Phase::Planned;
  list(fields.kernels.archs, "arch", "GPU architectures (default " + llvm::join(defaultArchs, ",") + ")");
  field(fields.kernels.attention, "attention", "CUDA: library (cuDNN, bf16 only) or generated");
  phase = Phase::Kernels;
  field(fields.kernels.checkKernels, "check-kernels",
        "CUDA, one rank: PROGRAM --check-kernels compares its kernels with the CPU's");
  flag<std::string>(
      "machine",
      "On which times are predicted: cpu, a100, h100, h200, b200, here (pc-calibrate), or a file *.json (default: by "
      "--target and the first --arch)")
      .setCallback([this](const std::string &value) {
        fields.machine = value;
        fields.tellPrediction = true;
      });

  group = FlagGroup::Tuning;
  phase = Phase::Step;
  flag<bool>("pack-products", "One product for the queries, keys and values of a layer, where the plan lets it "
                              "(default: for CUDA)")
      .setCallback([this](const bool &on) {
        fields.packProducts = on;
        order.push_back("pack-products");
      });
  flag<int64_t>("pad-vocabulary", "The vocabulary is padded to a multiple of this and of the ranks that split it "
                                  "(default: these ranks; for CUDA also 64)")
      .setCallback([this](const int64_t &multiple) {
        fields.padVocabulary = multiple;
        order.push_back("pad-vocabulary");
      });
  phase = Phase::Scheduled;
  flag<int64_t>("experts-limit", "Rows of experts that are there at once; more are computed in rounds (default: all)")
      .setCallback([this](const int64_t &rows) {
        fields.expertsLimit = rows;
        order.push_back("experts-limit");
      });
  bytes(fields.schedule.bucketBytes, "bucket-bytes", "Payload of moves that are started together");
  field(fields.schedule.prefetch, "prefetch", "Units of split parameters that are gathered ahead");
  bytes(fields.schedule.prefetchBytes, "prefetch-bytes", "Most bytes of a gathered unit and those ahead of it");
  phase = Phase::Staged;
  field(fields.inlineOps, "inline-tasks", "Write out the tasks of a pipeline of up to so many ops");
  phase = Phase::Kernels;
  bytes(fields.memoryLimit, "memory-limit", "Refuse a plan that needs more bytes per rank, as in 8G");
}

std::vector<const char *> CompileFlags::words(int argc, const char *const *argv) {
  std::vector<const char *> all;
  for (int i = 0; i < argc; ++i) {
    StringRef flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    auto names =
        flag.consume_front("-") ? namesOf.find(flag.drop_while([](char c) { return c == '-'; })) : namesOf.end();
    if (names == namesOf.end() || !llvm::is_contained(names->second, value.split(':').first)) {
      all.push_back(argv[i]);
      continue;
    }
    texts.push_back((argv[i] + Twine("=") + value).str());
    all.push_back(texts.back().c_str());
    ++i;
  }
  return all;
}

/// The first thing that is wrong with the values, or PCRT_OK.
pcrt_status CompileFlags::check(std::string &error) const {
  const GenerateKernelsOptions &kernels = fields.kernels;
  auto refuse = [&](bool wrong, const Twine &why) {
    if (wrong && error.empty())
      error = why.str();
  };
  refuse(mode != "train" && mode != "eval", "--mode=" + mode + " is not a mode (train, eval)");
  const std::string &optimizer = fields.step.optimizer;
  refuse(optimizer != "adamw" && optimizer != "sgd", "--optimizer=" + optimizer + " is not an optimizer (adamw, sgd)");
  refuse(kernels.target != "cpu" && !fields.cuda(), "--target=" + kernels.target + " is not a target (cpu, cuda)");
  refuse(given("pad-vocabulary") && (fields.padVocabulary < 1 || fields.padVocabulary > 65536),
         "--pad-vocabulary=" + Twine(fields.padVocabulary) + " is no multiple from 1 to 65536");
  refuse(given("experts-limit") && fields.expertsLimit < 1,
         "--experts-limit=" + Twine(fields.expertsLimit) + " is no number of rows; it is at least 1");
  refuse(given("experts-limit") && strategyFlags.text("expert-exchange") == "rows",
         "--experts-limit is for ranks that gather tokens; it goes with --expert-exchange=gather");
  refuse(fields.schedule.bucketBytes < 0 || fields.schedule.prefetch < 0 || fields.schedule.prefetchBytes < 0,
         "--bucket-bytes, --prefetch and --prefetch-bytes are at least 0");
  refuse(given("arch") && !fields.cuda(), "--arch names a GPU; it needs --target=cuda");
  refuse(kernels.attention != "library" && kernels.attention != "generated",
         "--attention=" + kernels.attention + " is not a way to do attention (library, generated)");
  refuse(kernels.checkKernels && (!fields.cuda() || !strategyFlags.text("mesh").empty()),
         "--check-kernels is for programs of one rank with --target=cuda");
  if (std::string why; error.empty() && !MachineModel::find(fields.machine, why))
    error = "--machine: " + why;
  refuse(StringRef(fields.machine).contains(' '),
         "--machine=" + fields.machine + ": a file's name must have no spaces");
  refuse(!fields.search.isOn && (given("ranks") || given("search-compositions") || given("search-threads")),
         "--ranks, --search-compositions and --search-threads go with --auto");
  refuse(fields.search.isOn && given("plan"), "--auto searches what --plan says; give one of the two");
  refuse(fields.search.isOn && (fields.search.ranks < 0 || fields.search.threads < 0 ||
                                (given("search-compositions") && fields.search.compositions < 1)),
         "--ranks, --search-compositions and --search-threads are positive");
  refuse(fields.memoryLimit < 0 || fields.inlineOps < 0, "--memory-limit and --inline-tasks are at least 0");
  for (const std::string &name : order)
    refuse(given("plan") && strategyFlags.given(name), "--plan takes the place of --" + name + "; give one of the two");
  return error.empty() ? PCRT_OK : PCRT_USAGE;
}

std::string CompileFlags::goOn(const Origin &origin) {
  auto isTarget = [](StringRef flag) { return flag == "target" || flag == "attention" || flag == "arch"; };
  for (const std::string &flag : order)
    if (phaseOf.at(flag) <= origin.phase && (origin.hasTarget || !isTarget(flag)))
      return "--" + flag + " is for programs before phase '" + nameOf(phaseOf.at(flag)).str() +
             "'; this one is of phase '" + nameOf(origin.phase).str() + "'";
  if (!origin.hasTarget)
    return "";
  fields.kernels.target = origin.target.target;
  if (!given("attention"))
    fields.kernels.attention = origin.target.attention;
  if (!given("arch"))
    fields.kernels.archs = origin.target.archs;
  return "";
}

std::vector<pcrt::NamedPath> CompileFlags::inputFiles() const {
  return {{"--plan", planFile}, {"--machine", fields.machine}, {"--pipeline", strategyFlags.text("pipeline")}};
}

pcrt_status CompileFlags::resolve(MLIRContext *context, CompileOptions &options, std::string &error,
                                  const Origin &origin) {
  error = goOn(origin);
  if (!error.empty())
    return PCRT_USAGE;
  for (const Bytes &flag : byteFlags)
    if (!parseBytes(flag.text, *flag.field)) {
      error = "--" + flag.name + "=" + flag.text + " is no number of bytes, as in 4096, 25M or 8G";
      return PCRT_USAGE;
    }
  if (!fields.tellPrediction && fields.cuda())
    fields.machine =
        MachineModel::nameFor(fields.kernels.archs.empty() ? defaultArchs[0] : StringRef(fields.kernels.archs.front()));
  if (pcrt_status status = check(error))
    return status;
  fields.train = mode == "train";
  std::optional<MLIRContext> own;
  if (!context)
    context = &own.emplace(MLIRContext::Threading::DISABLED);
  pcrt_status status = PCRT_OK;
  if (fields.search.isOn) {
    options = fields;
    options.search.pins = strategyFlags;
    return PCRT_OK;
  }
  std::optional<Plan> plan = given("plan") ? planFromFile(context, planFile, status)
                             : origin.phase == Phase::Model
                                 ? planFromFlags(strategyFlags, error, status)
                                 : planBehind(origin.phase, origin.plan, origin.hasPlan, strategyFlags, error, status);
  options = fields;
  if (plan)
    options.plan = std::move(*plan);
  return status;
}
