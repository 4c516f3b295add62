//===- Float8Scales.h - Scales of whole tensors for operands of 8 bits ---------------------===//
#ifndef PC_LIB_AUTODIFF_FLOAT8SCALES_H
#define PC_LIB_AUTODIFF_FLOAT8SCALES_H

#include "pc/IR/PC.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

namespace pc {

/// What an operand of a product is. Each has its own history.
enum class Float8Operand { Matrix, Input, Gradient };

/// How scales of whole tensors are chosen.
enum class Float8Scaling { Current, Delayed };

/// Chooses one scale per operand. With `Current`, it follows from the operand's largest magnitude. With `Delayed`, it
/// follows from the largest magnitudes of the last steps, which are a state of the product's matrix. Both are
/// Transformer Engine's recipes, with scales that are powers of two.
class Float8Scales {
public:
  Float8Scales(AccumulateOp accumulate, Float8Scaling how);

  /// Returns the scale of `x`, an operand of a product with `matrix`, as a scalar. It is computed before the insertion
  /// point of `builder`, which is before the first reader of the scale. Its ops have the location of the product.
  mlir::Value scaleOf(mlir::OpBuilder &builder, mlir::Location product, mlir::Value x, mlir::Type format,
                      Float8Operand operand, ParameterOp matrix);

  /// Records that a product with `matrix` also reads `x`, which has a scale already. So which matrices have histories
  /// does not depend on whether products are packed.
  void addReader(mlir::Location product, mlir::Value x, Float8Operand operand, ParameterOp matrix);

  /// Adds the update of all histories, after the last call of scaleOf. Builds the accumulation again, since it also
  /// yields the magnitudes of each microbatch. A step that is skipped keeps them. Fails with an error if a matrix
  /// cannot have states.
  mlir::LogicalResult keepHistories();

private:
  /// The history of an operand of products with a matrix.
  struct History {
    StateOp state;
    mlir::Value bySteps;                                                 ///< a magnitude per step
    mlir::Value recent;                                                  ///< the largest of them, if it is needed
    llvm::SmallVector<std::pair<mlir::Value, mlir::Location>, 1> values; ///< with their products
    llvm::DenseMap<mlir::Type, mlir::Value> scales;                      ///< by format
  };
  History &historyOf(ParameterOp matrix, Float8Operand operand);
  mlir::Value number(double value, llvm::ArrayRef<int64_t> shape = {});
  mlir::Value largest(mlir::Value x);
  mlir::Value finite(mlir::Value magnitude);
  mlir::Value microbatchRows(int64_t microbatches);
  void update(History &history, mlir::Value magnitude, mlir::Value coefficient);
  mlir::RankedTensorType f32(llvm::ArrayRef<int64_t> shape) const;

  AccumulateOp accumulate;
  const Float8Scaling how;
  mlir::OpBuilder builder;
  mlir::Location loc; ///< of the ops that are built
  llvm::MapVector<std::pair<mlir::Operation *, int>, History> histories;
};

} // namespace pc

#endif
