//===- ContextParallel.cpp - Split the sequence everywhere -----------------------------------===//
// Attention needs the whole sequence. form=heads: each rank attends with its heads over the whole sequence, and
// all_to_alls before and after it change a split sequence to split heads and back (S. A. Jacobs et al., "DeepSpeed
// Ulysses", 2023). form=ring: each rank attends with its queries; keys and values are gathered, and pc-window-moves
// turns this into steps around a ring (H. Liu et al., "Ring attention", 2023). A program that generates has caches in
// parts; each rank attends with its part, for all tokens.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_CONTEXTPARALLEL
#include "pc/Tactics/Passes.h"

#include "Tactics.h"

using namespace mlir;
using namespace pc;

namespace {
/// The pass pc-context-parallel. The seeds split the sequence of tokens wherever it occurs, and in attention either the
/// heads or the queries.
struct ContextParallel : pc::impl::ContextParallelBase<ContextParallel> {
  using ContextParallelBase::ContextParallelBase;

  /// Ring attention needs the sequence in zigzag order over this axis; heads need it in the original order. Then the
  /// sequence is split in all inputs, and propagation finds the rest.
  void runOnOperation() override {
    constexpr StringRef tactic = "pc-context-parallel";
    bool isRing = form == "ring";
    if (form != "heads" && !isRing) {
      getOperation().emitError() << tactic << ": form '" << form << "' is unknown; expected heads or ring";
      return signalPassFailure();
    }
    StringAttr name = freshAxis(getOperation(), tactic, axis);
    if (!name)
      return signalPassFailure();
    int64_t size = meshOf(getOperation()).size(name), ranks = 0;
    getOperation().walk([&](ProgramOp program) { ranks = program.getZigzag().value_or(0); });
    if (ranks != (isRing ? size : 0)) {
      getOperation().emitError() << tactic << ": form '" << form << "' over " << name.getValue() << "=" << size
                                 << " needs the sequence in "
                                 << (isRing
                                         ? "the zigzag order that pc-zigzag{ranks=" + std::to_string(size) + "} makes"
                                         : "its original order")
                                 << ", but it is in "
                                 << (ranks ? "the zigzag order of " + std::to_string(ranks) + " ranks"
                                           : "its original order");
      return signalPassFailure();
    }
    if (size > 1 && failed(isRing ? checkAlone(name) : checkHeads(name, size)))
      return signalPassFailure();
    Seeds seeds(tactic, name, AxisOrder(getOperation()));
    seeds.order.setData(name);
    llvm::StringSet<> ofTokens;
    // A step that generates may have a number of tokens that the axis does not divide. Then only its caches are split.
    if (!hasUnevenSteps(size))
      ofTokens.insert("sequence");
    seeds.must = ofTokens;
    seeds.must.insert("groups"); // dims of groups of tokens, for a loss in chunks
    seeds.may.insert("chunks");  // dims of recurrences, whose states are gathered
    seeds.may.insert("layers");  // dims of stacks that an optimizer multiplies
    llvm::StringSet<> ofCaches;
    ofCaches.insert("parts");
    seeds.must.insert("parts");
    if (!isRing)
      seeds.may.insert("kv_heads");
    // Heads are split only in activations, which have a sequence dim; weights do not.
    seeds.splits = [](const PlacementValue &v, int64_t dim) {
      return v.names[dim].getValue() != "kv_heads" || v.find("sequence") >= 0;
    };
    seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
      if (auto state = dyn_cast<StateOp>(leaf); state && state.getCache())
        return {splitByName(leaf, ofCaches)};
      return {isa<InputOp>(leaf) ? splitByName(leaf, ofTokens) : AxisState::whole()};
    };
    seeds.pin = [=](const PlacementValue &v) -> std::optional<AxisState> {
      // Heads: attention reads whole sequences, and is split by heads instead.
      if (!isRing && isa_and_nonnull<AttentionOp>(v.value.getDefiningOp()))
        return AxisState::split(v.find("kv_heads"));
      return std::nullopt;
    };
    if (experts && failed(splitExperts(getOperation(), seeds, "sequence")))
      return signalPassFailure();
    if (failed(propagate(getOperation(), seeds)))
      signalPassFailure();
  }

  /// Whether `size` does not divide the number of tokens in a step of a program that generates. All ranks then compute
  /// all tokens, and only caches are split.
  bool hasUnevenSteps(int64_t size) {
    bool generates = false, isUneven = false;
    getOperation().walk([&](StateOp state) { generates |= state.getCache(); });
    getOperation().walk([&](InputOp input) {
      for (auto [d, dim] : llvm::enumerate(input.getDims().getAsValueRange<StringAttr>()))
        isUneven |= dim == "sequence" && cast<RankedTensorType>(input.getValue().getType()).getDimSize(d) % size;
    });
    return generates && isUneven;
  }

  /// Checks that the ranks can have equal numbers of the heads that other axes leave.
  LogicalResult checkHeads(StringAttr name, int64_t size) {
    MeshAttr mesh = meshOf(getOperation());
    WalkResult walked = getOperation().walk([&](AttentionOp attention) -> WalkResult {
      auto type = cast<RankedTensorType>(attention.getO().getType());
      int64_t all = type.getDimSize(2), heads = all;
      if (PlaceAttr place = placement(attention.getO()))
        for (StringAttr axis : place.axes(2))
          heads /= mesh.size(axis);
      if (heads % size == 0 || type.getDimSize(1) % size) // no form splits such a sequence; an error at tokens follows
        return WalkResult::advance();
      int64_t fits = std::min(heads, size);
      while (heads % fits)
        --fits;
      InFlightDiagnostic error = attention.emitError();
      error << "pc-context-parallel: form 'heads' cannot divide the " << all << " heads of keys and values of "
            << sourceName(attention) << " evenly over " << name.getValue() << "=" << size
            << (heads < all ? " (other axes also split them)" : "")
            << "; use --context-parallel=ring, which does not split heads";
      if (fits > 1)
        error << ", or " << name.getValue() << "=" << fits;
      return error;
    });
    return failure(walked.wasInterrupted());
  }

  /// The zigzag order is for the ranks of one ring, so no other axis may split the sequence.
  LogicalResult checkAlone(StringAttr name) {
    WalkResult split = getOperation().walk([&](InputOp input) -> WalkResult {
      for (auto [d, dim] : llvm::enumerate(input.getDims().getAsValueRange<StringAttr>()))
        if (PlaceAttr place = placement(input.getValue()); dim == "sequence" && !place.axes(d).empty())
          return input.emitError() << "pc-context-parallel: form 'ring' over '" << name.getValue()
                                   << "': the sequence is split over '" << place.axes(d)[0].getValue()
                                   << "' already, but only one axis can be the ring";
      return WalkResult::advance();
    });
    return failure(split.wasInterrupted());
  }
};
} // namespace
