//===- ComposePlan.h - Composes the price of a plan from programs of few layers --------------===//
// All layers of a model are equal, so the seconds and the bytes of a step are affine in the number of layers. A
// pipeline is simulated from the tasks of its first, a middle and its last chunk. docs/rationale/search.md states how
// exact this is.
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

/// The price of a core, as lower bounds for every plan with this core. The bounds count all layers of the model, as if
/// there were no stages and data ranks.
struct CorePrice {
  bool isLegal = false;
  bool hasData = false;            ///< the core sums gradients, or gathers parameters, for each microbatch
  double seconds = 0;              ///< a microbatch
  double layerSeconds = 0;         ///< the part of one layer
  double aheadSeconds = 0;         ///< the part before all layers, and after them in the backward pass, as for tables
  double restSeconds = 0;          ///< the part of a step outside its microbatches: exposed sums, and the optimizer
  double optimizerSeconds = 0;     ///< the part of the rest without moves; stages may hide the moves
  double forwardShare = 0;         ///< share of the forward pass in a microbatch's seconds
  double activationBytes = 0;      ///< bytes that a microbatch keeps until its backward pass
  double layerActivationBytes = 0; ///< the part of one layer
  int compositions = 0;
};

/// The price of a chunk's tasks for one microbatch, as a function of the number of layers.
struct TaskPrice {
  bool isLegal = false;
  /// Seconds of one kind of task.
  struct Seconds {
    double layer = 0, first = 0, last = 0; ///< seconds of a layer; and extra seconds of the first and last chunk
  };
  std::array<Seconds, pipeline::numKinds> seconds; ///< by kind
  double hopSeconds = 0, hopBackSeconds = 0;       ///< a message to the next stage, and the gradient's message back
  double taskOps = 0, otherOps = 0; ///< ops of a layer without functions: per microbatch, and outside of tasks
  std::optional<StageBytes> bytes;
  int compositions = 0;
};

/// A plan and its composed price.
struct ComposedPlan {
  PlanTrial trial;
  Plan plan;              ///< with the layers of its stages
  bool isComposed = true; ///< false: the plan cannot be composed from few layers
  int compositions = 0;
};

/// A program of few layers from which a price is composed.
struct SmallProgram {
  Plan plan;
  int64_t layers, sequences, inlineOps;
  bool byParts = false;  ///< `trial` also has the seconds of its parts
  bool isShared = false; ///< the plan is also priced with other numbers of sequences, without parts
};

/// Composes prices for one thread.
class Composer {
public:
  Composer(mlir::MLIRContext *context, const FewLayers &few, int64_t batch, const CompileOptions &options,
           const MachineModel &machine)
      : context(context), few(few), placed(few), batch(batch), options(options), machine(machine) {}

  /// A function that prices a program instead of the composer. It returns std::nullopt if the program is refused.
  using Pricer = std::function<std::optional<ProgramPrice>(const SmallProgram &)>;
  /// After `goesOn` has returned false, programs are refused without a compile.
  void setGoesOn(std::function<bool()> newGoesOn) { goesOn = std::move(newGoesOn); }
  /// Sets a function that replaces the composer's own pricing.
  void setPricer(Pricer newPricer) { pricer = std::move(newPricer); }
  /// Runs both functions. `half` runs with the composer of an idle thread, or if there is none, with this composer
  /// after `here`.
  using Sharer = std::function<void(llvm::function_ref<void(Composer &)> half, llvm::function_ref<void()> here)>;
  /// Lets another thread price one of two programs; null: this thread prices both.
  void setSharer(Sharer newSharer) { sharer = std::move(newSharer); }

  /// If the core is not legal, writes the reason to `refusal`, unless it already holds one.
  CorePrice priceCore(const PlanCore &core, std::string &refusal);
  /// Prices the tasks of a plan with a named schedule. Compiles pipelines of two stages with as many data ranks as the
  /// core. Plans with that core share the price if their schedules agree on whether to defer gradients of weights.
  TaskPrice priceTasks(const Plan &plan, const PlanCore &core, std::string &refusal);
  /// If `callsTasks` is true, the whole program's tasks will be functions.
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
  int programs = 0; ///< the programs that were requested
};

/// Assigns layers to chunks. `stageOf` gives the stage of each chunk. The longest stage, and then the longest of its
/// chunks, takes as little time as possible. Among equal assignments, the late chunks get more layers if `toLate` is
/// true, otherwise the early ones. Each chunk has at least one layer. `seconds(chunk, layers)` returns the seconds of a
/// chunk with this number of layers.
llvm::SmallVector<int64_t> dealOut(int64_t layers, llvm::ArrayRef<int> stageOf, bool toLate,
                                   llvm::function_ref<double(int, int64_t)> seconds);

/// Returns the assignments of layers that are tried: the best for the longest stage, and the best for the longest
/// chunk.
llvm::SmallVector<llvm::SmallVector<int64_t>, 4> dealings(int64_t layers, llvm::ArrayRef<int> stageOf,
                                                          llvm::function_ref<double(int, int64_t)> seconds);

/// Reads the layers of chunks from the option `stages` of a pipeline. An empty result means that cost decides.
llvm::SmallVector<int64_t> givenLayers(llvm::StringRef stages, int64_t layers, int chunks);

} // namespace pc

#endif
