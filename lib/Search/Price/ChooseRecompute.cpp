//===- ChooseRecompute.cpp - The cheapest recomputation that fits a memory limit -----------===//
// Compiles the program up to its arenas with one choice after another, so a plan that fits is never an estimate. A
// layer keeps everything, is recomputed selectively, or is recomputed in full. The layers of a stage become selective
// one by one, the first layers first, because their values live longest. Then they become full in the same order, until
// the stage fits. Then layers that need not be selective keep everything again.
//===-----------------------------------------------------------------------------===//
#include "ChooseRecompute.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Stages.h"
#include <limits>
#include <map>
#include <set>

using namespace mlir;
using namespace pc;

namespace {

bool isAuto(const Tactic &tactic) {
  auto recompute = tactic.as<RecomputeTactic>();
  return recompute && recompute->isAuto();
}

enum Level { Keep, Selective, Full };

/// The result of a choice.
struct Trial {
  SmallVector<int64_t> arenas;          ///< bytes, by stage
  SmallVector<SmallVector<int>> layers; ///< numbers of the layers of each stage, in the model's order
  std::string cut;                      ///< numbers of layers of the chunks, "3,5,4"; empty without stages
};

/// "0-3,7" for {0, 1, 2, 3, 7}.
std::string rangesOf(ArrayRef<int> numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1)
      ++end;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (end - i > 1)
      text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

/// Tries levels of recomputation for the layers of each stage by compiling the model, and keeps the cheapest that fits.
/// State: the level of every layer, and the results by tactics, so that nothing is compiled twice.
class Chooser {
public:
  Chooser(ModuleOp model, const CompileOptions &options) : model(model), options(options) {
    this->options.to = Phase::Planned;
  }

  /// Sets `tactics` to the tactics of the choice.
  pcrt_status run(SmallVector<Tactic> &tactics) {
    if (pcrt_status status = countLayers())
      return status;
    levels.assign(numLayers, Keep);
    Trial kept;
    if (pcrt_status status = tryLevels(kept))
      return status;
    if (!fits(kept))
      if (pcrt_status status = search())
        return status;
    tactics = withTactics();
    return PCRT_OK;
  }

private:
  bool fits(int64_t bytes) const { return bytes <= options.memoryLimit; }
  bool fits(const Trial &trial) const {
    return llvm::all_of(trial.arenas, [&](int64_t bytes) { return fits(bytes); });
  }

  /// The plan's tactics for `levels`.
  SmallVector<Tactic> withTactics() const {
    SmallVector<Tactic> tactics;
    for (const Tactic &tactic : options.plan.tactics) {
      if (isAuto(tactic)) {
        for (Level level : {Selective, Full}) {
          SmallVector<int> numbers;
          for (int layer = 0; layer < numLayers; ++layer)
            if (levels[layer] == level)
              numbers.push_back(layer);
          if (!numbers.empty())
            tactics.push_back(RecomputeTactic::of(level == Full, rangesOf(numbers)));
        }
      } else if (auto pipeline = tactic.as<PipelineTactic>();
                 pipeline && !cut.empty() && pipeline->stages() == "cost") {
        tactics.push_back(pipeline->withStages(cut));
      } else {
        tactics.push_back(tactic);
      }
    }
    return tactics;
  }

  /// Calls `visit` for every matrix product of the forward passes in `body`, with the layer and the chunk of the
  /// product. Smaller ops are left out, because an op with the name of one layer may be in the chunk of another layer
  /// whose ops read it.
  static void visitLayers(Block &body, llvm::function_ref<void(StringRef, int64_t)> visit) {
    int64_t chunk = 0;
    bool forward = true;
    for (Operation &op : body) {
      if (auto task = dyn_cast<TaskOp>(op)) {
        forward = task.getKind() == TaskKind::Forward;
        chunk = task.getChunk().value_or(0);
      } else if (isa<SeedOp>(op)) {
        forward = false;
      } else if (isa<EinsumOp>(op) && op.getNumOperands() == 2 && forward) {
        std::string name = sourceName(&op);
        if (StringRef layer = layerOf(name); !layer.empty())
          visit(layer, chunk);
      }
    }
  }

  /// Finds the layers in the forward pass of a step without recomputation, in the model's order.
  pcrt_status countLayers() {
    OwningOpRef<ModuleOp> module(model.clone());
    CompileOptions step = options;
    llvm::erase_if(step.plan.tactics, isAuto);
    for (Phase phase : {Phase::Model, Phase::Step})
      if (pcrt_status status = runPhase(*module, phase, step))
        return status;
    module->walk([&](AccumulateOp accumulate) {
      visitLayers(accumulate.getBody().front(),
                  [&](StringRef layer, int64_t) { numLayers += numberOf.try_emplace(layer.str(), numLayers).second; });
    });
    return PCRT_OK;
  }

  /// Compiles with `levels`, once for each choice.
  pcrt_status tryLevels(Trial &trial) {
    SmallVector<Tactic> tactics = withTactics();
    auto [known, isNew] = trials.try_emplace({tactics.begin(), tactics.end()});
    if (!isNew) {
      trial = known->second;
      return PCRT_OK;
    }
    OwningOpRef<ModuleOp> module(model.clone());
    CompileOptions chosen = options;
    chosen.plan.tactics = tactics;
    trial = Trial();
    for (const PhaseInfo &info : phases()) {
      if (pcrt_status status = runPhase(*module, info.phase, chosen))
        return status;
      if (info.phase == Phase::Staged)
        readStages(*module, trial);
      if (info.phase == Phase::Planned)
        break;
    }
    for (ModuleOp program : programsOf(*module))
      for (ArenaOp arena : program.getOps<ArenaOp>())
        trial.arenas.push_back(arena.getBytes());
    known->second = trial;
    return PCRT_OK;
  }

  /// Reads from the compiled stages which layers each of them holds. If layers are assigned automatically, also records
  /// how many layers each chunk has, so that later compiles use the same stages.
  void readStages(ModuleOp module, Trial &trial) {
    if (!stageAxisOf(module)) {
      trial.layers.push_back(llvm::to_vector(llvm::seq(0, numLayers)));
      return;
    }
    std::map<int64_t, int64_t> layersOf; // for each chunk; a divided layer belongs to the chunk where it begins
    std::vector<int64_t> chunkOf(numLayers, std::numeric_limits<int64_t>::max());
    for (ModuleOp program : programsOf(module)) {
      std::set<int> layers;
      program.walk([&](func::FuncOp function) {
        visitLayers(function.getBody().front(), [&](StringRef layer, int64_t chunk) {
          if (auto it = numberOf.find(layer.str()); it != numberOf.end()) {
            layers.insert(it->second);
            chunkOf[it->second] = std::min(chunkOf[it->second], chunk);
          }
        });
        for (TaskOp task : function.getOps<TaskOp>())
          if (task.getKind() == TaskKind::Forward)
            layersOf.try_emplace(*task.getChunk());
      });
      trial.layers.emplace_back(layers.begin(), layers.end());
    }
    // Counts the layers of each chunk. The first and the last chunk may have none, because they also have the embedding
    // or the head.
    for (int64_t chunk : chunkOf)
      ++layersOf[chunk];
    for (auto &[chunk, layers] : layersOf) {
      bool inside = chunk != layersOf.begin()->first && chunk != layersOf.rbegin()->first;
      if (inside && layers == 0) { // half a layer, which `stages=LIST` cannot express
        trial.cut.clear();
        return;
      }
      trial.cut += (trial.cut.empty() ? "" : ",") + std::to_string(layers);
    }
  }

  /// The choice for a stage: the first `full` layers are recomputed in full, and the next `selective` layers
  /// selectively.
  struct Choice {
    int full = 0, selective = 0;
  };

  void setLevels(ArrayRef<int> layers, Choice choice) {
    for (auto [i, layer] : llvm::enumerate(layers))
      levels[layer] = int(i) < choice.full ? Full : int(i) < choice.full + choice.selective ? Selective : Keep;
  }

  /// Finds for every stage the smallest position in (lo, hi] at which the stage fits. The caller knows that the stage
  /// fits at hi, and that it does not fit at lo (unless lo is -1).
  pcrt_status bisect(ArrayRef<SmallVector<int>> stages, SmallVector<int> lo, SmallVector<int> &hi,
                     llvm::function_ref<Choice(int stage, int position)> choiceOf) {
    while (true) {
      bool open = false;
      SmallVector<int> middle(hi);
      for (size_t stage = 0; stage < stages.size(); ++stage) {
        if (hi[stage] - lo[stage] > 1) {
          middle[stage] = lo[stage] + (hi[stage] - lo[stage]) / 2;
          open = true;
        }
        setLevels(stages[stage], choiceOf(int(stage), middle[stage]));
      }
      if (!open)
        return PCRT_OK;
      Trial trial;
      if (pcrt_status status = tryLevels(trial))
        return status;
      for (size_t stage = 0; stage < stages.size(); ++stage)
        if (hi[stage] - lo[stage] > 1)
          (fits(trial.arenas[stage]) ? hi : lo)[stage] = middle[stage];
    }
  }

  pcrt_status refuse(int64_t bytes) {
    model.emitError() << "even with recomputation the plan needs " << bytes
                      << " bytes per rank, but --memory-limit allows " << options.memoryLimit
                      << "; use more ranks, more microbatches or a smaller batch";
    return PCRT_RESOURCE;
  }

  /// Sets `levels` to the cheapest levels that fit.
  pcrt_status search() {
    Trial full, selective, kept;
    levels.assign(numLayers, Full);
    if (pcrt_status status = tryLevels(full))
      return status;
    cut = full.cut; // from here on, the memory of a stage depends only on its own layers
    if (pcrt_status status = tryLevels(full))
      return status;
    levels.assign(numLayers, Selective);
    if (pcrt_status status = tryLevels(selective))
      return status;
    levels.assign(numLayers, Keep);
    if (pcrt_status status = tryLevels(kept))
      return status;

    // Positions on a stage's chain: at 0 all layers keep everything, at n all are selective, and at 2n all are full.
    ArrayRef<SmallVector<int>> stages = full.layers;
    auto chain = [&](int stage, int position) {
      int n = int(stages[stage].size()), inFull = std::max(0, position - n);
      return Choice{inFull, position - 2 * inFull};
    };
    SmallVector<int> lo, hi;
    int64_t least = 0;
    for (auto [stage, layers] : llvm::enumerate(stages)) {
      int n = int(layers.size());
      bool keeps = fits(kept.arenas[stage]), isSelective = fits(selective.arenas[stage]);
      lo.push_back(keeps ? -1 : isSelective ? 0 : n);
      hi.push_back(keeps ? 0 : isSelective ? n : 2 * n);
      least = std::max(least, std::min({kept.arenas[stage], selective.arenas[stage], full.arenas[stage]}));
    }
    if (!fits(least))
      return refuse(least);
    if (pcrt_status status = bisect(stages, lo, hi, chain))
      return status;
    SmallVector<int> inFull, more;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      Choice choice = chain(int(stage), hi[stage]);
      inFull.push_back(choice.full);
      more.push_back(choice.selective);
      lo[stage] = choice.full == 0 ? choice.selective - 1 : -1;
    }
    auto fewer = [&](int stage, int position) { return Choice{inFull[stage], position}; };
    if (pcrt_status status = bisect(stages, lo, more, fewer))
      return status;

    // Stages were tried together. If a stage holds more with the final choices of the other stages, more of its layers
    // are recomputed.
    while (true) {
      Trial trial;
      if (pcrt_status status = tryLevels(trial))
        return status;
      if (fits(trial))
        return PCRT_OK;
      for (size_t stage = 0; stage < stages.size(); ++stage) {
        int n = int(stages[stage].size());
        if (fits(trial.arenas[stage]))
          continue;
        if (inFull[stage] == n)
          return refuse(trial.arenas[stage]);
        if (inFull[stage] + more[stage] < n)
          ++more[stage];
        else
          more[stage] = n - ++inFull[stage];
        setLevels(stages[stage], {inFull[stage], more[stage]});
      }
    }
  }

  ModuleOp model;
  CompileOptions options;
  int numLayers = 0;
  std::map<std::string, int> numberOf;         ///< the numbers of layers, by name
  std::vector<Level> levels;                   ///< by layer
  std::string cut;                             ///< replaces `stages=cost`, unless it is empty
  std::map<std::vector<Tactic>, Trial> trials; ///< by tactics
};

} // namespace

/// Checks the conditions; Chooser does the work.
pcrt_status pc::chooseRecompute(ModuleOp model, CompileOptions &options) {
  if (llvm::none_of(options.plan.tactics, isAuto))
    return PCRT_OK;
  if (options.memoryLimit <= 0) {
    model.emitError() << "--recompute=auto needs a memory limit; add --memory-limit=BYTES";
    return PCRT_USAGE;
  }
  return Chooser(model, options).run(options.plan.tactics);
}
