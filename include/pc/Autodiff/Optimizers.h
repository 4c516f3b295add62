//===- Optimizers.h - Which optimizer treats a parameter, and its ops -------------------------===//
// AdamW and SGD are ops. All other optimizers are definitions (`pc.optimizer`): those in Optimizers/*.mlir, which are
// part of the compiler, and those in the module.
//===-----------------------------------------------------------------------------===//
#ifndef PC_AUTODIFF_OPTIMIZERS_H
#define PC_AUTODIFF_OPTIMIZERS_H

#include "pc/IR/OptimizerOp.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace pc {

/// Whether an embedding reads the parameter.
bool isTable(ParameterOp parameter);

/// The values that the update of one parameter reads.
struct UpdateOperands {
  ParameterOp parameter;
  mlir::Value gradient, coefficient, hyper;
};

/// Returns a value with the shape of `of` whose elements are all `scalar`.
mlir::Value spread(mlir::OpBuilder &builder, mlir::Value scalar, mlir::Value of);

/// Returns `fresh`, or `old` if the step is skipped. In a skipped step the coefficient is NaN. `all` holds the
/// coefficient for each element.
mlir::Value keepIfSkipped(mlir::OpBuilder &builder, mlir::Value all, mlir::Value fresh, mlir::Value old);

/// The optimizer of a compile.
class Optimizers {
public:
  /// Reads "NAME" or "NAME:SETTING=NUMBER,...", and finds the hidden parameters of `model`. Fails with an error if the
  /// text is wrong, or if a parameter's group names an optimizer that does not exist.
  mlir::LogicalResult read(mlir::ModuleOp module, mlir::func::FuncOp model, llvm::StringRef text);

  /// The optimizer that updates `parameter`: "adamw", "sgd" or the name of a definition.
  mlir::FailureOr<std::string> nameFor(ParameterOp parameter);

  /// Returns the name with the given settings. If the module defines the optimizer, adds a hash of the definition's
  /// text.
  std::string labelOf(llvm::StringRef name) const;

  /// Adds the ops that update a parameter and its states by optimizer `name`. Returns the new value of the parameter.
  mlir::FailureOr<mlir::Value> update(mlir::OpBuilder &builder, const UpdateOperands &operands, llvm::StringRef name);

private:
  struct Copy;
  OptimizerOp find(llvm::StringRef name) const;
  /// Whether the settings of the compile apply to the optimizer `name`: it is the compile's own definition, or an
  /// optimizer to which that definition leaves other parameters.
  bool usesSettings(llvm::StringRef name) const;
  mlir::Value hyperScalar(mlir::OpBuilder &builder, mlir::Value hyper, int number);

  mlir::ModuleOp module;
  mlir::OwningOpRef<mlir::ModuleOp> builtIn;
  std::string name, text; ///< without and with settings
  llvm::StringMap<double> settings;
  llvm::StringSet<> notHidden; ///< names of the tables of embeddings, and of parameters that compute the logits
  llvm::DenseMap<std::pair<mlir::Value, int>, mlir::Value> scalars; ///< numbers of hyper-parameters
  llvm::SmallVector<mlir::Operation *> scalarOps;                   ///< ops that compute other scalars
};

} // namespace pc

#endif
