//===- Report.cpp - What a plan costs, before anything runs ------------------------------------===//
#include "pc/Cost/Report.h"
#include "MemoryUse.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/Liveness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include <map>
#include <set>
#include <tuple>

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

namespace {

struct Row {
  int64_t count = 0, payload = 0, wire = 0;
};

/// Sums over the ops of a step, in one walk.
class Totals {
public:
  explicit Totals(MeshAttr mesh) : mesh(mesh) {}

  void add(Block &body) {
    bool training = llvm::any_of(body, [](Operation &op) { return isa<AccumulateOp>(op); });
    add(body, training ? StepPhase::Optimizer : StepPhase::Forward, 1);
  }

  double flops = 0;
  int64_t parameters = 0;
  std::map<std::tuple<std::string, StringRef, StringRef>, Row> traffic; ///< by axis, move, phase

private:
  /// The phases of `pc::stepPhase`, without looking for the seed again at every op.
  void add(Block &block, StepPhase phase, int64_t times) {
    for (Operation &op : block) {
      if (isa<SeedOp>(op) && isa<AccumulateOp>(block.getParentOp()))
        phase = StepPhase::Backward;
      if (auto accumulate = dyn_cast<AccumulateOp>(op))
        add(accumulate.getBody().front(), StepPhase::Forward, times * accumulate.getMicrobatches());
      if (auto start = dyn_cast<StartOp>(op))
        add(start.getBody().front(), phase, times);
      flops += static_cast<double>(times) * flopsOf(&op);
      if (auto parameter = dyn_cast<ParameterOp>(op))
        add(parameter);
      if (auto move = dyn_cast<MoveOpInterface>(op); move && hasTraffic(move.getMoveKind()))
        add(move, phase, times);
    }
  }

  void add(ParameterOp parameter) {
    SourceAttr source = parameter.getSource();
    if (!boxes.insert({source.getTensor().str(), source.getStart().vec(), source.getSize().vec()}).second)
      return; // tied
    int64_t elements = 1;
    for (int64_t size : source.getSize())
      elements *= size;
    parameters += elements;
  }

  void add(MoveOpInterface move, StepPhase phase, int64_t times) {
    SmallVector<StringRef> axes;
    for (StringAttr axis : move.getMoveAxes())
      axes.push_back(axis.getValue());
    if (!mesh || mesh.size(move.getMoveAxes()) == 1)
      return;
    Row &row = traffic[{llvm::join(axes, "+"), moveName(move.getMoveKind()), stepPhaseName(phase)}];
    Traffic one = trafficOf(move, mesh);
    row.count += times;
    row.payload += times * one.payload;
    row.wire += times * one.wire;
  }

  MeshAttr mesh;
  std::set<std::tuple<std::string, std::vector<int64_t>, std::vector<int64_t>>> boxes;
};

/// An integer where it fits.
json::Value number(double value) {
  if (value < 9.0e18)
    return static_cast<int64_t>(value);
  return value;
}

} // namespace

FailureOr<json::Value> pc::buildReport(ModuleOp planned, StringRef plan) {
  auto functions = llvm::to_vector(planned.getOps<func::FuncOp>());
  auto arenas = llvm::to_vector(planned.getOps<ArenaOp>());
  if (functions.size() != 1 || arenas.size() != 1 || !functions[0].getBody().hasOneBlock()) {
    planned.emitError() << "a report needs a planned program: one function and one pc.arena (pc-plan-memory)";
    return failure();
  }
  Block &body = functions[0].getBody().front();
  MeshAttr mesh = meshOf(planned);
  int64_t numRanks = mesh ? mesh.numRanks() : 1, arenaBytes = arenas[0].getBytes();
  Totals totals(mesh);
  totals.add(body);
  MemoryUse use = MemoryProfile(body).atPeak(arenaBytes);
  json::Object memory;
  for (int kind = 0; kind < numMemoryKinds; ++kind)
    memory[memoryKindName(static_cast<MemoryKind>(kind))] = use[kind];

  json::Object axes;
  if (mesh)
    for (auto [name, size] : llvm::zip_equal(mesh.getNames(), mesh.getSizes()))
      axes[name.str()] = size;
  json::Array ranks;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    ranks.push_back(rank);
  json::Array traffic;
  for (auto &[key, row] : totals.traffic)
    traffic.push_back(json::Object{{"axis", std::get<0>(key)},
                                   {"move", std::get<1>(key)},
                                   {"phase", std::get<2>(key)},
                                   {"count", row.count},
                                   {"payload_bytes", row.payload},
                                   {"wire_bytes", row.wire}});
  json::Object rank{{"ranks", std::move(ranks)},
                    {"arena_bytes", json::Object{{"device", arenaBytes}, {"host", 0}}},
                    {"memory", std::move(memory)},
                    {"traffic", std::move(traffic)}};
  return json::Value(json::Object{{"plan", plan.str()},
                                  {"mesh", std::move(axes)},
                                  {"parameters", totals.parameters},
                                  {"flops_per_step", number(totals.flops * static_cast<double>(numRanks))},
                                  {"per_rank", json::Array{std::move(rank)}}});
}
