//===- MakeFusion.cpp - Wraps ops into a fusion -------------------------------------------===//
// Input: ops of one block, and the op before which their fusion is placed. The fusion computes them in their order.
//===-----------------------------------------------------------------------------===//
#include "MakeFusion.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/Debug.h"

#define DEBUG_TYPE "pc-fuse"

using namespace mlir;
using namespace pc;

FusionOp pc::makeFusion(ArrayRef<Operation *> ops, Operation *anchor) {
  llvm::DenseSet<Operation *> inside(ops.begin(), ops.end());
  SmallVector<Value> inputs, outputs;
  llvm::DenseSet<Value> seen;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (!inside.contains(operand.getDefiningOp()) && seen.insert(operand).second)
        inputs.push_back(operand);
  for (Operation *op : ops)
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !inside.contains(user); }))
        outputs.push_back(result);
  LLVM_DEBUG({
    llvm::dbgs() << "fuse";
    for (Operation *op : ops)
      llvm::dbgs() << " " << op->getName();
    llvm::dbgs() << " at " << anchor->getLoc() << "\n";
  });
  OpBuilder builder(anchor);
  // A fusion has the location of its last op.
  OperationState state(ops.back()->getLoc(), FusionOp::getOperationName());
  state.addOperands(inputs);
  state.addTypes(ValueRange(outputs).getTypes());
  state.addRegion();
  auto fusion = cast<FusionOp>(builder.create(state));
  // Gives the new op its order number now, while both neighbours have one. Next to another new op, MLIR would number
  // the whole block again.
  (void)fusion->isBeforeInBlock(anchor);
  Block *body = new Block;
  fusion.getBody().push_back(body);
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, body->addArgument(input.getType(), input.getLoc()));
  OpBuilder inner(fusion.getContext());
  inner.setInsertionPointToStart(body);
  for (Operation *op : ops)
    inner.clone(*op, mapping);
  SmallVector<Value> yields;
  for (Value output : outputs)
    yields.push_back(mapping.lookup(output));
  YieldOp::create(inner, fusion.getLoc(), yields);
  for (auto [output, result] : llvm::zip(outputs, fusion.getResults()))
    output.replaceAllUsesWith(result);
  for (Operation *op : llvm::reverse(ops))
    op->erase();
  return fusion;
}
