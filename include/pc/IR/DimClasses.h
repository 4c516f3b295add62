//===- DimClasses.h - Dims that are the same iteration dim of the program -----------===//
// Union-find over (value, dim), joined through the factors of every op, and from the inputs to the results of
// accumulate. A class is one iteration dim of the whole program, such as the batch or the vocabulary. Its size can only
// be changed in the whole program at once.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_DIMCLASSES_H
#define PC_IR_DIMCLASSES_H

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"

namespace pc {

/// Input: a program. Result: a number per (value, dim), which is equal for dims that must have one size. The classes
/// are built once; values that are added to the program later have none.
class DimClasses {
public:
  /// Finds the classes of the dims of all values under `root`.
  explicit DimClasses(mlir::Operation *root);
  /// The class of dim `d` of `value`. It is valid until the program changes.
  unsigned classOf(mlir::Value value, int64_t d);
  /// Sets the size of every dim of class `id`, in the types of the program.
  void resize(unsigned id, int64_t size);

private:
  /// Classes are trees (union-find). A node is a dim of a value, and the root of its tree is the number of its class.
  unsigned node(mlir::Value value, int64_t d);
  unsigned find(unsigned n);
  void join(unsigned a, unsigned b);

  llvm::DenseMap<mlir::Value, unsigned> first; ///< node of dim 0; the other dims follow
  llvm::SmallVector<unsigned> parent;
};

/// Whether the dims of `factor` have different sizes, because `op` is a reshape that divides or merges them. Then only
/// blocks of these dims correspond to each other, not their indices.
bool isDivided(mlir::Operation *op, const FactorRule &rule, int factor);

} // namespace pc

#endif
