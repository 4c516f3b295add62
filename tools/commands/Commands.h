//===- Commands.h - A tool that runs other tools --------------------------===//
// pc-train, pc-generate and pc-serve run pc-import, pc-compile and pc-run of their own directory, and print each
// command. The imported model and the executable are kept in a cache, under a hash of everything on which they depend.
// A second run with the same model and plan compiles nothing.
//===----------------------------------------------------------------------===//
#ifndef PC_COMMANDS_COMMANDS_H
#define PC_COMMANDS_COMMANDS_H

#include "Flags.h"

#include <sys/types.h>

/// From now on, signals of this process are passed on to `child`, which has its own process group. 0: there is no
/// child, and a signal ends this process.
void passSignalsTo(pid_t child);

/// Pointers to the words, and a null at the end, as exec takes them. They borrow the words.
std::vector<char *> pointersTo(std::vector<std::string> &words);

/// The commands of one tool. Its functions throw pcrt::Failure.
class Commands {
public:
  /// `tool` is the name for messages.
  explicit Commands(std::string tool);

  /// The path of another tool.
  std::string path(const std::string &other) const { return directory + "/" + other; }
  void print(const std::vector<std::string> &words) const;
  /// Runs a command and waits for it. `output` receives the text that it prints, unless `output` is null. Ends this
  /// process with the command's exit code if it fails, as the command has said why.
  void run(std::vector<std::string> words, std::string *output = nullptr) const;
  /// The output of --help of another tool.
  std::string help(const std::string &other, const char *flag = "--help") const;
  /// The model program of a directory, as text, or the text of a model program. `flags` are those of pc-import.
  std::string import(const std::string &model, std::vector<std::string> flags) const;
  /// The executable `name` for a model program and flags of pc-compile, from the cache or compiled now.
  std::string compile(const std::string &model, std::vector<std::string> flags, const std::string &name) const;

private:
  std::string tool, directory;
};

/// Answers --help and --version, and calls `body` otherwise. Prints a Failure, and returns the exit code.
int runTool(const char *tool, const char *usage, int argc, char **argv, int (*body)(int argc, char **argv));

#endif
