//===- FewLayers.h - A model with fewer of its layers --------------------------------------===//
// Input: a model program. Result: the same model with any number of its layers and any number of sequences. Invariant:
// layers are equal except for their weights, so seconds and bytes of a step are affine in the number of layers.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_SPACE_FEWLAYERS_H
#define PC_LIB_SEARCH_SPACE_FEWLAYERS_H

#include "pc/IR/PC.h"
#include <map>
#include <optional>
#include <set>

namespace pc {

/// A model program whose layers are equal except for their weights: each reads one value of the layer before it and
/// passes one value on. Names say which ops belong to a layer (Layers.h). If a model has several chains of layers, such
/// as an encoder and a decoder, a "layer" here is one layer of each chain, or several, so that all chains have the same
/// number.
class FewLayers {
public:
  /// Returns std::nullopt if the layers do not have this form, or if a layer differs from others of its chain.
  static std::optional<FewLayers> of(mlir::ModuleOp model);

  int64_t layers() const { return count; }
  bool hasOneChain() const { return ofChain.size() == 1; }
  /// The number of layers in all chains.
  int64_t layersOfChains() const;
  /// Bytes of the value that a layer passes to the next one.
  double layerBytes() const;
  /// Returns the bytes of each trained parameter of a layer (`layerParameters`), or of all of them together
  /// (`layerParameterBytes`).
  llvm::SmallVector<double> layerParameters() const;
  double layerParameterBytes() const;
  /// Builds the model with `layers` of its layers, at least one, and a batch of `batch` sequences.
  mlir::OwningOpRef<mlir::ModuleOp> take(int64_t layers, int64_t batch) const;

private:
  FewLayers(mlir::ModuleOp model, int64_t count, llvm::SmallVector<int64_t> ofChain)
      : model(model), count(count), ofChain(std::move(ofChain)) {}
  /// Returns the model with `layers` layers and all its sequences, and keeps it for the next call.
  mlir::ModuleOp cut(int64_t layers) const;

  mlir::ModuleOp model;
  int64_t count;
  llvm::SmallVector<int64_t> ofChain; ///< for each chain, how many of its layers form one of the `count` layers
  mutable std::map<int64_t, mlir::OwningOpRef<mlir::ModuleOp>> cuts;
};

/// The sequences of a model's step; 1 if its inputs are not sequences.
int64_t batchOf(mlir::ModuleOp model);
/// Whether the model's inputs are sequences.
bool hasSequences(mlir::ModuleOp model);
/// The sizes of all dims of the model's values.
std::set<int64_t> dimsOf(mlir::ModuleOp model);
/// Whether a model computes with a sum over its sequences, as the loss of an uneven load of experts does. Then its loss
/// depends on the number of microbatches.
bool mixesSequences(mlir::ModuleOp model);

} // namespace pc

#endif
