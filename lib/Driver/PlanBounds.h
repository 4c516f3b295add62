//===- PlanBounds.h - What plans cannot stay below --------------------------------------------===//
#ifndef PC_LIB_DRIVER_PLANBOUNDS_H
#define PC_LIB_DRIVER_PLANBOUNDS_H

#include "ComposePlan.h"
#include <set>

namespace pc {

/// Bounds of the seconds and bytes of plans, by what their flags say and by cores that were priced.
///
/// Ranks that split a layer further never need fewer seconds together: what is known of a split is a bound for all
/// that split its axes further, or along axes besides.
class PlanBounds {
public:
  PlanBounds(mlir::MLIRContext *context, const StepWork &work, int64_t layers, int64_t ranks,
             const MachineModel &machine)
      : context(context), work(work), layers(layers), ranks(ranks), machine(machine) {}

  /// Whether there are layers enough for the plan's chunks: an embedding and a head may be chunks of their own.
  bool hasLayersFor(const Plan &plan) const {
    PlanShape shape = shapeOf(plan);
    return shape.stages < 2 || shape.stages * shape.chunks <= layers + 2;
  }
  /// By its flags alone.
  double ofShape(const Plan &plan) const { return leastSeconds(work, shapeOf(plan), machine); }
  /// Of all plans of a core of any batch: seconds of a step if nobody ever waited for other stages. Infinite if none of
  /// them is legal.
  double ofSet(const PlanCore &core) const;
  /// Of a plan of that core.
  double ofSet(const PlanCore &core, const Plan &plan) const;
  /// Of a plan whose core was priced.
  double ofCore(const CorePrice &core, const Plan &plan) const;
  /// Bytes of a rank: parameters, gradients and states, and what microbatches have kept for their backward pass:
  /// `activationBytes` of each, in all stages together.
  double leastBytes(const Plan &plan, double activationBytes) const;
  /// The same by what layers keep that nobody splits, as `learnRoot` knows it.
  double leastBytes(const Plan &plan, const PlanCore &core) const;
  /// What is known of layers on one rank, of the tactics that every rank follows alone.
  void learnRoot(const PlanCore &core, const CorePrice &price);
  /// That core, of a plan's: without axes.
  static PlanCore rootOf(const PlanCore &core);

  /// Whether a core of any batch has been priced itself.
  bool knows(const PlanCore &core) const { return priced.count(core.key()); }
  void learn(const PlanCore &core, const CorePrice &price);

private:
  PlanShape shapeOf(const Plan &plan) const;
  double ofPipeline(double layer, double rest, double optimizer, const Plan &plan) const;

  /// What data ranks send each other in a step: the seconds that it takes them, one after another, and what is lost of
  /// the work beside it, were it all hidden.
  struct Sent {
    double seconds = 0, lost = 0;
  };
  Sent sentOf(const Plan &plan) const;

  /// How a core splits layers.
  struct Split {
    std::map<std::string, int64_t> axes;
    std::map<std::string, llvm::SmallVector<std::string>> tactics; ///< and their axes
    double seconds = 0;                                            ///< of all ranks together, and all microbatches
    double layerShare = 0;                                         ///< of these, those of one layer
    double restSeconds = 0;                                        ///< of all ranks together, besides
    /// Whether `other` splits the same axes no further, and more tactics are over axes that it has not: over one that
    /// it has they may make a split cheaper.
    bool isFurtherThan(const Split &other) const;
  };
  static Split splitOf(const PlanCore &core);

  /// The bound that says most for a core.
  Split known(const PlanCore &core) const;

  mlir::MLIRContext *context;
  StepWork work;
  int64_t layers, ranks;
  const MachineModel &machine;
  /// Of layers on one rank, by tactics.
  struct Root {
    double seconds = 0; ///< of all sequences
    double bytes = 0;   ///< that a sequence keeps
  };
  std::map<std::string, Root> roots;
  std::vector<Split> splits;
  std::set<std::string> priced;
};

} // namespace pc

#endif
