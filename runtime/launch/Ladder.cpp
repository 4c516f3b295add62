//===- Ladder.cpp - Programs of one training for fewer and fewer ranks ----===//
// Runs each program once with --info=json and compares the fields that determine the training.
//===----------------------------------------------------------------------===//
#include "launch/Ladder.h"
#include "base/Failure.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace pcrt;
using Json = nlohmann::ordered_json;

/// The output of `program --info=json`; empty if it cannot be run.
static std::string answerOf(const std::string &program) {
  int ends[2];
  if (pipe(ends) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot open a pipe to run '" + program + " --info=json'"));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  for (int end : ends)
    posix_spawn_file_actions_addclose(&files, end);
  std::string name = program, question = "--info=json";
  char *arguments[] = {name.data(), question.data(), nullptr};
  pid_t child;
  int error = posix_spawnp(&child, arguments[0], &files, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  std::string answer;
  char buffer[4096];
  ssize_t count;
  while ((count = read(ends[0], buffer, sizeof buffer)) > 0 || (count < 0 && errno == EINTR))
    answer.append(buffer, size_t(std::max<ssize_t>(count, 0)));
  close(ends[0]);
  while (error == 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR)
    ;
  return answer;
}

/// The fields of --info=json that must be equal in programs of one training, with their names for messages.
static const std::pair<const char *, const char *> common[] = {
    {"model", "model"},           {"model_sum", "config.json"}, {"mode", "mode"},
    {"optimizer", "optimizer"},   {"batch", "batch"},           {"sequence", "sequence"},
    {"vocabulary", "vocabulary"}, {"parameters", "parameters"}, {"local_sgd", "local SGD"}};

Ladder::Ladder(const std::vector<std::string> &programs) {
  Json first;
  for (const std::string &program : programs) {
    Json facts = Json::parse(answerOf(program), nullptr, /*allow_exceptions=*/false);
    if (!facts.is_object() || !facts.contains("mesh"))
      fail(PCRT_USAGE, "'" + program + "' does not answer --info=json; --or takes programs made by pc-compile");
    if (rungs.empty())
      first = facts;
    for (auto [field, name] : common)
      if (facts.value(field, Json()) != first.value(field, Json()))
        fail(PCRT_USAGE, "--or " + program + " does not train the same as " + programs[0] + ": its " + name + " is " +
                             facts.value(field, Json()).dump() + ", not " + first.value(field, Json()).dump());
    int ranks = 1;
    for (const Json &size : facts["mesh"])
      ranks *= size.get<int>();
    if (!rungs.empty() && ranks >= rungs.back().ranks)
      fail(PCRT_USAGE, "--or " + program + " needs " + std::to_string(ranks) + " ranks, but it must need fewer than " +
                           rungs.back().program + ", which it replaces");
    rungs.push_back({program, ranks});
  }
}

const Rung *Ladder::firstFor(int ranks) const {
  auto found = std::find_if(rungs.begin(), rungs.end(), [&](const Rung &rung) { return rung.ranks <= ranks; });
  return found == rungs.end() ? nullptr : &*found;
}
