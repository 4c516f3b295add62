//===- Page.cpp - The report as a page ----------------------------------------------------===//
// Collects the data of the page as JSON. Page.html has the text, the style and the code that draws.
//===-----------------------------------------------------------------------------===//
#include "MemoryUse.h"
#include "pc/Cost/Cost.h"
#include "pc/Cost/Report.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Generation.h"
#include "pc/IR/Stages.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include <map>
#include <numeric>

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

static constexpr StringLiteral page =
#include "Page.inc"
    ;

namespace {

/// Runs of digits between dots become "*", so that the layers of a model have equal names: "h.11.ln_1" becomes
/// "h.*.ln_1".
std::string withoutLayer(StringRef name) {
  SmallVector<StringRef> parts;
  name.split(parts, '.');
  for (StringRef &part : parts)
    if (!part.empty() && llvm::all_of(part, llvm::isDigit))
      part = "*";
  return llvm::join(parts, ".");
}

/// "64x1024 tp": every dim with the axes that split it.
std::string shapeText(ArrayRef<int64_t> shape, PlaceAttr place) {
  if (shape.empty())
    return "scalar";
  std::string text;
  for (auto [d, size] : llvm::enumerate(shape)) {
    text += (d ? " x " : "") + std::to_string(size);
    if (place)
      for (StringAttr axis : place.axes(d))
        text += "/" + axis.str();
  }
  return text;
}

/// Describes the work of an op in a planned step by a few words.
StringRef workName(Operation *op) {
  if (isa<MoveOpInterface, StartOp, WaitOp>(op))
    return "communication between ranks";
  if (isCausalAttention(op))
    return "attention";
  if (flopsOf(op) > 0)
    return "matrix products";
  if (isa<AdamWOp, SGDOp>(op))
    return "optimizer";
  return "elementwise, norms and reductions";
}

/// Collects the data of one program: its ops by position, memory over time, work by kind, moves, and the live values at
/// the peak. data() is called once.
class Page {
public:
  Page(Block &body) : body(body), liveness(body), profile(body) {}

  json::Object data();

private:
  void visit(Block &block, StepPhase phase, int64_t times);
  void addWork(Operation *op, int64_t times);
  json::Array memory();
  json::Array moves();
  json::Object peak();
  json::Array tensors();
  static std::string describe(Operation *op) {
    std::string name = sourceName(op);
    return op->getName().stripDialect().str() + (name.empty() ? "" : " of " + name);
  }

  /// The work of all ops with the same name of work (workName).
  struct Work {
    int64_t count = 0;
    double flops = 0, bytes = 0;
  };

  Block &body;
  Liveness liveness;
  MemoryProfile profile;
  SmallVector<Operation *> ops;                      ///< by position
  bool inFront = false;                              ///< belongs to the first microbatch, which the drawing shows first
  SmallVector<std::pair<StepPhase, int64_t>> phases; ///< the phases, with their start positions
  SmallVector<std::pair<Operation *, StepPhase>> phased; ///< ops that compute or move
  llvm::MapVector<StringRef, Work> work;
  TaskFunctions functions;
  llvm::MapVector<Block *, int64_t> calls; ///< the calls of functions
};

} // namespace

/// Walks in program order, also into accumulations, and notes where phases begin. Calls of functions are only counted
/// here.
void Page::visit(Block &block, StepPhase phase, int64_t times) {
  auto enter = [&](StepPhase next, Operation &op) {
    if (phases.empty() || phases.back().first != next)
      phases.push_back({next, liveness.position(&op)});
  };
  for (Operation &op : block) {
    if (std::optional<StepPhase> begun = phaseBegunBy(&op)) {
      phase = *begun;
      inFront = false;
    }
    ops.push_back(&op);
    if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
      enter(StepPhase::Forward, op);
      visit(accumulate.getBody().front(), StepPhase::Forward, times * accumulate.getMicrobatches());
      continue;
    }
    if (isLeaf(&op) || op.hasTrait<OpTrait::IsTerminator>() || op.getNumResults() == 0 || isa<MicrobatchOp>(op))
      continue;
    if (!inFront)
      enter(phase, op);
    phased.push_back({&op, phase});
    if (auto call = dyn_cast<CallOp>(op))
      calls[functions.of(call).body] += times;
    else
      addWork(&op, times);
  }
}

void Page::addWork(Operation *op, int64_t times) {
  Work &sum = work[workName(op)];
  sum.count += times;
  sum.flops += static_cast<double>(times) * flopsOf(op);
  sum.bytes += static_cast<double>(times) * static_cast<double>(bytesOf(op));
}

/// Rows [position, bytes by kind in the order of the page, op], one for each change. If there would be more than about
/// 1500 rows, rows are grouped, and only the row with the most bytes of each group is kept.
json::Array Page::memory() {
  int64_t positions = liveness.size(), first = phases.empty() ? 0 : phases[0].second;
  int64_t window = std::max<int64_t>(1, (positions - first) / 1500);
  std::vector<MemoryUse> change(positions + 1, MemoryUse{});
  for (const PlacedBuffer &buffer : profile.buffers()) {
    change[buffer.life.first][static_cast<int>(buffer.kind)] += buffer.bytes;
    change[buffer.life.last + 1][static_cast<int>(buffer.kind)] -= buffer.bytes;
  }
  SmallVector<MemoryKind> order = {MemoryKind::Parameter,  MemoryKind::Optimizer,     MemoryKind::Gradient,
                                   MemoryKind::Activation, MemoryKind::Communication, MemoryKind::Workspace};
  if (profile.atMost()[static_cast<int>(MemoryKind::Cache)]) // only programs that generate have caches
    order.insert(order.begin() + 1, MemoryKind::Cache);
  json::Array rows;
  MemoryUse live = {};
  // The leaves are live from the start, so they are part of the first row.
  for (int64_t p = 0; p < first; ++p) // these positions are leaves
    for (int kind = 0; kind < numMemoryKinds; ++kind)
      live[kind] += change[p][kind];
  for (int64_t begin = first; begin < positions; begin += window) {
    MemoryUse fullest = {};
    int64_t most = -1, at = begin;
    for (int64_t p = begin; p < std::min(begin + window, positions); ++p) {
      for (int kind = 0; kind < numMemoryKinds; ++kind)
        live[kind] += change[p][kind];
      if (int64_t total = std::accumulate(live.begin(), live.end(), int64_t(0)); total > most)
        most = total, fullest = live, at = p;
    }
    json::Array row{begin};
    for (MemoryKind kind : order)
      row.push_back(fullest[static_cast<int>(kind)]);
    row.push_back(describe(ops[at]));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The first 400 moves at most, in the order of issue: when each is issued, when its result arrives, and when its
/// result is freed.
json::Array Page::moves() {
  json::Array rows;
  MeshAttr mesh = meshOf(body.getParentOp());
  auto add = [&](MoveOpInterface move, StepPhase phase, Operation *issued, Value result) {
    if (!hasTraffic(move.getMoveKind()) || rows.size() >= 400)
      return;
    Traffic traffic = trafficOf(move, mesh);
    rows.push_back(json::Object{{"move", moveName(move.getMoveKind())},
                                {"name", sourceName(move)},
                                {"axis", axesText(move)},
                                {"ranks", mesh ? mesh.size(move.getMoveAxes()) : 1},
                                {"phase", stepPhaseName(phase)},
                                {"payload", traffic.payload},
                                {"wire", traffic.wire},
                                {"issued", liveness.position(issued)},
                                {"there", liveness.position(result.getDefiningOp())},
                                {"freed", liveness.lifetime(result).last}});
  };
  for (auto [op, phase] : phased) {
    if (auto move = dyn_cast<MoveOpInterface>(op))
      add(move, phase, op, op->getResult(0));
    else if (auto start = dyn_cast<StartOp>(op))
      for (auto [move, result] : llvm::zip_equal(start.getMoves(), start.getWait()->getResults()))
        add(move, phase, op, result);
  }
  return rows;
}

/// The buffers that are live at the peak, the largest first.
json::Object Page::peak() {
  struct Sum {
    MemoryKind kind;
    int64_t count = 0, bytes = 0;
  };
  // The key includes the kind, because buffers of one name may be of several kinds.
  llvm::MapVector<std::string, Sum, std::map<std::string, unsigned>> sums;
  int64_t position = profile.peak(), total = 0;
  for (const PlacedBuffer &buffer : profile.buffers()) {
    if (buffer.life.first > position || buffer.life.last < position)
      continue;
    total += buffer.bytes;
    Operation *op = buffer.value.getDefiningOp();
    // Buffers of the same kind and name, except for the layer, are one line of the table.
    std::string name;
    if (auto state = dyn_cast<StateOp>(op))
      name = state.getName().str() + " of " + withoutLayer(state.getParameter());
    else if (auto parameter = dyn_cast<ParameterOp>(op))
      name = withoutLayer(parameter.getName());
    else
      name = withoutLayer(describe(op));
    Sum &sum = sums.insert({name + memoryKindName(buffer.kind).str(), Sum{buffer.kind}}).first->second;
    ++sum.count;
    sum.bytes += buffer.bytes;
  }
  auto entries = sums.takeVector();
  llvm::sort(entries, [](const auto &a, const auto &b) {
    return std::tie(b.second.bytes, a.first) < std::tie(a.second.bytes, b.first);
  });
  json::Array buffers;
  for (const auto &[name, sum] : ArrayRef(entries).take_front(16)) {
    StringRef kind = memoryKindName(sum.kind);
    buffers.push_back(json::Object{{"name", name.substr(0, name.size() - kind.size())},
                                   {"kind", kind},
                                   {"count", sum.count},
                                   {"bytes", sum.bytes}});
  }
  return json::Object{
      {"position", position}, {"at", describe(ops[position])}, {"bytes", total}, {"buffers", std::move(buffers)}};
}

/// One row for a parameter and its copies in other layers.
json::Array Page::tensors() {
  /// The row of a parameter: how many layers have it, and the bytes of the parameter and of its states.
  struct Row {
    int64_t count = 0, bytes = 0, state = 0;
  };
  llvm::StringMap<int64_t> states; // bytes, by parameter
  for (auto state : body.getOps<StateOp>())
    states[state.getParameter()] += byteSize(state.getType());
  using Key = std::tuple<std::string, std::string, std::string>;
  llvm::MapVector<Key, Row, std::map<Key, unsigned>> sums;
  for (auto parameter : body.getOps<ParameterOp>()) {
    RankedTensorType type = cast<RankedTensorType>(parameter.getType());
    std::string whole = parameter.getGlobal() ? shapeText(*parameter.getGlobal(), parameter.getLayoutAttr())
                                              : shapeText(type.getShape(), {});
    Row &row = sums[{withoutLayer(parameter.getName()), whole, shapeText(type.getShape(), {})}];
    ++row.count;
    row.bytes += byteSize(type);
    row.state += states.lookup(parameter.getName());
  }
  json::Array rows;
  for (auto &[key, row] : sums)
    rows.push_back(json::Object{{"name", std::get<0>(key)},
                                {"whole", std::get<1>(key)},
                                {"local", std::get<2>(key)},
                                {"count", row.count},
                                {"bytes", row.bytes},
                                {"state", row.state}});
  return rows;
}

/// All data of the page, in the form that its script reads.
json::Object Page::data() {
  bool training = llvm::any_of(body, [](Operation &op) { return isa<AccumulateOp, UpdateOp>(op); }) &&
                  !generates(body.getParentOp()->getParentOfType<ModuleOp>());
  inFront = training;
  visit(body, StepPhase::Forward, 1);
  for (auto &[function, times] : calls)
    for (Operation &op : *function)
      if (op.getNumResults())
        addWork(&op, times);
  json::Array bands, works;
  for (auto [i, phase] : llvm::enumerate(phases))
    bands.push_back(json::Array{stepPhaseName(phase.first), phase.second,
                                i + 1 < phases.size() ? phases[i + 1].second : liveness.size()});
  for (auto &[name, sum] : work)
    works.push_back(json::Object{{"name", name}, {"count", sum.count}, {"flops", sum.flops}, {"bytes", sum.bytes}});
  return json::Object{{"training", training},       {"positions", liveness.size()},
                      {"phases", std::move(bands)}, {"memory", memory()},
                      {"moves", moves()},           {"peak", peak()},
                      {"tensors", tensors()},       {"work", std::move(works)}};
}

/// The capacity of a program that generates text: data ranks, their slots, the tokens of a slot, and the tokens and
/// prompt tokens of a step of a data rank. Null for other programs.
static json::Value describeGeneration(ModuleOp whole) {
  if (!generates(whole))
    return nullptr;
  json::Object facts{{"chunk", 0}};
  auto globalOf = [](auto leaf) {
    return leaf.getGlobal() ? *leaf.getGlobal() : cast<RankedTensorType>(leaf.getValue().getType()).getShape();
  };
  whole.walk([&](StateOp state) {
    if (!state.getCache())
      return;
    CacheSizes sizes(globalOf(state));
    facts["groups"] = sizes.batch, facts["slots"] = sizes.slots, facts["context"] = sizes.parts * sizes.context;
  });
  whole.walk([&](InputOp input) {
    if (StringRef name = input.getName().value_or(""); name.starts_with("slots"))
      facts[name == "slots" ? "tokens" : "chunk"] = globalOf(input).back();
  });
  return facts;
}

/// The stage with the largest arena, or the one program.
static ModuleOp fullestProgram(ModuleOp planned) {
  auto bytesOf = [](ModuleOp program) {
    int64_t bytes = 0;
    for (auto arena : program.getOps<ArenaOp>())
      bytes = arena.getBytes();
    return bytes;
  };
  SmallVector<ModuleOp> programs = programsOf(planned);
  return *std::max_element(programs.begin(), programs.end(),
                           [&](ModuleOp a, ModuleOp b) { return bytesOf(a) < bytesOf(b); });
}

/// The page shows the fullest program. Figures of all stages are in `report`.
LogicalResult pc::printReportPage(ModuleOp whole, json::Value report, const StepTimeline &timeline,
                                  llvm::raw_ostream &os) {
  ModuleOp planned = fullestProgram(whole);
  SmallVector<func::FuncOp> steps = stepsOf(planned);
  auto programs = llvm::to_vector(planned.getOps<ProgramOp>());
  if (steps.size() != 1 || programs.empty())
    return planned.emitError() << "a report needs a planned program; run pc-plan-memory first";
  Block &body = steps[0].getBody().front();
  json::Object data = Page(body).data();
  int64_t microbatches = 1;
  for (auto accumulate : body.getOps<AccumulateOp>())
    microbatches = accumulate.getMicrobatches();
  for (auto task : body.getOps<TaskOp>())
    microbatches = std::max<int64_t>(microbatches, task.getMicrobatch().value_or(0) + 1);
  json::Array axes; // outermost first; a JSON object would not keep this order
  if (MeshAttr mesh = meshOf(planned))
    for (auto [name, size] : llvm::zip_equal(mesh.getNames(), mesh.getSizes()))
      axes.push_back(json::Array{name.str(), size});
  data["axes"] = std::move(axes);
  data["model"] = programs[0].getName();
  if (planned != whole)
    data["stage"] = stageOf(planned);
  data["batch"] = programs[0].getBatch();
  data["sequence"] = programs[0].getSequence();
  data["microbatches"] = microbatches;
  data["generation"] = describeGeneration(whole);
  data["report"] = std::move(report);
  std::string text;
  llvm::raw_string_ostream stream(text);
  json::OStream out(stream);
  writeWithTimeline(std::move(data), timeline, out);
  // Inside a script element, "</" would end the element.
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "<\\/");
  auto [before, after] = StringRef(page).split("@DATA@");
  os << before << text << after;
  return success();
}
