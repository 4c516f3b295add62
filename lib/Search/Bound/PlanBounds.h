//===- PlanBounds.h - What plans cannot stay below --------------------------------------------===//
// Input: the work of a step, prices of cores, of tasks and of layers on one rank, as they become known. Result: seconds
// and bytes that no plan should stay below, on the machine model. They are no proofs: Margins.h has their margins, and
// compose.test compares them with whole compiles. Invariant: bounds depend only on the prices that were learned.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_BOUND_PLANBOUNDS_H
#define PC_LIB_SEARCH_BOUND_PLANBOUNDS_H

#include "../Price/ComposePlan.h"
#include "../Space/PlanNumbers.h"
#include <set>

namespace pc {

/// Lower bounds for all plans of a core, with any number of microbatches.
struct CoreBound {
  double seconds = 0;          ///< of all ranks together, and all microbatches; infinite if none is legal
  double layerSeconds = 0;     ///< of these, those of one layer
  double aheadSeconds = 0;     ///< and those ahead of all layers
  double forwardSeconds = 0;   ///< of these, those of forward passes
  double restSeconds = 0;      ///< of all ranks together, besides
  double optimizerSeconds = 0; ///< of these, those that stages have as well
  std::string alone;           ///< what every rank of the core does by itself, as in `PlanNumbers`
};

/// Lower bounds of the seconds and bytes of plans, from their flags and from cores that were priced.
///
/// Splitting a layer further never needs fewer seconds over all ranks, nor does working on fewer sequences at a time.
/// So the price of a split is a bound for all splits that split its axes further, or along more axes, and take its
/// sequences in parts.
class PlanBounds {
public:
  /// `few`: null if the model's layers differ.
  PlanBounds(mlir::MLIRContext *context, const StepWork &work, const FewLayers *few, int64_t batch, int64_t ranks,
             const CompileOptions &options, const MachineModel &machine)
      : context(context), inlineOps(static_cast<double>(options.inlineOps)),
        bucketBytes(static_cast<double>(options.schedule.bucketBytes)), work(work), layers(few ? few->layers() : 0),
        hasOneChain(few && few->hasOneChain()), layerBytes(few ? few->layerBytes() : 0),
        layerParameterBytes(few ? few->layerParameterBytes() : 0),
        layerParameters(few ? few->layerParameters() : llvm::SmallVector<double>()), batch(batch), ranks(ranks),
        machine(machine) {}

  /// Returns the bound of a core without data ranks, all of whose ranks work on `core.batch` sequences at once.
  CoreBound known(const PlanCore &core) const;

  /// Lower bound that needs only the flags of the plan.
  double ofShape(const PlanNumbers &plan) const { return leastSeconds(work, plan.shape, machine); }
  /// Lower bound for all plans of a core of any batch: seconds of a step if no rank ever waited for other stages.
  double ofSet(const CoreBound &known) const;
  /// Lower bound for a plan of that core. If a simpler bound reaches `enough`, returns that one.
  double ofSet(const CoreBound &known, const PlanNumbers &plan, double enough) const;
  /// Lower bound for a plan whose core was priced.
  double ofCore(const CorePrice &core, const PlanNumbers &plan) const;
  /// Lower bounds for a plan whose tasks were also priced: their order is simulated.
  struct TaskBound {
    double seconds = 0, bytes = 0;
  };
  /// Threads may ask at once, for plans that `prepare` has seen.
  TaskBound ofTasks(const TaskPrice &tasks, const CorePrice &core, const PlanNumbers &plan) const;
  void prepare(const PlanNumbers &plan) const { trafficOf(plan); }
  /// Whether tasks of a plan's whole program are functions for sure.
  bool callsTasks(const TaskPrice &tasks, const PlanNumbers &plan) const;
  /// Lower bound for the bytes of a rank: parameters, gradients and states, and what microbatches keep for their
  /// backward pass. In a stage only layers keep something: the head's backward pass follows its forward pass.
  double leastBytes(const PlanNumbers &plan, const CorePrice &core) const;
  /// Least bytes of a rank, from what unsplit layers keep (`learnOneRank`).
  double leastBytes(const PlanNumbers &plan) const;
  /// Records what layers take on one rank, for the tactics that every rank follows by itself.
  void learnOneRank(const PlanCore &core, const CorePrice &price);
  /// Returns the core on one rank: without axes.
  static PlanCore onOneRank(const PlanCore &core);

  /// Estimates the seconds of a plan, in closed form. This is not a bound.
  double guessSeconds(const CoreBound &root, const PlanNumbers &plan) const;

  /// Whether a core of all sequences has been priced itself.
  bool knows(const PlanCore &core) const { return priced.count(core.key()); }
  /// Records the price of a core without data ranks.
  void learn(const PlanCore &core, const CorePrice &price);
  /// Takes over what was learned on another machine, for guesses.
  void learnFrom(const PlanBounds &other) {
    oneRankCosts = other.oneRankCosts;
    splits = other.splits;
    priced = other.priced;
  }

private:
  /// The traffic between data ranks in a step: its seconds, one move after another; the seconds that other work loses
  /// if all of it is hidden; and among the seconds, the sums of a layer's gradients, if none are sent before the last
  /// microbatch, and a gather of its parameters, if they are gathered once.
  struct DataTraffic {
    double seconds = 0, lost = 0, layerSums = 0, layerGather = 0;
  };
  struct MicrobatchSeconds {
    double layer, rest, ahead, forwardShare; ///< ahead: of the rest, what the last chunk does not have
    bool sends = false;                      ///< they are also of what data ranks send for each microbatch
  };
  /// Counts the parameters of a layer that are too large for a bucket if an element takes `width` bytes.
  double sentAlone(const PlanNumbers &plan, double width) const;
  double ofPipeline(const MicrobatchSeconds &seconds, double optimizer, const DataTraffic &traffic,
                    const PlanNumbers &plan, double enough) const;
  DataTraffic trafficOf(const PlanNumbers &plan) const;
  double longestStage(double layer, double rest, const PlanShape &shape) const;

  double heldBy(const PlanNumbers &plan) const;
  /// Bytes of parameters and states on a rank, and of gradients `withGradients`, for parameters of `parameterBytes`.
  double storedBytes(const PlanNumbers &plan, double parameterBytes, bool withGradients) const;
  /// `activationBytes`: that a microbatch keeps in all stages together.
  double leastBytes(const PlanNumbers &plan, double activationBytes) const;

  /// How a core splits layers.
  struct Split {
    std::map<std::string, int64_t> axes;
    std::map<std::string, llvm::SmallVector<std::string>> tactics; ///< and their axes
    int64_t sequences = 0, microbatches = 1; ///< of a microbatch, and how many of them, of the core
    CoreBound price;
    /// Whether `other` splits the same axes no further, and this split's other tactics are over axes that `other` has
    /// not: over an axis that it has they may make a split cheaper.
    bool isFurtherThan(const Split &other) const;
  };
  static Split splitOf(const PlanCore &core);
  /// The split of a core, and the split without the ranks that share out tokens: the ranks left have no less to do.
  static llvm::SmallVector<Split, 2> waysOf(const PlanCore &core);
  /// Extra seconds, summed over all ranks, of per-rank work of `with` over `without`.
  double longerAlone(const std::string &without, const std::string &with) const;
  /// Upper bound for the share of a microbatch's seconds that goes into recomputation, for which no stage waits.
  double recomputedShare(const PlanNumbers &plan) const;

  mlir::MLIRContext *context;
  double inlineOps;   ///< programs of no more ops have their tasks written out
  double bucketBytes; ///< of moves that are started together
  StepWork work;
  int64_t layers;
  bool hasOneChain;  ///< of layers: else chunks may have parts of one
  double layerBytes; ///< that a layer passes to the next one, for all sequences
  double layerParameterBytes;
  llvm::SmallVector<double> layerParameters; ///< bytes of each
  int64_t batch, ranks;
  const MachineModel &machine;
  /// What layers cost on one rank; `oneRankCosts` has one for each text of tactics.
  struct OneRankCost {
    double seconds = 0;                ///< of all sequences
    double bytes = 0, layersBytes = 0; ///< that a sequence keeps; and of these, those of all layers
  };
  std::map<std::string, OneRankCost> oneRankCosts;
  std::vector<Split> splits;
  std::set<std::string> priced;
  /// Over the data axes of a mesh: seconds of a gather without bytes, and of a byte; of a byte that is summed; and of a
  /// sum without bytes that all get.
  struct Gather {
    double latency, ofByte, sumOfByte, sumLatency;
  };
  mutable std::map<std::tuple<const void *, uint32_t, uint32_t>, Gather> gathers;
  /// By schedule, stages, chunks of a stage, and microbatches.
  mutable std::map<std::tuple<const pipeline::NamedSchedule *, int, int, int>, double> held;
};

} // namespace pc

#endif
