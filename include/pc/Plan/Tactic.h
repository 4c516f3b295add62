//===- Tactic.h - A pass of a plan, with its options --------------------------------------===//
// A plan keeps its tactics as they were written, "pc-zero{axis=dp stage=3}". The text is parsed once, here, and options
// are read from the result. An option that is not written has the pass's own default (Passes.td).
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_TACTIC_H
#define PC_PLAN_TACTIC_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace pc {

struct TacticInfo;

class Tactic {
public:
  Tactic(std::string text);
  Tactic(const char *text) : Tactic(std::string(text)) {}

  /// As it was written.
  const std::string &text() const { return written; }
  /// "pc-zero".
  llvm::StringRef pass() const { return name; }
  /// Its row of Tactics.cpp, or null where the pass is no tactic.
  const TacticInfo *info() const;
  /// The value of an option, "dp" of `axis`, or the pass's default; "" where the pass has no such option.
  llvm::StringRef option(llvm::StringRef key) const;
  /// A list with commas between as an option: "row,col" of `axis`.
  llvm::SmallVector<llvm::StringRef> list(llvm::StringRef key) const;
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
