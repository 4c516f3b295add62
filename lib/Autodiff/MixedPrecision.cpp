//===- MixedPrecision.cpp - Chooses the values of a step that are narrower than f32 ----===//
// One walk over the body of the accumulation, in program order: `visit` sets the element types of every op's operands
// and results. Ops compute in f32 for all types, so only stored values change. For fp8, the operands of layers'
// products are then rounded further (Float8Products.cpp).
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_MIXEDPRECISION
#include "pc/Autodiff/Passes.h"

#include "Float8Products.h"
#include "Float8Scales.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Dispatch.h"
#include "pc/IR/Generation.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

namespace {

Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }

/// The type of `value` with another element type.
RankedTensorType withElement(Value value, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  return RankedTensorType::get(type.getShape(), element, type.getEncoding());
}

/// Returns true if `value` is broadcast along new dims (a bias, a table of positions).
bool isBroadcast(Value value) {
  auto op = value.getDefiningOp<EinsumOp>();
  if (!op || op.getInputs().size() != 1)
    return false;
  FactorRule rule = op.getFactorRule();
  return rule.results[0].size() > rule.operands[0].size();
}

/// Sets the element types of one body. `wide` are values that must stay f32; `casts` shares the rounded copy of a value
/// among its readers.
class Narrower {
public:
  Narrower(MLIRContext *context, bool narrowResidual, bool narrowTables)
      : builder(context), f32(builder.getF32Type()), bf16(builder.getBF16Type()),
        residual(narrowResidual ? Type(bf16) : Type(f32)), narrowTables(narrowTables) {}

  /// If `sums` is true, the yielded values are summed over microbatches, so they stay f32.
  void run(Block &body, bool sums) {
    for (Value value : body.getTerminator()->getOperands())
      if (sums || !cast<RankedTensorType>(value.getType()).getRank())
        markWide(value);
    for (auto recurrence : body.getOps<RecurrenceOp>())
      markFactor(recurrence.getA());
    for (Operation &op : llvm::make_early_inc_range(body))
      visit(&op);
  }

  /// Narrows a step that generates text. Caches are also bf16; logits stay f32, since tokens are chosen by them.
  /// Parameters that are only read in bf16 are also stored in bf16, because no step changes them.
  void runGenerating(Block &body) {
    generates = true;
    for (auto largest : body.getOps<ReduceMaxOp>())
      markWide(largest.getX());
    run(body, /*sums=*/false);
    for (auto parameter : body.getOps<ParameterOp>()) {
      auto casts = llvm::map_to_vector(parameter->getUsers(), [](Operation *user) { return dyn_cast<CastOp>(user); });
      if (casts.empty() ||
          !llvm::all_of(casts, [&](CastOp cast) { return cast && elementOf(cast.getResult()) == bf16; }))
        continue;
      parameter.getValue().setType(withElement(parameter.getValue(), bf16));
      for (CastOp cast : casts) {
        cast.getResult().replaceAllUsesWith(parameter.getValue());
        cast.erase();
      }
    }
  }

  /// Casts `gradient` to bf16 and back: the reduction over ranks goes between the casts and sends half the bytes.
  void roundGradient(Value gradient) {
    builder.setInsertionPointAfterValue(gradient);
    auto narrow = CastOp::create(builder, gradient.getLoc(), withElement(gradient, bf16), gradient);
    auto wide = CastOp::create(builder, gradient.getLoc(), gradient.getType(), narrow);
    gradient.replaceAllUsesExcept(wide, narrow);
  }

  /// Yields gradients in bf16. This is for one microbatch, with which nothing is added to them.
  void yieldNarrow(AccumulateOp accumulate) {
    Operation *yield = accumulate.getBody().front().getTerminator();
    builder.setInsertionPoint(yield);
    for (auto [operand, result] : llvm::zip_equal(yield->getOpOperands(), accumulate.getResults())) {
      if (!cast<RankedTensorType>(result.getType()).getRank())
        continue;
      if (elementOf(operand.get()).isF32())
        operand.set(CastOp::create(builder, operand.get().getLoc(), withElement(operand.get(), bf16), operand.get()));
      result.setType(operand.get().getType());
    }
  }

private:
  /// Keeps a value that is summed over microbatches, and its addends, in f32.
  void markWide(Value sum) {
    SmallVector<Value> work{sum};
    Block *body = sum.getParentBlock();
    while (!work.empty()) {
      Value value = work.pop_back_val();
      if (!wide.insert(value).second)
        continue;
      Operation *op = value.getDefiningOp();
      if (op && op->getBlock() == body && op->hasTrait<Pointwise>() && isLinearMap(op) && !isa<CastOp>(op))
        llvm::append_range(work, op->getOperands());
    }
  }

  /// Keeps the factor of a recurrence in f32, and also the value that it broadcasts or views: bf16 would round a factor
  /// near 1 to 1.
  void markFactor(Value factor) {
    wide.insert(factor);
    if (isBroadcast(factor) || factor.getDefiningOp<ReshapeOp>())
      markFactor(factor.getDefiningOp()->getOperand(0));
  }

  void set(Value result, Type element) {
    if (isa<FloatType>(elementOf(result)))
      result.setType(withElement(result, wide.contains(result) ? f32 : element));
  }

  /// Makes operand `i` bf16, by a cast right after its definition that all such readers share.
  void narrow(Operation *op, unsigned i) {
    Value value = op->getOperand(i);
    if (!elementOf(value).isF32())
      return;
    Value &copy = casts[value];
    if (!copy) {
      builder.setInsertionPointAfterValue(value);
      copy = CastOp::create(builder, value.getLoc(), withElement(value, bf16), value);
    }
    op->setOperand(i, copy);
  }

  /// Makes operand `i` f32.
  void widen(Operation *op, unsigned i) {
    Value value = op->getOperand(i);
    builder.setInsertionPoint(op);
    if (elementOf(value).isBF16())
      op->setOperand(i, CastOp::create(builder, op->getLoc(), withElement(value, f32), value));
  }

  /// bf16 if all of `values` are bf16, otherwise f32.
  Type promote(ValueRange values) {
    return llvm::all_of(values, [&](Value v) { return elementOf(v).isBF16(); }) ? Type(bf16) : Type(f32);
  }

  /// Matrix products have bf16 operands, except for the router's, in which a small error can choose another expert.
  void einsum(EinsumOp op) {
    // Operands and results of the products of experts.
    if (isDispatch(op))
      narrow(op, 0);
    if (isDispatch(op) || isCombine(op))
      return set(op.getResult(), bf16);
    FactorRule rule = op.getFactorRule();
    ValueRange inputs = op.getInputs();
    if (op.getMask()) { // the mask only selects terms
      rule.operands.pop_back();
      inputs = inputs.drop_back();
    }
    Contraction factors(rule);
    // If scores were rounded, more entries would be equal.
    if (factors.isMatrixProduct() && isOfRouter(op.getResult())) {
      widen(op, 0);
      widen(op, 1);
    } else if (factors.isMatrixProduct()) {
      narrow(op, 0);
      narrow(op, 1);
      set(op.getResult(), bf16);
    } else {
      set(op.getResult(), factors.summed.empty() ? promote(inputs) : Type(f32));
    }
  }

  /// The result has the wider type of the operands; broadcast operands do not count.
  void pointwise(Operation *op, ValueRange operands) {
    SmallVector<Value> values;
    for (Value operand : operands)
      if (!isBroadcast(operand))
        values.push_back(operand);
    set(op->getResult(0), promote(values.empty() ? operands : ValueRange(values)));
  }

  /// Sets the types of an op's results: bf16 if it reads or feeds matrix products, otherwise the type of its operands.
  void visit(Operation *op) {
    auto sameAs = [&](Value result, Value operand) { set(result, elementOf(operand)); };
    llvm::TypeSwitch<Operation *>(op)
        .Case([&](EinsumOp x) { einsum(x); })
        .Case<MaskPaddingOp, DropoutOp, RopeOp, ColumnsOp, ReshapeOp, SplitQkvOp>([&](auto) {
          for (Value result : op->getResults())
            sameAs(result, op->getOperand(0));
        })
        .Case([&](JoinQkvOp x) { set(x.getResult(), promote({x.getQ(), x.getK(), x.getV()})); })
        .Case([&](PackedAttentionOp x) {
          narrow(x, 0);
          set(x.getO(), bf16);
        })
        .Case([&](PackedAttentionGradOp x) {
          for (unsigned i : {0, 1, 3})
            narrow(x, i);
          set(x.getDqkv(), bf16);
        })
        .Case([&](ActivationGradOp x) { sameAs(x.getResult(), x.getX()); })
        .Case<LayerNormOp, RMSNormOp>([&](auto x) { set(x.getY(), bf16); })
        .Case<LayerNormGradOp, RMSNormGradOp>([&](auto x) { sameAs(x.getDx(), x.getX()); })
        .Case([&](RecurrenceOp x) {
          widen(x, 0);
          sameAs(x.getH(), x.getB());
        })
        .Case([&](RecurrenceGradOp x) {
          widen(x, 0);
          sameAs(x.getDb(), x.getH());
        })
        .Case([&](AttentionOp x) {
          for (unsigned i = 0; i < 3; ++i)
            narrow(x, i);
          set(x.getO(), bf16);
        })
        .Case([&](AttentionGradOp x) {
          for (unsigned i : {0, 1, 2, 3, 5})
            narrow(x, i);
          for (Value result : {x.getDq(), x.getDk(), x.getDv()})
            set(result, bf16);
        })
        .Case([&](CacheWriteOp x) {
          narrow(x, 1);
          x.getCache().setType(withElement(x.getCache(), bf16));
          x.getResult().setType(withElement(x.getResult(), bf16));
        })
        .Case([&](CachedAttentionOp x) {
          narrow(x, 0);
          set(x.getO(), bf16);
        })
        .Case([&](EmbeddingOp x) {
          if (x.getTable().getDefiningOp<RopeTableOp>()) // rows of cosines and sines by position
            return;
          if (generates && x.getBatch()) // the rows that choose a token
            return sameAs(x.getResult(), x.getTable());
          if (narrowTables)
            narrow(x, 0);
          set(x.getResult(), residual);
        })
        .Case([&](CrossEntropyGradOp x) { sameAs(x.getResult(), x.getLogits()); })
        .Case([&](MoveOpInterface) { sameAs(op->getResult(0), op->getOperand(0)); })
        // These occur in norms, in the loss and in angles.
        .Case<CastOp, LogOp, ExpOp, RecipOp, SqrtOp, SinOp, CosOp>([](auto) {})
        .Case([&](SelectOp) { pointwise(op, op->getOperands().drop_front(2)); }) // x and y are only compared
        .Default([&](Operation *) {
          if (op->hasTrait<Pointwise>())
            pointwise(op, op->getOperands());
        });
    // All other ops keep f32: leaves, statistics, the loss, gradients of tables.
  }

  OpBuilder builder;
  Type f32, bf16, residual;
  bool narrowTables, generates = false;
  llvm::DenseSet<Value> wide;
  llvm::DenseMap<Value, Value> casts;
};

struct MixedPrecision : pc::impl::MixedPrecisionBase<MixedPrecision> {
  using MixedPrecisionBase::MixedPrecisionBase;

  LogicalResult checkOption(StringRef name, StringRef value, ArrayRef<StringRef> values = {"f32", "bf16"}) {
    if (llvm::is_contained(values, value))
      return success();
    return getOperation().emitError() << "pc-mixed-precision: unknown " << name << " '" << value << "' ("
                                      << llvm::join(values, ", ") << ")";
  }

  /// Rounds the operands of products after the types of all values are chosen.
  LogicalResult roundToFloat8(ArrayRef<AccumulateOp> bodies) {
    Builder builder(&getContext());
    Type ofGradients =
        float8Gradients == "e4m3" ? Type(builder.getType<Float8E4M3FNType>()) : builder.getType<Float8E5M2Type>();
    RoundedProducts all;
    for (AccumulateOp accumulate : bodies) {
      std::optional<Float8Scales> scales;
      if (float8Scaling != "blocks")
        scales.emplace(accumulate, float8Scaling == "delayed" ? Float8Scaling::Delayed : Float8Scaling::Current);
      RoundedProducts products = roundProducts(accumulate.getBody().front(), ofGradients, scales ? &*scales : nullptr);
      all.rounded += products.rounded, all.kept += products.kept;
      if (scales && failed(scales->keepHistories()))
        return failure();
    }
    if (!all.rounded && float8Scaling != "blocks")
      return getOperation().emitError()
             << "pc-mixed-precision: the model has no product of a layer that can be fp8; use --precision=bf16";
    if (!all.rounded)
      return getOperation().emitError()
             << "pc-mixed-precision: blocks of 128 divide the dims of no product of a layer, so none can be fp8; use "
                "--precision=bf16, or sizes (hidden, intermediate, sequence) that are multiples of 128";
    if (all.kept)
      getOperation().emitRemark() << "pc-mixed-precision: " << all.kept << " of " << all.rounded + all.kept
                                  << " products of layers stay bf16, because blocks of 128 do not divide their dims";
    return success();
  }

  void runOnOperation() override {
    if (failed(checkOption("compute", compute, {"f32", "bf16", "fp8"})) || failed(checkOption("residual", residual)) ||
        failed(checkOption("gradients", gradients)) || failed(checkOption("tables", tables)) ||
        failed(checkOption("float8-gradients", float8Gradients, {"e4m3", "e5m2"})) ||
        failed(checkOption("float8-scaling", float8Scaling, {"blocks", "current", "delayed"})))
      return signalPassFailure();
    const bool narrows = compute != "f32";
    SmallVector<AccumulateOp> bodies;
    getOperation().walk([&](AccumulateOp op) { bodies.push_back(op); });
    if (auto step = getOperation().lookupSymbol<func::FuncOp>("step"); step && !step.getOps<CacheWriteOp>().empty()) {
      if (compute == "fp8") {
        step.emitError() << "pc-mixed-precision: fp8 is for training; use --precision=bf16 to generate text";
        return signalPassFailure();
      }
      if (narrows)
        Narrower(&getContext(), residual == "bf16", /*narrowTables=*/true).runGenerating(step.getBody().front());
      return;
    }
    if (bodies.empty()) {
      getOperation().emitError() << "pc-mixed-precision: this module has no pc.accumulate; run pc-differentiate first";
      return signalPassFailure();
    }
    WalkResult fused = getOperation().walk([](FusionOp fusion) -> WalkResult {
      return fusion.emitError() << "pc-mixed-precision: the program is fused already; run this pass before pc-fuse";
    });
    if (fused.wasInterrupted())
      return signalPassFailure();
    for (AccumulateOp accumulate : bodies) {
      Narrower narrower(&getContext(), residual == "bf16", tables == "bf16");
      // With one microbatch there is no sum, so the body can yield bf16. Otherwise sums stay f32, and only the result
      // is rounded.
      bool stored = gradients == "bf16" && accumulate.getMicrobatches() == 1;
      if (narrows)
        narrower.run(accumulate.getBody().front(), !stored);
      if (stored)
        narrower.yieldNarrow(accumulate);
      if (gradients != "bf16" || stored)
        continue;
      for (Value result : accumulate.getResults())
        if (auto type = cast<RankedTensorType>(result.getType()); type.getRank() && type.getElementType().isF32())
          narrower.roundGradient(result);
    }
    if (compute == "fp8" && failed(roundToFloat8(bodies)))
      signalPassFailure();
  }
};

} // namespace
