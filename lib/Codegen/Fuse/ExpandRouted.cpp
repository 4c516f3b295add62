//===- ExpandRouted.cpp - Compute all terms of routed einsums, and mask them ---------------===//
// This pass is for values that are not stored by rows (StoreRoutedTokens.cpp). It splits a routed einsum into a product
// of two operands and a product with the mask. The latter is elementwise and becomes part of a neighbouring kernel.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_EXPANDROUTED
#include "pc/Codegen/Passes.h"

#include "Grouped.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

namespace {

/// Rewrites the routed einsums of a block that `which` accepts. `products` shares the product of a value and a mask
/// among all einsums that need it.
class Expander {
public:
  Expander(Block &block, llvm::function_ref<bool(EinsumOp)> which) : block(block), which(which) {}

  void run() {
    for (EinsumOp op : llvm::to_vector(block.getOps<EinsumOp>()))
      if (op.getMask() && which(op))
        expand(op);
  }

private:
  /// Replaces `op` by a product without the mask, and by elementwise products with the mask before or after it.
  void expand(EinsumOp op) {
    FactorRule rule = op.getFactorRule();
    auto listOf = [](ArrayRef<int> dims) { return SmallVector<int>(dims); };
    SmallVector<SmallVector<int>> operands = llvm::map_to_vector(rule.operands, listOf);
    SmallVector<int> mask = operands.pop_back_val(), result = listOf(rule.results[0]);
    auto hasMask = [&](ArrayRef<int> dims) {
      return llvm::all_of(mask, [&](int f) { return llvm::is_contained(dims, f); });
    };
    SmallVector<Value> inputs(op.getInputs().drop_back());
    if (inputs.size() == 1 && operands[0] == result && hasMask(result))
      return; // already only a product with the mask
    OpBuilder builder(op);
    auto product = [&]() -> Value {
      std::string spec = llvm::join(llvm::map_range(operands, [&](auto &dims) { return textOf(rule, dims); }), ", ");
      return EinsumOp::create(builder, op.getLoc(), op.getResult().getType(), spec + " -> " + textOf(rule, result),
                              inputs);
    };
    // The mask multiplies an operand that has exactly its dims; else the result, if that has all of them; else an
    // operand that has all of them; else the first operand, which gets the missing dims.
    auto *has = llvm::find(operands, mask);
    if (has == operands.end() && hasMask(result)) {
      op.getResult().replaceAllUsesWith(masked(builder, op, rule, product(), result, mask, result));
      op.erase();
      return;
    }
    if (has == operands.end())
      has = llvm::find_if(operands, hasMask);
    SmallVector<int> &dims = has == operands.end() ? operands[0] : *has, all(dims);
    if (has == operands.end()) {
      all = mask;
      llvm::copy_if(dims, std::back_inserter(all), [&](int f) { return !llvm::is_contained(mask, f); });
    }
    Value &operand = inputs[&dims - operands.begin()];
    operand = masked(builder, op, rule, operand, dims, mask, all);
    dims = all;
    op.getResult().replaceAllUsesWith(product());
    op.erase();
  }

  static std::string textOf(const FactorRule &rule, ArrayRef<int> dims) {
    return llvm::join(llvm::map_range(dims, [&](int f) { return rule.factors[f].name; }), " ");
  }

  /// The product of `x` and the mask of `op`, which is created at the first request.
  Value masked(OpBuilder &builder, EinsumOp op, const FactorRule &rule, Value x, ArrayRef<int> dims, ArrayRef<int> mask,
               ArrayRef<int> all) {
    std::string spec = textOf(rule, dims) + ", " + textOf(rule, mask) + " -> " + textOf(rule, all);
    Value &made = products[{x, {op.getMask(), builder.getStringAttr(spec)}}];
    if (!made) {
      SmallVector<int64_t> shape;
      for (int f : all)
        shape.push_back(rule.factors[f].size);
      auto type = RankedTensorType::get(shape, cast<RankedTensorType>(x.getType()).getElementType());
      made = EinsumOp::create(builder, op.getLoc(), type, builder.getStringAttr(spec), ValueRange{x, op.getMask()},
                              op.getRoutedAttr());
    }
    return made;
  }

  Block &block;
  llvm::function_ref<bool(EinsumOp)> which;
  llvm::DenseMap<std::pair<Value, std::pair<Value, StringAttr>>, Value> products; ///< by value, mask and spec
};

/// The pass pc-expand-routed. Products are shared within a block.
struct ExpandRouted : pc::impl::ExpandRoutedBase<ExpandRouted> {
  void runOnOperation() override {
    SmallVector<Block *> blocks;
    getOperation().walk([&](Block *block) {
      if (!isa<ModuleOp, FusionOp>(block->getParentOp()))
        blocks.push_back(block);
    });
    for (Block *block : blocks)
      expandRouted(*block, [](EinsumOp op) { return !hasRows(op); });
  }
};

} // namespace

void pc::expandRouted(Block &block, llvm::function_ref<bool(EinsumOp)> which) { Expander(block, which).run(); }
