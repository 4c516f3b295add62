//===- Certificate.h - The record of the programs that an executable was made from ----------===//
// docs/what-is-proved.md describes the contents of a certificate. pc-check-certificate has its own reader.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_DRIVER_CERTIFICATE_H
#define PC_LIB_DRIVER_CERTIFICATE_H

#include "mlir/IR/BuiltinOps.h"
#include "pc/Plan/Phases.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// Collects the entries of a certificate during a compilation. Input: the program after each phase, and how it was
/// checked. Result: an attribute of the program of phase kernels.
class Certificate {
public:
  /// Adds the program after a phase. `how` is "proved", "given" (later programs are proved to compute the same as this
  /// one), or "unproved".
  void add(Phase phase, mlir::ModuleOp program, llvm::StringRef how);
  /// Records that the tables were compared with the planned program.
  void tablesAreReadBack() { readBack = true; }
  /// Completes the certificate with the tables of a program of phase kernels, and writes it into this program.
  void finish(mlir::ModuleOp kernels, llvm::StringRef plan, llvm::StringRef step);

  /// Writes pc.certificate into a program of phase kernels: the entries so far and a hash of the program, so that a
  /// compile can continue from it. Does nothing if the tables were not compared.
  void carry(mlir::ModuleOp kernels) const;
  /// The result of take().
  enum class Carried { Nothing, Intact, Edited };
  /// Reads pc.certificate from a program of phase kernels, if the program was not edited since.
  Carried take(mlir::ModuleOp kernels);
  /// Whether it has no entries.
  bool empty() const { return phases.empty(); }

private:
  llvm::json::Array phases, collectives;
  std::string chain;
  bool readBack = false;
};

} // namespace pc

#endif
