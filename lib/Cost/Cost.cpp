//===- Cost.cpp - Operations, bytes and traffic of one op -----------------------------------===//
#include "pc/Cost/Cost.h"
#include "pc/IR/Liveness.h"

using namespace mlir;
using namespace pc;

/// The number of points of the op's iteration space.
static double points(const FactorRule &rule) {
  double product = 1;
  for (const Factor &factor : rule.factors)
    product *= static_cast<double>(factor.size);
  return product;
}

double pc::flopsOf(Operation *op) {
  if (auto fusion = dyn_cast<FusionOp>(op)) {
    double sum = 0;
    for (Operation &inner : fusion.getBody().front())
      sum += flopsOf(&inner);
    return sum;
  }
  auto factored = dyn_cast<FactorOpInterface>(op);
  if (!factored || !isa<EinsumOp, AttentionOp, AttentionGradOp>(op))
    return 0;
  FactorRule rule = factored.getFactorRule();
  if (isa<AttentionOp>(op))
    return 2 * 2 * points(rule);
  if (isa<AttentionGradOp>(op))
    return 5 * 2 * points(rule);
  auto isSummed = [&](int f) { return !llvm::is_contained(rule.results[0], f); };
  bool contracts = rule.operands.size() > 1 && llvm::any_of(llvm::seq<int>(0, rule.factors.size()), isSummed);
  return contracts ? static_cast<double>(rule.operands.size()) * points(rule) : 0;
}

int64_t pc::bytesOf(Operation *op) {
  int64_t sum = 0;
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    sum += isa<TicketType>(type) ? 0 : byteSize(type);
  return sum;
}

Traffic pc::trafficOf(MoveOpInterface move, MeshAttr mesh, bool isRoot) {
  int64_t n = mesh ? mesh.size(move.getMoveAxes()) : 1;
  int64_t operand = byteSize(move->getOperand(0).getType()), result = byteSize(move->getResult(0).getType());
  switch (move.getMoveKind()) {
  case MoveKind::AllReduce:
    return {operand, 2 * (n - 1) * operand / n};
  case MoveKind::ReduceScatter:
    return {operand, (n - 1) * operand / n};
  case MoveKind::AllGather:
    return {result, (n - 1) * result / n};
  case MoveKind::AllToAll:
    return {n * operand, (n - 1) * operand / n};
  case MoveKind::Broadcast:
  case MoveKind::Reduce:
    return {operand, isRoot ? (n - 1) * operand : operand};
  case MoveKind::Scatter:
    return {operand, (isRoot ? n - 1 : 1) * operand / n};
  case MoveKind::Gather:
    return {result, (isRoot ? n - 1 : 1) * result / n};
  case MoveKind::Permute:
    return {n * operand, operand};
  case MoveKind::Slice:
  case MoveKind::Mask:
  case MoveKind::Pad:
  case MoveKind::Insert:
    return {};
  }
  return {};
}

double pc::secondsOf(Operation *op, const Machine &machine) {
  double device = std::max(flopsOf(op) / machine.flops, bytesOf(op) / machine.memoryBandwidth);
  auto move = dyn_cast<MoveOpInterface>(op);
  if (!move || !hasTraffic(move.getMoveKind()))
    return device;
  return std::max(device, machine.linkLatency + trafficOf(move, meshOf(op)).wire / machine.linkBandwidth);
}
