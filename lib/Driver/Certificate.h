//===- Certificate.h - The record of the programs that an executable was made from ----------===//
// docs/what-is-proved.md describes its contents; pc-check-certificate reads it without this code.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_DRIVER_CERTIFICATE_H
#define PC_LIB_DRIVER_CERTIFICATE_H

#include "mlir/IR/BuiltinOps.h"
#include "pc/Plan/Phases.h"
#include "llvm/Support/JSON.h"

namespace pc {

class Certificate {
public:
  /// Adds a program as it is after a phase. `how`: "proved", "given" (later ones are proved to compute what it
  /// computes), or "unproved".
  void add(Phase phase, mlir::ModuleOp program, llvm::StringRef how);
  /// The tables have been compared with the planned program.
  void tablesAreReadBack() { readBack = true; }
  /// Ends it, with the tables of a program of the phase kernels, into which it is written.
  void finish(mlir::ModuleOp kernels, llvm::StringRef plan, llvm::StringRef step);

  /// Writes the entries so far, with a hash of the program, into a program of the phase kernels: pc.certificate, with
  /// which a compile can continue from it. Nothing where the tables have not been compared.
  void carry(mlir::ModuleOp kernels) const;
  /// What take() has found.
  enum class Carried { Nothing, Intact, Edited };
  /// Takes what a program of the phase kernels carries, if the program is still the one that it was written for.
  Carried take(mlir::ModuleOp kernels);
  /// Whether it says nothing of any phase.
  bool empty() const { return phases.empty(); }

private:
  llvm::json::Array phases, collectives;
  std::string chain;
  bool readBack = false;
};

} // namespace pc

#endif
