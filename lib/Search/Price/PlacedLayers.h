//===- PlacedLayers.h - Few layers, placed once for all batches ------------------------------===//
// Most of a small compile goes into its placement, which is mostly the same for all numbers of sequences that the axes
// divide. But what is sent, sequences or a gradient, may depend on which is smaller. So a program is placed for few and
// for many sequences, and if both are placed in the same way, numbers in between get the same placement. (Not so for
// grids.)
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_PLACEDLAYERS_H
#define PC_LIB_SEARCH_PRICE_PLACEDLAYERS_H

#include "../Space/FewLayers.h"
#include "pc/Driver/Compile.h"
#include <map>
#include <vector>

namespace pc {

class PlacedLayers {
public:
  explicit PlacedLayers(const FewLayers &few) : few(few) {}

  /// The placed program of `layers` layers and `sequences` sequences per step, by the plan of `options`. Null if the
  /// plan is refused, or if its axes do not divide the sequences.
  mlir::OwningOpRef<mlir::ModuleOp> take(const CompileOptions &options, int64_t layers, int64_t sequences);

private:
  struct Placed {
    mlir::OwningOpRef<mlir::ModuleOp> module; ///< null: refused
    size_t form = 0;                          ///< a hash of its ops and where their results are, without sizes
    /// For each value, in the order of a walk: the dim that is the sequences of a microbatch, or -1.
    std::vector<int> batchDims;
    int64_t parts = 1; ///< into which axes split it, at most, and their common multiples
  };
  using BySequences = std::map<int64_t, Placed>; ///< of a microbatch
  void place(BySequences &known, const CompileOptions &options, int64_t layers, int64_t sequences);

  const FewLayers &few;
  std::map<std::pair<std::string, int64_t>, BySequences> known; ///< by plan and number of layers
};

} // namespace pc

#endif
