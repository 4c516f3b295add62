//===- MeshText.h - A mesh as users write it -----------------------------------------------===//
// The only grammar for --mesh, plan files and pc-set-mesh: axes separated by commas, the outermost first. A name is a
// letter followed by letters, digits and `_`.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_MESHTEXT_H
#define PC_IR_MESHTEXT_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace pc {

/// One axis as it was written: a name and a size, or a word instead of the size.
struct MeshAxisText {
  std::string name;
  int64_t size = 1;
  bool isSearched = false; ///< "dp=?": --auto finds the size
  bool isOpen = false;     ///< "outer=open": replicas join and leave during a run; a program is for one replica
};

/// Reads "dp=2,tp=?,outer=open"; an empty text has no axes. On failure, sets `error` and returns std::nullopt.
std::optional<llvm::SmallVector<MeshAxisText>> parseMesh(llvm::StringRef text, std::string &error);

} // namespace pc

#endif
