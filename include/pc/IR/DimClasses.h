//===- DimClasses.h - Which dims of a program iterate together ---------------------===//
// Union-find over (value, dim), joined through the factors of every op, the inputs of accumulate and its results. A class is one
// iteration dim of the whole program (the batch, the vocabulary), so that its size can be changed everywhere at once.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_DIMCLASSES_H
#define PC_IR_DIMCLASSES_H

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"

namespace pc {

class DimClasses {
public:
  /// All values under `root`.
  explicit DimClasses(mlir::Operation *root);
  /// The class of dim `d` of `value`: a number that is stable until the program changes.
  unsigned classOf(mlir::Value value, int64_t d);
  /// Gives every dim of class `id` the size `size`, by changing types in place.
  void resize(unsigned id, int64_t size);

private:
  unsigned node(mlir::Value value, int64_t d);
  unsigned find(unsigned n);
  void join(unsigned a, unsigned b);

  llvm::DenseMap<mlir::Value, unsigned> first; ///< node of dim 0; the other dims follow
  llvm::SmallVector<unsigned> parent;
};

} // namespace pc

#endif
