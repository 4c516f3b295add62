//===- pc-train.cpp - Imports, compiles and runs a model in one command ----------------===//
// Runs pc-import, pc-compile and pc-run of its own directory, and prints each command. The imported model and the
// executable are kept in a cache, under a hash of everything that decides what they are; a second run with the same
// model and plan compiles nothing.
//===----------------------------------------------------------------------===//
#include "Flags.h"
#include "base/CacheDirectory.h"
#include "base/Failure.h"
#include "comm/Secret.h"
#include "data/Options.h"
#include "metrics/PeakRate.h"
#include "pcrt/outputs.h"
#include "pcrt/version.h"

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;
using pcrt::fail;

static const char usage[] =
    R"(usage: pc-train MODEL --data FILE [-n N] [flags]
       pc-train --config RUN.toml [flags]

Imports MODEL, compiles it and trains it on N ranks of this machine. MODEL is a Hugging Face directory, or a model
program (.mlir). pc-train takes all flags of pc-import, pc-compile, pc-run and the compiled program, and gives each to
the command that has it. If no flag names a plan, pc-compile searches for one (--auto). The commands are printed before they run.

  --config FILE   TOML file with a line for the model and for each flag, without dashes, such as mesh = "dp=2", steps = 100
                  or group = ["*.bias:decay=0"]; a flag on the command line replaces that of the file
  --batch-ramp LIST
                  begin with smaller batches: 60:1000,120:2000 trains with 60 sequences until step 1000 and with 120 until step
                  2000, and then with --batch; needs --checkpoint
  --version       print the version
  --help          show this text

With --save DIR or --checkpoint DIR, the model and all flags are written to DIR.toml, which --config reads.
Executables are kept in PCRT_CACHE_DIR, by default $XDG_CACHE_HOME/pc or ~/.cache/pc, and used again. That directory
may be deleted at any time.

exit code: that of the first command that fails.

example:
  pc-train examples/tour --data text:README.md -n 2 --steps 20
)";

extern char **environ;

static std::string quoted(const std::string &word) {
  if (!word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                              "_-./=,:+%@") == std::string::npos)
    return word;
  std::string text = "'";
  for (char c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

static void print(const std::vector<std::string> &words) {
  std::string line = "pc-train:";
  for (size_t i = 0; i < words.size(); ++i)
    line += " " + quoted(i == 0 ? fs::path(words[i]).filename().string() : words[i]);
  fprintf(stderr, "%s\n", line.c_str());
}

static std::vector<char *> pointersTo(std::vector<std::string> &words) {
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

static std::atomic<pid_t> running;

/// Passes signals on to the command that runs. It has a process group of its own, so that it gets each signal once,
/// whether a key or `kill` has sent it.
static void passOn(int signal) {
  pid_t child = running;
  if (signal == SIGTSTP || signal == SIGCONT) {
    if (child)
      kill(-child, signal);
    if (signal == SIGTSTP)
      raise(SIGSTOP);
  } else if (child) {
    kill(child, signal);
  } else {
    _exit(128 + signal);
  }
}

static void passSignalsOn() {
  struct sigaction action = {};
  action.sa_handler = passOn;
  for (int signal : {SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGHUP, SIGTSTP, SIGCONT})
    if (struct sigaction now; !sigaction(signal, nullptr, &now) && now.sa_handler != SIG_IGN)
      sigaction(signal, &action, nullptr);
}

/// Runs a command and waits for it. If `output` is not null, it receives the command's output. Ends pc-train with the
/// command's exit code if it fails, as the command has said why.
static void run(std::vector<std::string> words, std::string *output = nullptr) {
  int ends[2];
  if (output && pipe2(ends, O_CLOEXEC))
    fail(PCRT_RESOURCE, std::string("cannot make a pipe: ") + strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (output)
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child;
  std::vector<char *> pointers = pointersTo(words);
  int error = posix_spawn(&child, words[0].c_str(), &actions, &attributes, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error)
    fail(PCRT_RESOURCE, "cannot run " + words[0] + ": " + strerror(error));
  if (output) {
    close(ends[1]);
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
      output->append(part, size_t(n));
    close(ends[0]);
  }
  running = child;
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running = 0;
  if (WIFSIGNALED(status))
    exit(128 + WTERMSIG(status));
  if (WEXITSTATUS(status))
    exit(WEXITSTATUS(status));
}

static FlagKinds allFlags(const std::string &bin) {
  FlagKinds kinds;
  std::string imports, compiles, launches;
  run({bin + "/pc-import", "--help-hidden"}, &imports);
  run({bin + "/pc-compile", "--help-hidden"}, &compiles);
  run({bin + "/pc-run", "--help"}, &launches);
  addFlags(kinds, Owner::Import, imports);
  addFlags(kinds, Owner::Compile, compiles);
  addFlags(kinds, Owner::Launch, launches);
  addFlags(kinds, Owner::Run, pcrt::helpText);
  addFlags(kinds, Owner::Train, usage);
  // These flags are decided by pc-train itself, or print something instead of a run.
  for (const char *name : {"-o", "--to", "-h", "--help", "--help-hidden", "--help-list", "--help-list-hidden", "--info",
                           "--version", "--print-options", "--print-all-options", "--check-kernels"})
    kinds.erase(name);
  return kinds;
}

static std::string contentOf(const fs::path &path, pcrt_status ifNot = PCRT_RESOURCE) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    fail(ifNot, path.string() + ": " + strerror(errno));
  return text.str();
}

/// The directory of the cache for one executable, made if it is missing. Files that flags name count with their
/// content.
static fs::path placeOf(const std::string &model, const std::vector<std::string> &flags) {
  fs::path cache = pcrt::cacheDirectory();
  if (cache.empty())
    fail(PCRT_USAGE, "PCRT_CACHE_DIR is empty, or HOME is not set; set PCRT_CACHE_DIR to a directory for executables");
  std::string all = pcrt_version;
  auto add = [&](const std::string &text) { all += '\0' + std::to_string(text.size()) + ' ' + text; };
  add(model);
  for (const std::string &flag : flags) {
    if (flag.starts_with("--report=") || flag.starts_with("--emit-plan=")) // what they write decides nothing
      continue;
    add(flag);
    fs::path file = flag == "--machine=here" ? pcrt::calibratedMachine() : flag.substr(flag.find('=') + 1);
    if (std::error_code ignored; fs::is_regular_file(file, ignored))
      add(contentOf(file));
  }
  std::string name;
  for (unsigned char byte : pcrt::hmacSha256("pc-train", all)) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", byte);
    name += digits;
  }
  fs::path directory = cache / name.substr(0, 16);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    fail(PCRT_RESOURCE, directory.string() + ": " + error.message());
  return directory;
}

static void write(const std::string &path, const std::string &text) {
  pcrt::OutputFile file;
  if (!file.open(path) || ::write(file.descriptor(), text.data(), text.size()) != ssize_t(text.size()) ||
      !file.commit())
    fail(PCRT_RESOURCE, "cannot write " + path + ": " + strerror(errno));
}

/// The model program of a directory, as text; of a program, its own text.
static std::string importModel(const std::string &bin, const Request &request, const FlagKinds &kinds) {
  std::vector<std::string> words = request.wordsOf(kinds, Owner::Import);
  std::error_code ignored;
  if (!fs::is_directory(request.model, ignored)) {
    if (!words.empty())
      fail(PCRT_USAGE, "'" + request.model + "' is not a directory, which " + words[0] + " of pc-import needs");
    return contentOf(request.model, PCRT_BAD_INPUT);
  }
  words.insert(words.begin(), {bin + "/pc-import", request.model});
  print(words);
  std::string model;
  run(words, &model);
  return model;
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
      rest.set("--lr-steps", std::to_string(steps)); // not where the first part ends
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

/// The files beside checkpoints that hold the flags of the run. Throws pcrt::Failure (PCRT_USAGE) if there is such a
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

/// The executable for a request, from the cache or compiled now.
static std::string compile(const std::string &bin, const Request &request, const FlagKinds &kinds) {
  std::vector<std::string> flags = request.wordsOf(kinds, Owner::Compile);
  if (const std::string *ranks = request.valueOf("-n");
      ranks && *ranks != "1" && !request.has("--mesh") && !request.has("--plan") && !request.has("--auto"))
    flags.insert(flags.end(), {"--auto", "--ranks=" + *ranks});
  std::string model = importModel(bin, request, kinds);
  fs::path place = placeOf(model, flags);
  std::string program = place / "train", text = place / "model.mlir";
  if (access(program.c_str(), X_OK) || request.has("--report") || request.has("--emit-plan")) {
    write(text, model);
    flags.insert(flags.begin(), {bin + "/pc-compile", text, "-o", program});
    print(flags);
    run(flags);
  }
  return program;
}

static std::vector<std::string> runOf(const std::string &bin, const Part &part, const FlagKinds &kinds) {
  std::vector<std::string> words = part.request.wordsOf(kinds, Owner::Launch);
  std::vector<std::string> flags = part.request.wordsOf(kinds, Owner::Run);
  words.insert(words.begin(), bin + "/pc-run");
  words.insert(words.end(), {part.program, "--"});
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

static void train(int argc, char **argv) {
  std::string bin = fs::read_symlink("/proc/self/exe").parent_path();
  FlagKinds kinds = allFlags(bin);
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
    part.program = compile(bin, part.request, kinds);
  for (const std::string &config : configs)
    write(config, firstLine + ("\n" + writtenAsConfig(request)));
  for (size_t i = 0; i + 1 < parts.size(); ++i)
    if (stepIn(*request.valueOf("--checkpoint")) < parts[i].end) {
      std::vector<std::string> words = runOf(bin, parts[i], kinds);
      print(words);
      run(words);
    }
  std::vector<std::string> words = runOf(bin, parts.back(), kinds);
  print(words);
  execv(words[0].c_str(), pointersTo(words).data());
  fail(PCRT_RESOURCE, "cannot run " + words[0] + ": " + strerror(errno));
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    bool isHelp = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
    if (!isHelp && strcmp(argv[i], "--version"))
      continue;
    if (isHelp)
      fputs(usage, stdout);
    else
      printf("pc-train %s\n", pcrt_version);
    if (fflush(stdout) == 0)
      return PCRT_OK;
    perror("pc-train: error: cannot write to standard output");
    return PCRT_RESOURCE;
  }
  passSignalsOn();
  try {
    train(argc, argv);
  } catch (const pcrt::Failure &failure) {
    fprintf(stderr, "pc-train: error: %s\n", failure.message.c_str());
    return failure.status;
  } catch (const std::exception &unexpected) {
    fprintf(stderr, "pc-train: error: %s\n", unexpected.what());
    return PCRT_INTERNAL;
  }
}
