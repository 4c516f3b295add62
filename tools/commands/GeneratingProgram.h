//===- GeneratingProgram.h - Compiles a program that generates, and runs it --===//
// The code that pc-generate and pc-serve share: their flags, the default plan, and a running program as an engine.
//===----------------------------------------------------------------------===//
#ifndef PC_COMMANDS_GENERATINGPROGRAM_H
#define PC_COMMANDS_GENERATINGPROGRAM_H

#include "Commands.h"
#include "generate/Engine.h"

#include <memory>
#include <optional>

/// The flags of pc-compile and pc-run that such a tool takes, and its own ones, which `usage` lists.
FlagKinds generationFlags(const Commands &commands, const std::string &usage);

/// Reads a command line, in which only --stop of the tool's own flags may be given twice. Throws pcrt::Failure
/// (PCRT_USAGE), also if it names no model.
Request readGenerationFlags(const FlagKinds &kinds, int argc, char **argv);

/// The sampling and stop strings that flags ask for, as defaults for requests: --max-tokens (0 if it is not given),
/// --temperature, --top-k, --top-p, --min-p, --seed and --stop. Throws pcrt::Failure (PCRT_USAGE).
pcrt::TextRequest requestOf(const Request &flags);

/// The tokenizer of a model's directory; none if there is no tokenizer.json. Throws pcrt::Failure.
std::unique_ptr<pcrt::Tokenizer> tokenizerOf(const std::string &model);

/// Imports and compiles the model of `request`, and starts the program on its ranks. Signals of this process are passed
/// on to it. If this process is killed, its pipes close, and the program ends.
class GeneratingProgram {
public:
  /// Throws pcrt::Failure. Ends this process if a command fails.
  GeneratingProgram(const Commands &commands, const Request &request, const FlagKinds &kinds);
  /// Kills the ranks if they still run.
  ~GeneratingProgram();

  pcrt::ProgramEngine &engine() { return *running; }
  /// Ends the requests, waits until the program has answered those that it has, and returns its exit code; 128 + n if
  /// signal n ended it. There must be no calls of the engine any more.
  int end();

private:
  std::optional<pcrt::ProgramEngine> running;
  pid_t process = 0;
};

#endif
