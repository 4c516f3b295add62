//===- Triple.h - A random model, mesh and order of tactics ------------------------------===//
#ifndef PC_TOOLS_GENERATE_TRIPLE_H
#define PC_TOOLS_GENERATE_TRIPLE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>
#include <vector>

/// A small model of a random family, a mesh of 2 to 12 ranks, and tactics in a random order that the model's sizes
/// allow. The same seed draws the same triple on every machine.
struct Triple {
  std::string config; ///< config.json
  int64_t batch, sequence, vocabulary, microbatches;
  std::string optimizer;            ///< adamw, sgd or none
  bool bf16;                        ///< mixed precision
  std::string mesh;                 ///< "x=2,y=3"
  std::vector<std::string> step;    ///< passes from model to step
  std::vector<std::string> tactics; ///< of the plan: those of the step, then those that place
  std::vector<std::string> placed;  ///< passes from step to placed
  std::vector<std::string> late;    ///< passes from placed to planned

  explicit Triple(uint64_t seed);
  /// The model program, or null after an error was emitted.
  mlir::OwningOpRef<mlir::ModuleOp> model(mlir::MLIRContext *context) const;
  /// One line: family, sizes and passes.
  std::string text() const;
};

#endif
