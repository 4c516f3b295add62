//===- Options.cpp - The command line of a compiled program ---------------===//
// forEachFlag lists every flag once, with its place and whom it concerns; parsing, comparison between ranks and with
// checkpoints all use that list.
//===----------------------------------------------------------------------===//
#include "data/Options.h"
#include "base/Failure.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

using namespace pcrt;

const char *const pcrt::helpText =
    R"(usage: PROGRAM --data FILE [flags]          on one rank
       pc-run -n N PROGRAM -- --data FILE [flags]   on the N ranks of its mesh

Data
  --data FILE           tokens: llm.c's .bin, a NumPy array of integers (.npy) or raw little-endian uint16; u32:FILE is raw
                        uint32, and text:FILE uses the bytes of any file as tokens. Separate several files or patterns by
                        commas, with an optional weight: a.bin*0.7,'b/*.bin'*0.3. A program with named inputs takes NAME=FILE
                        for each of them, with one row per sample (.npy or safetensors), or one safetensors file with a
                        tensor for each of them
  --targets FILE        the token to predict at each token, if it is not the next token: one number per token, where -100
                        (65436 in 16 bits) means none; one file for each file of --data
  --routing FILE        the experts of each token, as written by --dump-routing: a safetensors file with a tensor "routing"
                        [steps, layers, batch, sequence, experts of a token] for all --steps
  --shuffle             read samples in a random order, drawn with --seed and different in every epoch
  --validation 1/N      hold out one sample in N from training; a program of --mode=eval reads only these
  --eval-every N        print the loss of the held-out samples every N steps and at the end (default 0: never)
  --eval-batches N      use only N batches of the held-out samples (default: all)
  --steps N             train until step N (default 100); for programs of --mode=eval, read at most N batches (default: all)
  --eval                only evaluate: print the loss of every batch and of all (needs a program of --mode=eval)

Generation (programs of --mode=generate; pc-generate and pc-serve run them with text)
  --requests FILE       lines of JSON: {"id": 7, "prompt": [token ids], "max_tokens": 16, "temperature": 0} (default: standard
                        input)
  --answers FILE        where lines for new tokens go: {"id": 7, "token": 5, "logprob": -0.1} (default: standard output)

Optimizer (defaults as in torch.optim)
  --lr X                learning rate (default 1e-3)
  --lr-warmup N         raise the learning rate linearly over the first N steps (default 0)
  --lr-decay KIND       then lower it to --min-lr at step --lr-steps: none, linear, cosine, wsd (constant until
                        --lr-stable, then linear) or inverse-sqrt (by the square root of the step) (default none)
  --lr-stable N         for wsd: step at which the rate begins to fall (default: 9/10 of --lr-steps)
  --lr-steps N          step at which the decay ends (default: --steps of the first run)
  --min-lr X            learning rate at the end of the decay (default 0)
  --weight-decay X      decoupled weight decay (default 1e-2 for AdamW, 0 for SGD)
  --beta1 X --beta2 X   decay rates of AdamW's averages (default 0.9 and 0.999)
  --eps X               AdamW's epsilon (default 1e-8)
  --clip NORM           clip gradients to this norm (default: off)
  --skip-spikes Z       skip a step whose gradient norm is Z standard deviations above the mean of the last 128 (default: off)
  --skip-most N         skip at most N steps in a row for spikes or non-finite norms, then end with exit code 10 (default 10
                        with --skip-spikes, else 0); steps without targets are always skipped and do not count
  --check-replicas N    every N steps, check that parameters and states are equal, bit for bit, on all ranks that share them;
                        end with exit code 9 if they are not (default 0: never)

Open local SGD (programs of pc-compile --mesh outer=open,... --local-sgd=outer:32)
  --meet HOST:PORT      address of the pc-meet server that this run joins as a member
  --name NAME           name of this member, which must be unique

Parameters
  --seed N              seed of the initial values, which do not depend on the plan (default 0)
  --init DIR|FILE       read initial values from a safetensors file or a Hugging Face directory; for programs of --lora, the base
  --adapter DIR         for programs of --lora: read the initial adapter from a directory of PEFT or of --save
  --save DIR            after the last step, save a directory that Hugging Face loads and this program continues from; also
                        after SIGTERM, SIGINT, SIGUSR1, SIGHUP or SIGPIPE, and before a step with non-finite numbers
  --overwrite           let --save replace a checkpoint that this run does not continue
  --load DIR            continue from a directory of --save, or from the newest one in DIR, with the same results on any mesh
  --checkpoint DIR      save to DIR/step-<n> regularly, after a signal and at the end, and continue from the newest one, so the
                        same command line starts and restarts a run; --init, --adapter and --load apply to the first start
  --every N|Nm|auto     save every N steps, every N minutes, or so that failing machines cost the least time (default auto)
  --keep K              keep the newest K checkpoints (default 2)
  --rollback M          if a run ended with non-finite numbers, continue from a checkpoint at least M steps before them and skip
                        the samples in between; one checkpoint of that age is kept in addition to --keep
  --snapshot N          every N steps, copy the state in memory, so pc-run --restarts can continue if a rank is lost during
                        an update (default 0: never)
  --scratch DIR         for programs of --offload: a directory on a local disk, for files without names that are gone when the
                        run ends
  --change LIST         flags that may differ from the run that saved the checkpoint, as in lr,clip,data

Output
  --metrics FILE        write one line of JSON per step; with --load, append to the lines of earlier steps
  --tensorboard DIR     write the same values as curves for TensorBoard
  --summary FILE        write measured time, memory and traffic, in the format of pc-compile --report
  --dump-grads FILE     write the gradients of the first step before clipping (safetensors)
  --dump-logits FILE    write the logits of the first step (safetensors)
  --dump-routing FILE   write the experts of each token in each layer and step (safetensors; for MoE models)
  --trace FILE          write calls and tasks of the last step, for Perfetto or chrome://tracing

Instead of a run
  --info                print what this program is; --info=json prints it as JSON
  --version             print the versions of the compiler and of the runtime
  --check-kernels       compare its CUDA kernels with the CPU's, one JSON line each (programs of pc-compile --check-kernels)
  --help                show this text

Exit codes: 0 ok, 1 internal error, 2 usage, 3 a program for another runtime, 6 resource (memory, disk), 7 peer lost, 8 timeout,
9 bad data or checkpoint, 10 non-finite numbers, 128 + n ended by signal n (141: standard output was closed).
)";

static double parseNumber(const std::string &flag, const std::string &text, double least) {
  char *end = nullptr;
  errno = 0;
  double value = strtod(text.c_str(), &end);
  if (text.empty() || *end || std::isnan(value) || value < least || (std::isinf(value) && flag != "--clip"))
    fail(PCRT_USAGE, flag + " takes a number" + (least >= 0 ? " that is not negative" : "") + ", not '" + text + "'");
  return value;
}

static uint64_t parseCount(const std::string &flag, const std::string &text, uint64_t most) {
  char *end = nullptr;
  errno = 0;
  unsigned long long value = strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end || errno || text.find('-') != std::string::npos || value > most)
    fail(PCRT_USAGE, flag + " takes a whole number from 0 to " + std::to_string(most) + ", not '" + text + "'");
  return value;
}

/// The things that the value of a flag affects.
enum class Concerns {
  Numbers, ///< The numbers that training computes.
  Ranks,   ///< What all ranks do together; for a path, whether it is given.
  Rank     ///< Only this rank.
};

/// Calls f for every flag with three arguments: the flag, the place of its value, and what it concerns.
template <typename OptionsRef, typename F> static void forEachFlag(OptionsRef &options, F f) {
  f("--help", options.help, Concerns::Rank);
  f("-h", options.help, Concerns::Rank);
  f("--version", options.version, Concerns::Rank);
  f("--info", options.info, Concerns::Rank);
  f("--check-kernels", options.checkKernels, Concerns::Rank);
  f("--eval", options.eval, Concerns::Ranks);
  f("--data", options.data, Concerns::Ranks);
  f("--targets", options.targets, Concerns::Ranks);
  f("--routing", options.routing, Concerns::Ranks);
  f("--shuffle", options.shuffle, Concerns::Numbers);
  f("--validation", options.validation, Concerns::Numbers);
  f("--eval-every", options.evalEvery, Concerns::Ranks);
  f("--eval-batches", options.evalBatches, Concerns::Ranks);
  f("--steps", options.stepsGiven, Concerns::Ranks);
  f("--lr", options.lr, Concerns::Numbers);
  f("--lr-warmup", options.lrWarmup, Concerns::Numbers);
  f("--lr-decay", options.lrDecay, Concerns::Numbers);
  f("--lr-steps", options.lrSteps, Concerns::Numbers);
  f("--lr-stable", options.lrStable, Concerns::Numbers);
  f("--min-lr", options.minLr, Concerns::Numbers);
  f("--weight-decay", options.weightDecay, Concerns::Numbers);
  f("--beta1", options.beta1, Concerns::Numbers);
  f("--beta2", options.beta2, Concerns::Numbers);
  f("--eps", options.eps, Concerns::Numbers);
  f("--clip", options.clip, Concerns::Numbers);
  f("--skip-spikes", options.skipSpikes, Concerns::Numbers);
  f("--skip-most", options.skipMost, Concerns::Ranks);
  f("--check-replicas", options.checkReplicas, Concerns::Ranks);
  f("--snapshot", options.snapshot, Concerns::Ranks);
  f("--seed", options.seed, Concerns::Numbers);
  f("--requests", options.requests, Concerns::Rank);
  f("--answers", options.answers, Concerns::Rank);
  f("--meet", options.meet, Concerns::Ranks);
  f("--name", options.name, Concerns::Ranks);
  f("--init", options.init, Concerns::Ranks);
  f("--adapter", options.adapter, Concerns::Ranks);
  f("--save", options.save, Concerns::Ranks);
  f("--load", options.load, Concerns::Ranks);
  f("--overwrite", options.overwrite, Concerns::Ranks);
  f("--checkpoint", options.checkpoint, Concerns::Ranks);
  f("--every", options.every, Concerns::Ranks);
  f("--keep", options.keep, Concerns::Ranks);
  f("--rollback", options.rollback, Concerns::Ranks);
  f("--scratch", options.scratch, Concerns::Ranks);
  f("--change", options.change, Concerns::Ranks);
  f("--metrics", options.metrics, Concerns::Rank);
  f("--tensorboard", options.tensorboard, Concerns::Rank);
  f("--summary", options.summary, Concerns::Ranks);
  f("--dump-grads", options.dumpGrads, Concerns::Ranks);
  f("--dump-logits", options.dumpLogits, Concerns::Ranks);
  f("--dump-routing", options.dumpRouting, Concerns::Ranks);
  f("--trace", options.trace, Concerns::Ranks);
}

static void parseInto(double &number, const std::string &flag, const std::string &text) {
  number = parseNumber(flag, text, 0);
}
static void parseInto(int64_t &count, const std::string &flag, const std::string &text) {
  count = int64_t(parseCount(flag, text, uint64_t(1) << 40));
}
static void parseInto(uint64_t &count, const std::string &flag, const std::string &text) {
  count = parseCount(flag, text, UINT64_MAX);
}
static void parseInto(HeldOut &heldOut, const std::string &flag, const std::string &text) {
  if (text.compare(0, 2, "1/") != 0)
    fail(PCRT_USAGE, flag + " takes a fraction of the samples as 1/N, not '" + text + "'");
  parseInto(heldOut.every, flag, text.substr(2));
  if (heldOut.every < 2)
    fail(PCRT_USAGE, flag + " takes at most 1/2");
}
static void parseInto(SaveInterval &every, const std::string &flag, const std::string &text) {
  if (text == "auto")
    return;
  bool minutes = !text.empty() && text.back() == 'm';
  int64_t &count = minutes ? every.minutes : every.steps;
  if (text.empty() || text.find_first_not_of("0123456789") < text.size() - minutes)
    fail(PCRT_USAGE, flag + " takes a number of steps, a number of minutes as in 10m, or auto, not '" + text + "'");
  parseInto(count, flag, text.substr(0, text.size() - minutes));
  if (count == 0)
    fail(PCRT_USAGE, flag + " must be at least 1");
}
template <typename T> static void parseInto(std::optional<T> &value, const std::string &flag, const std::string &text) {
  parseInto(value.emplace(), flag, text);
}
static void parseInto(std::string &value, const std::string &flag, const std::string &text) {
  if (text.empty())
    fail(PCRT_USAGE, flag + " needs a value; see --help");
  value = text;
}

static std::string show(double number) {
  char text[32];
  snprintf(text, sizeof text, "%.17g", number);
  for (int digits = 1; digits < 17; ++digits) { // finds the shortest text that is read back as the same number
    char shorter[32];
    snprintf(shorter, sizeof shorter, "%.*g", digits, number);
    if (strtod(shorter, nullptr) == number)
      return shorter;
  }
  return text;
}
static std::string show(bool on) { return on ? "on" : "off"; }
static std::string show(Options::Info info) { return show(info != Options::Info::No); }
static std::string show(int64_t count) { return std::to_string(count); }
static std::string show(uint64_t count) { return std::to_string(count); }
static std::string show(const std::string &text) { return text; }
static std::string show(const HeldOut &heldOut) { return heldOut.every ? "1/" + show(heldOut.every) : "off"; }
static std::string show(const SaveInterval &every) {
  return every.minutes ? show(every.minutes) + "m" : every.steps ? show(every.steps) : "auto";
}
template <typename T> static std::string show(const std::optional<T> &value) {
  return value ? show(*value) : "default";
}

/// The values of the flags with this concern.
static std::vector<FlagValue> valuesOf(const Options &options, Concerns whom) {
  std::vector<FlagValue> values;
  forEachFlag(options, [&](const char *flag, const auto &value, Concerns concerns) {
    if (concerns == whom)
      values.push_back({flag + 2, show(value)});
  });
  return values;
}

std::vector<FlagValue> pcrt::trajectoryFlags(const Options &options) { return valuesOf(options, Concerns::Numbers); }

std::vector<FlagValue> pcrt::sharedFlags(const Options &options) {
  std::vector<FlagValue> values = valuesOf(options, Concerns::Ranks);
  // Ranks on several machines may have the same files at different paths; their contents are compared elsewhere.
  forEachFlag(options, [&](const char *flag, const auto &value, Concerns) {
    if constexpr (std::is_convertible_v<decltype(value), const std::string &>)
      for (FlagValue &shared : values)
        if (shared.first == flag + 2 && shared.first != "change")
          shared.second = value.empty() ? "not given" : "given";
  });
  return values;
}

std::vector<NamedPath> pcrt::outputsOf(const Options &options) {
  std::vector<NamedPath> outputs;
  forEachFlag(options, [&](const char *flag, const auto &value, Concerns) {
    if constexpr (std::is_same_v<decltype(value), const OutputPath &>)
      outputs.push_back({flag, value});
  });
  return outputs;
}

/// Throws PCRT_USAGE if flags exclude or need each other.
static void checkTogether(const Options &options) {
  const std::string curves[] = {"none", "linear", "cosine", "wsd", "inverse-sqrt"};
  if (std::find(std::begin(curves), std::end(curves), options.lrDecay) == std::end(curves))
    fail(PCRT_USAGE, "--lr-decay takes none, linear, cosine, wsd or inverse-sqrt, not '" + options.lrDecay + "'");
  if (options.lrStable && options.lrDecay != "wsd")
    fail(PCRT_USAGE, "--lr-stable needs --lr-decay wsd");
  if (options.beta1 >= 1 || options.beta2 >= 1)
    fail(PCRT_USAGE, std::string(options.beta1 >= 1 ? "--beta1" : "--beta2") + " must be less than 1");
  if (options.clip == 0)
    fail(PCRT_USAGE, "--clip 0 would make every gradient zero; leave out the flag to turn clipping off");
  if (options.minLr > options.lr)
    fail(PCRT_USAGE, "--min-lr must not be larger than --lr");
  if (options.checkpoint.empty() && (options.every || options.keep || options.rollback))
    fail(PCRT_USAGE, std::string(options.every  ? "--every"
                                 : options.keep ? "--keep"
                                                : "--rollback") +
                         " needs --checkpoint DIR");
  if (options.evalEvery && !options.validation.every)
    fail(PCRT_USAGE, "--eval-every needs --validation 1/N, which holds out samples from training");
  if (options.evalBatches && !options.evalEvery)
    fail(PCRT_USAGE, "--eval-batches needs --eval-every N");
  if (options.evalBatches && *options.evalBatches == 0)
    fail(PCRT_USAGE, "--eval-batches must be at least 1");
  if (options.keep && *options.keep == 0)
    fail(PCRT_USAGE, "--keep must be at least 1");
  for (auto [given, flag] :
       {std::pair(!options.routing.empty(), "--routing"), std::pair(!options.dumpRouting.empty(), "--dump-routing")})
    if (given && !options.meet.empty())
      fail(PCRT_USAGE,
           std::string(flag) + " does not work with open local SGD, whose members run different numbers of steps");
  if (options.overwrite && options.save.empty())
    fail(PCRT_USAGE, "--overwrite needs --save DIR");
  if (!options.adapter.empty() && !options.load.empty())
    fail(PCRT_USAGE, "--adapter and --load exclude each other, because --load reads the adapter from the checkpoint");
  std::vector<FlagValue> flags = trajectoryFlags(options);
  flags.insert(flags.end(), {{"data", ""}, {"sequence", ""}, {"local-sgd", ""}, {"groups", ""}});
  for (size_t at = 0; at < options.change.size();) {
    size_t end = std::min(options.change.find(',', at), options.change.size());
    std::string name = options.change.substr(at, end - at), known;
    for (const FlagValue &flag : flags)
      known += (known.empty() ? "" : ", ") + flag.first;
    if (std::none_of(flags.begin(), flags.end(), [&](const FlagValue &flag) { return flag.first == name; }))
      fail(PCRT_USAGE, "--change takes a comma-separated list of these names: " + known + ", not '" + name + "'");
    at = end + 1;
  }
}

Options pcrt::parseOptions(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i], value;
    bool known = false, joined = false;
    if (size_t equals = flag.find('='); equals != std::string::npos && flag.compare(0, 2, "--") == 0) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
      joined = true;
    }
    forEachFlag(options, [&](const char *name, auto &place, Concerns) {
      if (flag != name)
        return;
      if constexpr (std::is_same_v<decltype(place), bool &>) {
        known = place = !joined;
      } else if constexpr (std::is_same_v<decltype(place), Options::Info &>) {
        known = true;
        place = joined ? Options::Info::Json : Options::Info::Text;
        if (joined && value != "json")
          fail(PCRT_USAGE, "--info takes json or nothing, not '" + value + "'");
      } else {
        known = true;
        if (!joined && i + 1 >= argc)
          fail(PCRT_USAGE, flag + " needs a value; see --help");
        parseInto(place, flag, joined ? value : argv[++i]);
      }
    });
    if (!known)
      fail(PCRT_USAGE, "unknown flag '" + std::string(argv[i]) + "'; see --help");
  }
  options.steps = options.stepsGiven.value_or(options.steps);
  checkTogether(options);
  return options;
}

bool Options::mayChange(const std::string &name) const {
  return ("," + change + ",").find("," + name + ",") != std::string::npos;
}

double Options::rateAt(int64_t step) const {
  if (step < lrWarmup)
    return lr * double(step + 1) / double(lrWarmup);
  if (lrDecay == "none")
    return lr;
  if (lrDecay == "inverse-sqrt") { // continues from the warm-up, or without one, as after a warm-up of 10,000 steps
    double from = lrWarmup ? double(lrWarmup) : 1e4, at = double(step + 1) + (lrWarmup ? 0 : from);
    return std::max(lr * std::sqrt(from / at), minLr);
  }
  int64_t end = lrSteps.value_or(steps), begin = lrDecay == "wsd" ? lrStable.value_or(end - end / 10) : lrWarmup;
  double done = double(step - begin) / double(std::max<int64_t>(end - begin, 1));
  done = std::clamp(done, 0.0, 1.0);
  double left = lrDecay == "cosine" ? 0.5 * (1 + std::cos(M_PI * done)) : 1 - done;
  return minLr + (lr - minLr) * left;
}

void pcrt::warnOfEndedCurve(const Options &options, int64_t firstStep, bool goesOn) {
  if (firstStep >= options.steps || options.lr == 0 || options.rateAt(options.steps - 1) != 0)
    return;
  fprintf(stderr,
          "pc: warning: the learning rate is 0 from step %lld to --steps %lld, because its decay ends at --lr-steps "
          "%lld%s; these steps change no parameter, so give --lr-steps %lld%s, or --min-lr%s\n",
          (long long)std::max(firstStep, *options.lrSteps), (long long)options.steps, (long long)*options.lrSteps,
          goesOn ? " as in the first run" : "", (long long)options.steps, goesOn ? " --change lr-steps" : "",
          goesOn ? " --change min-lr" : "");
}
