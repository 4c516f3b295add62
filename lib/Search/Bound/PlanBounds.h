//===- PlanBounds.h - Lower bounds on seconds and bytes of plans ------------------------------===//
// Input: the work of a step, and prices of cores, of tasks and of layers on one rank, as they become known. Result:
// lower bounds on the seconds and bytes of plans, on the machine model. The bounds are not proved: Margins.h has their
// margins, and compose.test compares them with whole compiles. Invariant: bounds depend only on the prices that were
// learned.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_BOUND_PLANBOUNDS_H
#define PC_LIB_SEARCH_BOUND_PLANBOUNDS_H

#include "../Price/ComposePlan.h"
#include "../Space/PlanNumbers.h"
#include <set>

namespace pc {

/// Lower bounds for all plans of a core, with any number of microbatches.
struct CoreBound {
  double seconds = 0;          ///< summed over ranks and microbatches; infinite if no plan is legal
  double layerSeconds = 0;     ///< the part of one layer
  double aheadSeconds = 0;     ///< the part before all layers
  double forwardSeconds = 0;   ///< the part of forward passes
  double restSeconds = 0;      ///< outside of microbatches, summed over ranks
  double optimizerSeconds = 0; ///< the part of `restSeconds` that stages also have
  std::string alone;           ///< the work that every rank repeats, as in `PlanNumbers`
};

/// Computes lower bounds of the seconds and bytes of plans, from the plans' flags and from prices of cores.
///
/// Splitting a layer further never reduces the seconds summed over ranks, and neither does working on fewer sequences
/// at a time. So the price of a split is a bound for every split that splits the same axes further, splits along more
/// axes, or divides the sequences into parts.
class PlanBounds {
public:
  /// `few` is null if the model's layers differ.
  PlanBounds(mlir::MLIRContext *context, const StepWork &work, const FewLayers *few, int64_t batch, int64_t ranks,
             const CompileOptions &options, const MachineModel &machine)
      : context(context), inlineOps(static_cast<double>(options.inlineOps)),
        bucketBytes(static_cast<double>(options.schedule.bucketBytes)), work(work), layers(few ? few->layers() : 0),
        hasOneChain(few && few->hasOneChain()), layerBytes(few ? few->layerBytes() : 0),
        layerParameterBytes(few ? few->layerParameterBytes() : 0),
        layerParameters(few ? few->layerParameters() : llvm::SmallVector<double>()), batch(batch), ranks(ranks),
        multipliesFloat8(options.multipliesFloat8()), machine(machine) {}

  /// Returns the bound of a core without data ranks, whose ranks together work on `core.batch` sequences at once.
  CoreBound known(const PlanCore &core) const;

  /// Returns a lower bound that needs only the flags of the plan.
  double ofShape(const PlanNumbers &plan) const { return leastSeconds(work, plan.shape, machine); }
  /// Returns a lower bound for all plans of a core of any batch: the seconds of a step in which no rank waits for other
  /// stages.
  double ofSet(const CoreBound &known) const;
  /// Returns a lower bound for a plan of the core `known`. If a simpler bound reaches `enough`, returns that one.
  double ofSet(const CoreBound &known, const PlanNumbers &plan, double enough) const;
  /// Returns a lower bound for a plan whose core was priced.
  double ofCore(const CorePrice &core, const PlanNumbers &plan) const;
  /// Lower bounds for a plan whose tasks were also priced. To find them, the order of the tasks is simulated.
  struct TaskBound {
    double seconds = 0, bytes = 0;
  };
  /// Several threads may call this function at once, for plans that were passed to `prepare`.
  TaskBound ofTasks(const TaskPrice &tasks, const CorePrice &core, const PlanNumbers &plan) const;
  void prepare(const PlanNumbers &plan) const { trafficOf(plan); }
  /// Whether tasks of a plan's whole program are certainly functions.
  bool callsTasks(const TaskPrice &tasks, const PlanNumbers &plan) const;
  /// Returns a lower bound for the bytes of a rank: parameters, gradients and states, and the values that microbatches
  /// keep for their backward pass. In a stage only layers keep values, because the head's backward pass follows its
  /// forward pass.
  double leastBytes(const PlanNumbers &plan, const CorePrice &core) const;
  /// Returns a lower bound for the bytes of a rank, from the bytes that unsplit layers keep (`learnOneRank`).
  double leastBytes(const PlanNumbers &plan) const;
  /// Records the price of layers on one rank, with the tactics that every rank follows by itself.
  void learnOneRank(const PlanCore &core, const CorePrice &price);
  /// Returns the core without axes, which is for one rank.
  static PlanCore onOneRank(const PlanCore &core);

  /// Estimates the seconds of a plan, in closed form. This is not a bound.
  double guessSeconds(const CoreBound &root, const PlanNumbers &plan) const;

  /// Whether this core, with all sequences, has been priced.
  bool knows(const PlanCore &core) const { return priced.count(core.key()); }
  /// Records the price of a core without data ranks.
  void learn(const PlanCore &core, const CorePrice &price);
  /// Copies the prices that were learned on another machine, for estimates.
  void learnFrom(const PlanBounds &other) {
    oneRankCosts = other.oneRankCosts;
    splits = other.splits;
    priced = other.priced;
  }

private:
  /// Describes the traffic between data ranks in a step: its seconds if moves run one after another, and the seconds by
  /// which it slows down other work if all of it is hidden. Two parts of the seconds are also stored: the sums of a
  /// layer's gradients, if no gradients are sent before the last microbatch, and a gather of the layer's parameters, if
  /// they are gathered once.
  struct DataTraffic {
    double seconds = 0, lost = 0, layerSums = 0, layerGather = 0;
  };
  struct MicrobatchSeconds {
    double layer, rest, ahead, forwardShare; ///< `ahead` is the part of the rest that is not in the last chunk
    bool sends = false; ///< whether the seconds include moves between data ranks for each microbatch
  };
  /// Counts the parameters of a layer that are too large for a bucket if an element takes `width` bytes.
  double sentAlone(const PlanNumbers &plan, double width) const;
  double ofPipeline(const MicrobatchSeconds &seconds, double optimizer, const DataTraffic &traffic,
                    const PlanNumbers &plan, double enough) const;
  DataTraffic trafficOf(const PlanNumbers &plan) const;
  double longestStage(double layer, double rest, const PlanShape &shape) const;

  double heldBy(const PlanNumbers &plan) const;
  /// Returns the bytes of parameters and states on a rank, and also of gradients if `withGradients` is true. All
  /// parameters together have `parameterBytes`.
  double storedBytes(const PlanNumbers &plan, double parameterBytes, bool withGradients) const;
  /// Returns a lower bound for the bytes of a rank. `activationBytes` are the bytes that a microbatch keeps in all
  /// stages together.
  double leastBytes(const PlanNumbers &plan, double activationBytes) const;

  /// How a core splits layers.
  struct Split {
    std::map<std::string, int64_t> axes;
    std::map<std::string, llvm::SmallVector<std::string>> tactics; ///< and their axes
    int64_t sequences = 0, microbatches = 1; ///< sequences of a microbatch; microbatches of the core
    CoreBound price;
    /// Whether this split is at least as fine as `other` on every axis, and uses its additional tactics only on axes
    /// that `other` does not have. (On an axis of `other`, they could make the split cheaper.)
    bool isFurtherThan(const Split &other) const;
  };
  static Split splitOf(const PlanCore &core);
  /// Returns the split of a core, and the same split without the ranks that share tokens. The remaining ranks then do
  /// not have less work.
  static llvm::SmallVector<Split, 2> waysOf(const PlanCore &core);
  /// Returns the seconds, summed over ranks, by which the repeated work of `with` exceeds that of `without`.
  double longerAlone(const std::string &without, const std::string &with) const;
  /// Upper bound for the share of recomputation in a microbatch's seconds. No stage waits for recomputation.
  double recomputedShare(const PlanNumbers &plan) const;

  mlir::MLIRContext *context;
  double inlineOps;   ///< in programs with at most this many ops, tasks are written out
  double bucketBytes; ///< the largest payload of moves that are started together
  StepWork work;
  int64_t layers;
  bool hasOneChain;  ///< the model has one chain of layers; otherwise chunks may have parts of a layer
  double layerBytes; ///< bytes of the value between two layers, for all sequences
  double layerParameterBytes;
  llvm::SmallVector<double> layerParameters; ///< bytes of each parameter of a layer
  int64_t batch, ranks;
  bool multipliesFloat8; ///< products of codes need other orders of matrices, which functions compute in each call
  const MachineModel &machine;
  /// The price of layers on one rank. `oneRankCosts` has one for each text of tactics.
  struct OneRankCost {
    double seconds = 0;                ///< for all sequences
    double bytes = 0, layersBytes = 0; ///< bytes kept per sequence; the part of all layers
  };
  std::map<std::string, OneRankCost> oneRankCosts;
  std::vector<Split> splits;
  std::set<std::string> priced;
  /// The seconds of moves over the data axes of a mesh: of a gather without bytes, of a gather per byte, of a sum per
  /// byte, and of an all_reduce without bytes.
  struct Gather {
    double latency, ofByte, sumOfByte, sumLatency;
  };
  mutable std::map<std::tuple<const void *, uint32_t, uint32_t>, Gather> gathers;
  /// The key has the schedule, the stages, the chunks of a stage, and the microbatches.
  mutable std::map<std::tuple<const pipeline::NamedSchedule *, int, int, int>, double> held;
};

} // namespace pc

#endif
