//===- FewLayers.h - A model with fewer of its layers --------------------------------------===//
// Input: a model program. Result: the same model with any number of its layers and any number of sequences. Invariant:
// layers are equal except for their weights, so that seconds and bytes of a step are affine in their number.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_SPACE_FEWLAYERS_H
#define PC_LIB_SEARCH_SPACE_FEWLAYERS_H

#include "pc/IR/PC.h"
#include <map>
#include <optional>
#include <set>

namespace pc {

/// A model program whose layers are equal except for their weights: each takes one value of the layer before it and
/// hands one on. Names say which ops are a layer's (Layers.h). A model may have several chains of layers, as an encoder
/// and a decoder: then a layer is one of each, or several, so that all chains have the same number of them.
class FewLayers {
public:
  /// Nothing where the layers are not so, or some are not like the others of their chain.
  static std::optional<FewLayers> of(mlir::ModuleOp model);

  int64_t layers() const { return count; }
  bool hasOneChain() const { return ofChain.size() == 1; }
  /// The layers of all chains.
  int64_t layersOfChains() const;
  /// Bytes of the value that a layer passes to the next one.
  double layerBytes() const;
  /// Bytes of each parameter of a layer that is trained, and of all of them together.
  llvm::SmallVector<double> layerParameters() const;
  double layerParameterBytes() const;
  /// Builds the model with `layers` of its layers, at least one, and a batch of `batch` sequences.
  mlir::OwningOpRef<mlir::ModuleOp> take(int64_t layers, int64_t batch) const;

private:
  FewLayers(mlir::ModuleOp model, int64_t count, llvm::SmallVector<int64_t> ofChain)
      : model(model), count(count), ofChain(std::move(ofChain)) {}
  /// The model with `layers` layers and all its sequences; kept for the next call.
  mlir::ModuleOp cut(int64_t layers) const;

  mlir::ModuleOp model;
  int64_t count;
  llvm::SmallVector<int64_t> ofChain; ///< layers of each chain that are one of `count`
  mutable std::map<int64_t, mlir::OwningOpRef<mlir::ModuleOp>> cuts;
};

/// The sequences of a model's step; 1 where its inputs are not sequences.
int64_t batchOf(mlir::ModuleOp model);
/// Whether its inputs are sequences.
bool hasSequences(mlir::ModuleOp model);
/// The sizes of the dims of its values.
std::set<int64_t> dimsOf(mlir::ModuleOp model);
/// Whether a model computes with something that it has summed over its sequences, as the loss of an uneven load of
/// experts does: then its loss is another one with other microbatches.
bool mixesSequences(mlir::ModuleOp model);

} // namespace pc

#endif
