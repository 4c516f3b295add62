//===- Flags.cpp - The flags of a compile -------------------------------------------------===//
// CompileFlags holds the flags of a compile. Strategy flags stay text until resolve(), which makes the plan from a plan
// file, from the flags, or from the flags and the plan of a partly compiled program. With --auto, they are passed to
// the search as fixed choices.
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
      {"Target", "What the executable computes, and on which device"},
      {"Tuning", "Limits, and how far communication overlaps computation"}};
  return categories[static_cast<int>(group)];
}

namespace {
/// Adds a flag to its group, and to the command line of the tool.
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

/// Parses a number of bytes such as 25M or 8G. Returns false if it is not one.
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

/// Flags that --help-hidden shows and --help does not.
static constexpr StringRef rareFlags[] = {"pipeline-axis",  "outer-rate",     "outer-momentum", "search-compositions",
                                          "search-threads", "check-kernels",  "pack-products",  "pad-vocabulary",
                                          "experts-limit",  "prefetch-bytes", "inline-tasks"};

/// Creates a flag. Its texts are kept here, because LLVM's options only refer to them.
template <typename T, typename... Mods>
CompileFlags::Option<T> &CompileFlags::flag(StringRef name, const Twine &description, Mods &&...mods) {
  texts.push_back(description.str());
  StringRef text = texts.back();
  texts.push_back(name.str());
  phaseOf[name.str()] = phase;
  auto owned = std::make_unique<Option<T>>(*this, texts.back(), cl::desc(text), InGroup{group, ofTool},
                                           std::forward<Mods>(mods)...);
  Option<T> &result = *owned;
  if (llvm::is_contained(rareFlags, name))
    result.setHiddenFlag(cl::Hidden);
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

/// The values of all occurrences are appended.
void CompileFlags::list(SmallVectorImpl<std::string> &field, StringRef name, const Twine &description) {
  flag<std::string>(name, description, cl::ZeroOrMore).setCallback([this, &field, name](const std::string &value) {
    SmallVector<StringRef> parts;
    StringRef(value).split(parts, ',');
    for (StringRef part : parts)
      field.push_back(part.str());
    order.push_back(name.str());
  });
}

void CompileFlags::repeated(std::string &field, StringRef name, const Twine &description) {
  flag<std::string>(name, description, cl::ZeroOrMore).setCallback([this, &field, name](const std::string &value) {
    field += (field.empty() ? "" : " ") + value;
    order.push_back(name.str());
  });
}

/// The number is parsed in resolve(), which can report errors.
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

/// A strategy flag, whose text is kept.
void CompileFlags::strategy(const TacticFlag &row, const Twine &description, ArrayRef<TacticForm> forms) {
  auto set = [this, name = row.name](const Twine &value) {
    strategyFlags.set(name, value.str());
    order.push_back(name);
  };
  switch (row.kind) {
  case TacticFlag::List:
    return flag<std::string>(row.name, description, cl::ZeroOrMore)
        .setCallback([this, set, name = row.name](const std::string &text) {
          set(strategyFlags.given(name) ? strategyFlags.text(name) + "," + text : text);
        });
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

/// The description of a flag's forms: "Tensor parallelism: 1d (default), 2d over axes row,col".
static std::string formsOf(const TacticInfo &row) {
  const Tactic byDefault(row.pass);
  std::string text;
  for (const TacticForm &form : row.forms) {
    text += (text.empty() ? "" : ", ") + form.name;
    text += form.axes.empty() ? "" : " over axes " + form.axes;
    text += form.name == byDefault.option(row.formOption) ? " (default)" : "";
  }
  std::string name = row.flags.front().name + "ism: "; // "tensor-parallel" becomes "tensor-parallelism"
  name.front() = llvm::toUpper(name.front());
  std::replace(name.begin(), name.end(), '-', ' ');
  return name + text + "; append :AXIS to use another axis than " + byDefault.axis().str();
}

/// All strategy flags, in the order of the tactics.
void CompileFlags::strategies() {
  phase = Phase::Placed;
  strategy({"mesh"}, "Mesh axes and their sizes, outermost first, as in dp=2,tp=2");
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

/// Flags in the order of --help.
CompileFlags::CompileFlags(bool ofTool) : ofTool(ofTool) {
  // Each flag gets the current `group`, its section of --help, and the current `phase`, before which it may be given.
  group = FlagGroup::Plan;
  strategies();
  field(planFile, "plan", "Read the plan from this file instead of from the strategy flags");
  phase = Phase::Step;
  flag<std::string>("auto",
                    "Search for the fastest plan; a value such as tp,zero limits the search to these axes and flags",
                    cl::ValueOptional)
      .setCallback([this](const std::string &value) {
        fields.search.isOn = true;
        fields.search.free = value;
        order.push_back("auto");
      });
  field(fields.search.ranks, "ranks", "Number of ranks for --auto, where 0 means the ranks of --mesh");
  field(fields.search.compositions, "search-compositions", "Maximum number of programs that --auto compiles");
  field(fields.search.threads, "search-threads",
        "Threads of --auto, where 0 means one per core; the result does not depend on them");

  group = FlagGroup::Target;
  field(mode, "mode", "What the program does: train, eval or generate");
  field(generation.slots, "slots", "With --mode=generate: number of sequences of a data rank at a time");
  field(generation.context, "context",
        "With --mode=generate: maximum number of tokens of a sequence, where 0 means the model's --seq");
  field(generation.size, "size", "With --mode=generate: number of tokens of a data rank in a step");
  field(generation.chunk, "chunk",
        "With --mode=generate: number of prompt tokens that a step reads in addition, where 0 means that prompts use "
        "--size");
  field(generation.sampling, "sampling",
        "With --mode=generate: let requests choose tokens at random; false: always the most probable token");
  field(fields.weights, "weights",
        "With --mode=generate: how matrices are stored: full, int8, or int4 with scales for groups of 32 (int4:64: of "
        "64)");
  field(fields.step.optimizer, "optimizer",
        "Optimizer: adamw, sgd, adafactor, amsgrad, lion, muon or a file that ends in .mlir; settings as in "
        "muon:momentum=0.9");
  field(fields.states, "states", "How AdamW's states are stored: f32, or 8bit, in codes with a scale per 256 elements");
  field(fields.weightPrecision, "weight-precision",
        "How matrices are read and gathered in training: full, or int8, in codes with a scale per 256 elements (CPU)");
  field(fields.step.ema, "ema",
        "Also keep an exponential average of the trained parameters with this decay, as in 0.999, in checkpoints");
  field(fields.adapters.lora, "lora",
        "Train LoRA adapters and freeze everything else, as in rank=16,alpha=32,targets=q_proj|v_proj,dropout=0.1");
  repeated(fields.groups.groups, "group",
           "Settings of the optimizer for parameters by name, as in '*.bias:lr=2x,decay=0'; may be repeated");
  repeated(fields.groups.freeze, "freeze", "Parameters that are not trained, by name, as in 'h.0.*'; may be repeated");
  field(fields.groups.decay, "decay", "Parameters to which the weight decay applies: all, or only matrices");
  repeated(fields.tiles.tiles, "tile",
           "Parameters, by name, that are gathered and computed in N tiles, as in '*.mlp.*:4'; may be repeated");
  field(fields.lossChunks.chunks, "loss-chunks",
        "Compute logits, loss and their gradients for one of N parts of the tokens at a time, to save memory");
  field(fields.kernels.target, "target", "Device of the executable: cpu or cuda");
  phase = Phase::Planned;
  list(fields.kernels.archs, "arch",
       "GPU architectures to compile for (default " + llvm::join(defaultArchs, ",") + "); may be repeated");
  field(fields.kernels.attention, "attention", "CUDA attention kernels: library (cuDNN, bf16 only) or generated");
  phase = Phase::Kernels;
  field(fields.kernels.checkKernels, "check-kernels",
        "For CUDA and one rank, make PROGRAM --check-kernels compare its kernels with the CPU's");
  flag<std::string>(
      "machine",
      "Machine for predicted times: cpu, a100, h100, h200, b200, here (measured by pc-calibrate) or a *.json file "
      "(default: from --target and the first --arch)")
      .setCallback([this](const std::string &value) {
        fields.machine = value;
        fields.tellPrediction = true;
      });

  group = FlagGroup::Tuning;
  phase = Phase::Step;
  // Flags that set an optional field have no default in the field.
  flag<bool>("pack-products", "Compute the queries, keys and values of a layer in one product if the plan allows it "
                              "(default: only for CUDA)")
      .setCallback([this](const bool &on) {
        fields.packProducts = on;
        order.push_back("pack-products");
      });
  flag<int64_t>("pad-vocabulary",
                "Pad the vocabulary to a multiple of this and of the ranks that split it (default: 1; for "
                "CUDA 64)")
      .setCallback([this](const int64_t &multiple) {
        fields.padVocabulary = multiple;
        order.push_back("pad-vocabulary");
      });
  phase = Phase::Scheduled;
  flag<int64_t>("experts-limit",
                "Maximum number of routed tokens of a layer in memory; more are computed in rounds (default: no limit)")
      .setCallback([this](const int64_t &rows) {
        fields.expertsLimit = rows;
        order.push_back("experts-limit");
      });
  bytes(fields.schedule.bucketBytes, "bucket-bytes", "Payload of collectives that are started together");
  field(fields.schedule.prefetch, "prefetch", "Number of units of sharded parameters that are gathered ahead of use");
  bytes(fields.schedule.prefetchBytes, "prefetch-bytes",
        "Limit for the bytes of a gathered unit and of the units gathered ahead of it (default: no limit)");
  phase = Phase::Staged;
  field(fields.inlineOps, "inline-tasks", "Inline the tasks of a pipeline whose programs have at most this many ops");
  phase = Phase::Kernels;
  bytes(fields.memoryLimit, "memory-limit", "Refuse a plan that needs more bytes per rank than this, as in 8G");
}

/// A flag whose value is optional takes the next word only if that is one of its known names.
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

/// Checks the values. Returns the status of the first error, or PCRT_OK.
pcrt_status CompileFlags::check(std::string &error) const {
  const GenerateKernelsOptions &kernels = fields.kernels;
  // Keeps the first error. All conditions are evaluated, so they must not depend on each other.
  auto refuse = [&](bool wrong, const Twine &why) {
    if (wrong && error.empty())
      error = why.str();
  };
  refuse(mode != "train" && mode != "eval" && mode != "generate",
         "--mode=" + mode + " is not a mode (train, eval, generate)");
  refuse(mode != "generate" && (given("slots") || given("context") || given("size") || given("chunk") ||
                                given("sampling") || given("weights")),
         "--slots, --context, --size, --chunk, --sampling and --weights need --mode=generate");
  refuse(!llvm::is_contained({"full", "int8", "int4", "int4:64"}, StringRef(fields.weights)),
         "--weights=" + fields.weights + " is not a way to store matrices (full, int8, int4, int4:64)");
  refuse(
      fields.states == "int8" || fields.states == "linear",
      "--states=" + fields.states +
          ": codes with equal steps would round small second moments to 0, and training diverges; use --states=8bit");
  refuse(fields.states != "f32" && fields.states != "8bit",
         "--states=" + fields.states + " is not a way to store the states of the optimizer (f32, 8bit)");
  refuse(mode != "train" && given("states"), "--states is for training; leave out --mode=" + mode);
  refuse(fields.weightPrecision != "full" && fields.weightPrecision != "int8",
         "--weight-precision=" + fields.weightPrecision + " is not a way to read matrices (full, int8)");
  refuse(mode != "train" && given("weight-precision"), "--weight-precision is for training; leave out --mode=" + mode +
                                                           (mode == "generate" ? ", or use --weights" : ""));
  const bool isFp8 = strategyFlags.text("precision") == "fp8";
  refuse(isFp8 && mode == "generate", "--precision=fp8 is for training and evaluation; with --mode=generate, use "
                                      "--precision=bf16");
  refuse(isFp8 && fields.weightPrecision == "int8",
         "--precision=fp8 and --weight-precision=int8 round the same matrices; leave out one of the two");
  refuse(mode != "train" && StringRef(strategyFlags.text("gradient-precision")).starts_with("int"),
         "--gradient-precision=" + Twine(strategyFlags.text("gradient-precision")) +
             " is for training; leave out --mode=" + mode);
  for (const char *flag : {"pipeline", "recompute", "local-sgd"})
    refuse(mode == "generate" && given(flag), "--" + Twine(flag) + " does not work with --mode=generate yet");
  refuse(mode != "train" && (given("group") || given("freeze") || given("decay")),
         "--group, --freeze and --decay are for training; leave out --mode=" + mode);
  refuse(mode == "generate" && given("tile"), "--tile is for training and evaluation; leave out --mode=generate");
  refuse(fields.lossChunks.chunks < 1, "--loss-chunks=" + Twine(fields.lossChunks.chunks) + " must be at least 1");
  refuse(mode == "generate" && given("loss-chunks"),
         "--loss-chunks is for training and evaluation; leave out --mode=generate");
  refuse(kernels.target != "cpu" && !fields.cuda(), "--target=" + kernels.target + " is not a target (cpu, cuda)");
  refuse(given("pad-vocabulary") && (fields.padVocabulary < 1 || fields.padVocabulary > 65536),
         "--pad-vocabulary=" + Twine(fields.padVocabulary) + " is not a number from 1 to 65536");
  refuse(given("experts-limit") && fields.expertsLimit < 1,
         "--experts-limit=" + Twine(fields.expertsLimit) + " must be at least 1");
  refuse(given("experts-limit") && strategyFlags.text("expert-exchange") == "rows",
         "--experts-limit needs ranks that gather all tokens; use --expert-exchange=gather");
  refuse(fields.schedule.bucketBytes < 0 || fields.schedule.prefetch < 0 || fields.schedule.prefetchBytes < 0,
         "--bucket-bytes, --prefetch and --prefetch-bytes must be at least 0");
  refuse(given("arch") && !fields.cuda(), "--arch names GPU architectures and needs --target=cuda");
  refuse(kernels.attention != "library" && kernels.attention != "generated",
         "--attention=" + kernels.attention + " is not a kind of attention kernels (library, generated)");
  refuse(kernels.checkKernels && (!fields.cuda() || !strategyFlags.text("mesh").empty()),
         "--check-kernels needs a program of one rank and --target=cuda");
  if (std::string why; error.empty() && !MachineModel::find(fields.machine, why))
    error = "--machine: " + why;
  refuse(StringRef(fields.machine).contains(' '),
         "--machine=" + fields.machine + ": a file name must not contain spaces");
  refuse(!fields.search.isOn && (given("ranks") || given("search-compositions") || given("search-threads")),
         "--ranks, --search-compositions and --search-threads need --auto");
  refuse(fields.search.isOn && given("plan"), "--auto and --plan both determine the plan; give only one of the two");
  refuse(fields.search.isOn && (fields.search.ranks < 0 || fields.search.threads < 0 ||
                                (given("search-compositions") && fields.search.compositions < 1)),
         "--ranks, --search-compositions and --search-threads must be positive");
  refuse(given("memory-limit") && fields.memoryLimit < 1,
         "--memory-limit must be at least 1; leave it out to allow any number of bytes");
  refuse(fields.inlineOps < 0, "--inline-tasks must be at least 0");
  for (const std::string &name : order)
    refuse(given("plan") && strategyFlags.given(name), "--plan replaces --" + name + "; give only one of the two");
  return error.empty() ? PCRT_OK : PCRT_USAGE;
}

/// For a program of a later phase: refuses flags of earlier phases, and takes the target from the program.
std::string CompileFlags::goOn(const Origin &origin) {
  auto isTarget = [](StringRef flag) { return flag == "target" || flag == "attention" || flag == "arch"; };
  for (const std::string &flag : order)
    if (phaseOf.at(flag) <= origin.phase && (origin.hasTarget || !isTarget(flag)))
      return "--" + flag + " applies to programs before phase '" + nameOf(phaseOf.at(flag)).str() +
             "', but this one is of phase '" + nameOf(origin.phase).str() + "'";
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

/// Checks values first, then reads the plan from its file or its flags.
pcrt_status CompileFlags::resolve(MLIRContext *context, CompileOptions &options, std::string &error,
                                  const Origin &origin) {
  error = goOn(origin);
  if (!error.empty())
    return PCRT_USAGE;
  for (const Bytes &flag : byteFlags)
    if (!parseBytes(flag.text, *flag.field)) {
      error = "--" + flag.name + "=" + flag.text + " is not a number of bytes; write it as in 4096, 25M or 8G";
      return PCRT_USAGE;
    }
  if (!fields.tellPrediction && fields.cuda())
    fields.machine =
        MachineModel::nameFor(fields.kernels.archs.empty() ? defaultArchs[0] : StringRef(fields.kernels.archs.front()));
  if (pcrt_status status = check(error))
    return status;
  fields.train = mode == "train";
  if (mode == "generate")
    fields.generate = generation;
  std::optional<MLIRContext> own;
  if (!context)
    context = &own.emplace(MLIRContext::Threading::DISABLED);
  pcrt_status status = PCRT_OK;
  if (fields.search.isOn) {
    options = fields;
    options.search.pins = strategyFlags;
    // The search compares seconds of steps. With several microbatches, a step has fewer slots. The other strategies
    // gather weights or repeat caches.
    if (fields.generate && options.search.free.empty())
      options.search.free = "dp,tp,ep";
    return PCRT_OK;
  }
  std::optional<Plan> plan = given("plan") ? planFromFile(context, planFile, status)
                             : origin.phase == Phase::Model
                                 ? planFromFlags(strategyFlags, error, status)
                                 : planAfter(origin.phase, origin.plan, origin.hasPlan, strategyFlags, error, status);
  options = fields;
  if (plan)
    options.plan = std::move(*plan);
  return status;
}
