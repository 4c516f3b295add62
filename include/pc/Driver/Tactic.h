//===- Tactic.h - A pass of a plan, with its options --------------------------------------===//
// A plan keeps its tactics as they were written, "pc-zero{axis=dp stage=3}"; who asks for an option reads it here,
// where the text is taken apart once.
//===-----------------------------------------------------------------------------===//
#ifndef PC_DRIVER_TACTIC_H
#define PC_DRIVER_TACTIC_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace pc {

class Tactic {
public:
  Tactic(std::string text);
  Tactic(const char *text) : Tactic(std::string(text)) {}

  /// As it was written.
  const std::string &text() const { return written; }
  /// "pc-zero".
  llvm::StringRef pass() const { return name; }
  /// The value of an option, "dp" of `axis`, or `otherwise` where it is not given.
  llvm::StringRef option(llvm::StringRef key, llvm::StringRef otherwise = "") const;
  /// The same tactic with this value of an option, in its old one's place or behind the others.
  Tactic with(llvm::StringRef key, llvm::StringRef value) const;

  bool operator==(const Tactic &other) const { return written == other.written; }
  bool operator<(const Tactic &other) const { return written < other.written; }

  /// Whether it changes the step before it is placed.
  bool isOfStep() const { return name == "pc-mixed-precision" || name == "pc-recompute" || name == "pc-zigzag"; }
  /// Whether it cuts the placed program into stages.
  bool cutsStages() const { return name == "pc-pipeline-parallel"; }
  /// Whether it says how moves of the local program are made.
  bool isOfMoves() const { return name == "pc-window-moves"; }

private:
  struct Option {
    std::string key, value;
  };

  std::string written, name;
  llvm::SmallVector<Option, 2> options; ///< as they were given
};

} // namespace pc

#endif
