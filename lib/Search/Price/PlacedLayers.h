//===- PlacedLayers.h - Few layers, placed once for all batches ------------------------------===//
// Most of a small compile goes into its placement, which does not depend on how many sequences there are as long as the
// axes that split them divide them (but that of a grid, where weights or what is as large as sequences may be sent). So
// a program is placed once, with sequences that all its axes divide, and then gets those that were asked for.
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

  /// The placed program of `layers` layers and so many sequences a step, by the plan of `options`. Null where it cannot
  /// be had so: the plan is refused, or its axes do not divide the sequences.
  mlir::OwningOpRef<mlir::ModuleOp> take(const CompileOptions &options, int64_t layers, int64_t sequences);

private:
  struct Placed {
    mlir::OwningOpRef<mlir::ModuleOp> module; ///< null: refused
    /// Of each value, in the order of a walk: the dim that is the sequences of a microbatch, or -1.
    std::vector<int> batchDims;
    int64_t parts = 1; ///< into which axes split it, at most, and their common multiples
  };
  void place(Placed &placed, const CompileOptions &options, int64_t layers);

  const FewLayers &few;
  std::map<std::pair<std::string, int64_t>, Placed> known; ///< by plan and number of layers
};

} // namespace pc

#endif
