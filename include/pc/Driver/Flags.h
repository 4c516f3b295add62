//===- Flags.h - What a compile can be asked for, by name ---------------------------------===//
// pc-compile and the phases' pipelines in pc-opt have the same flags, under the same names. Strategy flags come from
// the rows of the tactics; the others are fields of CompileOptions (Flags.cpp).
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
  /// If `ofTool` is true, the flags are also flags of the tool's command line.
  explicit CompileFlags(bool ofTool = false);

  /// Returns the words of a command line. If a flag needs no value but the next word is one of its values, joins the
  /// two: `--pipeline gpipe` becomes `--pipeline=gpipe`, while `--pipeline model.mlir` stays two words.
  std::vector<const char *> words(int argc, const char *const *argv);

  /// Checks the flags that were given, and sets `options`. Returns the kind of an error, and writes its text to
  /// `error`; the text is empty if a diagnostic about a plan file was already emitted. `context` is used to read a plan
  /// file; if it is null, one is created. `origin` describes a program of a later phase: flags of finished phases are
  /// refused, and the others are added to the program's plan.
  pcrt_status resolve(mlir::MLIRContext *context, CompileOptions &options, std::string &error,
                      const Origin &origin = {});

  /// The input files that flags name: a plan, a machine and a schedule.
  std::vector<pcrt::NamedPath> inputFiles() const;

private:
  bool given(llvm::StringRef flag) const { return llvm::is_contained(order, flag); }
  pcrt_status check(std::string &error) const;
  /// Takes the target of `origin`. Returns the reason if a given flag comes too late, otherwise "".
  std::string goOn(const Origin &origin);

  template <typename T, typename... Mods>
  Option<T> &flag(llvm::StringRef name, const llvm::Twine &description, Mods &&...mods);
  template <typename T> void field(T &field, llvm::StringRef name, const llvm::Twine &description);
  void list(llvm::SmallVectorImpl<std::string> &field, llvm::StringRef name, const llvm::Twine &description);
  /// Registers a flag that may be repeated. Its texts are joined in `field`, with spaces in between.
  void repeated(std::string &field, llvm::StringRef name, const llvm::Twine &description);
  void bytes(int64_t &field, llvm::StringRef name, const llvm::Twine &description);
  void strategy(const TacticFlag &flag, const llvm::Twine &description, llvm::ArrayRef<TacticForm> forms = {});
  void strategies();

  const bool ofTool;
  FlagGroup group = FlagGroup::Plan; ///< the group of the flags that follow
  Phase phase = Phase::Step;         ///< the flags that follow may be given only before this phase begins
  std::deque<std::string> texts;     ///< names and descriptions, which options refer to
  std::vector<std::unique_ptr<llvm::cl::Option>> flags;
  std::vector<std::string> order; ///< the flags that were given, in order
  std::map<std::string, Phase> phaseOf;
  /// The values of flags that may be given without one.
  std::map<std::string, std::vector<std::string>, std::less<>> namesOf;

  CompileOptions fields;
  StrategyFlags strategyFlags;
  std::string mode = "train", planFile;
  GenerateStepsOptions generation;
  struct Bytes {
    std::string name, text;
    int64_t *field;
  };
  std::vector<Bytes> byteFlags; ///< as they were given
};

} // namespace pc

#endif
