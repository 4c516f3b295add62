//===- LocalSgd.cpp - Local SGD over a mesh axis --------------------------------------------===//
// Input: a scheduled local program. Each coordinate of the axis becomes a replica that trains separately. The pass adds
// the states of the outer optimizer for each parameter and records the rounds (IR/Rounds.h). It refuses an axis that an
// op uses.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_LOCALSGD
#include "pc/Tactics/Passes.h"

#include "pc/IR/Calls.h"
#include "pc/IR/Groups.h"
#include "pc/IR/Rounds.h"
#include "pcrt/average.h"

using namespace mlir;
using namespace pc;

namespace {
/// The pass pc-local-sgd. It checks that the axis exists, that no op uses it, and that the options do not contradict
/// each other.
struct LocalSgd : pc::impl::LocalSgdBase<LocalSgd> {
  using LocalSgdBase::LocalSgdBase;

  /// Refuses programs whose replicas communicate in a step. Then gives each trained parameter two states, the shared
  /// value and the outer momentum, and adds the end of a round.
  void runOnOperation() override {
    ModuleOp program = getOperation();
    auto fail = [&](Operation *op, const Twine &why) {
      op->emitError() << "pc-local-sgd: " << why;
      signalPassFailure();
    };
    MeshAttr mesh = meshOf(program);
    SmallVector<func::FuncOp> steps = stepsOf(program);
    auto replicas = StringAttr::get(&getContext(), axis);
    if (!mesh || mesh.index(replicas) < 0 || steps.size() != 1)
      return fail(program, "needs a step program on a mesh with the axis '" + axis + "'");
    if (every < 1 || !(rate > 0) || !(momentum >= 0 && momentum < 1))
      return fail(program, "a round needs at least one step, a rate above 0 and a momentum of at least 0 and below 1");
    if (deltas != "f32" && deltas != "int8")
      return fail(program, "unknown deltas '" + deltas + "' (f32, int8)");
    // An all_gather of n codes is n bytes per element, an all_reduce of f32 about eight.
    if (int64_t most = 7; deltas == "int8" && mesh.size(replicas) > most)
      return fail(program, "with " + Twine(mesh.size(replicas)) +
                               " replicas, deltas=int8 would send more bytes than f32; use deltas=f32, or at most " +
                               Twine(most) + " replicas");
    if (Rounds::of(program))
      return fail(program, "only one axis can have replicas that train separately");
    SmallVector<ParameterOp> parameters;
    bool trains = false;
    Operation *over = nullptr, *average = nullptr, *mask = nullptr;
    program.walk([&](Operation *op) {
      trains |= isa<UpdateOp>(op);
      if (worksOver(op, replicas))
        over = op;
      if (auto state = dyn_cast<StateOp>(op); state && state.getName() == PCRT_EMA)
        average = op;
      if (auto state = dyn_cast<StateOp>(op); state && state.getName() == maskState)
        mask = op;
      if (auto parameter = dyn_cast<ParameterOp>(op); parameter && !parameter.getFrozen())
        parameters.push_back(parameter);
    });
    if (over)
      return fail(over, "communicates over the axis '" + axis +
                            "', whose replicas train separately; use another axis for the other tactic");
    // A stage without updates also belongs to a round, if another stage has updates.
    bool anyTrains = trains;
    if (auto parent = program->getParentOfType<ModuleOp>(); parent && !trains)
      anyTrains = parent.walk([](UpdateOp) { return WalkResult::interrupt(); }).wasInterrupted();
    if (!anyTrains)
      return fail(program, "this program trains nothing; local SGD needs parameters with updates");
    if (average)
      return fail(average, "the replicas would have different averages of the parameters; leave out --ema");
    if (mask)
      return fail(mask, "the replicas would have different masks of the parameters; leave out sparsity");
    for (ParameterOp parameter : parameters) {
      if (!cast<RankedTensorType>(parameter.getValue().getType()).getElementType().isF32())
        return fail(parameter, "local SGD averages f32 parameters only");
      OpBuilder b(parameter);
      b.setInsertionPointAfter(parameter);
      for (StringRef name : {PCRT_SHARED, PCRT_OUTER_MOMENTUM})
        StateOp::create(b, parameter.getLoc(), parameter.getValue().getType(), b.getStringAttr(name),
                        parameter.getNameAttr(), parameter.getDims(), parameter.getGlobalAttr(),
                        parameter.getLayoutAttr(), nullptr);
    }
    Rounds{replicas, every, rate, momentum, deltas == "int8"}.set(program);
  }

private:
  /// Returns true if `op` is a move over the axis, or names it in the layout of a leaf or an output.
  static bool worksOver(Operation *op, StringAttr axis) {
    if (auto move = dyn_cast<MoveOpInterface>(op))
      if (llvm::is_contained(move.getMoveAxes(), axis) || llvm::is_contained(move.getMoveWith(), axis))
        return true;
    if (auto offset = dyn_cast<BlockOffsetOp>(op))
      return llvm::is_contained(axisList(offset.getAxes()), axis);
    auto layout = op->getAttrOfType<PlaceAttr>("layout");
    return layout && !layout.state(axis).isWhole();
  }
};
} // namespace
