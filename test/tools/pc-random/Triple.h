//===- Triple.h - A random model, mesh and order of tactics ---------------===//
// The subject of a random test: a model of a known family with a plan.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_RANDOM_TRIPLE_H
#define PC_TOOLS_RANDOM_TRIPLE_H

#include "pc/Driver/Compile.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <optional>
#include <string>

/// A small model of a random family, a mesh of 2 to 12 ranks, and tactics in a random order that the model's sizes
/// allow. The same seed draws the same triple on every machine.
struct Triple {
  std::string config; ///< config.json
  int64_t batch, sequence, vocabulary;
  std::optional<int64_t> capacity;  ///< of experts
  std::optional<int64_t> documents; ///< the token that ends documents, if a sequence has several
  bool sparse = false;              ///< every third target does not count
  pc::CompileOptions options;       ///< plan, optimizer and overlap
  bool cse;                         ///< whether equal ops of the step become one

  /// adamw, sgd or none.
  std::string optimizer() const { return options.train ? options.step.optimizer : "none"; }

  explicit Triple(uint64_t seed);
  /// The model program, or null after an error was emitted.
  mlir::OwningOpRef<mlir::ModuleOp> model(mlir::MLIRContext *context) const;
  /// One line: family, sizes and plan.
  std::string text() const;
};

#endif
