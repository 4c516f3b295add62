//===- Options.cpp - the command line of a compiled program ---------------===//
#include "core/Options.h"
#include "core/Failure.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

using namespace pcrt;

const char *const pcrt::helpText =
    R"(usage: PROGRAM --data FILE [flags]          on one rank
       pc-run -n N PROGRAM -- --data FILE [flags]   on the N ranks of its mesh

Data
  --data FILE           tokens: llm.c's .bin, or raw little-endian uint16; text:FILE takes the bytes of any file
  --steps N             train until step N (default 100); the batch of step s starts at token s * batch * sequence
  --eval                only evaluate: the loss of every batch (for programs compiled with --mode=eval)

Optimizer (torch.optim's defaults)
  --lr X                learning rate (1e-3)
  --lr-warmup N         it rises linearly over the first N steps (0)
  --lr-decay KIND       then falls to --min-lr at step --steps: none, linear or cosine (none)
  --min-lr X            (0)
  --weight-decay X      decoupled weight decay (1e-2 for AdamW, 0 for SGD)
  --beta1 X --beta2 X   AdamW's averages (0.9, 0.999)
  --eps X               (1e-8)
  --clip NORM           largest norm of the gradient (off)

Parameters
  --seed N              of the drawn initial values (0); every plan draws the same ones
  --init DIR|FILE       initial values from safetensors: a file, or a Hugging Face directory
  --save DIR            after the last step: a directory that Hugging Face loads, and the state of training
  --load DIR            go on from such a directory, on any mesh, bit by bit

Output
  --metrics FILE        one line of JSON a step
  --summary FILE        what was counted and measured, in the schema of pc-compile --report
  --dump-grads FILE     gradients of the first step, before clipping (safetensors)
  --dump-logits FILE    logits of the first step (safetensors)
  --trace FILE          calls and tasks of the last step, for Perfetto or chrome://tracing
  --info                what this program is; nothing is run
  --check-kernels       runs its CUDA kernels beside the CPU's, one JSON line each (programs of pc-compile --check-kernels)
  --help

Exit codes: 0 ok, 1 internal error, 2 usage, 6 resource (memory, disk), 7 peer lost, 8 timeout, 9 bad data or checkpoint,
10 non-finite numbers.
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

Options pcrt::parseOptions(int argc, char **argv) {
  Options options;
  const struct {
    const char *flag;
    std::string *text;
  } texts[] = {{"--data", &options.data},
               {"--init", &options.init},
               {"--load", &options.load},
               {"--save", &options.save},
               {"--metrics", &options.metrics},
               {"--summary", &options.summary},
               {"--dump-grads", &options.dumpGrads},
               {"--dump-logits", &options.dumpLogits},
               {"--trace", &options.trace}};
  const struct {
    const char *flag;
    double *number;
  } numbers[] = {{"--lr", &options.lr},   {"--beta1", &options.beta1},  {"--beta2", &options.beta2},
                 {"--eps", &options.eps}, {"--min-lr", &options.minLr}, {"--clip", &options.clip}};
  const struct {
    const char *flag;
    bool *on;
  } switches[] = {{"--help", &options.help},
                  {"-h", &options.help},
                  {"--info", &options.info},
                  {"--eval", &options.eval},
                  {"--check-kernels", &options.checkKernels}};

  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i], value;
    bool known = false, joined = false;
    for (auto &entry : switches)
      if (flag == entry.flag)
        known = *entry.on = true;
    if (known)
      continue;
    if (size_t equals = flag.find('='); equals != std::string::npos && flag.compare(0, 2, "--") == 0) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
      joined = true;
    }
    auto takeValue = [&] {
      known = true;
      if (joined)
        return;
      if (i + 1 >= argc)
        fail(PCRT_USAGE, flag + " needs a value; see --help");
      value = argv[++i];
    };
    for (auto &entry : texts)
      if (flag == entry.flag) {
        takeValue();
        if (value.empty())
          fail(PCRT_USAGE, flag + " needs a value; see --help");
        *entry.text = value;
      }
    for (auto &entry : numbers)
      if (flag == entry.flag) {
        takeValue();
        *entry.number = parseNumber(flag, value, 0);
      }
    if (flag == "--weight-decay") {
      takeValue();
      options.weightDecay = parseNumber(flag, value, 0);
    } else if (flag == "--steps") {
      takeValue();
      options.steps = int64_t(parseCount(flag, value, uint64_t(1) << 40));
    } else if (flag == "--lr-warmup") {
      takeValue();
      options.lrWarmup = int64_t(parseCount(flag, value, uint64_t(1) << 40));
    } else if (flag == "--lr-decay") {
      takeValue();
      if (value != "none" && value != "linear" && value != "cosine")
        fail(PCRT_USAGE, "--lr-decay takes none, linear or cosine, not '" + value + "'");
      options.lrDecay = value == "linear"   ? Options::Decay::Linear
                        : value == "cosine" ? Options::Decay::Cosine
                                            : Options::Decay::None;
    } else if (flag == "--seed") {
      takeValue();
      options.seed = parseCount(flag, value, UINT64_MAX);
    }
    if (!known)
      fail(PCRT_USAGE, "unknown flag '" + flag + "'; see --help");
  }
  if (options.beta1 >= 1 || options.beta2 >= 1)
    fail(PCRT_USAGE, std::string(options.beta1 >= 1 ? "--beta1" : "--beta2") + " must be less than 1");
  if (options.minLr > options.lr)
    fail(PCRT_USAGE, "--min-lr is more than --lr");
  if (!options.init.empty() && !options.load.empty())
    fail(PCRT_USAGE, "--init and --load exclude each other: --load brings its own parameters");
  return options;
}

double Options::rateAt(int64_t step) const {
  if (step < lrWarmup)
    return lr * double(step + 1) / double(lrWarmup);
  if (lrDecay == Decay::None)
    return lr;
  double done = double(step - lrWarmup) / double(std::max<int64_t>(steps - lrWarmup, 1));
  double left = lrDecay == Decay::Linear ? 1 - done : 0.5 * (1 + std::cos(M_PI * done));
  return minLr + (lr - minLr) * left;
}
