//===- pc-train.cpp - Imports, compiles and runs a model in one command ----------------===//
// Gives each flag to the command that has it, and repeats compile and run for each part of a ramp of batches.
//===----------------------------------------------------------------------===//
#include "base/Failure.h"
#include "commands/Commands.h"
#include "data/Options.h"
#include "pcrt/outputs.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <unistd.h>

using pcrt::fail;

static const char usage[] =
    R"(usage: pc-train MODEL --data FILE [-n N] [flags]
       pc-train --config RUN.toml [flags]

Imports MODEL, compiles it and trains it on N ranks of this machine. MODEL is a Hugging Face directory, or a model
program (.mlir). pc-train takes all flags of pc-import, pc-compile, pc-run and the compiled program, and gives each to
the command that has it. If no flag names a plan, pc-compile searches for one (--auto). The commands are printed before they run.

  --config FILE   TOML file with a line for the model and for each flag, without dashes, such as mesh = "dp=2", steps = 100
                  or group = ["*.bias:decay=0"]; flags on the command line come first
  --batch-ramp LIST
                  begin with smaller batches: 60:1000,120:2000 trains with 60 sequences until step 1000 and with 120 until step
                  2000, and then with --batch; needs --checkpoint
  --version       print the version
  --help          show this text

With --save DIR or --checkpoint DIR, the model and all flags are written to DIR.toml, which --config reads.
Executables are kept in PCRT_CACHE_DIR, by default $XDG_CACHE_HOME/pc or ~/.cache/pc, and used again. That directory
may be deleted at any time.

exit code: the code of the first command that fails.

example:
  pc-train examples/tour --data text:README.md -n 2 --steps 20
)";

static FlagKinds allFlags(const Commands &commands) {
  FlagKinds kinds;
  addFlags(kinds, Owner::Import, commands.help("pc-import", "--help-hidden"));
  addFlags(kinds, Owner::Compile, commands.help("pc-compile", "--help-hidden"));
  addFlags(kinds, Owner::Launch, commands.help("pc-run"));
  addFlags(kinds, Owner::Run, pcrt::helpText);
  addFlags(kinds, Owner::Own, usage);
  // These flags are refused: pc-train sets them itself, or they print something instead of starting a run.
  for (const char *name : {"-o", "--to", "-h", "--help", "--help-hidden", "--help-list", "--help-list-hidden", "--info",
                           "--version", "--print-options", "--print-all-options", "--check-kernels"})
    kinds.erase(name);
  return kinds;
}

static void write(const std::string &path, const std::string &text) {
  pcrt::OutputFile file;
  if (!file.open(path) || ::write(file.descriptor(), text.data(), text.size()) != ssize_t(text.size()) ||
      !file.commit())
    fail(PCRT_RESOURCE, "cannot write " + path + ": " + strerror(errno));
}

/// Part of a run: training with one batch, until a step.
struct Part {
  Request request;
  int64_t end;
  std::string program;
};

/// The parts of the run, of which all but the last come from --batch-ramp. Throws pcrt::Failure (PCRT_USAGE).
static std::vector<Part> partsOf(const Request &request, int64_t steps) {
  std::vector<Part> parts;
  Request rest = request;
  rest.remove("--batch-ramp");
  if (const std::string *ramp = request.valueOf("--batch-ramp")) {
    auto wrong = [&](const std::string &why) { fail(PCRT_USAGE, "--batch-ramp " + *ramp + ": " + why); };
    if (!request.has("--checkpoint"))
      wrong("needs --checkpoint DIR, from which each batch continues");
    if (const std::string *decay = request.valueOf("--lr-decay"); decay && !request.has("--lr-steps"))
      rest.set("--lr-steps", std::to_string(steps)); // otherwise the schedule would end with the first part of the ramp
    std::istringstream list(*ramp);
    for (std::string entry; std::getline(list, entry, ',');) {
      int64_t batch = 0, end = 0;
      int length = 0;
      if (sscanf(entry.c_str(), "%" SCNd64 ":%" SCNd64 "%n", &batch, &end, &length) != 2 ||
          size_t(length) != entry.size() || batch < 1 || end < 1)
        wrong("takes BATCH:STEP, separated by commas");
      if (end >= steps || (!parts.empty() && end <= parts.back().end))
        wrong("steps must rise, up to --steps " + std::to_string(steps));
      Part part{rest, end, ""};
      part.request.set("--batch", std::to_string(batch));
      part.request.set("--steps", std::to_string(end));
      part.request.remove("--save");
      parts.push_back(part);
    }
  }
  parts.push_back({rest, steps, ""});
  return parts;
}

static const char firstLine[] = "# Written by pc-train, which repeats the run with --config";

/// The files next to checkpoints that hold the flags of the run. Throws pcrt::Failure (PCRT_USAGE) if there is such a
/// file that pc-train has not written.
static std::vector<std::string> configsOf(const Request &request) {
  std::vector<std::string> files;
  for (const char *flag : {"--save", "--checkpoint"})
    if (const std::string *directory = request.valueOf(flag)) {
      std::string file = *directory, line;
      while (file.size() > 1 && file.back() == '/')
        file.pop_back();
      file += ".toml";
      if (std::ifstream old(file); old && !(std::getline(old, line) && line == firstLine))
        fail(PCRT_USAGE, "the run would replace " + file + ", which pc-train has not written; change " + flag);
      files.push_back(file);
    }
  return files;
}

/// The step of the newest checkpoint in a directory; 0 without one.
static int64_t stepIn(const std::string &directory) {
  std::ifstream file(directory + "/latest");
  std::string name;
  int64_t step = 0;
  return file >> name && sscanf(name.c_str(), "step-%" SCNd64, &step) == 1 ? step : 0;
}

/// The executable for a request.
static std::string compile(const Commands &commands, const Request &request, const FlagKinds &kinds) {
  std::vector<std::string> flags = request.wordsOf(kinds, Owner::Compile);
  if (const std::string *ranks = request.valueOf("-n");
      ranks && *ranks != "1" && !request.has("--mesh") && !request.has("--plan") && !request.has("--auto"))
    flags.insert(flags.end(), {"--auto", "--ranks=" + *ranks});
  return commands.compile(commands.import(request.model, request.wordsOf(kinds, Owner::Import)), flags, "train");
}

static std::vector<std::string> runOf(const Commands &commands, const Part &part, const FlagKinds &kinds) {
  std::vector<std::string> words = part.request.wordsOf(kinds, Owner::Launch);
  std::vector<std::string> flags = part.request.wordsOf(kinds, Owner::Run);
  words.insert(words.begin(), commands.path("pc-run"));
  words.insert(words.end(), {part.program, "--"});
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

static int train(int argc, char **argv) {
  Commands commands("pc-train");
  FlagKinds kinds = allFlags(commands);
  Request request = readCommandLine(kinds, argc, argv);
  if (const std::string *config = request.valueOf("--config")) {
    Request ofFile = readConfig(kinds, *config);
    request.remove("--config");
    addMissing(request, ofFile);
  }
  if (request.model.empty())
    fail(PCRT_USAGE, "there is no model; name a Hugging Face directory or a model program, or see pc-train --help");

  std::vector<std::string> flags = request.wordsOf(kinds, Owner::Run); // wrong values are found before a long compile
  flags.insert(flags.begin(), "pc-train");
  std::vector<Part> parts = partsOf(request, pcrt::parseOptions(int(flags.size()), pointersTo(flags).data()).steps);

  std::vector<std::string> configs = configsOf(request);
  for (Part &part : parts)
    part.program = compile(commands, part.request, kinds);
  for (const std::string &config : configs)
    write(config, firstLine + ("\n" + writtenAsConfig(kinds, request)));
  for (size_t i = 0; i + 1 < parts.size(); ++i)
    if (stepIn(*request.valueOf("--checkpoint")) < parts[i].end) {
      std::vector<std::string> words = runOf(commands, parts[i], kinds);
      commands.print(words);
      commands.run(words);
    }
  std::vector<std::string> words = runOf(commands, parts.back(), kinds);
  commands.print(words);
  execv(words[0].c_str(), pointersTo(words).data());
  fail(PCRT_RESOURCE, "cannot run " + words[0] + ": " + strerror(errno));
}

int main(int argc, char **argv) { return runTool("pc-train", usage, argc, argv, train); }
