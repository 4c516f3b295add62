//===- Commands.cpp - A tool that runs other tools ------------------------===//
#include "Commands.h"
#include "base/CacheDirectory.h"
#include "base/Failure.h"
#include "comm/Secret.h"
#include "metrics/PeakRate.h"
#include "pcrt/outputs.h"
#include "pcrt/version.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;
using pcrt::fail;

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

std::vector<char *> pointersTo(std::vector<std::string> &words) {
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

static std::atomic<pid_t> running;

/// A child has its own process group, so that it gets each signal only once, both from a key and from `kill`.
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

void passSignalsTo(pid_t child) { running = child; }

Commands::Commands(std::string tool)
    : tool(std::move(tool)), directory(fs::read_symlink("/proc/self/exe").parent_path()) {}

void Commands::print(const std::vector<std::string> &words) const {
  std::string line = tool + ":";
  for (size_t i = 0; i < words.size(); ++i)
    line += " " + quoted(i == 0 ? fs::path(words[i]).filename().string() : words[i]);
  fprintf(stderr, "%s\n", line.c_str());
}

void Commands::run(std::vector<std::string> words, std::string *output) const {
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
  passSignalsTo(child);
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  passSignalsTo(0);
  if (WIFSIGNALED(status))
    exit(128 + WTERMSIG(status));
  if (WEXITSTATUS(status))
    exit(WEXITSTATUS(status));
}

std::string Commands::help(const std::string &other, const char *flag) const {
  std::string text;
  run({path(other), flag}, &text);
  return text;
}

static std::string contentOf(const fs::path &path, pcrt_status ifNot = PCRT_RESOURCE) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    fail(ifNot, path.string() + ": " + strerror(errno));
  return text.str();
}

std::string Commands::import(const std::string &model, std::vector<std::string> flags) const {
  std::error_code ignored;
  if (!fs::is_directory(model, ignored)) {
    if (!flags.empty())
      fail(PCRT_USAGE, "'" + model + "' is not a directory, which " + flags[0] + " of pc-import needs");
    return contentOf(model, PCRT_BAD_INPUT);
  }
  flags.insert(flags.begin(), {path("pc-import"), model});
  print(flags);
  std::string text;
  run(flags, &text);
  return text;
}

/// Returns the cache directory of one executable, and creates it if it is missing. The hash includes the contents of
/// files that flags name.
static fs::path placeOf(const std::string &model, const std::vector<std::string> &flags, const std::string &name) {
  fs::path cache = pcrt::cacheDirectory();
  if (cache.empty())
    fail(PCRT_USAGE, "PCRT_CACHE_DIR is empty, or HOME is not set; set PCRT_CACHE_DIR to a directory for executables");
  std::string all = pcrt_version;
  auto add = [&](const std::string &text) { all += '\0' + std::to_string(text.size()) + ' ' + text; };
  add(model);
  for (const std::string &flag : flags) {
    if (flag.starts_with("--report=") || flag.starts_with("--emit-plan=")) // their outputs do not affect the executable
      continue;
    add(flag);
    fs::path file = flag == "--machine=here" ? pcrt::calibratedMachine() : flag.substr(flag.find('=') + 1);
    if (std::error_code ignored; fs::is_regular_file(file, ignored))
      add(contentOf(file));
  }
  std::string digits;
  for (unsigned char byte : pcrt::hmacSha256(name, all)) {
    char two[3];
    snprintf(two, sizeof two, "%02x", byte);
    digits += two;
  }
  fs::path directory = cache / digits.substr(0, 16);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    fail(PCRT_RESOURCE, directory.string() + ": " + error.message());
  return directory;
}

std::string Commands::compile(const std::string &model, std::vector<std::string> flags, const std::string &name) const {
  fs::path place = placeOf(model, flags, name);
  std::string program = place / name, text = place / "model.mlir";
  bool writes = false; // whether the compile also writes a file next to the executable
  for (const std::string &flag : flags)
    writes |= flag.starts_with("--report=") || flag.starts_with("--emit-plan=");
  if (access(program.c_str(), X_OK) == 0 && !writes)
    return program;
  pcrt::OutputFile file;
  if (!file.open(text) || ::write(file.descriptor(), model.data(), model.size()) != ssize_t(model.size()) ||
      !file.commit())
    fail(PCRT_RESOURCE, "cannot write " + text + ": " + strerror(errno));
  flags.insert(flags.begin(), {path("pc-compile"), text, "-o", program});
  print(flags);
  run(flags);
  return program;
}

int runTool(const char *tool, const char *usage, int argc, char **argv, int (*body)(int argc, char **argv)) {
  for (int i = 1; i < argc; ++i) {
    bool isHelp = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
    if (!isHelp && strcmp(argv[i], "--version"))
      continue;
    if (isHelp)
      fputs(usage, stdout);
    else
      printf("%s %s\n", tool, pcrt_version);
    if (fflush(stdout) == 0)
      return PCRT_OK;
    fprintf(stderr, "%s: error: cannot write to standard output: %s\n", tool, strerror(errno));
    return PCRT_RESOURCE;
  }
  passSignalsOn();
  try {
    return body(argc, argv);
  } catch (const pcrt::Failure &failure) {
    fprintf(stderr, "%s: error: %s\n", tool, failure.message.c_str());
    return failure.status;
  } catch (const std::exception &unexpected) {
    fprintf(stderr, "%s: error: %s\n", tool, unexpected.what());
    return PCRT_INTERNAL;
  }
}
