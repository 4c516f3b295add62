//===- Digest.h - Programs as numbers ---------------------------------------------------------===//
// A digest tells whether a program was edited or is the same as another one. The list of a program's collectives goes
// into the certificate of a compilation. Neither depends on addresses or on the order of hash tables.
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

/// Those of a program of any phase: all of its ops, attributes and types, in their order; no locations, names of
/// values, pc.plan, or attributes of the module itself.
std::string digestOf(mlir::ModuleOp program);

/// An attribute of a module: the digest of the program as a tool of this compiler has written it.
inline constexpr llvm::StringLiteral digestAttribute = "pc.digest";

/// Whether a program that began with a model's config.json is another than the one that a tool has written, but for the
/// place of its weights: it was edited. None for a program that was written by hand.
std::optional<bool> wasEdited(mlir::ModuleOp program);

/// Says in the module which program it is, for `wasEdited`; `edited`: one that was, and stays so.
void noteDigest(mlir::ModuleOp program, bool edited = false);

/// The moves of a program (a stage, or all there is) in the order in which a rank of it issues them, calls of functions
/// and the end of a round of local SGD included: "all_gather on dp,tp f32 1x8x64x1x1", and what else their row in an
/// executable's table says.
std::vector<std::string> collectivesOf(mlir::ModuleOp program);

} // namespace pc

#endif
