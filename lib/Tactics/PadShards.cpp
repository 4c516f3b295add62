//===- PadShards.cpp - Pads parameters whose dims cannot be divided -----------------------------===//
// Only the stored parameter, its optimizer state and its gradient are padded; the forward and backward pass read the
// tensor without padding. The pass works on the step program, before placement: erasing the placements gives the result
// of this pass again.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_PADSHARDS
#include "pc/Tactics/Passes.h"

#include "Tactics.h"
#include "mlir/IR/Builders.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Parts.h"
#include "pc/IR/Readers.h"
#include "pc/Shard/PlacementGraph.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace pc;

namespace {

/// Padding of one parameter, its optimizer state and its gradient along one dim.
class Padding {
public:
  Padding(ParameterOp parameter, int64_t dim, int64_t size) : parameter(parameter), dim(dim), size(size) {}

  /// Pads the parameter, its states and its gradient, and removes the padding where ops read the parameter.
  void apply(ModuleOp module) {
    auto type = cast<RankedTensorType>(parameter.getValue().getType());
    valid = SmallVector<int64_t>(parameter.getValid().value_or(type.getShape()));
    parameter.setValid(valid);
    before = SmallVector<int64_t>(type.getShape());
    llvm::MapVector<StringAttr, int64_t> dimOf; // the dim of each state that is padded; -1: it has no such dim
    SmallVector<StateOp> states;
    module.walk([&](StateOp state) {
      if (state.getParameter() != parameter.getName())
        return;
      states.push_back(state);
      dimOf[state.getNameAttr()] = dimInState(state, parameter, dim);
    });
    grow(parameter.getValue(), dim);
    for (StateOp state : states)
      if (int64_t own = dimOf[state.getNameAttr()]; own >= 0)
        grow(state.getValue(), own);
    // The gradient is padded where it is yielded, so that its sum over microbatches can be scattered.
    module.walk([&](OutputOp output) {
      if (output.getKind() != OutputKind::Gradient || output.getName() != parameter.getName())
        return;
      output.setValid(valid);
      Value gradient = output.getValue();
      while (auto cast = gradient.getDefiningOp<CastOp>())
        gradient = cast.getX();
      if (auto accumulate = gradient.getDefiningOp<AccumulateOp>())
        yieldPadded(accumulate, cast<OpResult>(gradient).getResultNumber());
    });
    // Optimizers other than AdamW and SGD consist of several ops, which work on values without padding.
    module.walk([&](UpdateOp update) {
      Value value = update.getValue();
      if (update.getParameter().value_or(update.getName()) != parameter.getName())
        return;
      int64_t own = update.getParameter() ? dimOf.lookup(update.getNameAttr()) : dim;
      if (own < 0 || cast<RankedTensorType>(value.getType()).getDimSize(own) == size)
        return;
      OpBuilder builder(update);
      update.getValueMutable().assign(ResizeOp::create(builder, update.getLoc(), padded(value.getType(), own), value,
                                                       builder.getI64IntegerAttr(own)));
    });
  }

private:
  RankedTensorType padded(Type type, int64_t dim) const {
    auto tensor = cast<RankedTensorType>(type);
    SmallVector<int64_t> shape(tensor.getShape());
    shape[dim] = size;
    return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
  }

  /// Pads `value` and, outside of pc.accumulate, the results of casts and optimizer ops that read it. Other readers get
  /// the value without padding, by pc.resize.
  void grow(Value value, int64_t dim) {
    Type type = value.getType();
    value.setType(padded(type, dim));
    auto unpad = [&](OpBuilder &builder) -> Value {
      return ResizeOp::create(builder, value.getLoc(), type, value, builder.getI64IntegerAttr(dim));
    };
    separateReaders(value, unpad);
    Value unpadded;
    for (OpOperand &use : llvm::make_early_inc_range(value.getUses()))
      if (Operation *reader = use.getOwner(); !isInPass(reader) && !readsPadded(reader)) {
        OpBuilder builder(value.getContext());
        builder.setInsertionPointAfterValue(value);
        unpadded = unpadded ? unpadded : unpad(builder);
        use.set(unpadded);
      }
    for (Operation *user : value.getUsers())
      if (isa<CastOp, AdamWOp, SGDOp>(user) && !isInPass(user))
        for (Value result : user->getResults())
          if (cast<RankedTensorType>(result.getType()).getShape() == ArrayRef(before))
            grow(result, dim);
  }

  /// Whether a reader outside of pc.accumulate works on padded values. Such a reader also pads its result, or sums
  /// squares.
  static bool readsPadded(Operation *op) {
    return isa<CastOp, AdamWOp, SGDOp, OutputOp, UpdateOp, AccumulateOp, ResizeOp>(op) ||
           (isa<EinsumOp>(op) && llvm::all_equal(op->getOperands()) &&
            !cast<RankedTensorType>(op->getResult(0).getType()).getRank());
  }

  static bool isInPass(Operation *op) { return isa<AccumulateOp>(op->getParentOp()); }

  /// A gradient is padded before it is yielded, so that its sum over microbatches has the padded size.
  void yieldPadded(AccumulateOp accumulate, unsigned number) {
    Operation *yield = accumulate.getBody().front().getTerminator();
    OpBuilder builder(yield);
    Value gradient = yield->getOperand(number);
    yield->setOperand(number, ResizeOp::create(builder, gradient.getLoc(), padded(gradient.getType(), dim), gradient,
                                               builder.getI64IntegerAttr(dim)));
    grow(accumulate.getResult(number), dim);
  }

  ParameterOp parameter;
  int64_t dim, size;
  SmallVector<int64_t> valid, before;
};

/// The pass pc-pad-shards. It pads each parameter along one dim, to a multiple of `ranks`.
struct PadShards : pc::impl::PadShardsBase<PadShards> {
  using PadShardsBase::PadShardsBase;

  void runOnOperation() override {
    if (ranks < 1 || takenRanks < 1) {
      getOperation().emitError() << "pc-pad-shards: ranks and taken-ranks must be positive, got " << int64_t(ranks)
                                 << " and " << int64_t(takenRanks);
      return signalPassFailure();
    }
    for (StringRef form : forms)
      if (!llvm::is_contained({"1d", "2d", "2.5d", "3d", "free"}, form)) {
        getOperation().emitError() << "pc-pad-shards: form '" << form
                                   << "' is unknown; expected 1d, 2d, 2.5d, 3d or free";
        return signalPassFailure();
      }
    SmallVector<ParameterOp> parameters;
    llvm::StringSet<> inBlocks; // padding would change the blocks of their codes, or of their states'
    getOperation().walk([&](ParameterOp parameter) { parameters.push_back(parameter); });
    getOperation().walk([&](StateOp state) {
      if (isCode(getElementTypeOrSelf(state.getType())))
        inBlocks.insert(state.getParameter());
    });
    getOperation().walk([&](EncodeOp encode) {
      if (auto parameter = encode.getX().getDefiningOp<ParameterOp>())
        inBlocks.insert(parameter.getName());
    });
    for (ParameterOp parameter : parameters)
      if (int64_t dim = dimToPad(parameter);
          dim >= 0 && !isCode(getElementTypeOrSelf(parameter.getType())) && !inBlocks.contains(parameter.getName())) {
        int64_t extent = cast<RankedTensorType>(parameter.getValue().getType()).getDimSize(dim);
        Padding(parameter, dim, llvm::alignTo(extent, ranks)).apply(getOperation());
      }
  }

  /// The dim to pad, which is the one with the smallest relative growth; -1 if a dim is already divisible or none can
  /// be padded.
  int64_t dimToPad(ParameterOp parameter) {
    auto shape = cast<RankedTensorType>(parameter.getValue().getType()).getShape();
    int64_t best = -1;
    for (int64_t d : llvm::seq<int64_t>(0, shape.size())) {
      bool isTaken = llvm::any_of(forms, [&](StringRef form) { return takesDim(form, parameter, d); });
      if (shape[d] % (isTaken ? ranks * takenRanks : ranks) == 0)
        return -1;
      auto grown = [&](int64_t dim) { return static_cast<double>(llvm::alignTo(shape[dim], ranks)) / shape[dim]; };
      if (!isTaken && shape[d] >= ranks && (best < 0 || grown(d) < grown(best)))
        best = d;
    }
    return best;
  }
};
} // namespace
