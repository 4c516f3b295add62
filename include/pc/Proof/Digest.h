//===- Digest.h - Hashes of programs ----------------------------------------------------------===//
// A digest shows whether a program was edited, or equals another one. The list of a program's collectives goes into the
// certificate of a compilation. Neither depends on addresses or on the order of hash tables.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PROOF_DIGEST_H
#define PC_PROOF_DIGEST_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <vector>

namespace pc {

/// 32 hexadecimal digits of BLAKE3.
std::string digestOf(llvm::StringRef bytes);

/// The digest of a program of any phase. It covers all ops, attributes and types, in order, but not locations, names of
/// values, pc.plan, or attributes of the module itself.
std::string digestOf(mlir::ModuleOp program);

/// An attribute of a module: the digest of the program as a tool of this compiler wrote it.
inline constexpr llvm::StringLiteral digestAttribute = "pc.digest";

/// Whether a program that came from a model's config.json was edited: it differs from the program that a tool wrote, in
/// more than the path of its weights. Returns nullopt for a program that was written by hand.
std::optional<bool> wasEdited(mlir::ModuleOp program);

/// Records the digest in the module, for `wasEdited`. If `edited` is true, the program was edited, and the record must
/// still show this.
void noteDigest(mlir::ModuleOp program, bool edited = false);

/// The moves of a program (or of one stage) in the order in which a rank issues them, including those in called
/// functions and at the end of a round of local SGD. An entry is "all_gather on dp,tp f32 1x8x64x1x1" and the other
/// fields of the move in an executable's table.
std::vector<std::string> collectivesOf(mlir::ModuleOp program);

} // namespace pc

#endif
