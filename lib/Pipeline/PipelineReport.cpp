//===- PipelineReport.cpp - The part "pipeline" of a report --------------------------------===//
// Input: a planned program and its predicted timeline. Result: the bubble, the seconds of each stage by kind of work,
// and its peak of microbatches and bytes. For a named schedule with uniform stages, also the closed form of its idle
// time.
//===-----------------------------------------------------------------------------===//
#include "pc/Pipeline/PipelineReport.h"
#include "pc/Pipeline/Schedule.h"

#include <map>

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;
namespace json = llvm::json;

namespace {

/// Reads the timeline once for the numbers of chunks and microbatches; describe() and theory() then fill parts of the
/// JSON.
class Reporter {
public:
  /// Counts the chunks and microbatches that occur in the timeline.
  explicit Reporter(const StepTimeline &timeline) : timeline(timeline) {
    for (const StageTimeline &stage : timeline)
      for (const StageSpan &span : stage.spans) {
        chunks = std::max(chunks, span.chunk + 1);
        microbatches = std::max(microbatches, span.microbatch + 1);
      }
  }

  json::Object describe(int64_t number) const;
  json::Value theory(StringRef schedule) const;

  const StepTimeline &timeline;
  int64_t chunks = 1, microbatches = 1;
};

/// In each chunk, a microbatch counts as live from its forward task to its last backward task. A stage with v chunks
/// counts 1/v for each.
json::Object Reporter::describe(int64_t number) const {
  const StageTimeline &stage = timeline[number];
  json::Object seconds{{"move", stage.moves}, {"message", stage.messages}, {"idle", stage.idle}};
  for (auto [kind, work] : llvm::enumerate(stage.work))
    seconds[stringifyTaskKind(*symbolizeTaskKind(kind))] = work;
  std::map<int64_t, bool> own; // chunks, and whether weight gradients are separate tasks
  for (const StageSpan &span : stage.spans)
    if (span.isTask())
      own[span.chunk] |= span.kind == TaskKind::Weight;
  int64_t live = 0, most = 0, bytes = 0; // in chunks
  for (const StageSpan &span : stage.spans) {
    bytes = std::max(bytes, span.liveBytes);
    if (!span.isTask())
      continue;
    // A microbatch is live from its forward task to the end of its last backward task.
    live += span.kind == TaskKind::Forward;
    most = std::max(most, live);
    live -= span.kind == (own[span.chunk] ? TaskKind::Weight : TaskKind::Backward);
  }
  json::Array chunkNumbers;
  for (auto &[chunk, split] : own)
    chunkNumbers.push_back(chunk);
  return json::Object{{"stage", number},
                      {"chunks", std::move(chunkNumbers)},
                      {"seconds", std::move(seconds)},
                      {"peak_microbatches", own.empty() ? 0.0 : static_cast<double>(most) / own.size()},
                      {"peak_activation_bytes", bytes}};
}

/// The closed form of the schedule's bubble, if the literature has one, for comparison with the simulation.
json::Value Reporter::theory(StringRef schedule) const {
  const NamedSchedule *named = findSchedule(std::string_view(schedule.split(':').first));
  if (!named)
    return nullptr;
  // Closed forms assume equal stages, so they are evaluated with mean times.
  double p = static_cast<double>(timeline.size()), m = static_cast<double>(microbatches);
  std::array<double, numKinds> mean = {}; // mean seconds per stage and microbatch
  for (const StageTimeline &stage : timeline)
    for (const StageSpan &span : stage.spans)
      if (span.isTask())
        mean[static_cast<int>(span.kind)] += (span.end - span.start) / p / m;
  auto of = [&](TaskKind kind) { return mean[static_cast<int>(kind)]; };
  UniformStages stages{p,
                       m,
                       static_cast<double>(chunks) / p,
                       of(TaskKind::Forward),
                       of(TaskKind::Recompute) + of(TaskKind::Backward),
                       of(TaskKind::Weight)};
  const ClosedForm *form = named->closedForm(stages);
  if (!form)
    return nullptr;
  return json::Object{{"formula", StringRef(form->formula)}, {"idle_over_ideal", form->idleOverIdeal(stages)}};
}

} // namespace

/// Adds the figures of all stages, and for each stage its own part.
json::Object pc::pipeline::reportPipeline(ModuleOp planned, const Prediction &prediction, StringRef schedule,
                                          StringRef machine) {
  Reporter reporter(prediction.timeline);
  double cost = 0, ideal = 0;
  for (const StageTimeline &stage : prediction.timeline) {
    double first = -1, last = 0, busy = 0;
    for (const StageSpan &span : stage.spans)
      if (span.isTask()) {
        first = first < 0 ? span.start : first;
        last = std::max(last, span.end);
        busy += span.end - span.start;
      }
    // These figures are the same as those of `measure`, but for the whole simulated program, including messages and
    // moves.
    cost = std::max(cost, last - first);
    ideal = std::max(ideal, busy);
  }
  uint64_t slots = 0;
  planned.walk([&](SendOp send) { slots = std::max(slots, send.getSlots()); });
  auto stages = static_cast<int64_t>(prediction.timeline.size());
  json::Array perStage;
  for (int64_t s = 0; s < stages; ++s)
    perStage.push_back(reporter.describe(s));
  return json::Object{{"schedule", schedule},
                      {"stages", stages},
                      {"chunks", reporter.chunks},
                      {"microbatches", reporter.microbatches},
                      {"slots", static_cast<int64_t>(slots)},
                      {"machine", machine},
                      {"step_seconds", prediction.programSeconds},
                      {"cost_seconds", cost},
                      {"ideal_seconds", ideal},
                      {"bubble", cost > 0 ? (cost - ideal) / cost : 0},
                      {"idle_over_ideal", ideal > 0 ? (cost - ideal) / ideal : 0},
                      {"theory", reporter.theory(schedule)},
                      {"per_stage", std::move(perStage)},
                      {"traceEvents", nullptr}};
}
