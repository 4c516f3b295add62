//===- Tactic.h - A pass of a plan, with its options --------------------------------------===//
// A plan keeps its tactics as they were written, such as "pc-zero{axis=dp stage=3}". The text is parsed once, here, and
// options are read from the result. An option that is not written has the default of the pass (Passes.td).
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_TACTIC_H
#define PC_PLAN_TACTIC_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace pc {

struct TacticInfo;

class Tactic {
public:
  Tactic(std::string text);
  Tactic(const char *text) : Tactic(std::string(text)) {}
  Tactic(llvm::StringLiteral pass) : Tactic(pass.str()) {}

  /// The tactic as it was written.
  const std::string &text() const { return written; }
  /// The name of the pass, such as "pc-zero".
  llvm::StringRef pass() const { return name; }
  /// The row in the table of Tactics.cpp, or null if the pass is not a tactic.
  const TacticInfo *info() const;
  /// This tactic as a type of TypedTactics.h, if it has the pass of that type.
  template <typename Typed> std::optional<Typed> as() const {
    return name == Typed::pass ? std::optional<Typed>(*this) : std::nullopt;
  }
  /// The value of an option, such as "dp" for `axis`, or the pass's default. "" if the pass has no such option.
  llvm::StringRef option(llvm::StringRef key) const;
  /// The values of an option that holds a comma-separated list, such as "row,col" for `axis`.
  llvm::SmallVector<llvm::StringRef> list(llvm::StringRef key) const;
  /// The value of an option as a number, if it is one.
  std::optional<int64_t> number(llvm::StringRef key) const;
  /// The mesh axis over which the tactic works, or several, separated by commas.
  llvm::StringRef axis() const { return option("axis"); }
  llvm::SmallVector<llvm::StringRef> axes() const { return list("axis"); }
  /// Whether the tactic splits experts over its axis, possibly together with other dims.
  bool splitsExperts() const;
  /// A copy that predicts times for `machine`, if the pass has such an option and the tactic does not set it.
  Tactic onMachine(llvm::StringRef machine) const;
  /// Whether the text of the tactic sets this option; else it has its default.
  bool says(llvm::StringRef key) const { return find(key) != nullptr; }
  /// A copy in which option `key` is `value`, at its old position or after the other options.
  Tactic with(llvm::StringRef key, llvm::StringRef value) const;

  bool operator==(const Tactic &other) const { return written == other.written; }
  bool operator<(const Tactic &other) const { return written < other.written; }

private:
  struct Option {
    std::string key, value;
  };
  const Option *find(llvm::StringRef key) const;
  /// The registered pass with the defaults of all its options. It has no options if there is no such pass.
  static const Tactic &defaultsOf(llvm::StringRef pass);

  std::string written, name;
  llvm::SmallVector<Option, 2> options; ///< as they were written
};

} // namespace pc

#endif
