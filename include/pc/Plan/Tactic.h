//===- Tactic.h - A pass of a plan, with its options --------------------------------------===//
// A plan keeps its tactics as they were written, "pc-zero{axis=dp stage=3}". The text is parsed once, here, and options
// are read from the result. An option that is not written has the pass's own default (Passes.td).
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

  /// As it was written.
  const std::string &text() const { return written; }
  /// "pc-zero".
  llvm::StringRef pass() const { return name; }
  /// Its row of Tactics.cpp, or null where the pass is no tactic.
  const TacticInfo *info() const;
  /// As a type of TypedTactics.h, if it is of its pass.
  template <typename Typed> std::optional<Typed> as() const {
    return name == Typed::pass ? std::optional<Typed>(*this) : std::nullopt;
  }
  /// The value of an option, "dp" of `axis`, or the pass's default; "" where the pass has no such option.
  llvm::StringRef option(llvm::StringRef key) const;
  /// A list with commas between as an option: "row,col" of `axis`.
  llvm::SmallVector<llvm::StringRef> list(llvm::StringRef key) const;
  /// An option that is a number, if it is one.
  std::optional<int64_t> number(llvm::StringRef key) const;
  /// The mesh axis over which it works, or several with commas between.
  llvm::StringRef axis() const { return option("axis"); }
  llvm::SmallVector<llvm::StringRef> axes() const { return list("axis"); }
  /// Whether it splits experts over its axis, possibly together with something else.
  bool splitsExperts() const;
  /// Predicts times as on `machine`, if it predicts any and does not say itself what for.
  Tactic onMachine(llvm::StringRef machine) const;
  /// Whether it was written with this option.
  bool says(llvm::StringRef key) const { return find(key) != nullptr; }
  /// A copy of this tactic in which option `key` is `value`, where it was or after the others.
  Tactic with(llvm::StringRef key, llvm::StringRef value) const;

  bool operator==(const Tactic &other) const { return written == other.written; }
  bool operator<(const Tactic &other) const { return written < other.written; }

private:
  struct Option {
    std::string key, value;
  };
  const Option *find(llvm::StringRef key) const;
  /// The registered pass with all its options, which are at their defaults; without any where there is none.
  static const Tactic &defaultsOf(llvm::StringRef pass);

  std::string written, name;
  llvm::SmallVector<Option, 2> options; ///< as they were given
};

} // namespace pc

#endif
