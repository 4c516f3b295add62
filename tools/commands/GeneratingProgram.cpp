//===- GeneratingProgram.cpp - Compiles a program that generates, and runs it ===//
// The ranks read requests from standard input and write tokens to standard output. Both are pipes, which vanish with
// the processes that hold them.
//===----------------------------------------------------------------------===//
#include "GeneratingProgram.h"
#include "base/Failure.h"
#include "base/InputFile.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <numeric>
#include <set>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace pcrt;
using Json = nlohmann::json;

extern char **environ;

FlagKinds generationFlags(const Commands &commands, const std::string &usage) {
  FlagKinds kinds;
  addFlags(kinds, Owner::Compile, commands.help("pc-compile", "--help-hidden"));
  addFlags(kinds, Owner::Launch, commands.help("pc-run"));
  addFlags(kinds, Owner::Own, usage);
  // These flags are refused. The tools set some of them, others print something instead of starting a run, and a
  // restart would lose the requests.
  for (const char *name :
       {"-o", "--to", "--mode", "-h", "--help", "--help-hidden", "--help-list", "--help-list-hidden", "--version",
        "--print-options", "--print-all-options", "--check-kernels", "--restarts", "--or", "--grace"})
    kinds.erase(name);
  return kinds;
}

Request readGenerationFlags(const FlagKinds &kinds, int argc, char **argv) {
  Request request = readCommandLine(kinds, argc, argv);
  std::set<std::string> seen;
  for (const Flag &flag : request.flags)
    if (kinds.at(flag.name).owner == Owner::Own && flag.name != "--stop" && !seen.insert(flag.name).second)
      fail(PCRT_USAGE, flag.name + " is given twice");
  if (request.model.empty())
    fail(PCRT_USAGE, "there is no model; name a Hugging Face directory or a model program, or see --help");
  return request;
}

TextRequest requestOf(const Request &flags) {
  Json json = {{"prompt", "unused"}};
  for (const char *name : {"--max-tokens", "--temperature", "--top-k", "--top-p", "--min-p", "--seed"})
    if (const std::string *value = flags.valueOf(name)) {
      std::string field = name + 2;
      std::replace(field.begin(), field.end(), '-', '_');
      json[field] = Json::parse(*value, nullptr, /*allow_exceptions=*/false);
      if (json[field].is_discarded())
        json[field] = *value;
    }
  for (const Flag &flag : flags.flags)
    if (flag.name == "--stop")
      json["stop"].push_back(flag.value);
  TextRequest defaults;
  defaults.generation.maxTokens = 0;
  try {
    defaults = readRequest(json, defaults);
  } catch (const RequestError &error) {
    std::string flag = error.field;
    std::replace(flag.begin(), flag.end(), '_', '-');
    fail(PCRT_USAGE, "--" + flag + ": " + error.message);
  }
  defaults.text.reset();
  return defaults;
}

std::unique_ptr<Tokenizer> tokenizerOf(const std::string &model) {
  std::error_code ignored;
  fs::path file = fs::path(model) / "tokenizer.json";
  return fs::exists(file, ignored) ? std::make_unique<Tokenizer>(file) : nullptr;
}

/// The number of attention heads that a directory's config.json gives; 0 if it gives none.
static int64_t headsOf(const std::string &model) {
  fs::path file = fs::path(model) / "config.json";
  if (std::error_code ignored; !fs::exists(file, ignored))
    return 0;
  Json config = Json::parse(InputFile(file).text(), nullptr, /*allow_exceptions=*/false);
  for (const char *key : {"num_attention_heads", "n_head", "num_heads"})
    if (auto found = config.find(key); found != config.end() && found->is_number_integer())
      return found->get<int64_t>();
  return 0;
}

/// The mesh of a run without a plan. The greatest common divisor of the numbers of heads and ranks is the number of
/// ranks that share the heads; the other factor of the ranks shares the requests.
static std::string defaultMesh(const std::string &model, int64_t ranks) {
  int64_t heads = headsOf(model), tensor = heads > 0 ? std::gcd(heads, ranks) : ranks;
  std::string mesh = tensor < ranks ? "dp=" + std::to_string(ranks / tensor) : "";
  if (tensor > 1)
    mesh += (mesh.empty() ? "tp=" : ",tp=") + std::to_string(tensor);
  return mesh;
}

static std::string compile(const Commands &commands, const Request &request, const FlagKinds &kinds) {
  std::vector<std::string> imports, flags = request.wordsOf(kinds, Owner::Compile);
  std::error_code ignored;
  if (const std::string *context = request.valueOf("--context"); context && fs::is_directory(request.model, ignored))
    imports.push_back("--seq=" + *context);
  const std::string *ranks = request.valueOf("-n");
  bool hasPlan = request.has("--mesh") || request.has("--plan") || request.has("--auto");
  if (int64_t count = ranks ? strtoll(ranks->c_str(), nullptr, 10) : 1; count > 1 && !hasPlan) {
    if (request.has("--machine"))
      flags.insert(flags.end(), {"--auto", "--ranks=" + *ranks});
    else
      flags.push_back("--mesh=" + defaultMesh(request.model, count));
  }
  constexpr int64_t smallest = 8; // pc-compile's default
  if (const std::string *slots = request.valueOf("--slots");
      slots && !request.has("--size") && strtoll(slots->c_str(), nullptr, 10) > smallest)
    flags.push_back("--size=" + *slots); // then a step has room for one token of each slot
  if (!request.has("--chunk"))
    flags.push_back("--chunk=64"); // then products of prompts read the weights once per 64 tokens
  flags.push_back("--mode=generate");
  return commands.compile(commands.import(request.model, imports), flags, "generate");
}

static GenerationShape shapeOf(const Commands &commands, const std::string &program) {
  std::string text;
  commands.run({program, "--info=json"}, &text);
  Json info = Json::parse(text);
  const Json &sizes = info.at("generation");
  return {.groups = sizes.at("groups"),
          .slots = sizes.at("slots"),
          .context = sizes.at("context"),
          .vocabulary = info.at("vocabulary"),
          .size = sizes.at("size"),
          .chunk = sizes.at("chunk")};
}

/// A pipe whose ends no other child gets.
struct Pipe {
  Pipe() {
    if (pipe2(ends, O_CLOEXEC))
      fail(PCRT_RESOURCE, withErrno("cannot make a pipe"));
  }
  int ends[2];
};

GeneratingProgram::GeneratingProgram(const Commands &commands, const Request &request, const FlagKinds &kinds) {
  std::string program = compile(commands, request, kinds);
  GenerationShape shape = shapeOf(commands, program);
  std::vector<std::string> words = request.wordsOf(kinds, Owner::Launch);
  words.insert(words.begin(), commands.path("pc-run"));
  words.insert(words.end(), {program, "--"});
  if (const std::string *weights = request.valueOf("--init"))
    words.insert(words.end(), {"--init", *weights});
  commands.print(words);

  signal(SIGPIPE, SIG_IGN); // the program may end at any time
  Pipe requests, answers;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, requests.ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, answers.ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  int error = posix_spawn(&process, words[0].c_str(), &actions, &attributes, pointersTo(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(requests.ends[0]);
  close(answers.ends[1]);
  if (error)
    fail(PCRT_RESOURCE, "cannot run " + words[0] + ": " + strerror(error));
  passSignalsTo(process);
  running.emplace(shape, requests.ends[1], answers.ends[0]);
}

GeneratingProgram::~GeneratingProgram() {
  if (running)
    kill(process, SIGKILL); // ranks die with pc-run
  end();
}

int GeneratingProgram::end() {
  if (!running)
    return 0;
  running.reset();
  int status;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  passSignalsTo(0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
