//===- Rounds.cpp - Local SGD in the IR -----------------------------------===//
// Reads and writes the module's attribute `pc.rounds`, and builds the function @round, with which replicas average
// their parameters: Nesterov momentum on the mean difference between the shared parameters and those of the replicas
// (DiLoCo, A. Douillard et al., 2023). The function processes one parameter at a time, in two buffers after the leaves,
// in memory that is free between steps.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Rounds.h"
#include "pc/IR/Calls.h"
#include "pc/IR/LeavesByName.h"
#include "pc/IR/Liveness.h"
#include "pcrt/codes.h"

using namespace mlir;
using namespace pc;

static constexpr StringLiteral attributeName = "pc.rounds";

/// A dictionary that lacks one of the fields is ignored.
std::optional<Rounds> Rounds::of(ModuleOp program) {
  auto fields = program->getAttrOfType<DictionaryAttr>(attributeName);
  if (!fields)
    return std::nullopt;
  auto axis = fields.getAs<StringAttr>("axis");
  auto every = fields.getAs<IntegerAttr>("every");
  auto rate = fields.getAs<FloatAttr>("rate"), momentum = fields.getAs<FloatAttr>("momentum");
  if (!axis || !every || !rate || !momentum)
    return std::nullopt;
  return Rounds{axis, every.getInt(), rate.getValueAsDouble(), momentum.getValueAsDouble(), fields.contains("codes")};
}

/// Writes the dictionary that `of` reads.
void Rounds::set(ModuleOp program) const {
  Builder b(program.getContext());
  SmallVector<NamedAttribute> fields{b.getNamedAttr("axis", axis), b.getNamedAttr("every", b.getI64IntegerAttr(every)),
                                     b.getNamedAttr("rate", b.getF64FloatAttr(rate)),
                                     b.getNamedAttr("momentum", b.getF64FloatAttr(momentum))};
  if (codes)
    fields.push_back(b.getNamedAttr("codes", b.getUnitAttr()));
  program->setAttr(attributeName, b.getDictionaryAttr(fields));
}

/// The alignment of homes on CPU ranks.
static constexpr int64_t alignment = 64;

/// Elements of the largest parameter.
static int64_t mostElements(ModuleOp program) {
  int64_t most = 0;
  program.walk([&](ParameterOp op) {
    if (!op.getFrozen())
      most = std::max(most, cast<RankedTensorType>(op.getValue().getType()).getNumElements());
  });
  return most;
}

/// Bytes of one of the two buffers of @round, which hold one parameter after another.
static int64_t bufferBytes(ModuleOp program) { return llvm::alignTo(4 * mostElements(program), alignment); }

/// The end of the leaves in the arena.
static int64_t leavesEnd(ModuleOp program) {
  int64_t end = 0;
  for (Operation &op : stepsOf(program)[0].getBody().front())
    if (isLeaf(&op))
      end = std::max(end, homeOrNone(op.getResult(0)) + byteSize(op.getResult(0).getType()));
  return llvm::alignTo(end, alignment);
}

/// The end of a round needs two buffers, and memory for codes if deltas are sent as codes.
int64_t pc::roundBytes(ModuleOp program) {
  std::optional<Rounds> rounds = Rounds::of(program);
  if (!rounds)
    return 0;
  int64_t codes = rounds->codes ? pcrt_codes_bytes(mostElements(program), meshOf(program).size(rounds->axis)) : 0;
  return 2 * bufferBytes(program) + codes;
}

int64_t pc::codesHome(ModuleOp program) {
  std::optional<Rounds> rounds = Rounds::of(program);
  return rounds && rounds->codes ? leavesEnd(program) + 2 * bufferBytes(program) : 0;
}

/// Writes the ops for one parameter after another, because all of them share the two buffers.
func::FuncOp pc::buildRound(ModuleOp program) {
  std::optional<Rounds> rounds = Rounds::of(program);
  if (!rounds)
    return {};
  func::FuncOp step = stepsOf(program)[0];
  OpBuilder b(program.getContext());
  b.setInsertionPointAfter(step);
  auto round = func::FuncOp::create(b, step.getLoc(), "round", b.getFunctionType({}, {}));
  Block *body = round.addEntryBlock();
  b.setInsertionPointToEnd(body);
  SmallVector<ParameterOp> parameters;
  for (Operation &op : step.getBody().front()) {
    if (!isLeaf(&op))
      continue;
    auto state = dyn_cast<StateOp>(op);
    auto parameter = dyn_cast<ParameterOp>(op);
    if ((parameter && !parameter.getFrozen()) || (state && isOfRounds(state)))
      if (auto own = dyn_cast<ParameterOp>(b.clone(op)))
        parameters.push_back(own);
  }
  // The first of the two buffers holds d, and the second holds values computed from it.
  int64_t scratch = leavesEnd(program);
  LeavesByName leaves(*body);
  int64_t replicas = meshOf(program).size(rounds->axis);
  auto axes = b.getArrayAttr({rounds->axis});
  for (ParameterOp parameter : parameters) {
    Location loc = parameter.getLoc();
    StringAttr name = parameter.getNameAttr();
    Type bare = withEncoding(parameter.getValue().getType(), {});
    auto at = [&](int64_t home) -> Type { return withEncoding(bare, HomeAttr::get(b.getContext(), home)); };
    auto stateNamed = [&](StringRef state) {
      auto found = llvm::find_if(body->getOps<StateOp>(),
                                 [&](StateOp op) { return op.getName() == state && op.getParameterAttr() == name; });
      return *found;
    };
    // d = mean(shared - parameter); u = momentum u + d; shared -= rate (d + momentum u).
    Value shared = stateNamed(PCRT_SHARED).getValue(), u = stateNamed(PCRT_OUTER_MOMENTUM).getValue();
    Type there = shared.getType(), first = at(scratch), second = at(scratch + llvm::alignTo(byteSize(bare), alignment));
    Value d = SubOp::create(b, loc, first, shared, parameter.getValue());
    // With a single replica, there is nothing to average.
    if (replicas > 1) {
      d = AllReduceOp::create(b, loc, first, PartialKind::Sum, d, axes, WireAttr());
      d = ScaleOp::create(b, loc, first, d, b.getF64FloatAttr(1. / static_cast<double>(replicas)));
    }
    auto momentum = b.getF64FloatAttr(rounds->momentum);
    Value decayed = ScaleOp::create(b, loc, u.getType(), u, momentum);
    Value next = AddOp::create(b, loc, u.getType(), decayed, d);
    Value ahead = ScaleOp::create(b, loc, second, next, momentum);
    Value step = AddOp::create(b, loc, second, d, ahead);
    Value scaled = ScaleOp::create(b, loc, second, step, b.getF64FloatAttr(rounds->rate));
    Value moved = SubOp::create(b, loc, there, shared, scaled);
    UpdateOp::create(b, loc, b.getStringAttr(PCRT_OUTER_MOMENTUM), name, next);
    UpdateOp::create(b, loc, b.getStringAttr(PCRT_SHARED), name, moved);
    UpdateOp::create(b, loc, name, nullptr, moved);
  }
  func::ReturnOp::create(b, step.getLoc());
  return round;
}
