//===- Offload.cpp - Values that leave the device between their uses ---------------------------===//
// Retypes leaves and inserts carries. Overlap decides when the carries start, and Memory finds room for the blocks that
// are on the device.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_OFFLOAD
#include "pc/Tactics/Passes.h"

#include "Tactics.h"
#include "pc/IR/Layers.h"
#include "pc/IR/LeavesByName.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/NameGlobs.h"
#include "pc/IR/Readers.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include <map>

using namespace mlir;
using namespace pc;

namespace {

/// The kinds of values that leave the device. Masters are the f32 parameters whose rounded copies the passes read.
enum class What { None, States, Masters, Parameters, Activations };

What whatOf(StringRef text) {
  return llvm::StringSwitch<What>(text)
      .Case("states", What::States)
      .Case("masters", What::Masters)
      .Case("parameters", What::Parameters)
      .Case("activations", What::Activations)
      .Default(What::None);
}

/// Brings a leaf in before the first of its readers outside of the accumulation that `include` accepts. The other
/// readers follow soon after, so they share the carry.
void bringIn(Value leaf, Type onDevice, llvm::function_ref<bool(Operation *)> include) {
  SmallVector<OpOperand *> uses;
  Operation *first = nullptr;
  for (OpOperand &use : leaf.getUses()) {
    Operation *reader = leaf.getParentBlock()->findAncestorOpInBlock(*use.getOwner());
    if (isa<CarryOp>(use.getOwner()) || !include(reader))
      continue;
    uses.push_back(&use);
    first = !first || reader->isBeforeInBlock(first) ? reader : first;
  }
  if (!first)
    return;
  OpBuilder builder(first);
  auto carry = CarryOp::create(builder, leaf.getLoc(), onDevice, leaf);
  for (OpOperand *use : uses)
    use->set(carry);
}

/// Brings a parameter in for the readers in each pass. For readers of a rounded copy, it is rounded again.
void bringIntoPasses(Value leaf, Type onDevice) {
  auto bring = [&](OpBuilder &builder) -> Value { return CarryOp::create(builder, leaf.getLoc(), onDevice, leaf); };
  separateReaders(leaf, bring); // this comes first, because carries also read the leaf
  for (Operation *user : llvm::to_vector(leaf.getUsers())) {
    auto rounded = dyn_cast<CastOp>(user);
    if (!rounded || rounded->getBlock() != leaf.getParentBlock())
      continue;
    separateReaders(rounded.getResult(), [&](OpBuilder &builder) -> Value {
      return CastOp::create(builder, rounded.getLoc(), rounded.getResult().getType(), bring(builder));
    });
    if (rounded->use_empty())
      rounded.erase();
  }
}

/// Keeps a leaf in `space`. `updates` set its new values.
void keepLeaf(Operation *leaf, Space space, bool byPasses, ArrayRef<UpdateOp> updates) {
  Value value = leaf->getResult(0);
  const Type onDevice = value.getType();
  const RankedTensorType away = inSpace(onDevice, space);
  value.setType(away);
  if (byPasses)
    bringIntoPasses(value, onDevice);
  auto isInOptimizer = [](Operation *op) { return stepPhase(op) == StepPhase::Optimizer; };
  bringIn(value, onDevice, [&](Operation *op) { return !isInOptimizer(op); });
  bringIn(value, onDevice, isInOptimizer);
  for (UpdateOp update : updates) {
    OpBuilder builder(update);
    update.getValueMutable().assign(CarryOp::create(builder, leaf->getLoc(), away, update.getValue()));
  }
}

/// The values that the passes of one microbatch keep from the forward to the backward pass. Carries are placed where a
/// layer ends in the forward pass, and where it begins in the backward pass. (Next to readers, a step of GPT-2 124M
/// would be 0.5 % slower, as predicted for an H100.)
class KeptValues {
public:
  explicit KeptValues(Block &body) : body(body) {
    bool isForward = true;
    for (Operation &op : body) {
      isForward &= !isa<SeedOp>(op);
      if (isForward)
        forward.insert(&op);
      if (auto product = dyn_cast<EinsumOp>(op); product && product.getMask())
        masks.push_back(cast<RankedTensorType>(product.getMask().getType()).getShape());
      std::string layer = layerOf(sourceName(&op)).str();
      if (layer.empty() || isa<CarryOp>(op)) // an earlier run of the pass has inserted carries
        continue;
      if (isForward)
        endOf[lastLayer = layer] = &op;
      else
        beginOf.try_emplace(layer, &op);
    }
  }

  /// Ring attention keeps a rank's own keys and values, and not the gathered ones, which exist only until pc-window. So
  /// the backward pass gets gathers of its own.
  void separateRings() {
    for (auto gather : llvm::to_vector(body.getOps<AllGatherOp>()))
      for (OpOperand &use : llvm::make_early_inc_range(gather->getUses()))
        if (auto attention = dyn_cast<AttentionGradOp>(use.getOwner());
            attention && !gather->hasOneUse() &&
            !placement(attention.getQ()).axes(1).empty()) { // only a part of the queries
          OpBuilder builder(attention);
          use.set(builder.clone(*gather)->getResult(0));
        }
  }

  /// The values of layers on the device that both passes read, except those of the last layer, whose backward pass
  /// follows at once, values of the routed tokens of experts, and values smaller than a block of a disk.
  SmallVector<Value> take() {
    SmallVector<Value> kept;
    for (Operation &op : body)
      if (std::string layer = layerOf(sourceName(&op)).str();
          forward.contains(&op) && !layer.empty() && layer != lastLayer && !isOfParameter(&op))
        for (Value value : op.getResults())
          if (isWorthIt(value))
            kept.push_back(value);
    return kept;
  }

  /// Carries `value` out after its last reader in the forward pass, and in before the first one in the backward pass.
  void keep(Value value, Space space) {
    Operation *last = value.getDefiningOp(), *first = nullptr;
    SmallVector<OpOperand *> later;
    for (OpOperand &use : value.getUses()) {
      Operation *reader = body.findAncestorOpInBlock(*use.getOwner());
      if (forward.contains(reader)) {
        last = last->isBeforeInBlock(reader) ? reader : last;
      } else {
        first = !first || reader->isBeforeInBlock(first) ? reader : first;
        later.push_back(&use);
      }
    }
    if (auto end = endOf.find(layerOf(sourceName(last)).str()); end != endOf.end())
      last = last->isBeforeInBlock(end->second) ? end->second : last;
    if (auto begin = beginOf.find(layerOf(sourceName(first)).str()); begin != beginOf.end())
      first = begin->second->isBeforeInBlock(first) ? begin->second : first;
    OpBuilder builder(body.getParentOp()->getContext());
    builder.setInsertionPointAfter(last);
    Value away = CarryOp::create(builder, value.getLoc(), inSpace(value.getType(), space), value);
    builder.setInsertionPoint(first);
    Value back = CarryOp::create(builder, value.getLoc(), value.getType(), away);
    for (OpOperand *use : later)
      use->set(back);
  }

private:
  /// Rounded and gathered parameters do not count as activations.
  static bool isOfParameter(Operation *op) {
    return op->getNumResults() == 1 && isa_and_nonnull<ParameterOp>(source(op->getResult(0)).getDefiningOp());
  }

  bool isWorthIt(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    bool isYielded = llvm::is_contained(value.getUsers(), body.getTerminator());
    bool isReadLater = llvm::any_of(
        value.getUsers(), [&](Operation *user) { return !forward.contains(body.findAncestorOpInBlock(*user)); });
    return type && spaceOf(value) == Space::Device && !isYielded && isReadLater && !hasRows(type) &&
           byteSize(type) >= PCRT_DISK_BLOCK;
  }

  /// Whether codegen may store a value of this type by rows (`#pc.rows`). A carry needs the whole tensor, so other
  /// kernels would compute it, and these round differently.
  bool hasRows(RankedTensorType type) const {
    return llvm::any_of(masks, [&](ArrayRef<int64_t> mask) { return type.getShape().take_front(mask.size()) == mask; });
  }

  Block &body;
  llvm::DenseSet<Operation *> forward;
  SmallVector<ArrayRef<int64_t>> masks; ///< the shapes of masks of routed products
  std::string lastLayer;
  std::map<std::string, Operation *> endOf,
      beginOf; ///< for each layer, its last op in the forward pass and its first op after that
};

/// The pass pc-offload. It collects the updates of every leaf before it changes any type.
struct Offload : pc::impl::OffloadBase<Offload> {
  using OffloadBase::OffloadBase;

  LogicalResult fail(const Twine &why) { return getOperation().emitError() << "pc-offload: " << why; }

  LogicalResult checkOptions() {
    if (whatOf(what) == What::None)
      return fail("cannot keep '" + what + "' elsewhere; expected states, masters, parameters or activations");
    std::optional<Space> named = symbolizeSpace(to);
    space = named.value_or(Space::Device);
    if (space == Space::Device)
      return fail("cannot keep " + what + " on '" + to + "'; expected host or disk");
    if (keep < 0)
      return fail("keep: " + Twine(keep) + " bytes; expected at least 0");
    if (!match.empty() && whatOf(what) == What::Activations)
      return fail("match names parameters, and activations belong to none; use keep=BYTES to keep some on the device");
    return success();
  }

  /// The bytes of a placed value on one rank.
  int64_t bytesPerRank(Value value) {
    int64_t bytes = byteSize(value.getType());
    MeshAttr mesh = meshOf(getOperation());
    PlaceAttr place = placement(value);
    for (int64_t d = 0, rank = cast<RankedTensorType>(value.getType()).getRank(); mesh && place && d < rank; ++d)
      bytes /= mesh.size(place.axes(d));
    return bytes;
  }

  /// Removes the first values that together have at most `keep` bytes on a rank; these stay on the device.
  template <typename T> void leaveOnDevice(SmallVectorImpl<T> &values, llvm::function_ref<Value(T)> valueOf) {
    int64_t left = keep;
    llvm::erase_if(values, [&](T one) {
      int64_t bytes = bytesPerRank(valueOf(one));
      bool stays = bytes <= left;
      left -= stays ? bytes : 0;
      return stays;
    });
  }

  /// Removes the leaves of parameters that no glob of `match` fits.
  LogicalResult dropUnmatched(SmallVectorImpl<Operation *> &leaves) {
    if (match.empty())
      return success();
    std::string why;
    FailureOr<NameGlobs> globs = NameGlobs::parse(match, why);
    if (failed(globs))
      return fail("match: '" + match + "' " + why);
    llvm::StringSet<> names;
    getOperation().walk([&](ParameterOp parameter) {
      if (globs->fitsSome(parameter))
        names.insert(parameter.getName());
    });
    llvm::erase_if(leaves, [&](Operation *leaf) {
      auto state = dyn_cast<StateOp>(leaf);
      return !names.contains(state ? state.getParameter() : cast<ParameterOp>(leaf).getName());
    });
    return globs->requireUsed(getOperation(), "pc-offload: match");
  }

  /// The leaves of the kind that the option names.
  SmallVector<Operation *> leavesOfKind() {
    SmallVector<Operation *> kept;
    getOperation().walk([&](Operation *op) {
      auto state = dyn_cast<StateOp>(op);
      auto parameter = dyn_cast<ParameterOp>(op);
      switch (whatOf(what)) {
      case What::States:
        if (state && !state.getCache())
          kept.push_back(op);
        break;
      case What::Masters:
        if (parameter && isMaster(parameter))
          kept.push_back(op);
        break;
      case What::Parameters:
        if (parameter)
          kept.push_back(op);
        break;
      case What::None:
      case What::Activations:
        break;
      }
    });
    return kept;
  }

  LogicalResult keepLeaves() {
    SmallVector<Operation *> kept = leavesOfKind();
    if (failed(dropUnmatched(kept)))
      return failure();
    if (kept.empty())
      return fail("this program has no " +
                  (what == "states"    ? Twine("optimizer states")
                   : what == "masters" ? Twine("f32 masters of rounded parameters")
                                       : Twine(what)) +
                  (match.empty() ? "" : " that '" + match + "' fits") + ", so none can be kept on " + to);
    leaveOnDevice<Operation *>(kept, [](Operation *leaf) -> Value { return leaf->getResult(0); });
    LeavesByName leaves;
    for (Operation *leaf : kept) {
      leaves.add(leaf);
      if (spaceOf(leaf->getResult(0)) != Space::Device)
        return fail("'" + sourceName(leaf) + "' is not on the device already; name each kind of value once");
    }
    llvm::DenseMap<Value, SmallVector<UpdateOp, 1>> updates;
    getOperation().walk([&](UpdateOp update) {
      if (Value leaf = leaves.of(update))
        updates[leaf].push_back(update);
    });
    for (Operation *leaf : kept)
      keepLeaf(leaf, space, whatOf(what) == What::Parameters, updates.lookup(leaf->getResult(0)));
    return success();
  }

  LogicalResult keepActivations(ArrayRef<AccumulateOp> bodies) {
    bool found = false;
    for (AccumulateOp accumulate : bodies) {
      KeptValues values(accumulate.getBody().front());
      values.separateRings();
      SmallVector<Value> kept = values.take();
      found |= !kept.empty();
      std::reverse(kept.begin(), kept.end()); // the last layers read theirs again soonest
      leaveOnDevice<Value>(kept, [](Value value) { return value; });
      for (Value value : llvm::reverse(kept))
        values.keep(value, space);
    }
    return found ? success()
                 : fail("no layer keeps a value of a block or more for the backward pass, apart from the last layer, "
                        "so no activation can be kept on " +
                        to);
  }

  Space space = Space::Device;

  void runOnOperation() override {
    bool isPlaced = true;
    SmallVector<AccumulateOp> bodies;
    getOperation().walk([&](Operation *op) {
      isPlaced &= !isa<ParameterOp, StateOp>(op) || placement(op->getResult(0));
      if (auto accumulate = dyn_cast<AccumulateOp>(op);
          accumulate && llvm::any_of(accumulate.getBody().front(), [](Operation &inner) { return isa<SeedOp>(inner); }))
        bodies.push_back(accumulate);
    });
    if (failed(checkOptions()) ||
        (!isPlaced && failed(fail("the program must be placed; run the pass after pc-set-mesh "
                                  "and the other tactics"))) ||
        (bodies.empty() && failed(fail("this program does not train; only training steps keep values elsewhere"))) ||
        failed(whatOf(what) == What::Activations ? keepActivations(bodies) : keepLeaves()))
      signalPassFailure();
  }
};
} // namespace
