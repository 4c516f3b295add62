//===- Flags.h - What a compile can be asked for, by name ---------------------------------===//
// One set of names for the flags of pc-compile and the options of the phases' pipelines in pc-opt: the strategy flags
// come from the rows of the tactics, the others are fields of CompileOptions (Flags.cpp).
//===-----------------------------------------------------------------------------===//
#ifndef PC_DRIVER_FLAGS_H
#define PC_DRIVER_FLAGS_H

#include "mlir/Pass/PassOptions.h"
#include "pc/Driver/Compile.h"
#include "pc/Driver/Origin.h"
#include "pc/Plan/Tactics.h"
#include "pcrt/outputs.h"

namespace pc {

/// The groups of pc-compile's --help.
enum class FlagGroup { Plan, Output, Target, Tuning };
llvm::cl::OptionCategory &categoryOf(FlagGroup group);

/// The flags of one command line or pipeline. The constructor registers them, LLVM parses their texts into `fields`,
/// `strategyFlags` and `byteFlags`, and resolve() checks them together and returns CompileOptions. `order` remembers
/// which flags were given, because a flag that was not given may take its value from a plan file or from the program.
class CompileFlags : public mlir::PassPipelineOptions<CompileFlags> {
public:
  /// `ofTool`: they are also flags on the tool's command line.
  explicit CompileFlags(bool ofTool = false);

  /// The words of a command line, where a value that follows a flag which needs none is joined to it if the flag has
  /// such a name: `--pipeline gpipe` is `--pipeline=gpipe`, while `--pipeline model.mlir` is two words.
  std::vector<const char *> words(int argc, const char *const *argv);

  /// What was given, checked, in `options`. After an error its kind; `error` says why, or is empty where a plan file
  /// had a diagnostic. `context` reads a plan file, null: one of its own. `origin`: of a program that is after some
  /// phases, for which flags of these phases are refused and the others add to what is known.
  pcrt_status resolve(mlir::MLIRContext *context, CompileOptions &options, std::string &error,
                      const Origin &origin = {});

  /// The files that flags name, to be read: of a plan, a machine and a schedule.
  std::vector<pcrt::NamedPath> inputFiles() const;

private:
  bool given(llvm::StringRef flag) const { return llvm::is_contained(order, flag); }
  pcrt_status check(std::string &error) const;
  /// Takes the target that `origin` has; returns why a flag that was given comes too late, or "".
  std::string goOn(const Origin &origin);

  template <typename T, typename... Mods>
  Option<T> &flag(llvm::StringRef name, const llvm::Twine &description, Mods &&...mods);
  template <typename T> void field(T &field, llvm::StringRef name, const llvm::Twine &description);
  void list(llvm::SmallVectorImpl<std::string> &field, llvm::StringRef name, const llvm::Twine &description);
  /// A flag that may be repeated: its texts are separated by spaces.
  void repeated(std::string &field, llvm::StringRef name, const llvm::Twine &description);
  void bytes(int64_t &field, llvm::StringRef name, const llvm::Twine &description);
  void strategy(const TacticFlag &flag, const llvm::Twine &description, llvm::ArrayRef<TacticForm> forms = {});
  void strategies();

  const bool ofTool;
  FlagGroup group = FlagGroup::Plan; ///< of the flags that follow
  Phase phase = Phase::Step;         ///< the last one in which they may be given, before it begins
  std::deque<std::string> texts;     ///< names and descriptions, which options refer to
  std::vector<std::unique_ptr<llvm::cl::Option>> flags;
  std::vector<std::string> order; ///< of what was given
  std::map<std::string, Phase> phaseOf;
  std::map<std::string, std::vector<std::string>, std::less<>> namesOf; ///< values of flags that need none

  CompileOptions fields;
  StrategyFlags strategyFlags;
  std::string mode = "train", planFile;
  struct Bytes {
    std::string name, text;
    int64_t *field;
  };
  std::vector<Bytes> byteFlags; ///< as they were given
};

} // namespace pc

#endif
