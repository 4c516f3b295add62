//===- ComposePlan.h - What a plan costs, put together from programs of few layers -----------===//
// The layers of a model are equal, so the seconds and the bytes of a step are affine in their number; a pipeline is
// simulated from the tasks of its first, a middle and its last chunk. docs/rationale/search.md says how right that is.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_COMPOSEPLAN_H
#define PC_LIB_SEARCH_PRICE_COMPOSEPLAN_H

#include "../Space/PlanCore.h"
#include "PlacedLayers.h"
#include "PriceProgram.h"
#include "StageBytes.h"

#include "pc/Pipeline/Schedule.h"
#include "pc/Plan/Tactics.h"

namespace pc {

/// Lower bounds for every plan with this core, for all layers of the model, before stages and data ranks share them.
struct CorePrice {
  bool isLegal = false;
  bool hasData = false;        ///< it sums gradients, or gathers parameters, for each microbatch
  double seconds = 0;          ///< of a microbatch
  double layerSeconds = 0;     ///< of these, of one layer
  double aheadSeconds = 0;     ///< of these, before the layers and after them on the way back, e.g. of a table of words
  double restSeconds = 0;      ///< of a step besides its microbatches: sums that nothing hides, and the optimizer
  double optimizerSeconds = 0; ///< of these, those without moves, which stages may hide
  double forwardShare = 0;     ///< of a microbatch's seconds, those of its forward pass
  double activationBytes = 0;  ///< of a microbatch that waits for its backward pass
  double layerActivationBytes = 0; ///< of these, those of one layer
  int compositions = 0;
};

/// What a chunk's tasks take for one microbatch, by its layers.
struct TaskPrice {
  bool isLegal = false;
  struct Seconds {
    double layer = 0, first = 0, last = 0; ///< of a layer; and by which those of the first and last chunk take longer
  };
  std::array<Seconds, pipeline::numKinds> seconds; ///< by kind
  double hopSeconds = 0, hopBackSeconds = 0;       ///< of a message to the next stage, and of its gradient
  double taskOps = 0, otherOps = 0;                ///< of a layer, written out: for a microbatch, and besides
  std::optional<StageBytes> bytes;
  int compositions = 0;
};

/// A plan as it was priced.
struct ComposedPlan {
  PlanTrial trial;
  Plan plan;              ///< with the layers of its stages
  bool isComposed = true; ///< false: nothing can be said from few layers
  int compositions = 0;
};

/// A program of few layers that a price is put together from.
struct SmallProgram {
  Plan plan;
  int64_t layers, sequences, inlineOps;
  bool byParts = false;  ///< `trial` says what its parts take
  bool isShared = false; ///< the plan is also requested with other numbers of sequences; then without parts
};

/// Composes prices for one thread.
class Composer {
public:
  Composer(mlir::MLIRContext *context, const FewLayers &few, int64_t batch, const CompileOptions &options,
           const MachineModel &machine)
      : context(context), few(few), placed(few), batch(batch), options(options), machine(machine) {}

  /// Prices a program instead of the composer; nothing: the program is refused.
  using Pricer = std::function<std::optional<ProgramPrice>(const SmallProgram &)>;
  /// Once it says no, programs are refused without a compile.
  void setGoesOn(std::function<bool()> newGoesOn) { goesOn = std::move(newGoesOn); }
  /// Sets who prices programs instead of the composer.
  void setPricer(Pricer newPricer) { pricer = std::move(newPricer); }
  /// Does both: `half` with the composer of a thread that has nothing else to do, or with this one after `here`.
  using Sharer = std::function<void(llvm::function_ref<void(Composer &)> half, llvm::function_ref<void()> here)>;
  /// Lets another thread price one of two programs; null: this thread prices both.
  void setSharer(Sharer newSharer) { sharer = std::move(newSharer); }

  /// `refusal`, if empty, gets why the core is not legal.
  CorePrice priceCore(const PlanCore &core, std::string &refusal);
  /// Prices the tasks of a plan with a named schedule from pipelines of two stages, without data ranks but those of its
  /// core. Plans with that core share the price if their schedules agree on whether to defer gradients of weights.
  TaskPrice priceTasks(const Plan &plan, const PlanCore &core, std::string &refusal);
  /// `callsTasks`: the whole program's tasks will be functions.
  ComposedPlan compose(const Plan &plan, bool callsTasks, std::string &refusal);

private:
  using BothPrices = std::pair<std::optional<ProgramPrice>, std::optional<ProgramPrice>>;
  std::optional<ProgramPrice> price(const SmallProgram &program, std::string &refusal);
  /// Prices two programs; `b` has no price if `a` is refused.
  BothPrices price(const SmallProgram &a, const SmallProgram &b, std::string &refusal);
  void composeWithoutStages(ComposedPlan &composed, std::string &refusal);
  void composePipeline(ComposedPlan &composed, bool callsTasks, std::string &refusal);

  mlir::MLIRContext *context;
  const FewLayers &few;
  PlacedLayers placed;
  int64_t batch;
  const CompileOptions &options;
  const MachineModel &machine;
  std::function<bool()> goesOn = [] { return true; };
  Pricer pricer;    ///< or null
  Sharer sharer;    ///< or null
  int programs = 0; ///< that were asked for
};

/// Deals layers out to chunks, which lie on the stages `stageOf`, so that the longest stage, and then the longest of
/// its chunks, takes as little as possible; among equals the late (`toLate`) or the early chunks have more. Each chunk
/// has at least one. `seconds(chunk, layers)`: the seconds of a chunk with this number of layers.
llvm::SmallVector<int64_t> dealOut(int64_t layers, llvm::ArrayRef<int> stageOf, bool toLate,
                                   llvm::function_ref<double(int, int64_t)> seconds);

/// Returns the ways to deal layers out that are tried: for the longest stage, and for the longest chunk.
llvm::SmallVector<llvm::SmallVector<int64_t>, 4> dealings(int64_t layers, llvm::ArrayRef<int> stageOf,
                                                          llvm::function_ref<double(int, int64_t)> seconds);

/// Reads the layers of chunks from the option `stages` of a pipeline; empty: layers are dealt out by cost.
llvm::SmallVector<int64_t> givenLayers(llvm::StringRef stages, int64_t layers, int chunks);

} // namespace pc

#endif
