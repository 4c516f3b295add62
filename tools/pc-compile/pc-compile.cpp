//===- pc-compile.cpp - Model program -> executable, or any phase before it ---------------===//
#include "pc/Cost/Machine.h"
#include "pc/Driver/Compile.h"
#include "pc/Driver/Registration.h"
#include "pc/IR/Diagnostics.h"
#include "pc/IR/Source.h"
#include "pc/IR/ToolMain.h"

#include "llvm/Support/CommandLine.h"

namespace cl = llvm::cl;
using pc::Phase;

static cl::OptionCategory category("pc-compile options");
template <typename T> using Flag = cl::opt<T>;

static Flag<std::string> input(cl::Positional, cl::desc("<model.mlir>"), cl::init("-"), cl::cat(category));
static Flag<std::string> output("o", cl::desc("The executable, or the IR of --to (default: standard output)"),
                                cl::init("-"), cl::cat(category));
static Flag<std::string> mode("mode", cl::desc("train (default) or eval"), cl::init("train"), cl::cat(category));
static Flag<std::string> mesh("mesh", cl::desc("Axes, outermost first: dp=2,tp=2"), cl::cat(category));
static Flag<std::string> dataParallel("data-parallel", cl::desc("ddp (default) or naive, over axis dp or mode:axis"),
                                      cl::ValueOptional, cl::cat(category));
static Flag<std::string> tensorParallel("tensor-parallel",
                                        cl::desc("1d (default), 2d, 2.5d, 3d, over axis tp or form:axis"),
                                        cl::ValueOptional, cl::cat(category));
static Flag<std::string> contextParallel("context-parallel", cl::desc("ring or heads"), cl::ValueOptional,
                                         cl::cat(category));
static Flag<bool> sequenceParallel("sequence-parallel",
                                   cl::desc("Split the sequence where tensor parallelism is whole"), cl::cat(category));
static Flag<std::string> zero("zero", cl::desc("ZeRO stage, 0 to 3, over axis dp or stage:axis"), cl::init("0"),
                              cl::cat(category));
static Flag<std::string> zeroKeep("zero-keep",
                                  cl::desc("Parameters that ZeRO-3 gathers once a step: globs as in wte.*|h.11.*"),
                                  cl::cat(category));
static Flag<std::string>
    pipeline("pipeline",
             cl::desc("Pipeline schedule over axis pp: naive, gpipe, 1f1b (default), 1f1b-eager, interleaved[:chunks], "
                      "zb-h1, zb-h2, zb-v, auto, or a file of tasks"),
             cl::cat(category));
static Flag<std::string> pipelineAxis("pipeline-axis", cl::desc("The mesh axis of stages (default pp)"), cl::init("pp"),
                                      cl::cat(category));
static Flag<std::string> stages("stages",
                                cl::desc("Layers of the stages: by cost (default), layers, or numbers: 3,5,4"),
                                cl::init("cost"), cl::cat(category));
static Flag<int64_t> microbatches("microbatches", cl::desc("Microbatches per step"), cl::init(1), cl::cat(category));
static Flag<int64_t> interleave("interleave", cl::desc("Chunks per stage of --pipeline=interleaved"), cl::init(1),
                                cl::cat(category));
static Flag<std::string> window("window",
                                cl::desc("Axes whose gathers and reduce_scatters go step by step with products"),
                                cl::cat(category));
static Flag<std::string> recompute("recompute",
                                   cl::desc("none, selective, full, or auto: as little as --memory-limit allows"),
                                   cl::init("none"), cl::cat(category));
static Flag<std::string> precision("precision", cl::desc("f32 or bf16"), cl::init("f32"), cl::cat(category));
static Flag<std::string> gradientPrecision("gradient-precision",
                                           cl::desc("f32, or bf16: what ranks send, and with one microbatch store"),
                                           cl::init("f32"), cl::cat(category));
static Flag<std::string> optimizer("optimizer", cl::desc("adamw (default) or sgd"), cl::init("adamw"),
                                   cl::cat(category));
static Flag<std::string> plan("plan", cl::desc("A plan file in place of the strategy flags"), cl::cat(category));
static Flag<std::string> target("target", cl::desc("cpu (default) or cuda"), cl::init("cpu"), cl::cat(category));
static cl::list<std::string> archs("arch", cl::desc("GPU architectures (default: sm_80,sm_90a,sm_100a)"),
                                   cl::CommaSeparated, cl::cat(category));
static Flag<std::string> attention("attention", cl::desc("CUDA: library (cuDNN, default; bf16 only) or generated"),
                                   cl::init("library"), cl::cat(category));
static Flag<bool> checkKernels("check-kernels",
                               cl::desc("CUDA, one rank: PROGRAM --check-kernels compares its kernels with the CPU's"),
                               cl::cat(category));
static Flag<bool> standIn("stand-in", cl::desc("Also an image for the stand-in of the CUDA driver (for tests)"),
                          cl::cat(category));
static Flag<std::string> emitPlan("emit-plan", cl::desc("Write the plan that the flags mean"), cl::value_desc("file"),
                                  cl::cat(category));
static Flag<std::string> report("report", cl::desc("Write predicted memory and traffic (.json, or a page: .html)"),
                                cl::value_desc("file"), cl::cat(category));
static Flag<int64_t> bucketBytes("bucket-bytes",
                                 cl::desc("Payload of moves that are started together (default 25 MiB)"),
                                 cl::init(25 << 20), cl::cat(category));
static Flag<int64_t> prefetch("prefetch", cl::desc("Units of split parameters that are gathered ahead (default 1)"),
                              cl::init(1), cl::cat(category));
static Flag<int64_t> prefetchBytes("prefetch-bytes",
                                   cl::desc("Most bytes of a gathered unit and those ahead of it (default: any)"),
                                   cl::init(0), cl::cat(category));
static Flag<int64_t> inlineOps("inline-tasks",
                               cl::desc("Write out the tasks of a pipeline of up to so many ops (default 50000)"),
                               cl::init(50000), cl::cat(category));
static Flag<int64_t> memoryLimit("memory-limit", cl::desc("Refuse a plan that needs more bytes per rank"), cl::init(0),
                                 cl::cat(category));
static Flag<std::string> machine("machine",
                                 cl::desc("On which times are predicted: cpu, a100, h100, h200, b200, or a file *.json "
                                          "(default: by --target and the first --arch)"),
                                 cl::cat(category));
static Flag<bool> timing("timing", cl::desc("Print the time of every pass"), cl::cat(category));

static int fail(pcrt_status status, const llvm::Twine &message) {
  pc::errs() << "pc-compile: error: " << message << "\n";
  return status;
}

/// The flags that `flag` makes no sense with or without: the first one that was given, or "".
static llvm::StringRef firstGiven(std::initializer_list<const cl::Option *> flags) {
  for (const cl::Option *flag : flags)
    if (flag->getNumOccurrences())
      return flag->ArgStr;
  return "";
}

template <typename T> static std::optional<std::string> given(const T &flag) {
  return flag.getNumOccurrences() ? std::optional<std::string>(flag.getValue()) : std::nullopt;
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-compile");
  pc::CompileOptions options;
  cl::opt<Phase> to("to", cl::desc("Stop after this phase and print its IR"), cl::init(Phase::Exe), cl::cat(category));
  for (const pc::PhaseInfo &info : pc::phases())
    to.getParser().addLiteralOption(info.name, info.phase, info.description);
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(argc, argv, "pc-compile: a model program becomes an executable for N ranks\n",
                                   &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (mode != "train" && mode != "eval")
    return fail(PCRT_USAGE, "--mode=" + mode + " is not a mode (train, eval)");
  if (optimizer != "adamw" && optimizer != "sgd")
    return fail(PCRT_USAGE, "--optimizer=" + optimizer + " is not an optimizer (adamw, sgd)");
  if (target != "cpu" && target != "cuda")
    return fail(PCRT_USAGE, "--target=" + target + " is not a target (cpu, cuda)");
  if (bucketBytes < 0 || prefetch < 0 || prefetchBytes < 0)
    return fail(PCRT_USAGE, "--bucket-bytes, --prefetch and --prefetch-bytes are at least 0");
  if (archs.getNumOccurrences() && target != "cuda")
    return fail(PCRT_USAGE, "--arch names a GPU; it needs --target=cuda");
  if (attention != "library" && attention != "generated")
    return fail(PCRT_USAGE, "--attention=" + attention + " is not a way to do attention (library, generated)");
  if (checkKernels && (target != "cuda" || !mesh.empty()))
    return fail(PCRT_USAGE, "--check-kernels is for programs of one rank with --target=cuda");
  if (standIn && target != "cuda")
    return fail(PCRT_USAGE, "--stand-in takes the place of a GPU; it needs --target=cuda");
  options.machine = machine.getNumOccurrences() ? machine
                    : target == "cuda" ? pc::MachineModel::nameFor(archs.empty() ? "sm_80" : archs.front()).str()
                                       : "cpu";
  options.tellPrediction = machine.getNumOccurrences();
  if (!pc::MachineModel::find(options.machine, message))
    return fail(PCRT_USAGE, "--machine: " + message);
  if (llvm::StringRef(options.machine).contains(' '))
    return fail(PCRT_USAGE, "--machine=" + options.machine + ": a file's name must have no spaces");
  if (interleave < 1)
    return fail(PCRT_USAGE, "--interleave is at least 1");
  if (memoryLimit < 0 || inlineOps < 0)
    return fail(PCRT_USAGE, "--memory-limit and --inline-tasks are at least 0");
  llvm::StringRef strategy = firstGiven({&mesh, &dataParallel, &tensorParallel, &contextParallel, &sequenceParallel,
                                         &zero, &zeroKeep, &pipeline, &pipelineAxis, &stages, &interleave,
                                         &microbatches, &window, &recompute, &precision, &gradientPrecision});
  if (plan.getNumOccurrences() && !strategy.empty())
    return fail(PCRT_USAGE, "--plan takes the place of --" + strategy + "; give one of the two");
  if (!report.empty() && to < Phase::Planned)
    return fail(PCRT_USAGE, "--report says what was planned; it needs --to=planned, kernels or exe");
  if (to == Phase::Exe && output == "-")
    return fail(PCRT_USAGE, "an executable needs a file: -o train");

  mlir::DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  mlir::MLIRContext context(registry);
  llvm::SourceMgr sources;
  pc::ToolDiagnostics diagnostics("pc-compile", sources, &context);

  pcrt_status status = PCRT_OK;
  std::optional<pc::Plan> chosen;
  if (plan.getNumOccurrences()) {
    chosen = pc::planFromFile(&context, plan, status);
  } else {
    pc::StrategyFlags flags{mesh,
                            given(dataParallel),
                            given(tensorParallel),
                            given(contextParallel),
                            given(pipeline),
                            zero,
                            sequenceParallel,
                            microbatches,
                            recompute,
                            precision,
                            gradientPrecision,
                            pipelineAxis,
                            stages,
                            interleave,
                            window,
                            zeroKeep};
    chosen = pc::planFromFlags(flags, message, status);
    if (!chosen)
      return fail(status, message);
  }
  if (!chosen)
    return status;
  mlir::OwningOpRef<mlir::ModuleOp> module = pc::parseProgram(input, sources, &context);
  if (!module)
    return PCRT_BAD_INPUT;
  options.plan = *chosen;
  options.train = mode == "train";
  options.optimizer = optimizer;
  options.to = to;
  options.output = output;
  options.emitPlan = emitPlan;
  options.report = report;
  options.bucketBytes = bucketBytes;
  options.prefetch = prefetch;
  options.inlineOps = inlineOps;
  options.prefetchBytes = prefetchBytes;
  options.memoryLimit = memoryLimit;
  options.timing = timing;
  options.cuda = target == "cuda";
  options.archs.assign(archs.begin(), archs.end());
  options.attention = attention;
  options.checkKernels = checkKernels;
  options.standIn = standIn;
  return pc::compile(*module, options);
}
