//===- Feeds.h - Values of leaves, from names and global indices -----------------------------===//
// A leaf has the same elements in every phase and under every plan: an element depends only on the seed, the leaf's
// name and the element's index in the tensor without padding.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_FEEDS_H
#define PC_REFERENCE_FEEDS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/Parts.h"
#include "pc/Reference/Tensor.h"

namespace pc {

/// The global shape and the placement of a leaf or an output. They come from its type in placed programs, and from its
/// attributes in local ones.
struct LeafLayout {
  Shape global;
  PlaceAttr place; ///< null: whole on every rank
};
LeafLayout leafLayout(mlir::Operation *op, mlir::Value value);

/// Permutes `x` along its sequence dim `dim` from the sequence's own order to the order of the program that contains
/// `op` (zigzag). With `back`, does the inverse.
Tensor reorderSequence(mlir::Operation *op, const Tensor &x, int64_t dim, bool back);

/// Makes random tensors for the leaves of a program. State: the seed, and the vocabulary, batch, padding and packed
/// parameters of the program. Reading a leaf twice gives the same tensor.
class Feeds {
public:
  /// Equal programs and seeds give equal tensors.
  Feeds(mlir::func::FuncOp program, uint64_t seed);

  /// The global tensor that `leaf` (parameter, state, input, rope_table, constant, seed) reads, or failure after an
  /// error:
  /// * parameters, part by part: N(0, 0.3), or N(c, 0.1) if the initial value is a constant c other than zero;
  ///   padding is 0; codes are uniform from -127 to 127, or from -7 to 7;
  /// * states: uniform in [0.001, 0.01); padding is 0;
  /// * tokens and targets: uniform below the vocabulary of `pc.program`, else below the smallest dim named "vocab";
  /// * starts and positions: documents have five tokens on average;
  /// * loss_weights: 0 for a quarter of the targets, 1 / (number of all targets) for the others;
  /// * hyper: lr 1e-2, beta1 .9, beta2 .99, eps 1e-8, weight decay .1, the bias corrections of the first step, clip
  ///   .05, no limit of the norm;
  /// * random: the words of `seed`, step 0.
  llvm::FailureOr<Tensor> read(mlir::Operation *leaf) const;

  /// The shape without padding of a parameter, or of its state. nullopt if there is no padding.
  std::optional<Shape> validShape(llvm::StringRef parameter, StateOp state) const;

  /// The parts of a packed parameter, or of its state. Empty if the parameter is not packed.
  llvm::SmallVector<ParameterPart> packedParts(llvm::StringRef parameter, StateOp state) const;

private:
  Tensor drawParts(llvm::ArrayRef<ParameterPart> parts, llvm::ArrayRef<int64_t> shape, const std::string &prefix,
                   llvm::function_ref<double(uint64_t)> element) const;
  llvm::FailureOr<Tensor> readRandom(InputOp op, const Shape &shape) const;
  Tensor drawDocuments(const Shape &shape, bool starts) const;
  Tensor draw(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, const Shape *valid,
              llvm::function_ref<double(uint64_t)> element) const;

  uint64_t seed;
  int64_t vocabulary = 0, batch = 0;
  llvm::StringMap<ParameterOp> parameters;
};

} // namespace pc

#endif
