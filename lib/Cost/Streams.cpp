//===- Streams.cpp - The timeline of a rank without pipeline stages -------------------------===//
// Listens to the simulation of a step and records when a rank computes and moves data.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Streams.h"
#include "pc/Cost/Cost.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include <map>

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

namespace {

/// Consecutive intervals that are drawn as one interval.
struct Stretch {
  StepPhase phase;
  double start, end, busy;
  int64_t count = 1;
  std::string name = {};
};
using Stretches = std::vector<Stretch>;

/// Input: the calls of a StepListener. Result: rows of time intervals. Neighbours that are too short to see are joined.
class Streams {
public:
  explicit Streams(const MachineModel &machine) : machine(machine) {}

  void add(Operation *op, StepPhase phase, double start, double end);
  json::Object rows() const;

private:
  void send(MoveOpInterface move, StepPhase phase, double start, double end);
  static json::Array texts(const Stretches &stretches, double shortest);

  const MachineModel &machine;
  double last = 0; ///< the end of the step
  Stretches work;
  llvm::MapVector<std::string, Stretches, std::map<std::string, unsigned>> moves; ///< by axes
};

} // namespace

/// A move in a start begins when the one before it ends. Any other op is an interval of computation.
void Streams::add(Operation *op, StepPhase phase, double start, double end) {
  last = std::max(last, end);
  if (auto starts = dyn_cast<StartOp>(op)) { // its moves run one after another
    for (auto [move, seconds] : llvm::zip_equal(starts.getMoves(), secondsOfMoves(starts, machine))) {
      double done = start + seconds;
      send(move, phase, start, done);
      start = done;
    }
    return;
  }
  if (auto move = dyn_cast<MoveOpInterface>(op); move && hasTraffic(move.getMoveKind()))
    return send(move, phase, start, end);
  if (work.empty() || work.back().phase != phase || work.back().end < start)
    work.push_back({phase, start, start, 0});
  work.back().busy += end - start;
  work.back().end = end;
}

void Streams::send(MoveOpInterface move, StepPhase phase, double start, double end) {
  std::string name = sourceName(move), kind = moveName(move.getMoveKind()).str();
  moves[axesText(move)].push_back(
      {phase, start, end, end - start, 1, name.empty() || name == kind ? kind : kind + " of " + name});
}

/// Joins neighbours if one of them is too short to see.
json::Array Streams::texts(const Stretches &stretches, double shortest) {
  auto isShort = [&](const Stretch &s) { return s.busy < shortest * static_cast<double>(s.count); };
  Stretches seen;
  for (const Stretch &next : stretches) {
    if (Stretch *last = seen.empty() ? nullptr : &seen.back();
        last && last->phase == next.phase && next.start - last->end < shortest && (isShort(*last) || isShort(next))) {
      last->end = next.end;
      last->busy += next.busy;
      last->count += next.count;
    } else {
      seen.push_back(next);
    }
  }
  json::Array rows;
  auto microseconds = [](double time) { return std::round(time * 1e9) / 1e3; };
  for (const Stretch &s : seen)
    rows.push_back(json::Array{stepPhaseName(s.phase), microseconds(s.start), microseconds(s.end - s.start),
                               microseconds(s.busy), s.count, s.count == 1 ? s.name : ""});
  return rows;
}

/// Stretches shorter than 1/2000 of the step are joined, because they could not be seen.
json::Object Streams::rows() const {
  double shortest = last / 2000;
  json::Array rows{json::Object{{"axis", ""}, {"stretches", texts(work, shortest)}}};
  for (const auto &[axis, stretches] : moves)
    rows.push_back(json::Object{{"axis", axis}, {"stretches", texts(stretches, shortest)}});
  return json::Object{{"rows", std::move(rows)}};
}

/// Runs the simulation with a listener. The member `microseconds` is the length of the step.
FailureOr<json::Value> pc::stepStreams(ModuleOp planned, const MachineModel &machine, const OpSeconds &known) {
  Streams streams(machine);
  FailureOr<Prediction> prediction =
      predictStep(planned, machine, known, [&](Operation *op, StepPhase phase, double start, double end) {
        streams.add(op, phase, start, end);
      });
  if (failed(prediction))
    return failure();
  json::Object rows = streams.rows();
  rows["microseconds"] = std::round(prediction->programSeconds * 1e9) / 1e3;
  return json::Value(std::move(rows));
}
