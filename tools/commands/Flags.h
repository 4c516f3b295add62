//===- Flags.h - The flags of a tool that runs other tools ----------------===//
// pc-train, pc-generate and pc-serve have few flags of their own. They accept the flags of pc-import, pc-compile,
// pc-run and compiled programs, and read these from the help texts, so that no list is written twice.
//===----------------------------------------------------------------------===//
#ifndef PC_COMMANDS_FLAGS_H
#define PC_COMMANDS_FLAGS_H

#include <map>
#include <string>
#include <vector>

/// The commands that the tool runs, in this order, and the tool itself. Launch means the flags of pc-run itself, and
/// Run the flags of the program.
enum class Owner { Import, Compile, Launch, Run, Own };

/// The owner of a flag, whether a value must follow the flag, and whether all its occurrences count.
struct FlagKind {
  Owner owner;
  bool needsValue;
  bool isRepeated = false;
};

/// All flags by name, with their dashes.
using FlagKinds = std::map<std::string, FlagKind>;

/// Adds the flags of a help text, in LLVM's or in our own form: one flag or more at the start of a line, after two
/// spaces. A flag that is known already stays as it is. A flag is repeated if its description says "may be repeated".
void addFlags(FlagKinds &kinds, Owner owner, const std::string &help);

/// A flag as it was given. A flag without a value has an empty one.
struct Flag {
  std::string name, value;
  bool hasValue = false;
};

/// The model and the flags of a run, from a command line or a file.
struct Request {
  std::string model;
  std::vector<Flag> flags;

  /// The value of the last such flag, which counts; null if it is not given.
  const std::string *valueOf(const std::string &name) const;
  bool has(const std::string &name) const { return valueOf(name); }
  void remove(const std::string &name);
  /// Gives this value to the flag, whether it was given or not.
  void set(const std::string &name, const std::string &value);
  /// The words for one of the commands.
  std::vector<std::string> wordsOf(const FlagKinds &kinds, Owner owner) const;
};

/// Reads a command line: [MODEL] [flags]. Throws pcrt::Failure (PCRT_USAGE) at a flag that no tool has.
Request readCommandLine(const FlagKinds &kinds, int argc, char **argv);

/// Reads a TOML file of flags without their dashes, and `model`: `mesh = "dp=2"`, `steps = 100`, `shuffle = true`, and
/// for a repeated flag `group = ["*.bias:decay=0", "wpe.*:lr=2x"]`. Throws pcrt::Failure (PCRT_USAGE), naming the file
/// and the line.
Request readConfig(const FlagKinds &kinds, const std::string &path);

/// Adds to `request` what only `other` has: its model, and each flag that `request` does not give.
void addMissing(Request &request, const Request &other);

/// The file that readConfig reads back to the same request.
std::string writtenAsConfig(const FlagKinds &kinds, const Request &request);

#endif
