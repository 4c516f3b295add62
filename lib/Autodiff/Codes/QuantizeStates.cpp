//===- QuantizeStates.cpp - Keeps the states of AdamW in 8 bits -------------------------------===//
// A state becomes codes, of the shape of its parameter, and a state with the scales of blocks. The pass does not depend
// on the plan, so every plan rounds the same blocks.
//===--------------------------------------------------------------------------------------------===//
#define GEN_PASS_DEF_QUANTIZESTATES
#include "pc/Autodiff/Passes.h"

#include "Blocks.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Parts.h"
#include "pcrt/block_codes.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace pc;

namespace {

/// The pass pc-quantize-states.
struct QuantizeStates : pc::impl::QuantizeStatesBase<QuantizeStates> {
  using QuantizeStatesBase::QuantizeStatesBase;

  void runOnOperation() override {
    auto step = getOperation().lookupSymbol<func::FuncOp>("step");
    SmallVector<AdamWOp> all;
    if (step)
      all = llvm::to_vector(step.getOps<AdamWOp>());
    if (all.empty()) {
      getOperation().emitError()
          << "pc-quantize-states: this module has no step with an update by AdamW, and only "
             "the states of AdamW can have 8 bits; choose --optimizer=adamw, or leave out --states";
      return signalPassFailure();
    }
    llvm::DenseMap<AdamWOp, SmallVector<int64_t>> blocks = choose(all);
    for (AdamWOp op : all)
      if (auto block = blocks.find(op); block != blocks.end())
        quantize(op, block->second);
    if (!blocks.empty())
      return;
    step.emitError() << "pc-quantize-states: every parameter is a table or a vector, has fewer than " << fewestForCodes
                     << " elements, or has no dims that blocks of " << PCRT_STATE_BLOCK
                     << " elements divide, so all states stay f32; leave out --states";
    signalPassFailure();
  }

private:
  /// The updates whose states become codes, with their blocks. A checkpoint stores each tensor in only one way. So
  /// parameters that are parts of one tensor either all have codes, with equal blocks, or none of them has codes.
  static llvm::DenseMap<AdamWOp, SmallVector<int64_t>> choose(ArrayRef<AdamWOp> all) {
    llvm::DenseMap<AdamWOp, SmallVector<int64_t>> blocks;
    llvm::StringMap<SourceAttr> scalesOf; // for each tensor, a box of its scales, or null
    auto parametersOf = [](AdamWOp op) { return op.getParameter().getDefiningOp<ParameterOp>(); };
    for (AdamWOp op : all) {
      ParameterOp parameter = parametersOf(op);
      if (!parameter)
        continue;
      SmallVector<ParameterPart> parts = partsOf(parameter);
      bool isFit = op.getExpAvg().getDefiningOp<StateOp>() && op.getExpAvgSq().getDefiningOp<StateOp>();
      std::optional<SmallVector<int64_t>> block = isFit ? blockFor(parameter) : std::nullopt;
      if (block)
        blocks[op] = *block, parts = *partsOfBlocks(parameter, *block);
      for (const ParameterPart &part : parts) {
        SourceAttr box = block ? part.source : SourceAttr();
        auto [known, isNew] = scalesOf.try_emplace(part.source.getTensor(), box);
        if (!isNew && (!box || !known->second || box.getShape() != known->second.getShape()))
          known->second = {};
      }
    }
    // Removing one update can break the condition for another parameter of the same tensor, so this repeats until
    // nothing changes.
    for (bool changes = true; changes;) {
      changes = false;
      for (AdamWOp op : all)
        if (ParameterOp parameter = parametersOf(op);
            blocks.contains(op) && llvm::any_of(partsOf(parameter), [&](const ParameterPart &part) {
              return !scalesOf.lookup(part.source.getTensor());
            })) {
          changes = blocks.erase(op);
          for (const ParameterPart &part : partsOf(parameter))
            scalesOf[part.source.getTensor()] = {};
        }
    }
    return blocks;
  }

  static void quantize(AdamWOp op, ArrayRef<int64_t> block) {
    store(op.getExpAvg().getDefiningOp<StateOp>(), op.getExpAvgMutable(), op.getNewExpAvg(), block);
    store(op.getExpAvgSq().getDefiningOp<StateOp>(), op.getExpAvgSqMutable(), op.getNewExpAvgSq(), block);
  }

  /// Decodes a state before the update that reads `use`, and encodes its new value `updated`.
  static void store(StateOp state, OpOperand &use, Value updated, ArrayRef<int64_t> block) {
    const bool isUnsigned = pcrt_state_is_unsigned(state.getName().str().c_str());
    auto type = cast<RankedTensorType>(state.getType());
    OpBuilder builder(state.getContext());
    builder.setInsertionPointAfter(state);
    Location loc = state.getLoc();
    auto codes = RankedTensorType::get(type.getShape(), builder.getI8Type()),
         ofScales = RankedTensorType::get(shapeOfScales(type.getShape(), block), type.getElementType());
    StringAttr name = builder.getStringAttr(state.getName() + PCRT_SCALES);
    Value scales = StateOp::create(builder, loc, ofScales, name, state.getParameterAttr(), state.getDimsAttr(), nullptr,
                                   nullptr, nullptr);
    state.getValue().setType(codes);
    builder.setInsertionPoint(use.getOwner());
    use.set(DecodeOp::create(builder, loc, type, state.getValue(), scales, isUnsigned));
    builder.setInsertionPointAfter(use.getOwner());
    auto encode = EncodeOp::create(builder, loc, TypeRange{codes, ofScales}, updated, isUnsigned);
    for (Operation *user : llvm::make_early_inc_range(updated.getUsers()))
      if (auto update = dyn_cast<UpdateOp>(user)) {
        update.getValueMutable().assign(encode.getCodes());
        builder.setInsertionPointAfter(update);
        UpdateOp::create(builder, loc, name, state.getParameterAttr(), encode.getScales());
      }
  }
};

} // namespace
