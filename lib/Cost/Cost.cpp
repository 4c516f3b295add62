//===- Cost.cpp - Operations, bytes and traffic of one op -----------------------------------===//
#include "pc/Cost/Cost.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/Liveness.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <map>
#include <set>

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
  auto packed = [](Value o) { // one product over the rectangle of scores, of as many keys as queries
    auto type = cast<RankedTensorType>(o.getType());
    return static_cast<double>(type.getNumElements()) * static_cast<double>(type.getDimSize(1));
  };
  if (auto attention = dyn_cast<PackedAttentionOp>(op))
    return 2 * 2 * packed(attention.getO());
  if (auto gradient = dyn_cast<PackedAttentionGradOp>(op))
    return 5 * 2 * packed(gradient.getO());
  if (!factored || !isa<EinsumOp, AttentionOp, AttentionGradOp>(op))
    return 0;
  FactorRule rule = factored.getFactorRule();
  if (isa<AttentionOp, AttentionGradOp>(op)) { // products over b s k g d and t, the dims of q and k
    if (int w = rule.find("w"); w >= 0)
      rule.factors[w].size = 1;
    return (isa<AttentionOp>(op) ? 2 : 5) * 2 * points(rule);
  }
  bool contracts = rule.operands.size() > 1 && !Contraction(rule).summed.empty();
  return contracts ? static_cast<double>(rule.operands.size()) * points(rule) : 0;
}

std::string pc::axesText(MoveOpInterface move) {
  SmallVector<StringAttr> axes = move.getMoveAxes();
  return llvm::join(llvm::map_range(axes, [](StringAttr axis) { return axis.getValue(); }), "+");
}

std::optional<bool> pc::isCausalAttention(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<bool>>(op)
      .Case<AttentionOp, AttentionGradOp, PackedAttentionOp, PackedAttentionGradOp>(
          [](auto attention) { return attention.getCausal(); })
      .Default([](Operation *) { return std::nullopt; });
}

int64_t pc::bytesOf(Operation *op) {
  int64_t sum = 0;
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    sum += isa<TicketType>(type) ? 0 : byteSize(type);
  return sum;
}

// Computed a second time, on purpose: runtime/core/Summary.cpp counts what a run did from the compiled tables, kind by
// kind, and the end-to-end tests compare the two. So the rows of pcrt/moves.h do not say it.
Traffic pc::trafficOf(MoveOpInterface move, MeshAttr mesh, bool isRoot) {
  MoveKind kind = move.getMoveKind();
  bool takes = takesBlocks(kind), makes = makesBlocks(kind), blocks = takes || makes;
  int64_t n = mesh ? mesh.size(move.getMoveAxes()) : 1;
  int64_t operand = byteSize(move->getOperand(0).getType()), result = byteSize(move->getResult(0).getType());
  int64_t whole = takes && !makes ? result : operand;
  switch (factsOf(kind).way) {
  case PCRT_WAY_RING: // without blocks, first to blocks and then from them
    return {whole, (blocks ? 1 : 2) * (n - 1) * whole / n};
  case PCRT_WAY_ROOTED: {
    int64_t members = isRoot ? n - 1 : 1;
    return {whole, blocks ? members * whole / n : members * whole};
  }
  case PCRT_WAY_PAIRS:
    if (blocks)
      return {n * operand, (n - 1) * operand / n};
    // In one of the n permutes of a windowed move a rank keeps its own block. Which one depends on the rank; it is
    // counted as the one with shift 0.
    return {n * operand, move.getMoveShift() ? operand : 0};
  case PCRT_WAY_LOCAL:
    return {};
  }
  llvm_unreachable("a row of pcrt/moves.h without a way");
}

/// Ranks with numbers base + offsets, for all bases that are `residues` modulo the ranks of a node.
static NodeSpread spreadOf(ArrayRef<int64_t> offsets, const std::set<int64_t> &residues, int64_t nodeRanks) {
  NodeSpread spread;
  spread.fewest = static_cast<int64_t>(offsets.size());
  for (int64_t base : residues) {
    std::map<int64_t, int64_t> members; // by node
    for (int64_t offset : offsets)
      ++members[(base + offset) / nodeRanks];
    spread.inNode &= members.size() == 1;
    for (auto [node, count] : members)
      spread.fewest = std::min(spread.fewest, count);
  }
  return spread;
}

/// The ranks on a node of `mesh`; 0: all.
static int64_t nodeRanksOf(MeshAttr mesh, const MachineModel &machine) {
  return mesh && mesh.numRanks() > machine.nodeRanks ? machine.nodeRanks : 0;
}

/// Distances between ranks that differ by one on an axis.
static SmallVector<int64_t> stridesOf(MeshAttr mesh) {
  SmallVector<int64_t> strides(mesh.getSizes().size(), 1);
  for (size_t axis = strides.size() - 1; axis > 0; --axis)
    strides[axis - 1] = strides[axis] * mesh.getSizes()[axis];
  return strides;
}

/// The ranks whose coordinates on `axes` are 0, modulo `modulus`.
static std::set<int64_t> basesOf(MeshAttr mesh, ArrayRef<StringAttr> axes, int64_t modulus) {
  std::set<int64_t> bases{0};
  for (auto [name, size, stride] : llvm::zip_equal(mesh.getNames(), mesh.getSizes(), stridesOf(mesh))) {
    if (llvm::is_contained(axes, name))
      continue;
    std::set<int64_t> more;
    for (int64_t base : bases)
      for (int64_t i = 0; i < std::min(size, modulus); ++i)
        more.insert((base + i * stride) % modulus);
    bases = std::move(more);
  }
  return bases;
}

NodeSpread NodeSpread::ofGroups(MeshAttr mesh, ArrayRef<StringAttr> axes, const MachineModel &machine) {
  int64_t nodeRanks = nodeRanksOf(mesh, machine);
  if (!nodeRanks)
    return {true, mesh ? mesh.size(axes) : 1};
  SmallVector<int64_t> strides = stridesOf(mesh), offsets{0};
  for (StringAttr axis : axes) {
    SmallVector<int64_t> more;
    for (int64_t offset : offsets)
      for (int64_t i = 0; i < mesh.size(axis); ++i)
        more.push_back(offset + i * strides[mesh.index(axis)]);
    offsets = std::move(more);
  }
  return spreadOf(offsets, basesOf(mesh, axes, nodeRanks), nodeRanks);
}

NodeSpread NodeSpread::between(MeshAttr mesh, StringAttr axis, int64_t from, int64_t to, const MachineModel &machine) {
  int64_t nodeRanks = nodeRanksOf(mesh, machine);
  if (!nodeRanks)
    return {true, 2};
  int64_t stride = stridesOf(mesh)[mesh.index(axis)];
  return spreadOf({from * stride, to * stride}, basesOf(mesh, axis, nodeRanks), nodeRanks);
}

double pc::messageSeconds(double bytes, const NodeSpread &spread, const MachineModel &machine) {
  const Link &link = spread.inNode ? machine.node : machine.network;
  return machine.moveSeconds + link.latency + bytes / (link.bandwidth * machine.linkShare);
}

/// Hops of a move over a tree of n ranks; an all_reduce goes up and down.
static double hops(MoveKind kind, int64_t n) {
  return (kind == MoveKind::AllReduce ? 2 : 1) * static_cast<double>(llvm::Log2_64_Ceil(static_cast<uint64_t>(n)));
}

double pc::moveSeconds(MoveKind kind, double wire, MeshAttr mesh, ArrayRef<StringAttr> axes,
                       const MachineModel &machine) {
  if (!mesh)
    return machine.moveSeconds;
  NodeSpread spread = NodeSpread::ofGroups(mesh, axes, machine);
  double bandwidth = machine.node.bandwidth;
  // A ring uses as many network adapters of a node as it has members there. Moves between two ranks use one.
  bool rings = factsOf(kind).way == PCRT_WAY_RING;
  if (!spread.inNode)
    bandwidth = std::min(bandwidth, static_cast<double>(rings ? spread.fewest : 1) * machine.network.bandwidth);
  return machine.moveSeconds + hops(kind, mesh.size(axes)) * (spread.inNode ? machine.node : machine.network).latency +
         wire / (bandwidth * machine.linkShare);
}

double pc::productSeconds(double flops, bool bf16, const MachineModel &machine) {
  return flops / ((bf16 ? machine.bf16Flops : machine.f32Flops) * machine.productShare);
}

double pc::attentionSeconds(double flops, bool causal, bool bf16, const MachineModel &machine) {
  return (causal ? flops / 2 : flops) / ((bf16 ? machine.bf16Flops : machine.f32Flops) * machine.attentionShare);
}

/// Seconds of the matrix products in `op`, at the rate for the dtype of their operands.
static double secondsOfProducts(Operation *op, const MachineModel &machine) {
  double sum = 0;
  if (auto fusion = dyn_cast<FusionOp>(op))
    for (Operation &inner : fusion.getBody().front())
      sum += secondsOfProducts(&inner, machine);
  else if (double flops = flopsOf(op)) {
    bool bf16 = getElementTypeOrSelf(op->getOperand(0)).isBF16();
    if (std::optional<bool> causal = isCausalAttention(op))
      return attentionSeconds(flops, *causal, bf16, machine);
    return productSeconds(flops, bf16, machine);
  }
  return sum;
}

double pc::secondsOf(Operation *op, const MachineModel &machine) {
  double bytes = static_cast<double>(bytesOf(op));
  double device = machine.opSeconds +
                  std::max(secondsOfProducts(op, machine), bytes / (machine.memoryBandwidth * machine.memoryShare));
  auto move = dyn_cast<MoveOpInterface>(op);
  if (!move || !hasTraffic(move.getMoveKind()))
    return device;
  MeshAttr mesh = meshOf(op);
  double wire = static_cast<double>(trafficOf(move, mesh).wire);
  return std::max(device, moveSeconds(move.getMoveKind(), wire, mesh, move.getMoveAxes(), machine));
}
