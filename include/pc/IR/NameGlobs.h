//===- NameGlobs.h - Globs that name parameters ---------------------------------------------===//
// Flags name parameters by globs, separated by `|`. A glob fits a name if it fits the whole name or the part after one
// of its dots, so `q_proj.weight`, `h.0.*` and `*.bias` fit names such as "model.h.0.attn.q_proj.weight". PEFT matches
// its targets in the same way. The names are those of tensors in a checkpoint. Instead of a glob, `dim=1`, `dim>=2` and
// `dim<=1` fit parameters by the number of dims of their checkpoint tensors, as p.dim() in PyTorch.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_NAMEGLOBS_H
#define PC_IR_NAMEGLOBS_H

#include "pc/IR/Parts.h"
#include "llvm/Support/GlobPattern.h"

namespace pc {

/// Holds globs and conditions on the number of dims, and records which of them have fitted something so far.
class NameGlobs {
public:
  /// Reads `text`. Fails with `why`, as in "has an empty glob".
  static mlir::FailureOr<NameGlobs> parse(llvm::StringRef text, std::string &why);

  /// Whether a glob fits the name. Records all globs that fit. Conditions on the number of dims fit no name.
  bool fits(llvm::StringRef name);
  /// Whether a glob fits the parameter, or at least one of its checkpoint tensors.
  bool fitsSome(ParameterOp parameter);
  /// Whether the globs fit the parameter's name, or the names of all its checkpoint tensors. Fails with a located error
  /// if the globs fit some of these tensors but not all.
  mlir::FailureOr<bool> fits(ParameterOp parameter);

  llvm::StringRef text() const { return all; }
  /// The first glob that has fitted no name, or an empty text.
  llvm::StringRef unused() const;
  /// Fails with an error that begins with `where` if a glob has fitted no parameter of the module.
  mlir::LogicalResult requireUsed(mlir::ModuleOp module, const llvm::Twine &where) const;

private:
  struct Glob {
    std::string text;
    llvm::GlobPattern pattern;
    std::optional<std::pair<int64_t, int64_t>> dims; ///< instead of a pattern: the fewest and the most dims
    bool isUsed = false;
  };
  bool fitsPart(const ParameterPart &part);
  int64_t countFitting(ParameterOp parameter);
  std::string all;
  llvm::SmallVector<Glob, 0> globs;
};

} // namespace pc

#endif
