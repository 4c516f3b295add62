//===- TypedTactics.h - The tactics of the table, with their options as values --------------------===//
// Each type is a view of a Tactic of one pass, as in plan.find<ZeroTactic>()->stage(). It has the name of the pass and
// the options that other code reads or sets. A view must not outlive its tactic.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_TYPEDTACTICS_H
#define PC_PLAN_TYPEDTACTICS_H

#include "pc/Plan/Tactic.h"

namespace pc {

class TacticView {
public:
  explicit TacticView(const Tactic &tactic) : tactic(&tactic) {}
  operator const Tactic &() const { return *tactic; }
  const Tactic *operator->() const { return tactic; }
  llvm::StringRef axis() const { return tactic->axis(); }

protected:
  const Tactic *tactic;
};

struct DispatchExpertsTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-dispatch-experts";
  using TacticView::TacticView;
  bool isAuto() const { return tactic->option("exchange") == "auto"; }
  /// A copy for this number of ranks that split experts, and for the device on which they run.
  Tactic forRanks(int64_t ranks, llvm::StringRef target) const {
    return tactic->with("target", target).with("ranks", std::to_string(ranks));
  }
};

struct MixedPrecisionTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-mixed-precision";
  using TacticView::TacticView;
  bool isFp8() const { return tactic->option("compute") == "fp8"; }
  /// The bytes of an element of a parameter that ranks send, at least. With fp8, matrices of layers are sent as codes.
  double parameterBytes() const { return isFp8() ? 1 : tactic->option("compute") == "bf16" ? 2 : 4; }
  bool halvesGradients() const { return tactic->option("gradients") == "bf16"; }
};

struct RecomputeTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-recompute";
  using TacticView::TacticView;
  /// A tactic that recomputes `layers`, such as "0-3,7", in full or selectively.
  static Tactic of(bool isFull, llvm::StringRef layers) {
    return Tactic(pass).with("mode", isFull ? "full" : "selective").with("layers", layers);
  }
  bool isFull() const { return tactic->option("mode") == "full"; }
  /// Whether a search chooses the mode and the layers.
  bool isAuto() const { return tactic->option("mode") == "auto" && !tactic->says("layers"); }
};

struct ZigzagTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-zigzag";
  using TacticView::TacticView;
  static Tactic of(int64_t ranks) { return Tactic(pass).with("ranks", std::to_string(ranks)); }
};

struct TensorParallelTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-tensor-parallel";
  using TacticView::TacticView;
  llvm::StringRef form() const { return tactic->option("form"); }
};

struct SequenceParallelTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-sequence-parallel";
  using TacticView::TacticView;
};

struct ContextParallelTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-context-parallel";
  using TacticView::TacticView;
  bool isRing() const { return tactic->option("form") == "ring"; }
};

struct ExpertParallelTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-expert-parallel";
  using TacticView::TacticView;
};

struct DataParallelTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-data-parallel";
  using TacticView::TacticView;
  bool isNaive() const { return tactic->option("mode") == "naive"; }
};

struct ZeroTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-zero";
  using TacticView::TacticView;
  int64_t stage() const { return tactic->number("stage").value_or(0); }
};

struct OffloadTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-offload";
  using TacticView::TacticView;
  /// states, masters, parameters or activations; `auto` until the plan is completed.
  llvm::StringRef what() const { return tactic->option("what"); }
  llvm::StringRef space() const { return tactic->option("to"); }
  bool isAuto() const { return what() == "auto"; }
};

struct CodeGradientsTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-code-gradients";
  using TacticView::TacticView;
  int64_t bits() const { return tactic->number("bits").value_or(8); }
};

struct PipelineTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-pipeline-parallel";
  using TacticView::TacticView;
  static Tactic over(llvm::StringRef axis) { return Tactic(pass).with("axis", axis); }
  /// The schedule as it was written: "interleaved:2", or a file.
  llvm::StringRef schedule() const { return tactic->option("schedule"); }
  /// The name of the schedule, such as "interleaved".
  llvm::StringRef scheduleName() const { return schedule().split(':').first; }
  /// The text after the schedule's name, such as "2"; "" for most schedules.
  llvm::StringRef chunksPerStage() const { return schedule().split(':').second; }
  /// How layers are divided into stages: "cost", "layers", or the layers of each stage, such as "3,5,4".
  llvm::StringRef stages() const { return tactic->option("stages"); }
  Tactic withSchedule(llvm::StringRef schedule) const { return tactic->with("schedule", schedule); }
  Tactic withStages(llvm::StringRef stages) const { return tactic->with("stages", stages); }
  /// A copy with settings that are known only during a compilation.
  Tactic on(llvm::StringRef machine, int64_t inlineOps, int64_t memory) const {
    return tactic->with("machine", machine)
        .with("inline-ops", std::to_string(inlineOps))
        .with("memory", std::to_string(memory));
  }
};

struct WindowMovesTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-window-moves";
  using TacticView::TacticView;
  llvm::SmallVector<llvm::StringRef> axes() const { return tactic->list("axes"); }
};

struct LocalSgdTactic : TacticView {
  static constexpr llvm::StringLiteral pass = "pc-local-sgd";
  using TacticView::TacticView;
  bool sendsInt8() const { return tactic->option("deltas") == "int8"; }
};

} // namespace pc

#endif
