//===- PlacedLayers.h - Few layers, placed once for all batches ------------------------------===//
// Placement takes most of the time of a small compile, and it is usually the same for all numbers of sequences that the
// axes divide. However, the number can decide whether activations or gradients are smaller, and therefore which of them
// are sent. So a program is placed for few and for many sequences. If both have the same placement, this placement is
// used for all numbers in between (except in grids).
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_PLACEDLAYERS_H
#define PC_LIB_SEARCH_PRICE_PLACEDLAYERS_H

#include "../Space/FewLayers.h"
#include "pc/Driver/Compile.h"
#include <map>
#include <vector>

namespace pc {

/// Places programs of few layers and keeps them. Input: a plan, a number of layers and of sequences. Result: a placed
/// program. Invariant: a resized program has the placement that its own compile would give.
class PlacedLayers {
public:
  explicit PlacedLayers(const FewLayers &few) : few(few) {}

  /// Returns the placed program of `layers` layers and `sequences` sequences per step, with the plan of `options`.
  /// Returns null if the plan is refused, or if its axes do not divide the sequences.
  mlir::OwningOpRef<mlir::ModuleOp> take(const CompileOptions &options, int64_t layers, int64_t sequences);

private:
  struct Placed {
    mlir::OwningOpRef<mlir::ModuleOp> module; ///< null: refused
    size_t form = 0;                          ///< a hash of its ops and where their results are, without sizes
    /// For each value, in the order of a walk: the dim of a microbatch's sequences, or -1.
    std::vector<int> batchDims;
    int64_t parts = 1; ///< a common multiple of the numbers of parts into which axes split this dim
  };
  using BySequences = std::map<int64_t, Placed>; ///< key: the sequences of a microbatch
  void place(BySequences &known, const CompileOptions &options, int64_t layers, int64_t sequences);

  const FewLayers &few;
  std::map<std::pair<std::string, int64_t>, BySequences> known; ///< key: plan and number of layers
};

} // namespace pc

#endif
