//===- DispatchExperts.cpp - Separates dispatch and combine from products of experts ---------===//
// A routed product reads tokens, or sums over the experts of a token. This pass adds a dispatch "b s e, b s n -> b s n
// e" before it and a combine "b s n e, b s n -> b s e" after it. Then the operands and results of the product are by
// token and expert. So an axis can split experts inside and tokens outside, with an all_to_all of the existing entries
// in between. Otherwise all tokens would be gathered. References: D. Lepikhin et al., "GShard", 2020; C. Hwang et al.,
// "Tutel", 2023.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_DISPATCHEXPERTS
#include "pc/Tactics/Passes.h"

#include "pc/IR/Dispatch.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include <limits>

using namespace mlir;
using namespace pc;

namespace {

/// Separates the routed products of one block. `dispatched` shares the dispatch of a value and a mask among all
/// products that read it.
class Dispatcher {
public:
  Dispatcher(Block &block, uint64_t least) : block(block), least(least) {}

  /// Returns true if there was a product to separate.
  bool run() {
    bool any = false;
    for (EinsumOp op : llvm::to_vector(block.getOps<EinsumOp>()))
      any |= takeApart(op);
    if (any)
      for (AddOp sum : llvm::to_vector(block.getOps<AddOp>()))
        if (!sum->hasOneUse() || !isa<AddOp>(*sum->user_begin()))
          joinCombines(sum);
    return any;
  }

private:
  static std::string textOf(const FactorRule &rule, ArrayRef<int> dims) {
    return llvm::join(llvm::map_range(dims, [&](int f) { return rule.factors[f].name; }), " ");
  }
  static SmallVector<int64_t> sizesOf(const FactorRule &rule, ArrayRef<int> dims) {
    return llvm::map_to_vector(dims, [&](int f) { return rule.factors[f].size; });
  }

  /// A product with weights of experts: it reads entries or tokens, and computes entries, tokens or gradients of
  /// weights.
  bool takeApart(EinsumOp op) {
    if (!op.getMask() || op.getInputs().size() != 3 || *op.getRouted() >= least)
      return false;
    FactorRule rule = op.getFactorRule();
    ArrayRef<int> mask = rule.operands[2];
    SmallVector<SmallVector<int>> dims;
    for (ArrayRef<int> of :
         {ArrayRef<int>(rule.operands[0]), ArrayRef<int>(rule.operands[1]), ArrayRef<int>(rule.results[0])})
      dims.emplace_back(of);
    // The op can be divided if one of its values belongs to experts only (weights or their gradients) and another one
    // to tokens.
    auto areOfExperts = [&](ArrayRef<int> of) {
      return llvm::is_contained(of, mask.back()) &&
             llvm::none_of(mask.drop_back(), [&](int f) { return llvm::is_contained(of, f); });
    };
    auto isKnown = [&](ArrayRef<int> of) {
      return areOfExperts(of) || areOfTokens(of, mask) || areOfEntries(of, mask);
    };
    if (llvm::count_if(dims, areOfExperts) != 1 || !llvm::all_of(dims, isKnown) ||
        llvm::none_of(dims, [&](ArrayRef<int> of) { return areOfTokens(of, mask); }))
      return false;
    OpBuilder builder(op);
    SmallVector<Value> inputs(op.getInputs());
    Type element = cast<RankedTensorType>(op.getResult().getType()).getElementType();
    auto entriesOf = [&](ArrayRef<int> of) {
      SmallVector<int> all(mask);
      all.push_back(of.back());
      return all;
    };
    // Operands by token are dispatched: each token's row is copied to the entries of its experts.
    for (unsigned i : {0u, 1u})
      if (areOfTokens(dims[i], mask)) {
        SmallVector<int> all = entriesOf(dims[i]);
        // All products that read the same value with the same mask share the dispatch.
        Value &made = dispatched[{inputs[i], op.getMask()}];
        if (!made) {
          auto type =
              RankedTensorType::get(sizesOf(rule, all), cast<RankedTensorType>(inputs[i].getType()).getElementType());
          std::string spec = textOf(rule, dims[i]) + ", " + textOf(rule, mask) + " -> " + textOf(rule, all);
          made = EinsumOp::create(builder, op.getLoc(), type, builder.getStringAttr(spec),
                                  ValueRange{inputs[i], op.getMask()}, op.getRoutedAttr());
        }
        inputs[i] = made;
        dims[i] = all;
      }
    // If the result is by token, the product computes entries, and each token's entries are then added.
    bool adds = areOfTokens(dims[2], mask);
    SmallVector<int> made = adds ? entriesOf(dims[2]) : dims[2];
    std::string spec =
        textOf(rule, dims[0]) + ", " + textOf(rule, dims[1]) + ", " + textOf(rule, mask) + " -> " + textOf(rule, made);
    Value result = EinsumOp::create(builder, op.getLoc(), RankedTensorType::get(sizesOf(rule, made), element),
                                    builder.getStringAttr(spec), inputs, op.getRoutedAttr());
    if (adds) {
      std::string sum = textOf(rule, made) + ", " + textOf(rule, mask) + " -> " + textOf(rule, dims[2]);
      result = EinsumOp::create(builder, op.getLoc(), op.getResult().getType(), builder.getStringAttr(sum),
                                ValueRange{result, op.getMask()}, op.getRoutedAttr());
    }
    op.getResult().replaceAllUsesWith(result);
    op.erase();
    return true;
  }

  /// In a sum of combines and possibly other addends, results of experts are added first and combined once.
  void joinCombines(AddOp root) {
    SmallVector<Value> addends;
    SmallVector<Operation *> sums;
    collect(root.getResult(), addends, sums, true);
    llvm::MapVector<Value, SmallVector<EinsumOp>> byMask;
    for (Value addend : addends)
      if (auto combine = addend.getDefiningOp<EinsumOp>(); combine && isCombine(combine) && addend.hasOneUse())
        byMask[combine.getMask()].push_back(combine);
    for (auto &[mask, combines] : byMask) {
      if (combines.size() < 2)
        continue;
      OpBuilder builder(root);
      Value sum = combines[0].getInputs()[0];
      for (EinsumOp more : ArrayRef(combines).drop_front())
        sum = AddOp::create(builder, more.getLoc(), sum.getType(), sum, more.getInputs()[0]);
      Value combined = EinsumOp::create(builder, root.getLoc(), root.getResult().getType(), combines[0].getSpecAttr(),
                                        ValueRange{sum, mask}, combines[0].getRoutedAttr());
      SmallVector<Value> rest;
      for (Value addend : addends)
        if (!llvm::is_contained(combines, addend.getDefiningOp<EinsumOp>()))
          rest.push_back(addend);
      rest.push_back(combined);
      Value all = rest[0];
      for (Value addend : ArrayRef(rest).drop_front())
        all = AddOp::create(builder, root.getLoc(), all.getType(), all, addend);
      root.getResult().replaceAllUsesWith(all);
      for (Operation *old : sums)
        old->erase();
      for (EinsumOp old : combines)
        old.erase();
      return;
    }
  }

  /// The addends of a sum. `sums` gets the ops that add them, each after its readers.
  static void collect(Value value, SmallVector<Value> &addends, SmallVector<Operation *> &sums, bool isRoot) {
    auto sum = value.getDefiningOp<AddOp>();
    if (!sum || (!isRoot && !value.hasOneUse())) {
      addends.push_back(value);
      return;
    }
    sums.push_back(sum);
    for (Value operand : sum->getOperands())
      collect(operand, addends, sums, false);
  }

  Block &block;
  uint64_t least; ///< products with at least this many experts per token are not changed
  llvm::DenseMap<std::pair<Value, Value>, Value> dispatched;
};

/// The pass pc-dispatch-experts. Products of the forward pass and of the backward pass are treated in the same way.
struct DispatchExperts : pc::impl::DispatchExpertsBase<DispatchExperts> {
  using DispatchExpertsBase::DispatchExpertsBase;

  /// `rows` dispatches all products, and `auto` those that choose fewer than `ranks` experts per token. On CUDA
  /// devices, `auto` leaves the program as it is: an exchange of rows needs the host in every step, so no graph can
  /// replay it.
  void runOnOperation() override {
    bool always = exchange.getValue() == "rows";
    if ((!always && exchange.getValue() != "auto") || ranks < 1) {
      getOperation().emitError() << "pc-dispatch-experts: exchange must be auto or rows, and ranks at least 1; got '"
                                 << exchange.getValue() << "' and " << int64_t(ranks);
      return signalPassFailure();
    }
    if (target.getValue() != "cpu" && !always)
      return;
    bool any = false;
    SmallVector<Block *> blocks;
    getOperation().walk([&](Block *block) { blocks.push_back(block); });
    for (Block *block : blocks)
      any |= Dispatcher(*block, always ? std::numeric_limits<uint64_t>::max() : uint64_t(int64_t(ranks))).run();
    if (any || !always)
      return;
    getOperation().emitError() << "pc-dispatch-experts: no token of this model chooses experts, so there are no routed "
                                  "tokens to exchange; leave out --expert-exchange=rows";
    signalPassFailure();
  }
};
} // namespace
