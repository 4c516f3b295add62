//===- Report.cpp - The report of a plan's predicted costs -------------------------------------===//
// Input: a planned program, of one or of all stages. Result: JSON with FLOPs, parameters, memory by kind, and traffic
// by axis, move and phase. Ranks with equal figures share an entry. A run's summary has the same schema
// (runtime/metrics), and end-to-end tests compare the two.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Report.h"
#include "MemoryUse.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Generation.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Parts.h"
#include "pc/IR/Rounds.h"
#include "pc/IR/Stages.h"
#include "pcrt/block_codes.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include <map>
#include <set>
#include <tuple>

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

namespace {

/// Moves of one kind over one axis in one phase; payload and wire in bytes per step and rank.
struct TrafficRow {
  int64_t count = 0, payload = 0, wire = 0;
};

using Boxes = std::set<std::tuple<std::string, std::vector<int64_t>, std::vector<int64_t>>>;

/// The ops of the forward pass that follow the seed of the backward pass, which pc-fuse moves before the loss. Results
/// of the block that do not depend on the seed need them. Only gradients need values that are computed again.
class ForwardAfterSeed {
public:
  explicit ForwardAfterSeed(Block &block) {
    if (block.getOps<SeedOp>().empty() || !block.getOps<TaskOp>().empty())
      return; // tasks begin their phases themselves
    findGradients(block);
    findNeeded(block);
  }

  SmallVector<Operation *> ops; ///< also those in fusions

private:
  using Values = llvm::DenseSet<Value>;
  static void pass(Values &known, ValueRange from, ValueRange to) {
    for (auto [a, b] : llvm::zip_equal(from, to))
      if (known.contains(a))
        known.insert(b);
  }

  /// The body of a fusion or of started moves, and the values outside that are its results; null for other ops.
  static std::pair<Block *, ValueRange> bodyOf(Operation &op) {
    if (auto fusion = dyn_cast<FusionOp>(op))
      return {&fusion.getBody().front(), fusion->getResults()};
    if (auto start = dyn_cast<StartOp>(op))
      return {&start.getBody().front(), start.getWait()->getResults()};
    return {};
  }

  void findGradients(Block &block) {
    for (Operation &op : block) {
      if (auto [body, results] = bodyOf(op); body) {
        pass(gradients, op.getOperands(), body->getArguments());
        findGradients(*body);
        pass(gradients, body->getTerminator()->getOperands(), results);
      } else if (isa<SeedOp>(op) ||
                 llvm::any_of(op.getOperands(), [&](Value operand) { return gradients.contains(operand); })) {
        gradients.insert_range(op.getResults());
      }
    }
  }

  void findNeeded(Block &block) {
    for (Operation &op : llvm::reverse(block)) {
      if (isa<SeedOp>(op))
        return;
      if (auto [body, results] = bodyOf(op); body) {
        pass(needed, results, body->getTerminator()->getOperands());
        findNeeded(*body);
        pass(needed, body->getArguments(), op.getOperands());
        continue;
      }
      const bool isOfBlock = op.getNumResults() == 0 && !bodyOf(*block.getParentOp()).first;
      if (!isOfBlock && llvm::none_of(op.getResults(), [&](Value result) { return needed.contains(result); }))
        continue;
      for (Value operand : op.getOperands())
        if (!gradients.contains(operand))
          needed.insert(operand);
      ops.push_back(&op);
    }
  }

  Values gradients, needed;
};

/// Sums over the ops of a step, in one walk.
class Totals {
public:
  /// Adds up the figures of `rank`. `boxes` are the parameters that have already been counted.
  Totals(MeshAttr mesh, int64_t rank, StringAttr stageAxis, Boxes &boxes)
      : mesh(mesh), coordinates(mesh ? mesh.coordinates(rank) : SmallVector<int64_t>()), stageAxis(stageAxis),
        boxes(boxes) {}

  void add(Block &body) {
    add(body, StepPhase::Forward, 1);
    for (auto &[called, times] : calls)
      add(*called.first, called.second, times);
  }

  /// Adds the moves at the end of a round of local SGD: an all_reduce of every parameter, or an all_gather of its
  /// codes.
  void addRound(ModuleOp program) {
    std::optional<Rounds> rounds = Rounds::of(program);
    int64_t replicas = rounds ? mesh.size(rounds->axis) : 1;
    if (replicas == 1)
      return;
    MoveKind kind = rounds->codes ? MoveKind::AllGather : MoveKind::AllReduce;
    TrafficRow &row = traffic[{rounds->axis.str(), moveName(kind), "round"}];
    program.walk([&](ParameterOp parameter) {
      if (parameter.getFrozen())
        return;
      int64_t bytes = byteSize(parameter.getValue().getType());
      ++row.count;
      if (rounds->codes) { // a byte per element, in groups of four, and a scale per 256 elements
        int64_t elements = bytes / 4, own = llvm::divideCeil(elements, 4) * 4 + llvm::divideCeil(elements, 256) * 4;
        row.payload += replicas * own;
        row.wire += (replicas - 1) * own;
      } else {
        row.payload += bytes;
        row.wire += 2 * (replicas - 1) * bytes / replicas;
      }
    });
  }

  double flops = 0;
  double forwardFlops[2] = {};              ///< Flops of products in the forward pass: in f32, in bf16.
  int64_t parameters = 0, messageBytes = 0; ///< messageBytes: slots of the flows that end on this rank
  std::map<std::tuple<std::string, StringRef, StringRef>, TrafficRow> traffic; ///< by axis, move, phase
  std::map<std::tuple<std::string, StringRef, int64_t>, TrafficRow> codes;     ///< of addends, by axis, move, bits

private:
  /// Adds the ops of a block, which begins in `phase`.
  void add(Block &block, StepPhase phase, int64_t times) {
    for (Operation &op : block) {
      phase = phaseBegunBy(&op).value_or(phase);
      if (auto accumulate = dyn_cast<AccumulateOp>(op))
        add(accumulate.getBody().front(), StepPhase::Forward, times * accumulate.getMicrobatches());
      if (auto start = dyn_cast<StartOp>(op))
        add(start.getBody().front(), phase, times);
      if (auto call = dyn_cast<CallOp>(op))
        calls[{functions.of(call).body, phase}] += times;
      if (auto send = dyn_cast<SendOp>(op))
        add(send);
      if (auto receive = dyn_cast<ReceiveOp>(op);
          receive && flows.insert({receive.getStage(), receive.getFlow()}).second)
        messageBytes += static_cast<int64_t>(receive.getSlots()) * byteSize(receive.getValue().getType());
      flops += static_cast<double>(times) * flopsOf(&op);
      if (phase == StepPhase::Forward)
        addForward(&op, times);
      if (auto parameter = dyn_cast<ParameterOp>(op))
        add(parameter);
      if (auto move = dyn_cast<MoveOpInterface>(op); move && hasTraffic(move.getMoveKind()))
        add(move, phase, times);
    }
    for (Operation *op : ForwardAfterSeed(block).ops)
      addForward(op, times);
  }

  /// Operations of the forward pass, separately for f32 and bf16.
  void addForward(Operation *op, int64_t times) {
    if (auto fusion = dyn_cast<FusionOp>(op))
      for (Operation &inner : fusion.getBody().front())
        addForward(&inner, times);
    else if (double flops = flopsOf(op))
      forwardFlops[cast<RankedTensorType>(op->getOperand(0).getType()).getElementType().isBF16()] +=
          static_cast<double>(times) * flops;
  }

  /// Counts elements of the checkpoint. Elements that two parameters share count once.
  void add(ParameterOp parameter) {
    for (const ParameterPart &part : partsOf(parameter)) {
      SourceAttr source = part.source;
      if (boxes.insert({source.getTensor().str(), source.getStart().vec(), source.getSize().vec()}).second) // not tied
        parameters += ShapedType::getNumElements(source.getSize());
    }
  }

  /// A message goes to one rank, so its payload and its wire bytes are equal.
  void add(SendOp send) {
    TrafficRow &row = traffic[{stageAxis ? stageAxis.str() : "", "send", "p2p"}];
    int64_t bytes = byteSize(send.getX().getType());
    ++row.count;
    row.payload += bytes;
    row.wire += bytes;
  }

  /// Adds the bytes that the rank sends, which depend on its coordinates if a move has a root.
  void add(MoveOpInterface move, StepPhase phase, int64_t times) {
    if (!isa<CarryOp>(*move) && (!mesh || mesh.size(move.getMoveAxes()) == 1))
      return;
    TrafficRow &row = traffic[{axesText(move), move->getName().stripDialect(), stepPhaseName(phase)}];
    bool isRoot = llvm::all_of(move.getMoveAxes(), [&](StringAttr axis) { return coordinates[mesh.index(axis)] == 0; });
    Traffic one = trafficOf(move, mesh, isRoot);
    auto add = [&](TrafficRow &row) {
      row.count += times;
      row.payload += times * one.payload;
      row.wire += times * one.wire;
    };
    add(row);
    if (WireAttr wire = wireOf(move->getOperand(0)))
      add(codes[{axesText(move), move->getName().stripDialect(), wire.getBits()}]);
  }

  MeshAttr mesh;
  SmallVector<int64_t> coordinates;
  StringAttr stageAxis;
  Boxes &boxes;
  std::set<std::pair<int64_t, int64_t>> flows; ///< flows that end on this rank
  TaskFunctions functions;
  llvm::MapVector<std::pair<Block *, StepPhase>, int64_t> calls; ///< the calls of functions, by phase
};

/// The value as JSON; an integer if it has no fraction.
json::Value number(double value) {
  if (value < 9.0e18)
    return static_cast<int64_t>(value);
  return value;
}

/// The ranks that run the program of a stage; without stages, all ranks.
SmallVector<int64_t> ranksOf(MeshAttr mesh, StringAttr stageAxis, int64_t stage) {
  SmallVector<int64_t> ranks;
  int64_t inner = 1, size = 1, numRanks = mesh ? mesh.numRanks() : 1;
  if (stageAxis) {
    size = mesh.size(stageAxis);
    for (int64_t n : mesh.getSizes().drop_front(mesh.index(stageAxis) + 1))
      inner *= n;
  }
  for (int64_t rank = 0; rank < numRanks; ++rank)
    if (!stageAxis || rank / inner % size == stage)
      ranks.push_back(rank);
  return ranks;
}

/// Splits `ranks` into groups that are the root of the same rooted moves of `program`.
SmallVector<SmallVector<int64_t>> separateRoots(ArrayRef<int64_t> ranks, ModuleOp program, MeshAttr mesh) {
  std::set<std::vector<int64_t>> rooted; // lists of axes, as numbers of axes
  program.walk([&](MoveOpInterface move) {
    std::vector<int64_t> axes;
    for (StringAttr axis : move.getMoveAxes())
      axes.push_back(mesh.index(axis));
    if (isRooted(move.getMoveKind()))
      rooted.insert(axes);
  });
  std::map<std::vector<bool>, SmallVector<int64_t>> groups;
  for (int64_t rank : ranks) {
    SmallVector<int64_t> coordinates = mesh ? mesh.coordinates(rank) : SmallVector<int64_t>();
    std::vector<bool> isRoot;
    for (const std::vector<int64_t> &axes : rooted)
      isRoot.push_back(llvm::all_of(axes, [&](int64_t axis) { return coordinates[axis] == 0; }));
    groups[isRoot].push_back(rank);
  }
  SmallVector<SmallVector<int64_t>> result;
  for (auto &group : groups)
    result.push_back(std::move(group.second));
  return result;
}

json::Array numbers(ArrayRef<int64_t> values) {
  json::Array array;
  llvm::append_range(array, values);
  return array;
}

} // namespace

static json::Object byKind(const MemoryUse &use) {
  json::Object object;
  for (int kind = 0; kind < numMemoryKinds; ++kind)
    if (use[kind] || kind != static_cast<int>(MemoryKind::Cache)) // only programs that generate have caches
      object[memoryKindName(static_cast<MemoryKind>(kind))] = use[kind];
  return object;
}

/// Describes the largest layer of experts that stores by rows: its rows if all tokens choose experts of this rank
/// (memory is planned for these), and if every expert is chosen equally often. If the rows are computed in more than
/// one round: also the number of rounds, and the rows that exist at once. Null if there is no such layer.
static json::Value describeRows(ModuleOp program) {
  int64_t experts = 0, capacity = INT64_MAX, worst = 0, balanced = 0, rounds = 1, atOnce = 0;
  program.walk([&](TopKOp choice) {
    experts = std::max(experts, cast<RankedTensorType>(choice.getResult().getType()).getShape().back());
  });
  program.walk([&](AdmitOp op) { capacity = std::min(capacity, static_cast<int64_t>(op.getCapacity())); });
  // For a layer that is computed in rounds, the last round is read, because it has the number of rows before it.
  program.walk([&](EinsumOp op) {
    RowsAttr rows = op.getMask() ? pc::rowsOf(op.getResult()) : RowsAttr();
    auto round = rows ? op.getMask().getDefiningOp<RoundOfRowsOp>() : RoundOfRowsOp();
    if (!rows || (round && round.getRound() + 1 != round.getRounds()))
      return;
    const int64_t before = round ? static_cast<int64_t>(round.getRound() * round.getLimit()) : 0;
    if (rows.getCount() + before <= worst)
      return;
    // If choices are balanced, an entry of the mask is chosen in `routed` of `experts` cases, within the capacity.
    auto mask = cast<RankedTensorType>(op.getMask().getType());
    int64_t entries = mask.getNumElements(), length = mask.getRank() > 2 ? mask.getShape().end()[-2] : entries;
    worst = rows.getCount() + before;
    rounds = round ? static_cast<int64_t>(round.getRounds()) : 1;
    atOnce = round ? static_cast<int64_t>(round.getLimit()) : worst;
    balanced = experts ? llvm::divideCeil(entries * static_cast<int64_t>(*op.getRouted()), experts) : worst;
    balanced = std::min(balanced, entries / length * std::min(capacity, length));
  });
  json::Object rows{{"at_worst", worst}, {"balanced", balanced}};
  if (rounds > 1) {
    rows["rounds"] = rounds;
    rows["at_once"] = atOnce;
  }
  return worst ? json::Value(std::move(rows)) : json::Value(nullptr);
}

/// The parameters of a rank by the bits of an element: their names, bytes, and those of scales.
static json::Object describeWeights(ModuleOp program) {
  std::map<unsigned, json::Object> byBits;
  program.walk([&](ParameterOp parameter) {
    auto type = cast<RankedTensorType>(parameter.getType());
    json::Object &row = byBits[type.getElementTypeBitWidth()];
    auto add = [&](StringRef key, int64_t bytes) { row[key] = row.getInteger(key).value_or(0) + bytes; };
    json::Value &names = row["tensors"];
    if (!names.getAsArray())
      names = json::Array();
    names.getAsArray()->push_back(parameter.getName());
    add("bytes", byteSize(type));
    if (StateOp scales = isCode(type.getElementType()) ? scalesOf(parameter) : StateOp())
      add("scale_bytes", byteSize(scales.getValue().getType()));
  });
  json::Object weights;
  for (auto &[bits, row] : byBits)
    weights["bits_" + std::to_string(bits)] = std::move(row);
  return weights;
}

/// The states of the optimizer on a rank by the bits of an element, if some are codes: their number, bytes, and the
/// bytes of scales. Null if none are.
static json::Value describeStates(ModuleOp program) {
  std::map<unsigned, json::Object> byBits;
  auto add = [&](unsigned bits, StringRef key, int64_t more) {
    json::Object &row = byBits[bits];
    row[key] = row.getInteger(key).value_or(0) + more;
  };
  program.walk([&](StateOp state) {
    auto type = cast<RankedTensorType>(state.getType());
    if (state.getCache())
      return;
    if (state.getName().ends_with(PCRT_SCALES))
      return add(8, "scale_bytes", byteSize(type));
    add(type.getElementTypeBitWidth(), "tensors", 1);
    add(type.getElementTypeBitWidth(), "bytes", byteSize(type));
  });
  if (auto codes = byBits.find(8); codes == byBits.end() || !codes->second.get("tensors"))
    return nullptr;
  json::Object states;
  for (auto &[bits, row] : byBits)
    states["bits_" + std::to_string(bits)] = std::move(row);
  return states;
}

/// What a step rounds to codes, apart from states, with the bits and the bound of the error of an element: the matrices
/// that the passes read, the operands of products in fp8, and the gradients that ranks add, by move.
static json::Array describeLossy(ModuleOp program, const Totals &totals) {
  int64_t matrices = 0, operands = 0, scaled = 0, decoded = 0;
  bool hasE5M2 = false;
  program.walk([&](DecodeOp decode) {
    auto reads = [](Operation *user) { return isa<EinsumOp>(user) && multipliesCodes(cast<EinsumOp>(user)); };
    decoded += decode.getIsFloat8() && !llvm::any_of(decode->getUsers(), reads);
  });
  program.walk([&](EncodeOp encode) {
    matrices += encode.getIsLinear();
    operands += encode.getIsFloat8();
    hasE5M2 |= isa<Float8E5M2Type>(getElementTypeOrSelf(encode.getCodes()));
  });
  program.walk([&](EncodeScaledOp encode) {
    ++scaled;
    hasE5M2 |= isa<Float8E5M2Type>(getElementTypeOrSelf(encode.getCodes()));
  });
  json::Array rows;
  auto add = [&](StringRef what, int64_t tensors, std::string bound) {
    if (tensors)
      rows.push_back(json::Object{{"what", what}, {"bits", 8}, {"tensors", tensors}, {"bound", std::move(bound)}});
  };
  add("weights", matrices, "largest magnitude of the block / 254");
  add("operands", operands,
      "the element / " + std::to_string(hasE5M2 ? 8 : 16) + " or largest magnitude of the block / 2^17");
  add("operands", scaled,
      "the element / " + std::to_string(hasE5M2 ? 8 : 16) +
          " or the scale / 2^10; with delayed scaling, also the excess over the largest number of the scale");
  if (operands || scaled) // a program has one kind of them
    (*rows.back().getAsObject())["decoded"] = decoded;
  for (auto &[key, row] : totals.codes)
    rows.push_back(json::Object{{"what", "gradients"},
                                {"axis", std::get<0>(key)},
                                {"move", std::get<1>(key)},
                                {"bits", std::get<2>(key)},
                                {"count", row.count},
                                {"payload_bytes", row.payload},
                                {"wire_bytes", row.wire},
                                {"bound", "sum over ranks of largest magnitude of the block / " +
                                              std::to_string(std::get<2>(key) == 8 ? 254 : 14)}});
  return rows;
}

int64_t pc::largestArena(ModuleOp planned, Space space) {
  int64_t bytes = 0;
  planned.walk([&](ArenaOp arena) { bytes = std::max(bytes, arena.sizeOf(space)); });
  return bytes;
}

int64_t pc::mostActivationBytes(ModuleOp planned) {
  int64_t bytes = 0;
  for (ModuleOp program : programsOf(planned))
    for (func::FuncOp step : stepsOf(program))
      bytes = std::max(bytes, MemoryProfile(step.getBody().front()).atMost()[static_cast<int>(MemoryKind::Activation)]);
  return bytes;
}

/// The bytes of the largest leaf, of a layer or not, that `op` carries to the device.
static int64_t mostCarried(Operation &op, bool ofLayer) {
  int64_t most = 0;
  if (isa<CarryOp, StartOp>(op))
    for (Value input : op.getOperands())
      if (Operation *leaf = input.getDefiningOp();
          leaf && isLeaf(leaf) && spaceOf(input) != Space::Device && layerOf(sourceName(leaf)).empty() != ofLayer)
        most = std::max(most, byteSize(input.getType()));
  return most;
}

/// Adds up buffers by position.
ArenaParts pc::arenaAroundTables(ModuleOp planned) {
  ArenaParts parts{largestArena(planned)};
  SmallVector<func::FuncOp> steps = stepsOf(planned);
  if (steps.empty())
    return parts;
  Block &body = steps[0].getBody().front();
  auto isEnd = [](Operation &op) { return phaseBegunBy(&op) == StepPhase::Optimizer; };
  auto optimizer = llvm::make_range(llvm::find_if(body, isEnd), body.end());
  int64_t ofLayers = 0;
  for (Operation &op : optimizer)
    ofLayers = std::max(ofLayers, mostCarried(op, /*ofLayer=*/true));
  auto first = llvm::find_if(optimizer, [&](Operation &op) { return mostCarried(op, /*ofLayer=*/false) > ofLayers; });
  if (first == body.end())
    return parts;
  MemoryProfile profile(body);
  std::vector<int64_t> change(profile.liveness().size() + 1);
  for (const PlacedBuffer &buffer : profile.buffers()) {
    change[buffer.life.first] += buffer.bytes;
    change[std::min(buffer.life.last + 1, profile.liveness().size())] -= buffer.bytes;
  }
  int64_t at = profile.liveness().position(&*first), live = 0, before = 0, after = 0;
  for (auto [position, bytes] : llvm::enumerate(change)) {
    live += bytes;
    int64_t &most = static_cast<int64_t>(position) < at ? before : after;
    most = std::max(most, live);
  }
  return {before, after, parts.before - std::max(before, after)};
}

/// Walks the program of each stage once per group of ranks with equal traffic.
FailureOr<json::Value> pc::buildReport(ModuleOp planned, StringRef plan) {
  StringAttr stageAxis = stageAxisOf(planned);
  Boxes boxes;
  int64_t parameters = 0;
  double flops = 0, forward[2] = {};
  bool trains = false;
  json::Object axes;
  /// Figures, and the ranks that share them.
  SmallVector<std::pair<json::Object, SmallVector<int64_t>>> entries;
  for (ModuleOp program : programsOf(planned)) {
    SmallVector<func::FuncOp> steps = stepsOf(program);
    auto arenas = llvm::to_vector(program.getOps<ArenaOp>());
    if (steps.size() != 1 || arenas.size() != 1 || !steps[0].getBody().hasOneBlock()) {
      program.emitError()
          << "a report needs a planned program, with one function and one pc.arena; run pc-plan-memory first";
      return failure();
    }
    Block &body = steps[0].getBody().front();
    MeshAttr mesh = meshOf(program);
    int64_t arenaBytes = arenas[0].getBytes();
    SmallVector<int64_t> ranks = ranksOf(mesh, stageAxis, stageOf(program));
    // Parameters and operations are counted at the first rank, because the ranks of a program differ only in traffic.
    Totals totals(mesh, ranks.front(), stageAxis, boxes);
    totals.add(body);
    MemoryProfile profile(body);
    json::Object memory = byKind(profile.atPeak(arenaBytes)), most = byKind(profile.atMost());
    if (mesh)
      for (auto [name, size] : llvm::zip_equal(mesh.getNames(), mesh.getSizes()))
        axes[name.str()] = size;
    parameters += totals.parameters;
    flops += totals.flops * static_cast<double>(ranks.size());
    for (int type : {0, 1})
      forward[type] += totals.forwardFlops[type] * static_cast<double>(ranks.size());
    trains |= pc::trains(program);
    // A root sends more than other ranks, so it has a separate entry. Ranks with equal figures share an entry.
    for (ArrayRef<int64_t> members : separateRoots(ranks, program, mesh)) {
      Totals own(mesh, members.front(), stageAxis, boxes);
      own.add(body);
      own.addRound(program);
      json::Array traffic;
      for (auto &[key, row] : own.traffic)
        traffic.push_back(json::Object{{std::get<1>(key) == "carry" ? "link" : "axis", std::get<0>(key)},
                                       {"move", std::get<1>(key)},
                                       {"phase", std::get<2>(key)},
                                       {"count", row.count},
                                       {"payload_bytes", row.payload},
                                       {"wire_bytes", row.wire}});
      json::Object figures{{"arena_bytes", json::Object{{"device", arenaBytes},
                                                        {"host", totals.messageBytes + arenas[0].sizeOf(Space::Host)}}},
                           {"memory", json::Object(memory)},
                           {"memory_at_most", json::Object(most)},
                           {"traffic", std::move(traffic)}};
      if (int64_t disk = arenas[0].getDisk())
        (*figures.getObject("arena_bytes"))["disk"] = disk;
      if (json::Value rows = describeRows(program); rows.kind() != json::Value::Null)
        figures["rows"] = std::move(rows);
      if (json::Value states = describeStates(program); states.kind() != json::Value::Null)
        figures["states"] = std::move(states);
      if (json::Array lossy = describeLossy(program, own); !lossy.empty())
        figures["lossy"] = std::move(lossy);
      if (generates(planned))
        figures["weights"] = describeWeights(program);
      // Ranks of different stages may also have equal figures.
      auto same = llvm::find_if(entries, [&](const auto &entry) { return entry.first == figures; });
      if (same == entries.end())
        entries.push_back({std::move(figures), SmallVector<int64_t>(members)});
      else
        llvm::append_range(same->second, members);
    }
  }
  for (auto &[figures, ranks] : entries) {
    llvm::sort(ranks);
    figures["ranks"] = numbers(ranks);
  }
  llvm::sort(entries, [](const auto &a, const auto &b) { return a.second.front() < b.second.front(); });
  json::Array perRank;
  for (auto &entry : entries)
    perRank.push_back(std::move(entry.first));
  double passes = trains ? 3 : 1; // a product has two gradients, each with as many operations as the product
  return json::Value(json::Object{
      {"plan", plan.str()},
      {"mesh", std::move(axes)},
      {"parameters", parameters},
      {"flops_per_step", number(flops)},
      {"model_flops", json::Object{{"f32", number(passes * forward[0])}, {"bf16", number(passes * forward[1])}}},
      {"per_rank", std::move(perRank)}});
}
